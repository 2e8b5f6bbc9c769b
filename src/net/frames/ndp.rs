//! Neighbor Solicitations and Advertisements over Ethernet (RFC 4861).

use std::net::Ipv6Addr;

use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::ethernet::EtherTypes;
use pnet_packet::icmpv6::ndp::{NeighborAdvertFlags, NeighborAdvertPacket, NeighborSolicitPacket};
use pnet_packet::icmpv6::{Icmpv6Packet, Icmpv6Types, checksum};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};

use super::ethernet::{self, ETHERNET_LEN};

/// The length of an IPv6 header.
const IPV6_LEN: usize = 40;
/// The length of both messages without options (RFC 4861, sections 4.3 and 4.4).
const MESSAGE_LEN: usize = 24;
/// Source and Target Link-Layer Address options (RFC 4861, section 4.6.1).
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// The all-nodes group of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A Neighbor Solicitation or Advertisement in its Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpFrame {
    /// The frame's destination.
    pub destination: MacAddr,
    /// The frame's source.
    pub source: MacAddr,
    /// The sender's address; unspecified during duplicate address detection.
    pub source_ip: Ipv6Addr,
    /// The receiver's address, or the group.
    pub destination_ip: Ipv6Addr,
    /// The message.
    pub message: Neighbor,
}

/// A message of Neighbor Discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbor {
    /// Asks for the link-layer address of `target`.
    Solicitation {
        /// The address that is asked for.
        target: Ipv6Addr,
        /// The asker's link-layer address.
        link_layer: Option<MacAddr>,
    },
    /// Says that the sender has `target`.
    Advertisement {
        /// The address that is advertised.
        target: Ipv6Addr,
        /// The link-layer address of the target; missing in many unicast answers, where the
        /// frame's source says it.
        link_layer: Option<MacAddr>,
        /// The sender routes.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces what the receiver knows.
        overrides: bool,
    },
}

impl Neighbor {
    /// The address that is asked for or advertised.
    pub fn target(&self) -> Ipv6Addr {
        match self {
            Self::Solicitation { target, .. } | Self::Advertisement { target, .. } => *target,
        }
    }
}

impl NdpFrame {
    /// The announcement of `vip` at `mac`: an unsolicited advertisement to all nodes (RFC 4861,
    /// section 7.2.6). The override flag is what makes neighbours replace a known entry.
    pub fn announcement(vip: Ipv6Addr, mac: MacAddr) -> Self {
        Self {
            destination: multicast_mac(ALL_NODES),
            source: mac,
            source_ip: vip,
            destination_ip: ALL_NODES,
            message: Neighbor::Advertisement {
                target: vip,
                link_layer: Some(mac),
                router: false,
                solicited: false,
                overrides: true,
            },
        }
    }

    /// The probe of duplicate address detection for `ip` (RFC 4862, section 5.4.2): from the
    /// unspecified address to the solicited-node group, answered by a multicast advertisement.
    pub fn probe(ip: Ipv6Addr, mac: MacAddr) -> Self {
        let group = solicited_node(ip);
        Self {
            destination: multicast_mac(group),
            source: mac,
            source_ip: Ipv6Addr::UNSPECIFIED,
            destination_ip: group,
            message: Neighbor::Solicitation { target: ip, link_layer: None },
        }
    }

    /// A solicitation for `ip` from the link-local address `from`: to `destination` alone when
    /// that is known, else to the solicited-node group. (A unicast one from the unspecified
    /// address is not answered.)
    pub fn solicitation(
        destination: Option<MacAddr>,
        mac: MacAddr,
        from: Ipv6Addr,
        ip: Ipv6Addr,
    ) -> Self {
        let (destination, destination_ip) = match destination {
            Some(unicast) => (unicast, ip),
            None => (multicast_mac(solicited_node(ip)), solicited_node(ip)),
        };
        Self {
            destination,
            source: mac,
            source_ip: from,
            destination_ip,
            message: Neighbor::Solicitation { target: ip, link_layer: Some(mac) },
        }
    }

    /// The frame as bytes, with its checksum.
    pub fn encode(&self) -> Vec<u8> {
        let message = self.encode_message();
        let mut frame = ethernet::frame(self.destination, self.source, EtherTypes::Ipv6, IPV6_LEN);
        if let Some(mut ip) = frame.get_mut(ETHERNET_LEN..).and_then(MutableIpv6Packet::new) {
            ip.set_version(6);
            // At most the fixed part and one option of eight bytes.
            ip.set_payload_length(u16::try_from(message.len()).unwrap_or(u16::MAX));
            ip.set_next_header(IpNextHeaderProtocols::Icmpv6);
            ip.set_hop_limit(255);
            ip.set_source(self.source_ip);
            ip.set_destination(self.destination_ip);
        }
        frame.extend_from_slice(&message);
        frame
    }

    fn encode_message(&self) -> Vec<u8> {
        let (kind, flags, target, option) = match self.message {
            Neighbor::Solicitation { target, link_layer } => (
                Icmpv6Types::NeighborSolicit,
                0,
                target,
                link_layer.map(|mac| (SOURCE_LINK_LAYER, mac)),
            ),
            Neighbor::Advertisement { target, link_layer, router, solicited, overrides } => {
                let flag = |set, bit| if set { bit } else { 0 };
                let flags = flag(router, NeighborAdvertFlags::Router)
                    | flag(solicited, NeighborAdvertFlags::Solicited)
                    | flag(overrides, NeighborAdvertFlags::Override);
                let option = link_layer.map(|mac| (TARGET_LINK_LAYER, mac));
                (Icmpv6Types::NeighborAdvert, flags, target, option)
            }
        };
        let assemble = |sum: [u8; 2]| {
            let mut message = vec![kind.0, 0, sum[0], sum[1], flags, 0, 0, 0];
            message.extend_from_slice(&target.octets());
            if let Some((kind, mac)) = option {
                // The length counts eight bytes.
                message.extend_from_slice(&[kind, 1]);
                message.extend_from_slice(&mac.octets());
            }
            message
        };
        let unsummed = assemble([0, 0]);
        let sum = Icmpv6Packet::new(&unsummed)
            .map_or(0, |packet| checksum(&packet, &self.source_ip, &self.destination_ip));
        assemble(sum.to_be_bytes())
    }

    /// Reads a frame; `None` for anything that is not a valid solicitation or advertisement
    /// (RFC 4861, sections 7.1.1 and 7.1.2).
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let ethernet = ethernet::parse(frame, EtherTypes::Ipv6)?;
        let ip = Ipv6Packet::new(ethernet.payload())?;
        // A hop limit below 255 means that a router has passed it on.
        if ip.get_version() != 6
            || ip.get_next_header() != IpNextHeaderProtocols::Icmpv6
            || ip.get_hop_limit() != 255
        {
            return None;
        }
        let length = usize::from(ip.get_payload_length());
        let message = ethernet.payload().get(IPV6_LEN..)?.get(..length)?;
        let (source_ip, destination_ip) = (ip.get_source(), ip.get_destination());
        let icmp = Icmpv6Packet::new(message)?;
        if icmp.get_icmpv6_code().0 != 0
            || icmp.get_checksum() != checksum(&icmp, &source_ip, &destination_ip)
        {
            return None;
        }
        let options = message.get(MESSAGE_LEN..)?;
        let message = match icmp.get_icmpv6_type() {
            Icmpv6Types::NeighborSolicit => Neighbor::Solicitation {
                target: NeighborSolicitPacket::new(message)?.get_target_addr(),
                link_layer: link_layer(options, SOURCE_LINK_LAYER).ok()?,
            },
            Icmpv6Types::NeighborAdvert => {
                let advertisement = NeighborAdvertPacket::new(message)?;
                let flags = advertisement.get_flags();
                Neighbor::Advertisement {
                    target: advertisement.get_target_addr(),
                    link_layer: link_layer(options, TARGET_LINK_LAYER).ok()?,
                    router: flags & NeighborAdvertFlags::Router != 0,
                    solicited: flags & NeighborAdvertFlags::Solicited != 0,
                    overrides: flags & NeighborAdvertFlags::Override != 0,
                }
            }
            _ => return None,
        };
        if message.target().is_multicast() {
            return None;
        }
        Some(Self {
            destination: ethernet.get_destination(),
            source: ethernet.get_source(),
            source_ip,
            destination_ip,
            message,
        })
    }
}

/// Options that do not end where they should, or an empty one (RFC 4861, section 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

/// The link-layer address in the option of the given kind.
fn link_layer(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>, Malformed> {
    let mut found = None;
    while let [kind, length, ..] = *options {
        // The length counts eight bytes.
        let (option, rest) = options
            .split_at_checked(usize::from(length) * 8)
            .filter(|(option, _)| !option.is_empty())
            .ok_or(Malformed)?;
        if kind == wanted && found.is_none() {
            found = option.get(2..).and_then(|mac| mac.first_chunk::<6>()).copied();
        }
        options = rest;
    }
    if options.is_empty() { Ok(found.map(MacAddr::from)) } else { Err(Malformed) }
}

/// The solicited-node group of `ip` (RFC 4291, section 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., g, h] = ip.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (g & 0xff), h)
}

/// The Ethernet group of an IPv6 multicast address (RFC 2464, section 7).
fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr(0x33, 0x33, a, b, c, d)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{OURS, THEIRS, assert_refused, bytes, mac};
    use super::*;

    const VIP: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xab12, 0x3456);
    const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    #[test]
    fn frames_are_the_bytes_that_the_rfcs_describe() {
        let rows = [
            (
                "announcement: override set, to all nodes, with the target's link-layer address",
                NdpFrame::announcement(VIP, OURS),
                "333300000001 02005e000001 86dd 60000000 0020 3a ff
                 20010db80000000000000000ab123456 ff020000000000000000000000000001
                 88 00 dc5a 20000000 20010db80000000000000000ab123456 0201 02005e000001",
            ),
            (
                "probe: to the solicited-node group, without option",
                NdpFrame::probe(VIP, OURS),
                "3333ff123456 02005e000001 86dd 60000000 0018 3a ff
                 00000000000000000000000000000000 ff0200000000000000000001ff123456
                 87 00 391e 00000000 20010db80000000000000000ab123456",
            ),
            (
                "unicast solicitation from the link-local address",
                NdpFrame::solicitation(Some(THEIRS), OURS, LINK_LOCAL, VIP),
                "02005e000002 02005e000001 86dd 60000000 0020 3a ff
                 fe800000000000000000000000000001 20010db80000000000000000ab123456
                 87 00 fedc 00000000 20010db80000000000000000ab123456 0101 02005e000001",
            ),
        ];
        for (name, frame, expected) in rows {
            let encoded = frame.encode();
            assert_eq!(encoded, bytes(expected), "{name}");
            assert_eq!(NdpFrame::decode(&encoded), Some(frame), "{name}");
        }
    }

    #[test]
    fn what_the_rfc_forbids_is_refused() {
        let good = NdpFrame::announcement(VIP, OURS).encode();
        let rows = [
            (12, 0x08, "another EtherType"),
            (14, 0x40, "IPv4"),
            (20, 17, "UDP"),
            (21, 254, "a hop limit that a router has lowered"),
            (54, 134, "a Router Advertisement"),
            (55, 1, "another code"),
            (56, 0, "a wrong checksum"),
            (19, 0x10, "a payload shorter than the message"),
            (19, 0xff, "a payload longer than the frame"),
        ];
        assert_refused(&good, &rows, NdpFrame::decode);
    }

    #[test]
    fn malformed_options_refuse_the_message() {
        type Row = (&'static str, &'static [u8], Result<Option<MacAddr>, Malformed>);
        let mac = MacAddr(9, 8, 7, 6, 5, 4);
        let rows: [Row; 7] = [
            ("none", &[], Ok(None)),
            ("the wanted one", &[2, 1, 9, 8, 7, 6, 5, 4], Ok(Some(mac))),
            ("another one", &[1, 1, 9, 8, 7, 6, 5, 4], Ok(None)),
            ("both", &[1, 1, 0, 0, 0, 0, 0, 0, 2, 1, 9, 8, 7, 6, 5, 4], Ok(Some(mac))),
            ("an empty one", &[2, 0, 9, 8, 7, 6, 5, 4], Err(Malformed)),
            ("one beyond the end", &[2, 2, 9, 8, 7, 6, 5, 4], Err(Malformed)),
            ("a lone byte", &[2], Err(Malformed)),
        ];
        for (name, options, expected) in rows {
            assert_eq!(link_layer(options, TARGET_LINK_LAYER), expected, "{name}");
        }
    }

    fn message() -> impl Strategy<Value = Neighbor> {
        let target = any::<Ipv6Addr>().prop_filter("unicast", |ip| !ip.is_multicast());
        let option = prop::option::of(mac());
        (target, option, any::<Option<[bool; 3]>>()).prop_map(|(target, link_layer, flags)| {
            match flags {
                None => Neighbor::Solicitation { target, link_layer },
                Some([router, solicited, overrides]) => {
                    Neighbor::Advertisement { target, link_layer, router, solicited, overrides }
                }
            }
        })
    }

    proptest! {
        #[test]
        fn every_frame_survives_the_round_trip(
            destination in mac(), source in mac(), source_ip: Ipv6Addr, destination_ip: Ipv6Addr,
            message in message(),
        ) {
            let frame = NdpFrame { destination, source, source_ip, destination_ip, message };
            prop_assert_eq!(NdpFrame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn arbitrary_bytes_never_panic(frame in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = NdpFrame::decode(&frame);
            let _ = link_layer(&frame, TARGET_LINK_LAYER);
        }

        /// The same, past the header checks and with the checksum made right.
        #[test]
        fn arbitrary_messages_never_panic(
            mut message in prop::collection::vec(any::<u8>(), 4..128), advertisement: bool,
        ) {
            message[0] = if advertisement { 136 } else { 135 };
            message[1] = 0;
            let sum = checksum(&Icmpv6Packet::new(&message).unwrap(), &VIP, &ALL_NODES);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut frame = NdpFrame::announcement(VIP, OURS).encode();
            frame.truncate(54);
            frame[19] = u8::try_from(message.len()).unwrap();
            frame.extend(message);
            let _ = NdpFrame::decode(&frame);
        }
    }
}
