//! Addresses that no host can use: no client would reach a node that has one, or every router of the segment
//! would answer for it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::range::{IpRange, RESERVED};

/// The addresses that no host can use in the subnets of nodes, beside the reserved ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unusable {
    of_subnets: BTreeMap<IpAddr, Why>,
}

/// The reason for which no host can use an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is reserved for this.
    Reserved(&'static str),
    /// It is the address of a subnet itself, which some hosts take for broadcast (RFC 1122, section 3.3.6).
    Network(IpNet),
    /// It is the broadcast address of a subnet: the kernel of each host in it never asks for its owner.
    Broadcast(IpNet),
    /// It is the subnet-router anycast address (RFC 4291, section 2.6.1): all routers have it, and each node
    /// that forwards is one.
    Anycast(IpNet),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved(what) => write!(f, "reserved: {what}"),
            Self::Network(subnet) => {
                write!(f, "the network address of the nodes' subnet {subnet}")
            }
            Self::Broadcast(subnet) => {
                write!(f, "the broadcast address of the nodes' subnet {subnet}")
            }
            Self::Anycast(subnet) => {
                write!(f, "the subnet-router anycast address of the nodes' subnet {subnet}")
            }
        }
    }
}

impl Unusable {
    /// The unusable addresses of the subnets of these node addresses. Point-to-point links have none (RFC 3021,
    /// RFC 6164).
    pub fn new(addresses: impl Iterator<Item = IpNet>) -> Self {
        let wide = addresses.filter(|net| net.max_prefix_len() - net.prefix_len() > 1);
        let mut of_subnets = BTreeMap::new();
        for net in wide.map(|net| net.trunc()) {
            match net {
                IpNet::V4(_) => {
                    of_subnets.insert(net.network(), Why::Network(net));
                    of_subnets.insert(net.broadcast(), Why::Broadcast(net));
                }
                IpNet::V6(_) => {
                    of_subnets.insert(net.network(), Why::Anycast(net));
                }
            }
        }
        Self { of_subnets }
    }

    /// The reason for which no host can use `ip`, if none can.
    pub fn why(&self, ip: IpAddr) -> Option<Why> {
        let mut reserved = RESERVED.iter().filter(|(range, _)| range.contains(ip));
        let reserved = reserved.next().map(|(_, what)| Why::Reserved(what));
        reserved.or_else(|| self.of_subnets.get(&ip).copied())
    }

    /// The parts of `range` that no host can use.
    pub(super) fn within(&self, range: IpRange) -> impl Iterator<Item = (IpRange, Why)> {
        let reserved = RESERVED.iter().filter_map(move |(reserved, what)| {
            Some((range.intersection(reserved)?, Why::Reserved(what)))
        });
        let of_subnets = self.of_subnets.range(range.first()..=range.last());
        reserved.chain(of_subnets.filter_map(|(ip, why)| Some((IpRange::new(*ip, *ip)?, *why))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_has_a_reserved_address_or_one_that_is_all_of_a_subnet() {
        let nodes = [
            "192.168.1.10/24",
            "192.168.1.11/24",
            "10.0.0.1/31",
            "10.0.0.9/32",
            "2001:db8::a/64",
            "2001:db8:1::1/127",
            "2001:db8:2::1/128",
        ];
        let unusable = Unusable::new(nodes.iter().map(|net| net.parse().unwrap()));
        for (address, why) in [
            ("192.168.1.0", Some("the network address of the nodes' subnet 192.168.1.0/24")),
            ("192.168.1.1", None),
            ("192.168.1.254", None),
            ("192.168.1.255", Some("the broadcast address of the nodes' subnet 192.168.1.0/24")),
            ("192.168.2.0", None),
            ("10.0.0.0", None),
            ("10.0.0.1", None),
            ("10.0.0.9", None),
            (
                "2001:db8::",
                Some("the subnet-router anycast address of the nodes' subnet 2001:db8::/64"),
            ),
            ("2001:db8::1", None),
            ("2001:db8::ffff:ffff:ffff:ffff", None),
            ("2001:db8:1::", None),
            ("2001:db8:2::1", None),
            ("0.0.0.0", Some("reserved: this network")),
            ("127.255.255.255", Some("reserved: loopback")),
            ("169.254.1.1", Some("reserved: link-local")),
            ("224.0.0.5", Some("reserved: multicast")),
            ("255.255.255.255", Some("reserved: future use and broadcast")),
            ("::", Some("reserved: unspecified")),
            ("::1", Some("reserved: loopback")),
            ("::2", None),
            ("::ffff:10.0.0.1", Some("reserved: IPv4-mapped")),
            ("fe80::1", Some("reserved: link-local")),
            ("ff02::1", Some("reserved: multicast")),
        ] {
            let found = unusable.why(address.parse().unwrap()).map(|why| why.to_string());
            assert_eq!(found.as_deref(), why, "{address}");
        }
    }
}
