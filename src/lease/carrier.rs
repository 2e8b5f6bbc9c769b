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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::election::Election;
use super::event::{Action, Interface};
use super::leaving::{Leaving, Reason};
use super::requests::Purpose;
use super::segment::{Segment, names};
use super::session::links;
use super::tenure::Tenure;
use crate::clock::Instant;
use crate::desired::DesiredClaim;

/// Why what an interface without a carrier carried is given up.
pub(super) const CARRIER_LOST: &str = "carrier lost";
/// For how long a subnet or a default route has to be as it is before anything moves for it.
const SETTLED: Duration = Duration::from_secs(1);

impl Election {
    /// The interfaces of this node are these.
    pub(super) fn note_interfaces(
        &mut self,
        now: Instant,
        interfaces: BTreeMap<InterfaceName, Interface>,
    ) {
        let readdressed = interfaces.iter().any(|(name, link)| {
            let before = self.all_interfaces.get(name);
            before.is_some_and(|before| {
                before.addresses != link.addresses
                    || before.default_routes != link.default_routes
                    || before.detours != link.detours
            })
        });
        let is_bare = |name: &InterfaceName| {
            let link = interfaces.get(name);
            link.is_none_or(|link| link.carrier && link.addresses.is_empty())
        };
        let had = self.interfaces.iter().filter(|(_, link)| !link.addresses.is_empty());
        let bared = had.filter(|(name, _)| is_bare(name) && !self.bared.contains_key(*name));
        let bared: Vec<_> = bared.map(|(name, link)| (name.clone(), link.clone())).collect();
        if readdressed || !bared.is_empty() {
            self.readdressed = Some(now);
        }
        self.bared.retain(|name, _| is_bare(name));
        self.bared.extend(bared);
        self.all_interfaces = interfaces;
        self.choose_interfaces();
    }

    /// What policies name for what is asked for now.
    pub(super) fn note_named(&mut self) {
        let claims = self.desired.iter().flat_map(|desired| desired.claims.values());
        let naming = claims.filter(|claim| !claim.interfaces.is_empty());
        let named: BTreeSet<_> = naming.map(|claim| claim.interfaces.clone()).collect();
        if self.named != named {
            self.named = named;
            self.watch.stale = true;
            self.choose_interfaces();
        }
    }

    /// Of an interface without an address nothing is said until a policy names it: there may be hundreds.
    fn choose_interfaces(&mut self) {
        let all = self.all_interfaces.iter();
        let matters = |name: &InterfaceName, link: &Interface| {
            let mut patterns = self.named.iter().flatten();
            !link.addresses.is_empty() || patterns.any(|pattern| pattern.matches(name))
        };
        let chosen = all.filter(|(name, link)| matters(name, link));
        let bared = self.bared.iter().filter(|(name, _)| !self.is_deleted(name));
        // Of two the later counts: as a link is now, where it matters so.
        let chosen = bared.chain(chosen);
        self.interfaces = chosen.map(|(name, link)| (name.clone(), link.clone())).collect();
        self.links = links(&self.interfaces);
        self.published.changes += 1;
        self.open.note_all();
    }

    pub(super) fn readdressed_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.readdressed.map(|at| at + SETTLED))
    }

    /// Has what this node's addresses and default routes say count, once that has lasted.
    pub(super) fn settle_readdressed(&mut self, now: Instant) {
        if self.readdressed.take_if(|at| now >= *at + SETTLED).is_none() {
            return;
        }
        self.open.note_all();
        if !std::mem::take(&mut self.bared).is_empty() {
            self.watch.stale = true;
            self.choose_interfaces();
        }
    }

    /// Whether a link of which nothing is said any more is gone, with what was served on it.
    fn is_deleted(&self, name: &InterfaceName) -> bool {
        let mut ours = self.kernel.ours.values();
        !self.all_interfaces.contains_key(name) && !ours.any(|served| served.interface == *name)
    }

    /// The interface that fits a claim of this node better than the one that carries it.
    pub(super) fn better_interface(
        &self,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<&InterfaceName> {
        let present = tenure.interface.as_ref()?;
        let (best, link) = self.local_interface(claim)?;
        let worth = Segment::of((best, link)).worth(claim);
        let carries = self.interfaces.get_key_value(present).filter(|(_, link)| link.carrier);
        if carries.is_some() && self.readdressed.is_some() {
            return None;
        }
        let present_worth = carries.and_then(|carrying| Segment::of(carrying).worth(claim));
        (best != present && present_worth < worth).then_some(best)
    }

    /// Has another interface carry what the one that does cannot carry as well any more, once somebody has
    /// answered there.
    pub(super) fn keep_interface(&mut self, now: Instant, name: &LeaseName, claim: &DesiredClaim) {
        let may_stay = |it: &Tenure| it.leaving.as_ref().is_none_or(Leaving::is_for_a_link);
        let idle = |tenure: &&Tenure| tenure.mine && tenure.probing.is_none() && may_stay(tenure);
        let tenure = self.tenures.get(name).filter(idle);
        let Some((tenure, better)) =
            tenure.and_then(|tenure| Some((tenure, self.better_interface(tenure, claim)?)))
        else {
            return;
        };
        let heard = self.may_take(now, tenure, claim).filter(|(chosen, _)| chosen == better);
        if let Some((better, _)) = heard {
            self.with(name, |tenure| tenure.interface = Some(better));
        }
    }

    /// Gives up what lost its carrier: all claims with one write where all are concerned.
    pub(super) fn keep_link(&mut self, now: Instant, names: &[LeaseName]) {
        let mut lost = Vec::new();
        for name in names {
            let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.mine) else {
                continue;
            };
            if self.has_lost_carrier(tenure) {
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
                tenure.leaving = Some(Leaving::new(Reason::Link, CARRIER_LOST));
                tenure.retry = now;
            }
        }
    }

    /// Whether the interface that carries what this node owns has no carrier.
    pub(super) fn has_lost_carrier(&self, tenure: &Tenure) -> bool {
        let Some(name) = &tenure.interface else { return false };
        let carries = self.interfaces.get(name).is_some_and(|interface| interface.carrier);
        !carries || self.bared.contains_key(name) && self.is_deleted(name)
    }

    /// Whether a link is down and what it carried is still this node's. First that is given up: all that
    /// would be said before of the link keeps others from hearing that nobody answers there any more.
    pub(super) fn gives_up_a_link(&self) -> bool {
        self.tenures.values().any(|tenure| tenure.mine && self.has_lost_carrier(tenure))
    }

    /// The interface that carries a claim of this node, and its MAC address where there is such an interface.
    pub(super) fn carried_by(&self, name: &LeaseName) -> Option<(&InterfaceName, Option<MacAddr>)> {
        let interface = self.tenures.get(name)?.interface.as_ref()?;
        Some((interface, self.interfaces.get(interface).map(|link| link.mac)))
    }

    /// Whether the lease says which interface carries a claim of this node, and with which MAC address.
    pub(super) fn is_interface_told(&self, stored: &Stored<Claim>) -> bool {
        let record = &stored.record;
        let (interface, mac) = self.carried_by(&stored.name).unzip();
        let same = interface == record.interface.as_ref() && mac.flatten() == record.mac;
        same || mac.flatten().is_none()
    }

    /// Says so where it has changed; returns whether it has.
    pub(super) fn tell_interface(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
        if self.is_interface_told(stored) || !due || !self.has_room() {
            return false;
        }
        let record = self.held_record(stored);
        self.put_claim(now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
        true
    }

    /// Whether none of this node's interfaces can carry `claim` now.
    pub(super) fn is_uncarried(&self, claim: &DesiredClaim) -> bool {
        let uncarried = || self.local_interface(claim).is_none();
        self.readdressed.is_none() && !self.interfaces.is_empty() && uncarried()
    }

    /// Whether the policy names interfaces, and not the one that carries the claim.
    pub(super) fn is_barred(&self, name: &LeaseName, claim: &DesiredClaim) -> bool {
        let carrying = self.tenures.get(name).and_then(|tenure| tenure.interface.as_ref());
        !claim.interfaces.is_empty() && carrying.is_some_and(|carrying| !names(claim, carrying))
    }
}
