//! Address rows of dumps and events.

use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};

use crate::net::rtnl::links::LinkAddress;
use crate::net::rtnl::mark;

/// An unlimited lifetime in `IFA_CACHEINFO`.
pub(super) const FOREVER: u32 = u32::MAX;

/// An address as an event or a row of a dump has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRow {
    /// The index of its link.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// The length of its subnet's prefix.
    pub prefix_len: u8,
    /// Whether it bears our mark.
    pub ours: bool,
    /// The lifetime that is left, rounded up to whole seconds; none if it is forever.
    pub valid: Option<Duration>,
    /// IPv6: duplicate address detection has not ended, or has found a duplicate.
    pub tentative: bool,
    /// IPv4: whether the kernel chooses it for what leaves the link, where it is the first such one: no further
    /// address of a subnet, and not only for the link or this host.
    pub primary: bool,
}

impl AddressRow {
    /// The identity of the address: link, address, prefix length.
    pub(super) const fn key(&self) -> (u32, IpAddr, u8) {
        (self.index, self.ip, self.prefix_len)
    }

    /// The address as one of the node's own.
    pub(super) const fn address(&self) -> LinkAddress {
        LinkAddress { ip: self.ip, prefix_len: self.prefix_len, tentative: self.tentative }
    }
}

/// Reads a message about an address; `None` if it has none.
pub fn parse_address(message: &AddressMessage) -> Option<AddressRow> {
    let mut address = None;
    let mut local = None;
    let mut lifetimes = None;
    let mut marks = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::CacheInfo(info) => lifetimes = Some(info),
            AddressAttribute::Flags(all) => flags = *all,
            AddressAttribute::Protocol(protocol) => marks.0 = Some(u8::from(*protocol)),
            AddressAttribute::RoutePriority(metric) => marks.1 = Some(*metric),
            _ => {}
        }
    }
    let valid = lifetimes.filter(|info| info.ifa_valid != FOREVER);
    let ours = match marks {
        (Some(mark::PROTOCOL), _) => true,
        // A program that sets the lifetimes of an IPv6 address leaves the metric (`inet6_addr_modify` in the
        // kernel's `net/ipv6/addrconf.c`): what was made endless, or is preferred, is somebody else's by now.
        (_, Some(mark::METRIC)) => valid.is_some_and(|info| info.ifa_preferred == 0),
        _ => false,
    };
    let scope = message.header.scope;
    Some(AddressRow {
        index: message.header.index,
        // On a point-to-point link IFA_ADDRESS is the peer's.
        ip: local.or(address)?,
        prefix_len: message.header.prefix_len,
        ours,
        valid: valid.map(|info| Duration::from_secs(info.ifa_valid.into())),
        tentative: flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed),
        primary: !flags.contains(AddressFlags::Secondary)
            && matches!(scope, AddressScope::Universe | AddressScope::Site),
    })
}
