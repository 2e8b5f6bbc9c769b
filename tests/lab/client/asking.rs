//! Asks on the segment who has a VIP, every 5 ms, as an ordinary host does: by ARP, or by Neighbor
//! Solicitation.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pnet_base::MacAddr;
use pnet_packet::ethernet::{EtherType, EtherTypes};

use super::owners::{Announcement, Owners};
use super::packet_socket::PacketSocket;
use super::{INTERFACE, OBSERVER, PERIOD, arp, every, ndp};
use crate::namespace::Namespace;
use crate::network::Plan;

const GRACE: Duration = Duration::from_millis(50);

/// The form in which a host claims a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// That it has it, when asked.
    Answered,
    /// The same unasked.
    Announced {
        /// To those too that know another MAC address.
        overrides: bool,
    },
}

/// Reads from a frame which host claims a VIP.
type Reader = fn(&[u8], IpAddr) -> Option<(MacAddr, Said)>;

/// The protocol of a family.
struct Language {
    protocol: EtherType,
    request: Vec<u8>,
    read: Reader,
}

impl Language {
    fn of(vip: IpAddr, own: MacAddr, plan: Plan) -> Result<Self> {
        Ok(match vip {
            IpAddr::V4(vip) => Self {
                protocol: EtherTypes::Arp,
                request: arp::request(own, plan.client_v4(OBSERVER), vip)?,
                read: arp::read,
            },
            IpAddr::V6(vip) => Self {
                protocol: EtherTypes::Ipv6,
                request: ndp::solicitation(own, plan.client_v6(OBSERVER), vip)?,
                read: ndp::read,
            },
        })
    }
}

pub(super) fn watch(
    observer: &Namespace,
    plan: Plan,
    vip: IpAddr,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<Result<Owners>>> {
    let (socket, language) = observer.within(|| -> Result<_> {
        let language = Language::of(vip, own_mac()?, plan)?;
        Ok((PacketSocket::open(INTERFACE, language.protocol)?, language))
    })??;
    Ok(thread::spawn(move || {
        let owners = Mutex::new(Owners::default());
        let quiet = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&socket, vip, &language, &owners, &quiet));
            let sent = every(PERIOD, &stop, |_| {
                // Stamped before the sending, so that no answer precedes its request.
                let now = Instant::now();
                owners.lock().unwrap_or_else(PoisonError::into_inner).requests.push(now);
                socket.send(&language.request).context("ask who has the VIP")
            });
            thread::sleep(GRACE);
            quiet.store(true, Ordering::Relaxed);
            receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
            sent
        })?;
        Ok(owners.into_inner().unwrap_or_else(PoisonError::into_inner))
    }))
}

fn receive(
    socket: &PacketSocket,
    vip: IpAddr,
    language: &Language,
    owners: &Mutex<Owners>,
    quiet: &AtomicBool,
) -> Result<()> {
    let mut buffer = [0; 128];
    while !quiet.load(Ordering::Relaxed) {
        let Some(frame) = socket.receive(&mut buffer)? else { continue };
        let at = Instant::now();
        let Some((mac, said)) = (language.read)(frame, vip) else { continue };
        let mut owners = owners.lock().unwrap_or_else(PoisonError::into_inner);
        match said {
            Said::Answered => owners.replies.push((at, mac)),
            Said::Announced { overrides } => {
                owners.announcements.push(Announcement { at, mac, overrides });
            }
        }
    }
    Ok(())
}

/// The MAC address of the interface, as the namespace of the calling thread has it.
pub(super) fn own_mac() -> Result<MacAddr> {
    let output = crate::shell::output(
        std::process::Command::new("ip").args(["-json", "link", "show", "dev", INTERFACE]),
    )?;
    let links: serde_json::Value = serde_json::from_str(&output)?;
    let mac = links.pointer("/0/address").and_then(serde_json::Value::as_str);
    mac.and_then(|mac| mac.parse().ok()).context("an interface without MAC address")
}
