//! The interfaces of this node, and those of them that matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::own_links::links;
use crate::election::io::event::Interface;

/// For how long a subnet or a default route has to be as it is before anything moves for it.
pub(in crate::election) const SETTLED: Duration = Duration::from_secs(1);

impl Context {
    /// The interfaces of this node are these.
    pub(in crate::election) fn note_interfaces(
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

    /// Notes the interfaces that policies name for the claims that the cluster asks for. Returns whether they are
    /// others than before.
    pub(in crate::election) fn note_named(&mut self) -> bool {
        let claims = self.desired.iter().flat_map(|desired| desired.claims.values());
        let naming = claims.filter(|claim| !claim.interfaces.is_empty());
        let named: BTreeSet<_> = naming.map(|claim| claim.interfaces.clone()).collect();
        let changed = self.named != named;
        if changed {
            self.named = named;
            self.watch.note_all();
            self.choose_interfaces();
        }
        changed
    }

    /// An interface without an address does not matter until a policy names it: there may be hundreds.
    fn choose_interfaces(&mut self) {
        let matters = |name: &InterfaceName, link: &Interface| {
            let mut patterns = self.named.iter().flatten();
            !link.addresses.is_empty() || patterns.any(|pattern| pattern.matches(name))
        };
        let chosen = self.all_interfaces.iter().filter(|(name, link)| matters(name, link));
        let bared = self.bared.iter().filter(|(name, _)| !self.is_deleted(name));
        // Of two the later counts: as a link is now, where it matters so.
        let chosen = bared.chain(chosen);
        self.interfaces = chosen.map(|(name, link)| (name.clone(), link.clone())).collect();
        self.links = links(&self.interfaces);
        self.published.note_change();
    }

    /// Uses the addresses and default routes of this node for decisions, once they have lasted. Returns whether they
    /// have begun to count.
    pub(in crate::election) fn settle_readdressed(&mut self, now: Instant) -> bool {
        if self.readdressed.take_if(|at| now >= *at + SETTLED).is_none() {
            return false;
        }
        if !std::mem::take(&mut self.bared).is_empty() {
            self.watch.note_all();
            self.choose_interfaces();
        }
        true
    }

    pub(in crate::election) fn readdressed_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.readdressed.map(|at| at + SETTLED))
    }

    /// Whether a link of which nothing is said any more is gone, with what was served on it.
    pub(in crate::election) fn is_deleted(&self, name: &InterfaceName) -> bool {
        let mut ours = self.kernel.ours.values();
        !self.all_interfaces.contains_key(name) && !ours.any(|served| served.interface == *name)
    }
}
