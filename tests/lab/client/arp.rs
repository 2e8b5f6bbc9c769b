//! ARP, as an ordinary host speaks it (RFC 826).

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::arp::{ArpHardwareTypes, ArpOperations, ArpPacket, MutableArpPacket};
use pnet_packet::ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket};

use super::asking::Said;

/// The MAC address that a frame names for `vip`, and the form of the frame.
pub(super) fn read(frame: &[u8], vip: IpAddr) -> Option<(MacAddr, Said)> {
    let ethernet = EthernetPacket::new(frame)?;
    let arp = ArpPacket::new(ethernet.payload())?;
    if arp.get_sender_proto_addr() != vip {
        return None;
    }
    let said = if arp.get_target_proto_addr() == vip {
        // Taken by everybody who has an entry.
        Said::Announced { overrides: true }
    } else if arp.get_operation() == ArpOperations::Reply {
        Said::Answered
    } else {
        return None;
    };
    Some((arp.get_sender_hw_addr(), said))
}

/// A broadcast request.
pub(super) fn request(mac: MacAddr, own: Ipv4Addr, vip: Ipv4Addr) -> Result<Vec<u8>> {
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
