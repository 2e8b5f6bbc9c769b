//! Which interface of a node is to carry a claim: pure functions of what the nodes say of their links.

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{DefaultRoutes, Detours, Session};
use leasehold_crds::names::{InterfaceName, InterfacePattern};

use crate::desired::{DesiredClaim, ReturnPath};
use crate::election::io::event::Interface;

/// Which of a node's interfaces is to carry `what`: the one with the longest prefix that holds the
/// addresses, else the one with the default route; of several, the one by which the kernel answers. An
/// address that a subnet of any node holds has its clients there, and is not announced on another segment.
pub(crate) fn carrying<'a, 'b>(
    what: impl Into<Carried<'b>>,
    interfaces: impl Iterator<Item = Segment<'a>>,
    is_in_a_subnet: impl Fn(IpAddr) -> bool,
) -> Option<&'a InterfaceName> {
    let what = what.into();
    let fits = interfaces.filter_map(|it| Some((it.fit(what)?, it)));
    let (fit, chosen) = fits.max_by_key(|(fit, it)| (*fit, it.way(what), Reverse(it.name)))?;
    let strays = |vip: &IpAddr| chosen.prefix(*vip).is_none() && is_in_a_subnet(*vip);
    let elsewhere =
        fit == Fit::DefaultRoute && !what.names(chosen.name) && what.addresses.iter().any(strays);
    (!elsewhere).then_some(chosen.name)
}

/// What one interface is to carry.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// The addresses.
    pub addresses: &'a AddressSet,
    /// The interfaces that a policy names for them; empty: the one whose subnet holds them.
    pub interfaces: &'a [InterfacePattern],
    /// The interface by which answers from them leave.
    pub return_path: ReturnPath,
}

impl Carried<'_> {
    pub(in crate::election) fn names(self, name: &InterfaceName) -> bool {
        self.interfaces.iter().any(|pattern| pattern.matches(name))
    }
}

impl<'a> From<&'a DesiredClaim> for Carried<'a> {
    fn from(claim: &'a DesiredClaim) -> Self {
        Self {
            addresses: &claim.addresses,
            interfaces: &claim.interfaces,
            return_path: claim.return_path,
        }
    }
}

/// How well an interface fits a claim: the worst of its addresses counts. The best comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// The policy names it.
    Named,
    /// The default route of the address's family leads through it.
    DefaultRoute,
    /// One of its subnets holds the address: the length of its prefix.
    Subnet(u8),
}

/// By which way the kernel answers the clients of a claim on an interface: of its addresses the worst
/// counts. The best comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// By none: its routes lead to them by another interface, and reverse path filtering is strict.
    None,
    /// By another interface.
    Another,
    /// By this one, as far as can be told.
    Direct,
}

/// What an interface of any node says of the segment that it is on.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(in crate::election) name: &'a InterfaceName,
    pub(in crate::election) addresses: &'a [IpNet],
    pub(in crate::election) default_routes: DefaultRoutes,
    pub(in crate::election) detours: &'a Detours,
    pub(in crate::election) only_if_named: bool,
}

impl<'a> Segment<'a> {
    pub(crate) fn of((name, interface): (&'a InterfaceName, &'a Interface)) -> Self {
        Self {
            name,
            addresses: &interface.addresses,
            default_routes: interface.default_routes,
            detours: &interface.detours,
            only_if_named: interface.only_if_named,
        }
    }

    /// Those that the session of a node lists.
    pub(crate) fn listed(session: &'a Session) -> impl Iterator<Item = Self> {
        session.interfaces.iter().map(|interface| Self {
            name: &interface.name,
            addresses: &interface.addresses,
            default_routes: interface.default_routes,
            detours: &interface.detours,
            only_if_named: interface.only_if_named,
        })
    }

    pub(crate) const fn name(&self) -> &'a InterfaceName {
        self.name
    }

    /// How well it fits `what`; `None` where it does not. What only the default route speaks for
    /// fits only where no subnet of the cluster holds the address.
    pub(crate) fn fit<'b>(&self, what: impl Into<Carried<'b>>) -> Option<Fit> {
        let what = what.into();
        let named = what.names(self.name);
        if !named && (self.only_if_named || !what.interfaces.is_empty()) {
            return None;
        }
        let fit = |vip: &IpAddr| match self.prefix(*vip) {
            Some(length) => Some(Fit::Subnet(length)),
            None if self.default_routes.lead_to(*vip) => Some(Fit::DefaultRoute),
            None => named.then_some(Fit::Named),
        };
        what.addresses.iter().map(fit).min().flatten()
    }

    /// By which way the kernel answers the clients of `what` here.
    pub(crate) fn way<'b>(&self, what: impl Into<Carried<'b>>) -> Way {
        let way = |vip: &IpAddr| match self.subnet(*vip).map(IpNet::trunc) {
            Some(subnet) if self.detours.unanswered.contains(&subnet) => Way::None,
            Some(subnet) if self.detours.bypassed.contains(&subnet) => Way::Another,
            _ => Way::Direct,
        };
        let what = what.into();
        match what.return_path {
            ReturnPath::Default => what.addresses.iter().map(way).min().unwrap_or(Way::Direct),
            ReturnPath::Symmetric => Way::Direct,
        }
    }

    /// What is worth carrying `claim` by another interface than it is: how well this one fits, and that the
    /// kernel answers, by whichever. `None` where it does not fit.
    pub(crate) fn worth(&self, claim: &DesiredClaim) -> Option<(Fit, bool)> {
        Some((self.fit(claim)?, self.way(claim) != Way::None))
    }

    /// The length of the longest prefix of its subnets that hold `vip`.
    pub(in crate::election) fn prefix(&self, vip: IpAddr) -> Option<u8> {
        self.subnet(vip).map(IpNet::prefix_len)
    }

    /// Its smallest subnet that holds `vip`.
    pub(in crate::election) fn subnet(&self, vip: IpAddr) -> Option<&IpNet> {
        // A host route says nothing about the segment.
        let holds = |net: &&IpNet| net.contains(&vip) && net.prefix_len() < net.max_prefix_len();
        self.addresses.iter().filter(holds).max_by_key(|net| net.prefix_len())
    }

    /// Whether clients of `vip` are on it.
    pub(crate) fn holds(&self, vip: IpAddr) -> bool {
        !self.only_if_named && self.prefix(vip).is_some()
    }
}

/// Whether the policy names an interface for `claim`.
pub(crate) fn names(claim: &DesiredClaim, name: &InterfaceName) -> bool {
    Carried::from(claim).names(name)
}

/// Whether the session of a node lists a subnet that holds `vip`.
pub fn has_subnet_of(session: &Session, vip: IpAddr) -> bool {
    Segment::listed(session).any(|it| it.holds(vip))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use pnet_base::MacAddr;

    use super::*;
    use crate::desired::{Announcement, Detection, Failback, OnApiOutage, Proxied};

    #[test]
    fn an_interface_fits_by_subnet_then_by_the_default_route_then_by_name() {
        let eth0: InterfaceName = "eth0".parse().unwrap();
        let claim = |vips: &[&str], interfaces: &[&str]| DesiredClaim {
            services: Vec::new(),
            addresses: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            nodes: Arc::default(),
            silence: None,
            held: false,
            drain_on_cordon: false,
            preference: Arc::default(),
            apart_from: BTreeSet::new(),
            failback: Failback::default(),
            interfaces: interfaces.iter().map(|name| name.parse().unwrap()).collect(),
            announcement: Announcement::default(),
            detection: Detection::default(),
            on_api_outage: OnApiOutage::Hold,
            connection_handover: Duration::ZERO,
            proxied: Proxied::default(),
            spread: None,
            return_path: ReturnPath::default(),
        };
        let (v4, v6) = ("192.0.2.9", "2001:db8::9");
        let (far, far_v6) = ("198.51.100.9", "2001:db8:77::9");
        let own = ["192.0.2.1/24", "192.0.2.9/32", "192.0.0.1/16", "2001:db8::1/64"];
        let (none, both) = (DefaultRoutes::NONE, DefaultRoutes::BOTH);
        let (only_v4, only_v6) =
            (DefaultRoutes { v4: true, ..none }, DefaultRoutes { v6: true, ..none });
        for (vips, names, default_routes, only_if_named, expected) in [
            (&[v4][..], &[][..], none, false, Some(Fit::Subnet(24))),
            (&[v4, v6], &[], none, false, Some(Fit::Subnet(24))),
            (&[far], &[], none, false, None),
            (&[far], &[], both, false, Some(Fit::DefaultRoute)),
            (&[far, v6], &[], both, false, Some(Fit::DefaultRoute)),
            (&[far, v6], &[], none, false, None),
            (&[far], &[], only_v4, false, Some(Fit::DefaultRoute)),
            (&[far], &[], only_v6, false, None),
            (&[far], &["eth0"], only_v6, false, Some(Fit::Named)),
            (&[far_v6], &[], only_v6, false, Some(Fit::DefaultRoute)),
            (&[far_v6], &[], only_v4, false, None),
            (&[v4], &[], both, true, None),
            (&[v4], &["eth0"], none, true, Some(Fit::Subnet(24))),
            (&[far], &["eth0"], none, true, Some(Fit::Named)),
            (&[far], &["eth1", "eth0"], both, false, Some(Fit::DefaultRoute)),
            (&[v4], &["eth1"], both, false, None),
            (&[v4], &["eth?"], none, true, Some(Fit::Subnet(24))),
            (&[v4], &["bond*"], both, false, None),
        ] {
            let interface = Interface {
                mac: MacAddr::zero(),
                mtu: 1500,
                carrier: true,
                addresses: own.iter().map(|net| net.parse().unwrap()).collect(),
                link_local: None,
                default_routes,
                detours: Detours::default(),
                only_if_named,
            };
            let fit = Segment::of((&eth0, &interface)).fit(&claim(vips, names));
            assert_eq!(fit, expected, "{vips:?} {names:?} {default_routes:?} {only_if_named}");
        }
        assert!(Fit::Named < Fit::DefaultRoute && Fit::DefaultRoute < Fit::Subnet(0));
    }

    #[test]
    fn with_a_symmetric_return_path_the_kernel_answers_on_every_interface() {
        let [eth0, eth1] = ["eth0", "eth1"].map(|name| name.parse::<InterfaceName>().unwrap());
        let subnets: Vec<IpNet> = vec!["192.0.2.0/24".parse().unwrap()];
        let own = ["192.0.2.1/24".parse().unwrap()];
        let (none, by_another) = (
            Detours { bypassed: subnets.clone(), unanswered: subnets.clone() },
            Detours { bypassed: subnets, unanswered: Vec::new() },
        );
        let (addresses, direct) =
            (AddressSet::from(["192.0.2.9".parse().unwrap()]), Detours::default());
        for (detours, by_default) in
            [(&none, Way::None), (&by_another, Way::Another), (&direct, Way::Direct)]
        {
            let segment = |name, detours| Segment {
                name,
                addresses: &own,
                default_routes: DefaultRoutes::NONE,
                detours,
                only_if_named: false,
            };
            for (return_path, expected) in
                [(ReturnPath::Default, by_default), (ReturnPath::Symmetric, Way::Direct)]
            {
                let what = Carried { addresses: &addresses, interfaces: &[], return_path };
                assert_eq!(segment(&eth0, detours).way(what), expected, "{return_path:?}");
                let both = [segment(&eth0, detours), segment(&eth1, &direct)];
                let chosen = carrying(what, both.into_iter(), |_| true);
                let first = if expected == Way::Direct { &eth0 } else { &eth1 };
                assert_eq!(chosen, Some(first), "{return_path:?} {by_default:?}");
            }
        }
    }
}
