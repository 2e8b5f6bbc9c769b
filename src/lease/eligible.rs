//! Whether this node can serve a claim: carrier, a voice on the segment, and a kernel that takes
//! the addresses.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_crds::lease::{Claim, LeaseName, Session, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::election::Election;
use super::event::{Action, Fact, Frame, Interface};
use super::listening::networks;
use super::tenure::Tenure;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, OnApiOutage};

/// Within which time a request of this node must have been answered on an interface.
const HEARING: Duration = Duration::from_secs(2);
/// How soon hosts that should be there are asked again, while it matters.
const ASK_AROUND: Duration = Duration::from_millis(50);
/// How long after the claim the address must be seen in the kernel.
pub(super) const SEEN: Duration = Duration::from_millis(200);
/// How long a node that could not serve is not eligible; doubles each time.
const INELIGIBLE: Duration = Duration::from_secs(30);
const INELIGIBLE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Ineligible {
    pub(super) until: Instant,
    pub(super) backoff: Duration,
}

impl Election {
    /// The interface of this node that is to carry `claim`.
    pub(super) fn local_interface(
        &self,
        claim: &DesiredClaim,
    ) -> Option<(&InterfaceName, &Interface)> {
        let carried = self.interfaces.iter().filter(|(_, interface)| interface.carrier);
        let name = self.interface_among(claim, carried.map(Segment::of))?;
        self.interfaces.get_key_value(name)
    }

    /// Which of a node's interfaces is to carry `claim`: the one with the longest prefix that holds the
    /// addresses, else the one with the default route. An address that a subnet of any node holds has
    /// its clients there, and is not announced on another segment.
    pub(super) fn interface_among<'a>(
        &self,
        claim: &DesiredClaim,
        interfaces: impl Iterator<Item = Segment<'a>>,
    ) -> Option<&'a InterfaceName> {
        let fits = interfaces.filter_map(|it| Some((it.fit(claim)?, it)));
        let (fit, chosen) = fits.max_by_key(|(fit, it)| (*fit, Reverse(it.name)))?;
        let strays = |vip: &IpAddr| chosen.prefix(*vip).is_none() && self.is_in_a_subnet(*vip);
        let elsewhere = fit == Fit::DefaultRoute
            && !claim.interfaces.contains(chosen.name)
            && claim.addresses.iter().any(strays);
        (!elsewhere).then_some(chosen.name)
    }

    /// Whether an interface of any node has a subnet that holds `vip`; of nodes that are away, too,
    /// and without a carrier here: they may be back at once.
    fn is_in_a_subnet(&self, vip: IpAddr) -> bool {
        self.interfaces.iter().map(Segment::of).any(|it| it.holds(vip))
            || self.sessions.stored().any(|stored| has_subnet_of(&stored.record, vip))
    }

    /// Whether this node has addresses only for its default route, and a live one has their subnet.
    pub(super) fn is_misplaced(&self, claim: &DesiredClaim) -> bool {
        let fits = self.interfaces.iter().filter_map(|it| Segment::of(it).fit(claim));
        if !claim.interfaces.is_empty() || fits.max() != Some(Fit::DefaultRoute) {
            return false;
        }
        let here = |vip| self.interfaces.iter().map(Segment::of).any(|it| it.holds(vip));
        claim.addresses.iter().filter(|vip| !here(**vip)).any(|vip| {
            let mut others = self.live_sessions().filter(|(node, _)| **node != self.config.node);
            others.any(|(_, stored)| has_subnet_of(&stored.record, *vip))
        })
    }

    /// Whether somebody has answered this node on the interface that is to carry `claim` since it became
    /// an orphan: what killed its owner may have cut this node off, too. Asks if nobody has.
    pub(super) fn hears_since(
        &mut self,
        now: Instant,
        since: Instant,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some((name, _)) = self.local_interface(claim) else { return false };
        if self.is_alone_on(name) || self.hearing.get(name).is_some_and(|at| *at >= since) {
            return true;
        }
        let name = name.clone();
        if self.asked_around.get(&name).is_none_or(|at| now >= *at + ASK_AROUND) {
            self.asked_around.insert(name.clone(), now);
            actions.push(Action::Transmit { interface: name, frame: Frame::AskAround });
        }
        false
    }

    /// Whether no other node says that it has a link on the segment of this interface: that nobody
    /// answers there says nothing then.
    fn is_alone_on(&self, name: &InterfaceName) -> bool {
        let others = self.live_sessions().filter(|(node, _)| **node != self.config.node);
        let mut links = others.flat_map(|(_, stored)| &stored.record.interfaces);
        links.all(|link| {
            // A link without an address may be anywhere.
            let networks = networks(link);
            !networks.is_empty() && self.meets(&networks) != Some(name)
        })
    }

    /// When hosts that did not answer are asked again.
    pub(super) fn asking_around(&self) -> impl Iterator<Item = Instant> {
        self.asked_around.values().map(|at| *at + ASK_AROUND)
    }

    /// Whether this node may take an orphan now, and through which interface.
    pub(super) fn may_take(
        &self,
        now: Instant,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<(InterfaceName, MacAddr)> {
        if self.own.is_ending()
            || self.own.release
            || tenure.ineligible.as_ref().is_some_and(|i| now < i.until)
        {
            return None;
        }
        let (name, interface) = self.local_interface(claim)?;
        let hears = self.hearing.get(name).is_some_and(|at| now.saturating_since(*at) < HEARING);
        let free = self.address_of_a_node(claim).is_none();
        ((hears || self.is_alone_on(name)) && free).then(|| (name.clone(), interface.mac))
    }

    /// The interface of this node to which a claim that it serves belongs by now: the policy no longer names
    /// the one that carries it, or this one has the subnet of its addresses, or a longer one.
    pub(super) fn better_interface(
        &self,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<&InterfaceName> {
        let (carrying, link) = self.interfaces.get_key_value(tenure.interface.as_ref()?)?;
        let (chosen, better) = self.local_interface(claim)?;
        let fits_better =
            Segment::of((chosen, better)).fit(claim) > Segment::of((carrying, link)).fit(claim);
        (link.carrier && fits_better).then_some(chosen)
    }

    /// Whether the policy no longer names the interface that carries `claim`.
    pub(super) fn may_not_carry(&self, name: &LeaseName, claim: &DesiredClaim) -> bool {
        let carrying = self.tenures.get(name).and_then(|tenure| tenure.interface.as_ref());
        let named = |interface| claim.interfaces.is_empty() || claim.interfaces.contains(interface);
        carrying.is_some_and(|interface| !named(interface))
    }

    /// Has another interface of this node carry what belongs there. The kernel gets it there before it loses
    /// it here; the claims follow.
    pub(super) fn change_interfaces(
        &mut self,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
    ) {
        for name in names {
            let (Some(tenure), Some(claim)) = (self.tenures.get(name), desired.claims.get(name))
            else {
                continue;
            };
            let idle =
                tenure.leaving.is_none() && tenure.handover.is_none() && tenure.probing.is_none();
            let better = self.better_interface(tenure, claim).filter(|_| tenure.mine && idle);
            // Somebody has to have answered there.
            let chosen = self.may_take(now, tenure, claim).map(|(name, _)| name);
            if let Some(chosen) = chosen.filter(|chosen| better == Some(chosen)) {
                self.with(name, |tenure| tenure.interface = Some(chosen));
            }
        }
    }

    /// Gives up what lost its carrier: all claims with one write where all are concerned.
    pub(super) fn keep_link(&mut self, now: Instant, names: &[LeaseName]) {
        let mut lost = Vec::new();
        for name in names {
            let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.mine) else {
                continue;
            };
            let carried = tenure.interface.as_ref().and_then(|name| self.interfaces.get(name));
            if tenure.interface.is_some() && !carried.is_some_and(|interface| interface.carrier) {
                lost.push(name.clone());
            }
        }
        let held = || self.tenures.values().filter(|tenure| tenure.mine).count();
        let all = lost.len() > 1 && lost.len() == held();
        self.own.release = all && !self.own.is_ending();
        for name in lost {
            if let Some(tenure) = self.tenures.get_mut(&name)
                && tenure.leaving.is_none()
            {
                tenure.leaving = Some("carrier lost".to_owned());
                tenure.retry = now;
            }
        }
    }

    /// Whether the kernel does not hold what this node owns; then the claim is given up.
    pub(super) fn check_kernel(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.address_of_a_node(claim).is_some() {
            self.report_address_of_a_node(name, claim, actions);
            self.exclude_self(now, name);
            self.leave_claim(now, name, stored, "address belongs to a node", actions);
            return true;
        }
        let alive = match claim.on_api_outage {
            OnApiOutage::Hold => !self.own.may_have_lapsed(now),
            OnApiOutage::Drop => !self.own.may_have_dropped(now),
        };
        let missing = claim.addresses.iter().any(|address| {
            alive && self.is_served(*address) && !self.kernel.ours.contains_key(address)
        });
        let present = claim
            .addresses
            .iter()
            .all(|address| self.is_served(*address) && self.kernel.ours.contains_key(address));
        let Some(tenure) = self.tenures.get_mut(name) else { return false };
        tenure.missing = missing.then(|| tenure.missing.unwrap_or(now));
        if present {
            tenure.ineligible = None;
        }
        if tenure.missing.is_none_or(|since| now < since + SEEN) {
            return false;
        }
        let refusal = claim.addresses.iter().find_map(|address| self.kernel.refused.get(address));
        let cause = refusal.cloned().unwrap_or_else(|| "address is not in the kernel".to_owned());
        Self::report(Fact::AddressRefused { claim: name.clone(), cause: cause.clone() }, actions);
        self.exclude_self(now, name);
        self.leave_claim(now, name, stored, &cause, actions);
        true
    }

    pub(super) fn exclude_self(&mut self, now: Instant, name: &LeaseName) {
        self.with(name, |tenure| {
            let backoff = tenure
                .ineligible
                .as_ref()
                .map_or(INELIGIBLE, |i| (i.backoff * 2).min(INELIGIBLE_MAX));
            tenure.ineligible = Some(Ineligible { until: now + backoff, backoff });
        });
    }
}

/// How well an interface fits a claim: the worst of its addresses counts. The best comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The policy names it.
    Named,
    /// The default route leads through it.
    DefaultRoute,
    /// One of its subnets holds the address: the length of its prefix.
    Subnet(u8),
}

/// What an interface of any node says of the segment that it is on.
#[derive(Clone, Debug)]
pub(super) struct Segment<'a> {
    name: &'a InterfaceName,
    addresses: Cow<'a, [IpNet]>,
    default_route: bool,
    only_if_named: bool,
}

impl<'a> Segment<'a> {
    fn of((name, interface): (&'a InterfaceName, &'a Interface)) -> Self {
        Self {
            name,
            addresses: Cow::Borrowed(&interface.addresses),
            default_route: interface.default_route,
            only_if_named: interface.only_if_named,
        }
    }

    /// Those that the session of a node lists.
    pub(super) fn listed(session: &'a Session) -> impl Iterator<Item = Self> {
        session.interfaces.iter().map(|interface| Self {
            name: &interface.name,
            addresses: Cow::Owned(networks(interface)),
            default_route: interface.default_route,
            only_if_named: interface.only_if_named,
        })
    }

    /// How well it fits `claim`; `None` where it does not. What only the default route speaks for
    /// fits only where no subnet of the cluster holds the address.
    fn fit(&self, claim: &DesiredClaim) -> Option<Fit> {
        let named = claim.interfaces.contains(self.name);
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
    fn holds(&self, vip: IpAddr) -> bool {
        !self.only_if_named && self.prefix(vip).is_some()
    }
}

fn has_subnet_of(session: &Session, vip: IpAddr) -> bool {
    Segment::listed(session).any(|it| it.holds(vip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{Detection, Failback};

    #[test]
    fn an_interface_fits_by_subnet_then_by_the_default_route_then_by_name() {
        let eth0: InterfaceName = "eth0".parse().unwrap();
        let claim = |vips: &[&str], interfaces: &[&str]| DesiredClaim {
            services: Vec::new(),
            addresses: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            nodes: Arc::default(),
            preference: Arc::default(),
            failback: Failback::default(),
            interfaces: interfaces.iter().map(|name| name.parse().unwrap()).collect(),
            detection: Detection::default(),
            on_api_outage: OnApiOutage::Hold,
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
        ] {
            let interface = Interface {
                mac: MacAddr::zero(),
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
