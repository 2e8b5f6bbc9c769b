//! Asks by ARP who owns a VIP, every 5 ms, as an ordinary host does.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::arp::{ArpHardwareTypes, ArpOperations, ArpPacket, MutableArpPacket};
use pnet_packet::ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket};

use super::owners::{Announcement, Owners};
use super::packet_socket::PacketSocket;
use super::{OBSERVER, PERIOD, every};
use crate::namespace::Namespace;

const INTERFACE: &str = "eth0";
const GRACE: Duration = Duration::from_millis(50);

pub(super) fn watch(
    observer: &Arc<Namespace>,
    vip: Ipv4Addr,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<Result<Owners>>> {
    let (socket, mac) =
        observer.within(|| -> Result<_> { Ok((PacketSocket::open(INTERFACE)?, own_mac()?)) })??;
    let [a, b, c, _] = vip.octets();
    let request = frame(mac, Ipv4Addr::new(a, b, c, OBSERVER), vip)?;
    Ok(thread::spawn(move || {
        let owners = Mutex::new(Owners::default());
        let quiet = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&socket, vip, &owners, &quiet));
            let sent = every(PERIOD, &stop, |_| {
                // Stamped before the sending, so that no answer precedes its request.
                let now = Instant::now();
                owners.lock().unwrap_or_else(PoisonError::into_inner).requests.push(now);
                socket.send(&request).context("send an ARP request")
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
    vip: Ipv4Addr,
    owners: &Mutex<Owners>,
    quiet: &AtomicBool,
) -> Result<()> {
    let mut buffer = [0; 128];
    while !quiet.load(Ordering::Relaxed) {
        let Some(bytes) = socket.receive(&mut buffer)? else { continue };
        let at = Instant::now();
        let Some(ethernet) = EthernetPacket::new(bytes) else { continue };
        let Some(arp) = ArpPacket::new(ethernet.payload()) else { continue };
        if arp.get_sender_proto_addr() != vip {
            continue;
        }
        let mac = arp.get_sender_hw_addr();
        let mut owners = owners.lock().unwrap_or_else(PoisonError::into_inner);
        if arp.get_target_proto_addr() == vip {
            owners.announcements.push(Announcement { at, mac });
        } else if arp.get_operation() == ArpOperations::Reply {
            owners.replies.push((at, mac));
        }
    }
    Ok(())
}

/// The MAC address of the interface, as the namespace of the calling thread has it.
fn own_mac() -> Result<MacAddr> {
    let output = crate::shell::output(
        std::process::Command::new("ip").args(["-json", "link", "show", "dev", INTERFACE]),
    )?;
    let links: serde_json::Value = serde_json::from_str(&output)?;
    let mac = links.pointer("/0/address").and_then(serde_json::Value::as_str);
    mac.and_then(|mac| mac.parse().ok()).context("an interface without MAC address")
}

/// A broadcast ARP request (RFC 826).
fn frame(mac: MacAddr, own: Ipv4Addr, vip: Ipv4Addr) -> Result<Vec<u8>> {
    let mut arp_bytes = vec![0; ArpPacket::minimum_packet_size()];
    let mut arp = MutableArpPacket::new(&mut arp_bytes).context("a short ARP buffer")?;
    arp.set_hardware_type(ArpHardwareTypes::Ethernet);
    arp.set_protocol_type(EtherTypes::Ipv4);
    arp.set_hw_addr_len(6);
    arp.set_proto_addr_len(4);
    arp.set_operation(ArpOperations::Request);
    arp.set_sender_hw_addr(mac);
    arp.set_sender_proto_addr(own);
    arp.set_target_proto_addr(vip);
    let mut bytes = vec![0; EthernetPacket::minimum_packet_size() + arp_bytes.len()];
    let mut ethernet = MutableEthernetPacket::new(&mut bytes).context("a short frame")?;
    ethernet.set_destination(MacAddr::broadcast());
    ethernet.set_source(mac);
    ethernet.set_ethertype(EtherTypes::Arp);
    ethernet.set_payload(&arp_bytes);
    Ok(bytes)
}
