//! The announcement's side of the forwarding: an address is added once the packets of its open connections go on to
//! the owner before.

use std::net::IpAddr;

use crate::datapath::forward::state::Forwarded;
use crate::datapath::gate::{self, View};
use leasehold_core::election::Forwarding;

/// The gate that additions pass.
pub type Gate = gate::Gate<Forwarded>;

impl View for Forwarded {
    type Wanted = Forwarding;

    fn applied(&self) -> Option<&Forwarding> {
        self.applied.as_deref()
    }

    fn settled<'a>(
        applied: &'a Forwarding,
        wanted: &'a Forwarding,
    ) -> impl Fn(&IpAddr) -> bool + 'a {
        |ip| applied.onward.get(ip) == wanted.onward.get(ip)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold_core::clock::Instant;
    use leasehold_core::election::{Hop, Onward};
    use tokio::sync::watch;

    use super::*;
    use crate::datapath::gate::Held;
    use crate::net::rtnl::addresses::AddressChange;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn add(last: u8) -> AddressChange {
        AddressChange::Add { place: (2, ip(last)), seconds: NonZeroU32::MIN }
    }

    /// A forwarding of the first address to this host.
    fn to(host: u8) -> Arc<Forwarding> {
        let onward = Onward {
            to: Some(Hop { to: ip(host), interface: "eth0".parse().unwrap() }),
            owned: true,
            later: BTreeSet::new(),
            others: BTreeSet::new(),
            flows: true,
            flows_until: None,
            until: at(60_000),
        };
        Arc::new(Forwarding { onward: [(ip(1), onward)].into(), ..Forwarding::default() })
    }

    #[test]
    fn an_addition_waits_until_what_is_wanted_of_its_address_is_in_place() {
        let none = Arc::new(Forwarding::default());
        let (one, two) = (add(1), add(2));
        for (name, wanted, applied, passing) in [
            ("it is not known what is wanted", None, None, vec![one, two]),
            ("nothing was done yet", Some(to(11)), None, vec![]),
            ("it is as before", Some(to(11)), Some(to(11)), vec![one, two]),
            ("another owner before", Some(to(12)), Some(to(11)), vec![two]),
            ("no owner before", Some(none.clone()), Some(to(11)), vec![two]),
            ("it is new", Some(to(11)), Some(none), vec![two]),
        ] {
            let (_wanted, receiver) = watch::channel(wanted);
            let (_forwarded, view) = watch::channel(Forwarded { applied, ..Forwarded::default() });
            let mut gate = Gate::new(receiver, view);
            let mut ops = vec![one, two];
            let mut held = Held::default();
            gate.hold(at(0), &ops, &mut held);
            let until = held.take_out(&mut ops);
            assert_eq!(ops, passing, "{name}");
            assert_eq!(until, (passing.len() < 2).then_some(at(120)), "{name}");
            let mut ops = vec![one, two];
            let mut held = Held::default();
            gate.hold(at(120), &ops, &mut held);
            assert_eq!(held.take_out(&mut ops), None, "{name}");
            assert_eq!(ops, [one, two], "{name}: no longer than 120 ms");
        }
    }
}
