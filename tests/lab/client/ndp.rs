//! Neighbor discovery, as an ordinary host does it (RFC 4861).

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context, Result};
use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket};
use pnet_packet::icmpv6::ndp::{
    MutableNeighborSolicitPacket, NdpOption, NdpOptionTypes, NeighborAdvertFlags,
    NeighborAdvertPacket, NeighborSolicitPacket,
};
use pnet_packet::icmpv6::{Icmpv6Packet, Icmpv6Types, checksum};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};

use super::asking::Said;

/// The hop limit of a packet that no router forwarded (RFC 4861 section 7.1).
const HOP_LIMIT: u8 = 255;
/// Type, length in eight octets, and a MAC address.
const OPTION: usize = 8;

/// The MAC address that a frame names for `vip`, and the form of the frame.
pub(super) fn read(frame: &[u8], vip: IpAddr) -> Option<(MacAddr, Said)> {
    let ethernet = EthernetPacket::new(frame)?;
    let ip = Ipv6Packet::new(ethernet.payload())?;
    if ip.get_next_header() != IpNextHeaderProtocols::Icmpv6 || ip.get_hop_limit() != HOP_LIMIT {
        return None;
    }
    let advert = NeighborAdvertPacket::new(ip.payload())?;
    if advert.get_icmpv6_type() != Icmpv6Types::NeighborAdvert || advert.get_target_addr() != vip {
        return None;
    }
    let flags = advert.get_flags();
    let said = if flags & NeighborAdvertFlags::Solicited != 0 {
        Said::Answered
    } else {
        Said::Announced { overrides: flags & NeighborAdvertFlags::Override != 0 }
    };
    // An answer need not have a link-layer option (section 4.4).
    Some((ethernet.get_source(), said))
}

/// A solicitation to the group of `vip`.
pub(super) fn solicitation(mac: MacAddr, own: Ipv6Addr, vip: Ipv6Addr) -> Result<Vec<u8>> {
    let [.., x, y, z] = vip.octets();
    let group =
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(x), u16::from_be_bytes([y, z]));

    let mut icmp = vec![0; NeighborSolicitPacket::minimum_packet_size() + OPTION];
    let mut solicit = MutableNeighborSolicitPacket::new(&mut icmp).context("a short message")?;
    solicit.set_icmpv6_type(Icmpv6Types::NeighborSolicit);
    solicit.set_target_addr(vip);
    let data = mac.octets().to_vec();
    let option = NdpOption { option_type: NdpOptionTypes::SourceLLAddr, length: 1, data };
    solicit.set_options(&[option]);
    let sum = checksum(&Icmpv6Packet::new(&icmp).context("no message")?, &own, &group);
    MutableNeighborSolicitPacket::new(&mut icmp).context("no message")?.set_checksum(sum);

    let header = Ipv6Packet::minimum_packet_size();
    let mut bytes = vec![0; EthernetPacket::minimum_packet_size() + header + icmp.len()];
    let mut ethernet = MutableEthernetPacket::new(&mut bytes).context("a short frame")?;
    ethernet.set_destination(MacAddr::new(0x33, 0x33, 0xff, x, y, z));
    ethernet.set_source(mac);
    ethernet.set_ethertype(EtherTypes::Ipv6);
    let mut packet = vec![0; header + icmp.len()];
    let mut ip = MutableIpv6Packet::new(&mut packet).context("a short packet")?;
    ip.set_version(6);
    ip.set_payload_length(u16::try_from(icmp.len())?);
    ip.set_next_header(IpNextHeaderProtocols::Icmpv6);
    ip.set_hop_limit(HOP_LIMIT);
    ip.set_source(own);
    ip.set_destination(group);
    ip.set_payload(&icmp);
    ethernet.set_payload(&packet);
    Ok(bytes)
}
