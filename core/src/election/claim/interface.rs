//! The interface that carries a claim while this node owns it.
//!
//! It stays the same as long as it can carry the claim as well as any other of this node. Where its link
//! goes down, or the policy, a subnet or a default route say something else, another one carries the
//! addresses from then on, make before break and without a new owner; where there is none, the claim
//! goes to another node.
//!
//! What subnets and default routes say counts once it has lasted: whoever replaces an address takes one off
//! and puts one on, and the kernel reports an IPv6 address when it is usable, some time after it was added.
//! Until then a link that has no address any more is what it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::lease::{CARRIER_LOST, Claim, LeaseName, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::state::release::{Leaving, Obstacle};
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::{Action, Interface};
use crate::election::placement::interface::{Segment, names};

impl Claims {
    /// The interfaces of this node are these.
    pub(in crate::election) fn note_interfaces(
        &mut self,
        cx: &mut Context,
        now: Instant,
        interfaces: BTreeMap<InterfaceName, Interface>,
    ) {
        cx.note_interfaces(now, interfaces);
        self.open.note_all();
    }

    /// The interfaces that policies name for the claims that the cluster asks for.
    pub(in crate::election) fn note_named(&mut self, cx: &mut Context) {
        if cx.note_named() {
            self.open.note_all();
        }
    }

    /// Uses the addresses and default routes of this node for decisions, once they have lasted.
    pub(in crate::election) fn settle_readdressed(&mut self, cx: &mut Context, now: Instant) {
        if cx.settle_readdressed(now) {
            self.open.note_all();
        }
    }

    /// The interface that fits a claim of this node better than the one that carries it.
    pub(in crate::election) fn better_interface<'a>(
        cx: &'a Context,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<&'a InterfaceName> {
        let present = tenure.interface()?;
        let (best, link) = cx.local_interface(claim)?;
        let worth = Segment::of((best, link)).worth(claim);
        let carries = cx.own_interfaces().get_key_value(present).filter(|(_, link)| link.carrier);
        if carries.is_some() && cx.readdressed().is_some() {
            return None;
        }
        let present_worth = carries.and_then(|carrying| Segment::of(carrying).worth(claim));
        (best != present && present_worth < worth).then_some(best)
    }

    /// Has another interface carry what the one that does cannot carry as well any more, once somebody has
    /// answered there.
    pub(in crate::election) fn keep_interface(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
    ) {
        let may_stay = |it: &Tenure| it.leaving().is_none_or(Leaving::is_for_a_link);
        let idle =
            |tenure: &&Tenure| tenure.is_mine() && tenure.probing().is_none() && may_stay(tenure);
        let tenure = self.tenures.get(name).filter(idle);
        let Some((tenure, better)) =
            tenure.and_then(|tenure| Some((tenure, Self::better_interface(cx, tenure, claim)?)))
        else {
            return;
        };
        let heard = Self::may_take(cx, now, tenure, claim).filter(|(chosen, _)| chosen == better);
        if let Some((better, _)) = heard {
            self.with(cx, name, |tenure| tenure.set_interface(better));
        }
    }

    /// Gives up what lost its carrier: all claims with one write where all are concerned.
    pub(in crate::election) fn keep_link(
        &mut self,
        cx: &mut Context,
        now: Instant,
        names: &[LeaseName],
    ) {
        let mut lost = Vec::new();
        for name in names {
            let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.is_mine()) else {
                continue;
            };
            if Self::has_lost_carrier(cx, tenure) {
                lost.push(name.clone());
            }
        }
        let held = || self.tenures.values().filter(|tenure| tenure.is_mine()).count();
        let all = lost.len() > 1 && lost.len() == held();
        let releases = all && !cx.own().is_ending();
        cx.own_mut().set_release(releases);
        for name in lost {
            if let Some(tenure) = self.tenures.get_mut(&name) {
                tenure.leave(now, &Leaving::new(Obstacle::Link, CARRIER_LOST));
            }
        }
    }

    /// Whether the interface that carries what this node owns has no carrier.
    pub(in crate::election) fn has_lost_carrier(cx: &Context, tenure: &Tenure) -> bool {
        let Some(name) = tenure.interface() else { return false };
        let carries = cx.own_interfaces().get(name).is_some_and(|interface| interface.carrier);
        !carries || cx.bared().contains_key(name) && cx.is_deleted(name)
    }

    /// Whether a link is down and what it carried is still this node's. First that is given up: all that
    /// would be said before of the link keeps others from hearing that nobody answers there any more.
    pub(in crate::election) fn gives_up_a_link(&self, cx: &Context) -> bool {
        self.tenures.values().any(|tenure| tenure.is_mine() && Self::has_lost_carrier(cx, tenure))
    }

    /// The interface that carries a claim of this node, and its MAC address where there is such an interface.
    pub(in crate::election) fn carried_by(
        &self,
        cx: &Context,
        name: &LeaseName,
    ) -> Option<(&InterfaceName, Option<MacAddr>)> {
        let interface = self.tenures.get(name)?.interface()?;
        Some((interface, cx.own_interfaces().get(interface).map(|link| link.mac)))
    }

    /// Whether the lease says which interface carries a claim of this node, and with which MAC address.
    pub(in crate::election) fn is_interface_told(
        &self,
        cx: &Context,
        stored: &Stored<Claim>,
    ) -> bool {
        let record = &stored.record;
        let (interface, mac) = self.carried_by(cx, &stored.name).unzip();
        let same = interface == record.interface.as_ref() && mac.flatten() == record.mac;
        same || mac.flatten().is_none()
    }

    /// Says so where it has changed; returns whether it has.
    pub(in crate::election) fn tell_interface(
        &self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry());
        if self.is_interface_told(cx, stored) || !due || !self.has_room(cx) {
            return false;
        }
        let record = self.held_record(cx, stored);
        Self::put_claim(cx, now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
        true
    }

    /// Whether none of this node's interfaces can carry `claim` now.
    pub(in crate::election) fn is_uncarried(cx: &Context, claim: &DesiredClaim) -> bool {
        let uncarried = || cx.local_interface(claim).is_none();
        cx.readdressed().is_none() && !cx.own_interfaces().is_empty() && uncarried()
    }

    /// Whether the policy names interfaces, and not the one that carries the claim.
    pub(in crate::election) fn is_barred(&self, name: &LeaseName, claim: &DesiredClaim) -> bool {
        let carrying = self.tenures.get(name).and_then(|tenure| tenure.interface());
        !claim.interfaces.is_empty() && carrying.is_some_and(|carrying| !names(claim, carrying))
    }
}
