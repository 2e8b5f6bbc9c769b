//! Questions whether this node can serve a claim: link, subnet, and a reply from the segment.

use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::context::Context;
use crate::election::io::event::{Action, Frame, Interface};
use crate::election::placement::eligibility::{answers, bar};
use crate::election::placement::interface::{Fit, Segment, Way, carrying, has_subnet_of};

/// Within which time a request of this node must have been answered on an interface.
pub(in crate::election) const HEARING: Duration = Duration::from_secs(2);

/// How soon hosts that should be there are asked again, while it matters.
pub(in crate::election) const ASK_AROUND: Duration = Duration::from_millis(50);

impl Context {
    /// The interface of this node that is to carry `claim`.
    pub(in crate::election) fn local_interface(
        &self,
        claim: &DesiredClaim,
    ) -> Option<(&InterfaceName, &Interface)> {
        let carried = self.interfaces.iter().filter(|(_, interface)| interface.carrier);
        let name = self.interface_among(claim, carried.map(Segment::of))?;
        self.interfaces.get_key_value(name)
    }

    /// Which of a node's interfaces is to carry `claim`.
    pub(in crate::election) fn interface_among<'a>(
        &self,
        claim: &DesiredClaim,
        interfaces: impl Iterator<Item = Segment<'a>>,
    ) -> Option<&'a InterfaceName> {
        carrying(claim, interfaces, |vip| self.is_in_a_subnet(vip))
    }

    /// Whether an interface of any node has a subnet that holds `vip`; of nodes that are away, too,
    /// and without a carrier here: they may be back at once.
    pub(in crate::election) fn is_in_a_subnet(&self, vip: IpAddr) -> bool {
        self.interfaces.iter().map(Segment::of).any(|it| it.holds(vip))
            || self.sessions.stored().any(|stored| has_subnet_of(&stored.record, vip))
    }

    /// Whether this node has addresses only for its default route, and a live one has their subnet.
    pub(in crate::election) fn is_misplaced(&self, claim: &DesiredClaim) -> bool {
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
    pub(in crate::election) fn is_out_of_reach(
        &self,
        claim: &DesiredClaim,
        desired: &Desired,
    ) -> bool {
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
    /// an unowned claim: what killed its owner may have cut this node off, too. Asks if nobody has.
    pub(in crate::election) fn hears_since(
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
    pub(in crate::election) fn is_alone_on(&self, name: &InterfaceName) -> bool {
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
    pub(in crate::election) fn asking_around(&self) -> impl Iterator<Item = Instant> {
        self.asked_around.values().map(|at| *at + ASK_AROUND)
    }
}
