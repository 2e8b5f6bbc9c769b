//! Links, their addresses and gateways, as the kernel has them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use leasehold_crds::lease::{DefaultRoutes, Detours};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

/// All links of this network namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(pub BTreeMap<InterfaceName, Link>);

impl Links {
    /// The link with the given name.
    pub fn get(&self, name: &InterfaceName) -> Option<&Link> {
        self.0.get(name)
    }

    /// The link with the given index.
    pub fn by_index(&self, index: u32) -> Option<&Link> {
        self.0.values().find(|link| link.index == index)
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
    /// Its Ethernet address; zero for a link that has none.
    pub mac: MacAddr,
    /// The largest packet that it sends, in bytes.
    pub mtu: u32,
    /// Whether it is up and can carry traffic.
    pub carrier: bool,
    /// Its kind as iproute2 writes it (`veth`, `bridge`, …); none for a physical device.
    pub kind: Option<String>,
    /// The bridge or bond that it is a port of.
    pub master: Option<u32>,
    /// The link that it is made on (VLAN, macvlan) or the other end (veth), where that is in this
    /// network namespace.
    pub lower: Option<u32>,
    /// Whether it is the loopback device.
    pub loopback: bool,
    /// The node's own addresses on it: all that do not bear our mark.
    pub addresses: Vec<LinkAddress>,
    /// Next hops of default routes through it.
    pub gateways: Vec<IpAddr>,
    /// The families whose default route leads through it: of several, the one with the lowest metric.
    pub default_routes: DefaultRoutes,
    /// Of its subnets, those whose hosts the kernel reaches by another link.
    pub detours: Detours,
}

impl Link {
    /// Whether `ip` lies in a subnet of one of the node's own addresses on it.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|address| address.contains(ip))
    }

    /// Whether the node has no address there, or none but that of the link.
    pub fn is_bare(&self) -> bool {
        self.addresses.iter().all(|address| match address.ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        })
    }

    /// The link-local IPv6 address, once it is usable.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|address| match address.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() && !address.tentative => Some(ip),
            _ => None,
        })
    }
}

/// An address of the node on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// The length of its subnet's prefix.
    pub prefix_len: u8,
    /// IPv6: duplicate address detection has not ended, or has found a duplicate.
    pub tentative: bool,
}

impl LinkAddress {
    /// Whether `ip` lies in its subnet.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ipnet::IpNet::new(self.ip, self.prefix_len).is_ok_and(|subnet| subnet.contains(&ip))
    }
}

/// Links for tests.
#[cfg(test)]
pub(crate) mod testing {
    use leasehold_crds::lease::{DefaultRoutes, Detours};
    use leasehold_crds::names::InterfaceName;
    use pnet_base::MacAddr;

    use super::{Link, Links};

    /// A link with a carrier and without addresses.
    pub fn link(index: u32, name: InterfaceName) -> Link {
        Link {
            index,
            name,
            mac: MacAddr::new(2, 0, 0, 0, 0, 1),
            mtu: 1_500,
            carrier: true,
            kind: None,
            master: None,
            lower: None,
            loopback: false,
            addresses: Vec::new(),
            gateways: Vec::new(),
            default_routes: DefaultRoutes::default(),
            detours: Detours::default(),
        }
    }

    /// Links `eth1`, `eth2`, … of these numbers, whose index is ten times as high.
    pub fn links(numbers: impl IntoIterator<Item = u32>) -> Links {
        let link = |number: u32| {
            let name: InterfaceName = format!("eth{number}").parse().unwrap();
            (name.clone(), link(number * 10, name))
        };
        Links(numbers.into_iter().map(link).collect())
    }
}
