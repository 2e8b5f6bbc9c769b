//! Which interface of a node is to carry a claim: pure functions of what the nodes say of their links.

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::lease::Session;
use leasehold_crds::names::InterfaceName;

use super::event::Interface;
use crate::desired::DesiredClaim;

/// Which of a node's interfaces is to carry `claim`: the one with the longest prefix that holds the
/// addresses, else the one with the default route. An address that a subnet of any node holds has
/// its clients there, and is not announced on another segment.
pub(crate) fn carrying<'a>(
    claim: &DesiredClaim,
    interfaces: impl Iterator<Item = Segment<'a>>,
    is_in_a_subnet: impl Fn(IpAddr) -> bool,
) -> Option<&'a InterfaceName> {
    let fits = interfaces.filter_map(|it| Some((it.fit(claim)?, it)));
    let (fit, chosen) = fits.max_by_key(|(fit, it)| (*fit, Reverse(it.name)))?;
    let strays = |vip: &IpAddr| chosen.prefix(*vip).is_none() && is_in_a_subnet(*vip);
    let elsewhere = fit == Fit::DefaultRoute
        && !names(claim, chosen.name)
        && claim.addresses.iter().any(strays);
    (!elsewhere).then_some(chosen.name)
}

/// How well an interface fits a claim: the worst of its addresses counts. The best comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// The policy names it.
    Named,
    /// The default route leads through it.
    DefaultRoute,
    /// One of its subnets holds the address: the length of its prefix.
    Subnet(u8),
}

/// What an interface of any node says of the segment that it is on.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    name: &'a InterfaceName,
    addresses: &'a [IpNet],
    default_route: bool,
    only_if_named: bool,
}

impl<'a> Segment<'a> {
    pub(crate) fn of((name, interface): (&'a InterfaceName, &'a Interface)) -> Self {
        Self {
            name,
            addresses: &interface.addresses,
            default_route: interface.default_route,
            only_if_named: interface.only_if_named,
        }
    }

    /// Those that the session of a node lists.
    pub(crate) fn listed(session: &'a Session) -> impl Iterator<Item = Self> {
        session.interfaces.iter().map(|interface| Self {
            name: &interface.name,
            addresses: &interface.addresses,
            default_route: interface.default_route,
            only_if_named: interface.only_if_named,
        })
    }

    /// How well it fits `claim`; `None` where it does not. What only the default route speaks for
    /// fits only where no subnet of the cluster holds the address.
    pub(crate) fn fit(&self, claim: &DesiredClaim) -> Option<Fit> {
        let named = names(claim, self.name);
        if !named && (self.only_if_named || !claim.interfaces.is_empty()) {
            return None;
        }
        let fit = |vip: &IpAddr| match self.prefix(*vip) {
            Some(length) => Some(Fit::Subnet(length)),
            None if self.default_route => Some(Fit::DefaultRoute),
            None => named.then_some(Fit::Named),
        };
        claim.addresses.iter().map(fit).min().flatten()
    }

    /// The length of the longest prefix of its subnets that hold `vip`.
    fn prefix(&self, vip: IpAddr) -> Option<u8> {
        // A host route says nothing about the segment.
        let holds = |net: &&IpNet| net.contains(&vip) && net.prefix_len() < net.max_prefix_len();
        self.addresses.iter().filter(holds).map(IpNet::prefix_len).max()
    }

    /// Whether clients of `vip` are on it.
    pub(crate) fn holds(&self, vip: IpAddr) -> bool {
        !self.only_if_named && self.prefix(vip).is_some()
    }
}

/// Whether the policy names an interface for `claim`.
pub(crate) fn names(claim: &DesiredClaim, name: &InterfaceName) -> bool {
    claim.interfaces.iter().any(|pattern| pattern.matches(name))
}

/// Whether the session of a node lists a subnet that holds `vip`.
pub(crate) fn has_subnet_of(session: &Session, vip: IpAddr) -> bool {
    Segment::listed(session).any(|it| it.holds(vip))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use pnet_base::MacAddr;

    use super::*;
    use crate::desired::{Announcements, Detection, Failback, OnApiOutage, Proxied};

    #[test]
    fn an_interface_fits_by_subnet_then_by_the_default_route_then_by_name() {
        let eth0: InterfaceName = "eth0".parse().unwrap();
        let claim = |vips: &[&str], interfaces: &[&str]| DesiredClaim {
            services: Vec::new(),
            addresses: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            nodes: Arc::default(),
            silence: None,
            drain_on_cordon: false,
            preference: Arc::default(),
            apart_from: BTreeSet::new(),
            failback: Failback::default(),
            interfaces: interfaces.iter().map(|name| name.parse().unwrap()).collect(),
            announcements: Announcements::default(),
            detection: Detection::default(),
            on_api_outage: OnApiOutage::Hold,
            proxied: Proxied::default(),
        };
        let (v4, v6, far) = ("192.0.2.9", "2001:db8::9", "198.51.100.9");
        let own = ["192.0.2.1/24", "192.0.2.9/32", "192.0.0.1/16", "2001:db8::1/64"];
        for (vips, names, default_route, only_if_named, expected) in [
            (&[v4][..], &[][..], false, false, Some(Fit::Subnet(24))),
            (&[v4, v6], &[], false, false, Some(Fit::Subnet(24))),
            (&[far], &[], false, false, None),
            (&[far], &[], true, false, Some(Fit::DefaultRoute)),
            (&[far, v6], &[], true, false, Some(Fit::DefaultRoute)),
            (&[far, v6], &[], false, false, None),
            (&[v4], &[], true, true, None),
            (&[v4], &["eth0"], false, true, Some(Fit::Subnet(24))),
            (&[far], &["eth0"], false, true, Some(Fit::Named)),
            (&[far], &["eth1", "eth0"], true, false, Some(Fit::DefaultRoute)),
            (&[v4], &["eth1"], true, false, None),
            (&[v4], &["eth?"], false, true, Some(Fit::Subnet(24))),
            (&[v4], &["bond*"], true, false, None),
        ] {
            let interface = Interface {
                mac: MacAddr::zero(),
                mtu: 1500,
                carrier: true,
                addresses: own.iter().map(|net| net.parse().unwrap()).collect(),
                default_route,
                only_if_named,
            };
            let fit = Segment::of((&eth0, &interface)).fit(&claim(vips, names));
            assert_eq!(fit, expected, "{vips:?} {names:?} {default_route} {only_if_named}");
        }
        assert!(Fit::Named < Fit::DefaultRoute && Fit::DefaultRoute < Fit::Subnet(0));
    }
}
