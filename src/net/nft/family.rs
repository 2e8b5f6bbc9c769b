//! Address families, and where their headers have what.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::Register;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Whether an address is of this family.
    pub fn has(self, ip: IpAddr) -> bool {
        Self::of(ip) == self
    }

    /// `four` or `six`: a name that the table has once for each.
    pub const fn of_two(self, four: &'static str, six: &'static str) -> &'static str {
        match self {
            Self::V4 => four,
            Self::V6 => six,
        }
    }

    /// The length of an address, in bytes.
    pub const fn length(self) -> u32 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    /// The number of registers of four bytes that an address takes.
    pub const fn words(self) -> u32 {
        self.length() / 4
    }

    /// The offset of the source in the IP header.
    pub const fn source(self) -> u32 {
        match self {
            Self::V4 => 12,
            Self::V6 => 8,
        }
    }

    /// The offset of the destination in the IP header.
    pub const fn destination(self) -> u32 {
        self.source() + self.length()
    }

    /// The length of the IP header without options.
    pub const fn header_length(self) -> u32 {
        self.destination() + self.length()
    }

    /// The offset in the IP header of the protocol of its content.
    pub const fn content(self) -> u32 {
        match self {
            Self::V4 => 9,
            Self::V6 => 6,
        }
    }

    /// The offset in the IP header of the number of nodes that a packet may yet pass.
    pub const fn hop_limit(self) -> u32 {
        match self {
            Self::V4 => 8,
            Self::V6 => 7,
        }
    }

    /// The family of tables that see packets of this one alone.
    pub const fn tables(self) -> NetfilterProtoFamily {
        match self {
            Self::V4 => NetfilterProtoFamily::IPv4,
            Self::V6 => NetfilterProtoFamily::IPv6,
        }
    }

    /// `NFPROTO_*`.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// The type of frames with its packets (`ETH_P_*`).
    pub const fn ether_type(self) -> [u8; 2] {
        match self {
            Self::V4 => [0x08, 0x00],
            Self::V6 => [0x86, 0xdd],
        }
    }

    /// ICMP, and that of IPv6.
    pub const fn control(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }

    /// nftables' type of an address.
    pub const fn key_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }

    /// The registers behind an address that is loaded into the first one of four bytes.
    pub const fn behind(self) -> [Register; 2] {
        match self {
            Self::V4 => [Register::Reg32_01, Register::Reg32_02],
            Self::V6 => [Register::Reg32_04, Register::Reg32_05],
        }
    }
}

/// The bytes of an address.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The address that a key begins with, and the rest of the key.
pub fn split(family: Family, bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match family {
        Family::V4 => bytes
            .split_first_chunk::<4>()
            .map(|(octets, rest)| (Ipv4Addr::from(*octets).into(), rest)),
        Family::V6 => bytes
            .split_first_chunk::<16>()
            .map(|(octets, rest)| (Ipv6Addr::from(*octets).into(), rest)),
    }
}
