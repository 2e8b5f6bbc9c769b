//! ICMP echo replies over Ethernet (RFC 792; RFC 4443, section 4.2), which nobody has asked for: hosts ignore them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet_base::MacAddr;
use pnet_packet::Packet as _;
use pnet_packet::ethernet::EtherTypes;
use pnet_packet::icmp::{IcmpPacket, IcmpTypes, echo_reply as four};
use pnet_packet::icmpv6::{Icmpv6Packet, Icmpv6Types, echo_reply as six};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, Ipv4Flags, MutableIpv4Packet};
use pnet_packet::ipv6::MutableIpv6Packet;
use pnet_packet::{icmp, icmpv6};

use super::ethernet::{self, ETHERNET_LEN};

/// The length of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// The length of an IPv6 header.
const IPV6_LEN: usize = 40;
/// The length of a reply without data.
const REPLY_LEN: usize = 8;
/// The hops that it may pass: as many as packets of Linux.
const HOPS: u8 = 64;

/// An echo reply in its Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply {
    /// The frame's destination and source.
    pub macs: [MacAddr; 2],
    /// The packet's destination.
    pub destination: IpAddr,
    /// The packet's source.
    pub source: IpAddr,
    /// The identifier.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

impl EchoReply {
    /// The frame, from its Ethernet header on; none where the addresses are of two families.
    pub fn encode(&self) -> Option<Vec<u8>> {
        match (self.destination, self.source) {
            (IpAddr::V4(destination), IpAddr::V4(source)) => self.encode_four(destination, source),
            (IpAddr::V6(destination), IpAddr::V6(source)) => self.encode_six(destination, source),
            _ => None,
        }
    }

    fn encode_four(&self, destination: Ipv4Addr, source: Ipv4Addr) -> Option<Vec<u8>> {
        let [to, from] = self.macs;
        let mut frame = ethernet::frame(to, from, EtherTypes::Ipv4, IPV4_LEN + REPLY_LEN);
        let packet = frame.get_mut(ETHERNET_LEN..)?;
        let mut reply = four::MutableEchoReplyPacket::new(packet.get_mut(IPV4_LEN..)?)?;
        reply.set_icmp_type(IcmpTypes::EchoReply);
        reply.set_identifier(self.identifier);
        reply.set_sequence_number(self.sequence);
        let checksum = icmp::checksum(&IcmpPacket::new(reply.packet())?);
        reply.set_checksum(checksum);
        let mut header = MutableIpv4Packet::new(packet)?;
        header.set_version(4);
        header.set_header_length(5);
        header.set_total_length(u16::try_from(IPV4_LEN + REPLY_LEN).ok()?);
        header.set_flags(Ipv4Flags::DontFragment);
        header.set_ttl(HOPS);
        header.set_next_level_protocol(IpNextHeaderProtocols::Icmp);
        header.set_source(source);
        header.set_destination(destination);
        let checksum = ipv4::checksum(&header.to_immutable());
        header.set_checksum(checksum);
        Some(frame)
    }

    fn encode_six(&self, destination: Ipv6Addr, source: Ipv6Addr) -> Option<Vec<u8>> {
        let [to, from] = self.macs;
        let mut frame = ethernet::frame(to, from, EtherTypes::Ipv6, IPV6_LEN + REPLY_LEN);
        let packet = frame.get_mut(ETHERNET_LEN..)?;
        let mut reply = six::MutableEchoReplyPacket::new(packet.get_mut(IPV6_LEN..)?)?;
        reply.set_icmpv6_type(Icmpv6Types::EchoReply);
        reply.set_identifier(self.identifier);
        reply.set_sequence_number(self.sequence);
        let message = Icmpv6Packet::new(reply.packet())?;
        let checksum = icmpv6::checksum(&message, &source, &destination);
        reply.set_checksum(checksum);
        let mut header = MutableIpv6Packet::new(packet)?;
        header.set_version(6);
        header.set_payload_length(u16::try_from(REPLY_LEN).ok()?);
        header.set_hop_limit(HOPS);
        header.set_next_header(IpNextHeaderProtocols::Icmpv6);
        header.set_source(source);
        header.set_destination(destination);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(destination: &str, source: &str) -> EchoReply {
        EchoReply {
            macs: [MacAddr::new(2, 0, 0, 0, 0, 1), MacAddr::new(2, 0, 0, 0, 0, 2)],
            destination: destination.parse().unwrap(),
            source: source.parse().unwrap(),
            identifier: 0x1ea5,
            sequence: 3,
        }
    }

    /// The sum of the words of these bytes in ones' complement (RFC 1071): all bits of what has a right checksum.
    fn sum(bytes: &[u8]) -> u32 {
        let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        (sum & 0xffff) + (sum >> 16)
    }

    #[test]
    fn a_reply_has_the_fields_of_the_rfcs_and_right_checksums() {
        let four = reply("192.0.2.10", "192.0.0.8").encode().unwrap();
        assert_eq!(four[..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        assert_eq!(four[14..24], [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 1]);
        assert_eq!(four[26..34], [192, 0, 0, 8, 192, 0, 2, 10]);
        assert_eq!((four[34], four[35], &four[38..]), (0, 0, &[0x1e, 0xa5, 0, 3][..]));
        assert_eq!((sum(&four[14..34]), sum(&four[34..])), (0xffff, 0xffff));

        let six = reply("2001:db8::10", "100::1").encode().unwrap();
        assert_eq!(six[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58, 64]);
        assert_eq!((six[54], six[55], &six[58..]), (129, 0, &[0x1e, 0xa5, 0, 3][..]));
        let pseudo = [&six[22..54], &[0, 0, 0, 8, 0, 0, 0, 58], &six[54..]].concat();
        assert_eq!(sum(&pseudo), 0xffff);

        assert_eq!(reply("192.0.2.10", "100::1").encode(), None);
    }
}
