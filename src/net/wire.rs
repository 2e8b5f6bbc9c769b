//! Frames to send and frames heard on a segment, independent of the address family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::net::frames::arp::{ArpFrame, ArpOperation};
use crate::net::frames::ndp::{NdpFrame, Neighbor};
use crate::net::frames::socket::PacketKind;
use crate::net::rtnl::links::Link;
use leasehold_core::clock::Instant;
use leasehold_core::detect::question::Question;

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Tells the segment that the interface has `vip`: gratuitous ARP request, or unsolicited
    /// Neighbor Advertisement.
    Announce {
        /// The address.
        vip: IpAddr,
        /// The interface that has it.
        interface: InterfaceName,
    },
    /// Asks everybody on the segment for `ip` without claiming it: RFC 5227 probe, or a solicitation from the
    /// link-local address, whose answer comes to this node alone. Where there is none, it is that of
    /// duplicate address detection, which is answered to all nodes (RFC 4861, section 7.2.4): that makes
    /// neighbours update their entries, and looks like an announcement.
    Probe {
        /// The address.
        ip: IpAddr,
        /// The interface to send on.
        interface: InterfaceName,
    },
    /// Asks the hosts that should be there whether they hear this node ([`crate::net::hearing`]).
    AskAround {
        /// The interface to send on.
        interface: InterfaceName,
    },
    /// Asks `mac` alone for `ip`: ARP from 0.0.0.0, IPv6 from the link-local address.
    Ask {
        /// The address.
        ip: IpAddr,
        /// The host to ask.
        mac: MacAddr,
        /// The interface to send on.
        interface: InterfaceName,
    },
}

impl Transmit {
    /// The interface to send on.
    pub fn interface(&self) -> &InterfaceName {
        match self {
            Self::Announce { interface, .. }
            | Self::Probe { interface, .. }
            | Self::AskAround { interface }
            | Self::Ask { interface, .. } => interface,
        }
    }

    /// The address that the frame asks for; none for an announcement.
    pub fn asks_for(&self) -> Option<IpAddr> {
        match self {
            Self::Announce { .. } | Self::AskAround { .. } => None,
            Self::Probe { ip, .. } | Self::Ask { ip, .. } => Some(*ip),
        }
    }

    /// The frame as it leaves from `link`; `None` when the link lacks the address that it needs: an
    /// Ethernet address, or for an IPv6 question a link-local one; and for what is no single frame.
    pub fn encode(&self, link: &Link) -> Option<(PacketKind, Vec<u8>)> {
        if link.mac.is_zero() {
            return None;
        }
        Some(match *self {
            Self::AskAround { .. } => return None,
            Self::Announce { vip: IpAddr::V4(vip), .. } => {
                (PacketKind::Arp, ArpFrame::announcement(vip, link.mac).encode())
            }
            Self::Announce { vip: IpAddr::V6(vip), .. } => {
                (PacketKind::Ndp, NdpFrame::announcement(vip, link.mac).encode())
            }
            Self::Probe { ip: IpAddr::V4(ip), .. } => {
                (PacketKind::Arp, ArpFrame::probe(ip, link.mac).encode())
            }
            Self::Probe { ip: IpAddr::V6(ip), .. } => {
                let probe = |from| NdpFrame::solicitation(None, link.mac, from, ip);
                let frame = link.link_local().map_or_else(|| NdpFrame::probe(ip, link.mac), probe);
                (PacketKind::Ndp, frame.encode())
            }
            Self::Ask { ip: IpAddr::V4(ip), mac, .. } => {
                let unspecified = Ipv4Addr::UNSPECIFIED;
                (PacketKind::Arp, ArpFrame::request(mac, link.mac, unspecified, ip).encode())
            }
            Self::Ask { ip: IpAddr::V6(ip), mac, .. } => {
                let from = link.link_local()?;
                let frame = NdpFrame::solicitation(Some(mac), link.mac, from, ip);
                (PacketKind::Ndp, frame.encode())
            }
        })
    }
}

/// The frame that asks `question`, as it leaves from `link`; `None` when the link lacks the address that it needs: an
/// Ethernet address, or for IPv6 a link-local one.
pub fn encode_question(question: &Question, link: &Link) -> Option<(PacketKind, Vec<u8>)> {
    if link.mac.is_zero() {
        return None;
    }
    Some(match question.ip {
        IpAddr::V4(ip) => {
            let own = if question.named { own_v4(link, question.ip) } else { None };
            let destination = question.mac.unwrap_or(MacAddr::broadcast());
            let sender = own.unwrap_or(Ipv4Addr::UNSPECIFIED);
            (PacketKind::Arp, ArpFrame::request(destination, link.mac, sender, ip).encode())
        }
        IpAddr::V6(ip) => {
            let from = link.link_local()?;
            let frame = NdpFrame::solicitation(question.mac, link.mac, from, ip);
            (PacketKind::Ndp, frame.encode())
        }
    })
}

/// The address in whose name this node asks for `ip`.
fn own_v4(link: &Link, ip: IpAddr) -> Option<Ipv4Addr> {
    let own = link.addresses.iter().filter_map(|address| match address.ip {
        IpAddr::V4(own) if !own.is_link_local() => Some((address.contains(ip), own)),
        _ => None,
    });
    own.max_by_key(|(near, _)| *near).map(|(_, own)| own)
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeardKind {
    /// An ARP request, gratuitous ones among them.
    ArpRequest,
    /// An ARP reply.
    ArpReply,
    /// An IPv6 Neighbor Solicitation.
    NeighborSolicitation,
    /// An IPv6 Neighbor Advertisement.
    NeighborAdvertisement,
}

/// A packet from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The time at which it was read from the socket.
    pub at: Instant,
    /// The interface on which it was heard.
    pub interface: InterfaceName,
    /// The kind of the packet.
    pub kind: HeardKind,
    /// It tells the whole segment of an address of its sender: gratuitous ARP, or an advertisement
    /// to all nodes (which answers a probe, too).
    pub announcement: bool,
    /// It asks without claiming an address: RFC 5227 probe, or duplicate address detection.
    pub probe: bool,
    /// It answers a question that this node has asked there within the last 2 s.
    pub answer: bool,
    /// The MAC of the host that has `sender_ip`, as the packet says. A frame with another source proves nothing:
    /// bonds and switches that answer for a host may send so, and neither RFC 826 nor Linux compares them.
    pub sender_mac: MacAddr,
    /// The address that the sender says to have; unspecified in a probe.
    pub sender_ip: IpAddr,
    /// The address that is asked for, or to which the answer goes.
    pub target_ip: IpAddr,
}

impl Heard {
    /// Reads a frame; `None` for one that is neither ARP nor a solicitation or advertisement.
    pub fn decode(
        at: Instant,
        interface: &InterfaceName,
        kind: PacketKind,
        frame: &[u8],
    ) -> Option<Self> {
        match kind {
            PacketKind::Arp => ArpFrame::decode(frame).map(|frame| Self {
                at,
                interface: interface.clone(),
                kind: match frame.operation {
                    ArpOperation::Request => HeardKind::ArpRequest,
                    ArpOperation::Reply => HeardKind::ArpReply,
                },
                announcement: frame.is_gratuitous(),
                probe: frame.is_probe(),
                answer: false,
                sender_mac: frame.sender_mac,
                sender_ip: frame.sender_ip.into(),
                target_ip: frame.target_ip.into(),
            }),
            PacketKind::Ndp => {
                NdpFrame::decode(frame).map(|frame| Self::from_ndp(at, interface, &frame))
            }
        }
    }

    fn from_ndp(at: Instant, interface: &InterfaceName, frame: &NdpFrame) -> Self {
        let (kind, announcement, link_layer, sender_ip, target_ip) = match frame.message {
            Neighbor::Solicitation { target, link_layer } => {
                (HeardKind::NeighborSolicitation, false, link_layer, frame.source_ip, target)
            }
            Neighbor::Advertisement { target, link_layer, .. } => (
                HeardKind::NeighborAdvertisement,
                frame.destination_ip.is_multicast(),
                link_layer,
                target,
                frame.destination_ip,
            ),
        };
        Self {
            at,
            interface: interface.clone(),
            kind,
            announcement,
            probe: sender_ip == Ipv6Addr::UNSPECIFIED,
            answer: false,
            sender_mac: link_layer.unwrap_or(frame.source),
            sender_ip: sender_ip.into(),
            target_ip: target_ip.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn who_has_an_address_is_said_by_the_packet_whoever_sent_the_frame() {
        let (owner, switch) = (MacAddr(2, 0, 0, 0, 0, 1), MacAddr(2, 0, 0, 0, 0, 9));
        let vip = Ipv4Addr::new(198, 51, 100, 7);
        let frame = ArpFrame { source: switch, ..ArpFrame::announcement(vip, owner) };
        let eth0 = "eth0".parse().unwrap();
        let heard = Heard::decode(clock::now(), &eth0, PacketKind::Arp, &frame.encode()).unwrap();
        assert_eq!((heard.sender_mac, heard.sender_ip), (owner, vip.into()));
    }
}
