//! Whether this node can serve a claim: carrier, a voice on the segment, and a kernel that takes
//! the addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::candidate::{answers, bar};
use super::election::Election;
use super::event::{Action, Fact, Frame, Interface};
use super::leaving::{Leaving, Reason};
use super::segment::{Fit, Segment, Way, carrying, has_subnet_of};
use super::tenure::Tenure;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, OnApiOutage};

/// Within which time a request of this node must have been answered on an interface.
const HEARING: Duration = Duration::from_secs(2);
/// How soon hosts that should be there are asked again, while it matters.
const ASK_AROUND: Duration = Duration::from_millis(50);
/// How long after the claim an address that the kernel refuses is tried.
const REFUSED: Duration = Duration::from_millis(200);
/// How long after the kernel was told to add an address it must be seen there.
const SEEN: Duration = Duration::from_secs(1);
/// How long after the claim the kernel must have been told: on a node that is busy beyond measure, or that
/// adds a thousand at once, that takes some time.
const TOLD: Duration = Duration::from_secs(5);
/// How long a node that could not serve is not eligible; doubles each time.
const INELIGIBLE: Duration = Duration::from_secs(30);
const INELIGIBLE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Ineligible {
    pub(super) until: Instant,
    pub(super) backoff: Duration,
}

/// An address is to be in the kernel and is not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    since: Instant,
    /// What was served then, and when the kernel was known to have been told that.
    generation: u64,
    told: Option<Instant>,
}

impl Missing {
    /// When the claim is given up if nothing changes.
    fn due(&self, refused: bool) -> Instant {
        if refused {
            return self.since + REFUSED;
        }
        self.told.map_or(self.since + TOLD, |told| told + SEEN)
    }

    /// The same, whether the kernel refuses it or not.
    pub(super) fn deadlines(&self) -> [Instant; 2] {
        [self.due(true), self.due(false)]
    }
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

    /// Which of a node's interfaces is to carry `claim`.
    pub(super) fn interface_among<'a>(
        &self,
        claim: &DesiredClaim,
        interfaces: impl Iterator<Item = Segment<'a>>,
    ) -> Option<&'a InterfaceName> {
        carrying(claim, interfaces, |vip| self.is_in_a_subnet(vip))
    }

    /// Whether an interface of any node has a subnet that holds `vip`; of nodes that are away, too,
    /// and without a carrier here: they may be back at once.
    pub(super) fn is_in_a_subnet(&self, vip: IpAddr) -> bool {
        self.interfaces.iter().map(Segment::of).any(|it| it.holds(vip))
            || self.sessions.stored().any(|stored| has_subnet_of(&stored.record, vip))
    }

    /// Whether this node has addresses only for its default route, and a live one has their subnet.
    pub(super) fn is_misplaced(&self, claim: &DesiredClaim) -> bool {
        let fits = self.interfaces.iter().filter_map(|it| Segment::of(it).fit(claim));
        let off = claim.interfaces.is_empty() && fits.max() == Some(Fit::DefaultRoute);
        if self.readdressed.is_some() || !off {
            return false;
        }
        let here = |vip| self.interfaces.iter().map(Segment::of).any(|it| it.holds(vip));
        claim.addresses.iter().filter(|vip| !here(**vip)).any(|vip| {
            let mut others = self.live_sessions().filter(|(node, _)| **node != self.config.node);
            others.any(|(_, stored)| has_subnet_of(&stored.record, *vip))
        })
    }

    /// Whether this node answers clients of `claim` on none of its interfaces that fit, and another node does.
    pub(super) fn is_out_of_reach(&self, claim: &DesiredClaim, desired: &Desired) -> bool {
        let Some(here) = self.local_interface(claim) else { return false };
        if self.readdressed.is_some() || Segment::of(here).way(claim) != Way::None {
            return false;
        }
        let others = claim.nodes.iter().filter(|node| **node != self.config.node);
        others.filter_map(|node| Some((node, self.live_session(node)?))).any(|(node, stored)| {
            let state = self.state_of(node, desired);
            let subnets = |vip| self.is_in_a_subnet(vip);
            bar(claim, node, state, &stored.record, subnets)
                .is_ok_and(|interface| answers(claim, &stored.record, interface))
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

    /// Whether no other node says that it has a link on the segment of this interface with an address that
    /// this node can ask for: that nobody answers there says nothing then.
    fn is_alone_on(&self, name: &InterfaceName) -> bool {
        let others = self.live_sessions().filter(|(node, _)| **node != self.config.node);
        let mut links = others.flat_map(|(_, stored)| &stored.record.interfaces);
        let here = self.interfaces.get(name);
        let asks = here.is_some_and(|here| !here.addresses.is_empty() || here.link_local.is_some());
        links.all(|link| {
            // Of a link with addresses that cannot be read nothing is known: it may be anywhere.
            let unknown = link.addresses.is_empty() && !link.only_if_named;
            let answers = asks && link.own_addresses().next().is_some();
            let answered = answers && self.meets(link) == Some(name);
            !(unknown || answered)
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
            let leaving = Leaving::new(Reason::Address, "address belongs to a node");
            self.leave_claim(now, name, stored, &leaving, actions);
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
        let (generation, told) = (self.serving.generation, self.kernel.told);
        let Some(tenure) = self.tenures.get_mut(name) else { return false };
        tenure.missing = missing.then(|| {
            let first = Missing { since: now, generation, told: None };
            let missing = tenure.missing.unwrap_or(first);
            let told = (told >= missing.generation).then_some(now);
            Missing { told: missing.told.or(told), ..missing }
        });
        if present {
            tenure.ineligible = None;
        }
        let refusal = claim.addresses.iter().find_map(|address| self.kernel.refused.get(address));
        if tenure.missing.is_none_or(|missing| now < missing.due(refusal.is_some())) {
            return false;
        }
        let cause = refusal.cloned().unwrap_or_else(|| "address is not in the kernel".to_owned());
        Self::report(Fact::AddressRefused { claim: name.clone(), cause: cause.clone() }, actions);
        self.exclude_self(now, name);
        self.leave_claim(now, name, stored, &Leaving::new(Reason::Address, &cause), actions);
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
