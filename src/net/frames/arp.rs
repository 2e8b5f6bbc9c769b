//! ARP over Ethernet (RFC 826), with the announcements and probes of RFC 5227.

use std::net::Ipv4Addr;

use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::arp::{ArpHardwareTypes, ArpOperations, ArpPacket, MutableArpPacket};
use pnet_packet::ethernet::EtherTypes;

use super::ethernet::{self, ETHERNET_LEN};

/// The length of an ARP packet for IPv4 over Ethernet.
const ARP_LEN: usize = 28;

/// The operation of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArpOperation {
    /// Asks for the MAC of the target address.
    Request,
    /// Says that the sender has the sender address.
    Reply,
}

/// An ARP packet in its Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpFrame {
    /// The frame's destination.
    pub destination: MacAddr,
    /// The frame's source.
    pub source: MacAddr,
    /// The operation.
    pub operation: ArpOperation,
    /// The sender's MAC, as the packet has it.
    pub sender_mac: MacAddr,
    /// The sender's address; unspecified in a probe.
    pub sender_ip: Ipv4Addr,
    /// The receiver's MAC; zero in a request.
    pub target_mac: MacAddr,
    /// The address that is asked for, or that the answer goes to.
    pub target_ip: Ipv4Addr,
}

impl ArpFrame {
    /// The announcement of `vip` at `mac`: a broadcast *request* for itself with a zero target MAC
    /// (RFC 5227, section 3). Linux drops a gratuitous *reply* for a neighbour entry younger
    /// than `locktime` (1 s), and takes this form in every state of the entry.
    pub fn announcement(vip: Ipv4Addr, mac: MacAddr) -> Self {
        Self::request(MacAddr::broadcast(), mac, vip, vip)
    }

    /// The RFC 5227 probe for `ip`: broadcast, the sender's address unspecified, so that no
    /// neighbour entry changes.
    pub fn probe(ip: Ipv4Addr, mac: MacAddr) -> Self {
        Self::request(MacAddr::broadcast(), mac, Ipv4Addr::UNSPECIFIED, ip)
    }

    /// A request for `ip` sent to `destination` alone. With an unspecified `sender_ip` it is
    /// answered also where the answerer has no route back to the sender, and leaves no
    /// neighbour entry there.
    pub fn request(
        destination: MacAddr,
        mac: MacAddr,
        sender_ip: Ipv4Addr,
        target_ip: Ipv4Addr,
    ) -> Self {
        Self {
            destination,
            source: mac,
            operation: ArpOperation::Request,
            sender_mac: mac,
            sender_ip,
            target_mac: MacAddr::zero(),
            target_ip,
        }
    }

    /// Whether it announces its sender's own address, as request or as reply.
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip && !self.sender_ip.is_unspecified()
    }

    /// Whether it is a request that claims no sender address.
    pub fn is_probe(&self) -> bool {
        self.operation == ArpOperation::Request && self.sender_ip.is_unspecified()
    }

    /// The frame as bytes. The kernel or the card pads it to Ethernet's minimum.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = ethernet::frame(self.destination, self.source, EtherTypes::Arp, ARP_LEN);
        if let Some(mut arp) = frame.get_mut(ETHERNET_LEN..).and_then(MutableArpPacket::new) {
            arp.set_hardware_type(ArpHardwareTypes::Ethernet);
            arp.set_protocol_type(EtherTypes::Ipv4);
            arp.set_hw_addr_len(6);
            arp.set_proto_addr_len(4);
            arp.set_operation(match self.operation {
                ArpOperation::Request => ArpOperations::Request,
                ArpOperation::Reply => ArpOperations::Reply,
            });
            arp.set_sender_hw_addr(self.sender_mac);
            arp.set_sender_proto_addr(self.sender_ip);
            arp.set_target_hw_addr(self.target_mac);
            arp.set_target_proto_addr(self.target_ip);
        }
        frame
    }

    /// Reads a frame; `None` for anything that is not IPv4 ARP over Ethernet.
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let ethernet = ethernet::parse(frame, EtherTypes::Arp)?;
        let arp = ArpPacket::new(ethernet.payload())?;
        if arp.get_hardware_type() != ArpHardwareTypes::Ethernet
            || arp.get_protocol_type() != EtherTypes::Ipv4
            || arp.get_hw_addr_len() != 6
            || arp.get_proto_addr_len() != 4
        {
            return None;
        }
        let operation = match arp.get_operation() {
            ArpOperations::Request => ArpOperation::Request,
            ArpOperations::Reply => ArpOperation::Reply,
            _ => return None,
        };
        Some(Self {
            destination: ethernet.get_destination(),
            source: ethernet.get_source(),
            operation,
            sender_mac: arp.get_sender_hw_addr(),
            sender_ip: arp.get_sender_proto_addr(),
            target_mac: arp.get_target_hw_addr(),
            target_ip: arp.get_target_proto_addr(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{OURS, THEIRS, assert_refused, bytes, mac};
    use super::*;

    const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

    #[test]
    fn frames_are_the_bytes_that_the_rfcs_describe() {
        let rows = [
            (
                "announcement: a broadcast request for itself, target MAC zero",
                ArpFrame::announcement(VIP, OURS),
                "ffffffffffff 02005e000001 0806 0001 0800 06 04 0001
                 02005e000001 c000020a 000000000000 c000020a",
            ),
            (
                "probe: a broadcast request without a sender address",
                ArpFrame::probe(VIP, OURS),
                "ffffffffffff 02005e000001 0806 0001 0800 06 04 0001
                 02005e000001 00000000 000000000000 c000020a",
            ),
            (
                "unicast request",
                ArpFrame::request(THEIRS, OURS, Ipv4Addr::new(192, 0, 2, 1), VIP),
                "02005e000002 02005e000001 0806 0001 0800 06 04 0001
                 02005e000001 c0000201 000000000000 c000020a",
            ),
        ];
        for (name, frame, expected) in rows {
            assert_eq!(frame.encode(), bytes(expected), "{name}");
            assert_eq!(ArpFrame::decode(&frame.encode()), Some(frame), "{name}");
        }
    }

    /// Bytes of a kernel's answer to a unicast request with sender 0.0.0.0, padded by the wire.
    #[test]
    fn a_padded_reply_of_the_kernel_is_read() {
        let mut frame = bytes(
            "02005e000001 02005e000002 0806 0001 0800 06 04 0002
             02005e000002 c000020a 02005e000001 00000000",
        );
        frame.resize(60, 0);
        let reply = ArpFrame::decode(&frame).unwrap();
        assert_eq!(reply.operation, ArpOperation::Reply);
        assert_eq!((reply.sender_mac, reply.sender_ip), (THEIRS, VIP));
        assert!(!reply.is_gratuitous() && !reply.is_probe());
    }

    #[test]
    fn announcements_and_probes_are_told_apart() {
        let announcement = ArpFrame::announcement(VIP, OURS);
        assert!(announcement.is_gratuitous() && !announcement.is_probe());
        let probe = ArpFrame::probe(VIP, OURS);
        assert!(probe.is_probe() && !probe.is_gratuitous());
        let unspecified = ArpFrame::probe(Ipv4Addr::UNSPECIFIED, OURS);
        assert!(!unspecified.is_gratuitous());
    }

    #[test]
    fn what_is_not_arp_for_ipv4_is_refused() {
        let good = ArpFrame::probe(VIP, OURS).encode();
        let rows = [
            (12, 0x86, "another EtherType"),
            (15, 6, "another hardware type"),
            (16, 0x86, "another protocol"),
            (18, 8, "a longer hardware address"),
            (19, 16, "a longer protocol address"),
            (21, 3, "RARP"),
        ];
        assert_refused(&good, &rows, ArpFrame::decode);
        for length in 0..good.len() {
            assert_eq!(ArpFrame::decode(&good[..length]), None, "cut to {length} bytes");
        }
    }

    proptest! {
        #[test]
        fn every_frame_survives_the_round_trip(
            destination in mac(), source in mac(), reply: bool, sender_mac in mac(),
            sender_ip: Ipv4Addr, target_mac in mac(), target_ip: Ipv4Addr,
        ) {
            let operation = if reply { ArpOperation::Reply } else { ArpOperation::Request };
            let frame = ArpFrame {
                destination, source, operation, sender_mac, sender_ip, target_mac, target_ip,
            };
            prop_assert_eq!(ArpFrame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn arbitrary_bytes_never_panic(frame in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = ArpFrame::decode(&frame);
        }
    }
}
