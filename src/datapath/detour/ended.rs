//! Connections to endpoints on nodes that are down: those that are forgotten, so that their next packet begins a new one.
//!
//! A connection that was not answered yet has lost nothing: the client sends its first packet again, after a second
//! (RFC 6298, section 2). A UDP flow never ends by itself as long as its client sends.

use std::net::SocketAddr;

use crate::net::conntrack::{self, Tracked};
use crate::net::nft::connection::Nfnetlink;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::Family;
use leasehold_core::desired::{Detours, Protocol, ServicePort};

/// Forgets these connections; returns how many there were.
pub(super) fn forget(requests: &mut Nfnetlink, detours: &Detours) -> Result<u64, NfnetlinkError> {
    let mut forgotten = 0;
    for family in Family::ALL {
        if !detours.ports.keys().any(|(ip, _)| family.has(*ip)) {
            continue;
        }
        let found = conntrack::find(requests, family, |tracked| begins_anew(detours, tracked))?;
        for tracked in found {
            forgotten += u64::from(conntrack::forget(requests, &tracked)?);
        }
    }
    Ok(forgotten)
}

/// Whether a connection is to begin anew.
fn begins_anew(detours: &Detours, tracked: &Tracked) -> bool {
    let Tracked { protocol, to, endpoint, answered, .. } = *tracked;
    let at = |socket: SocketAddr| (socket.ip(), socket.port());
    let port = ServicePort { protocol, port: to.port() };
    let detour = detours.ports.get(&(to.ip(), port));
    let dead = detour.is_some_and(|detour| detour.around.contains(&at(endpoint)));
    dead && (protocol == Protocol::Udp || !answered)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::desired::Detour;

    use super::*;

    #[test]
    fn what_was_not_answered_and_udp_begin_anew_and_nothing_else() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let port = |protocol| ServicePort { protocol, port: 80 };
        let dead = at("10.0.0.1:8080");
        let detour = Arc::new(Detour { around: [(dead.ip(), 8080)].into(), ..Detour::default() });
        let vip = at("192.0.2.7:80");
        let ports = [Protocol::Tcp, Protocol::Udp].map(|it| ((vip.ip(), port(it)), detour.clone()));
        let detours = Detours { ports: ports.into(), ..Detours::default() };
        for (name, protocol, to, endpoint, answered, expected) in [
            ("not answered", Protocol::Tcp, vip, dead, false, true),
            ("open", Protocol::Tcp, vip, dead, true, false),
            ("a flow", Protocol::Udp, vip, dead, true, true),
            ("with another pod", Protocol::Udp, vip, at("10.0.0.2:8080"), true, false),
            ("with another port of the pod", Protocol::Udp, vip, at("10.0.0.1:9090"), true, false),
            ("by another address", Protocol::Udp, at("192.0.2.8:80"), dead, true, false),
            ("another protocol", Protocol::Sctp, vip, dead, false, false),
        ] {
            let tracked = Tracked::new(protocol, to, endpoint, answered);
            assert_eq!(begins_anew(&detours, &tracked), expected, "{name}");
        }
    }
}
