//! Which claims a pass looks at.
//!
//! A claim is *settled* when a pass over it changes nothing and waits for nothing: another node owns
//! it, or this node does and serves it as it is asked to. It stays settled until its lease changes, a
//! request on it is answered, or something changes that all claims rest on. So an event costs what it
//! concerns, and not as much as there are claims.
//!
//! Whatever else a pass reads of a settled claim has to be noted here where it changes: sessions,
//! the own session and its ending, what is asked for, interfaces, and of which addresses the kernel
//! and what is served say anything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};

use super::election::Election;
use super::ending::Ending;
use super::tenure::Tenure;
use super::validity::Owner;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};

/// The claims that are not settled, as far as is known.
#[expect(clippy::struct_excessive_bools, reason = "each says one thing, and all combine")]
#[derive(Debug)]
pub(super) struct Open {
    names: BTreeSet<LeaseName>,
    /// Something has changed that all claims rest on: each of them is looked at.
    all: bool,
    /// What all claims rest on, as it was at the last pass.
    sessions: u64,
    session: Option<SessionId>,
    ending: Ending,
    /// What is served may differ from what was published: a claim that is held has changed, …
    pub(super) stale: bool,
    /// … or the time until which it is served.
    pub(super) served_until: Option<(Instant, Instant, bool)>,
    /// … or an address was yielded to another speaker, or is one no longer.
    pub(super) yielded: bool,
    /// Whether this node holds any claim.
    pub(super) holding: bool,
    /// Whether any of them lapses when the session is not renewed.
    pub(super) dropping: bool,
    /// The claims that govern each address that is asked for.
    governing: BTreeMap<IpAddr, Vec<LeaseName>>,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            names: BTreeSet::new(),
            all: true,
            sessions: 0,
            session: None,
            ending: Ending::No,
            stale: true,
            served_until: None,
            yielded: false,
            holding: false,
            dropping: false,
            governing: BTreeMap::new(),
        }
    }
}

impl Open {
    /// The next pass looks at this claim.
    pub(super) fn note(&mut self, name: &LeaseName) {
        if !self.names.contains(name) {
            self.names.insert(name.clone());
        }
    }

    /// The next pass looks at all claims.
    pub(super) const fn note_all(&mut self) {
        self.all = true;
    }

    /// The next pass looks at the claims of the addresses of which one map says something and the
    /// other does not.
    pub(super) fn note_changed<T, U>(
        &mut self,
        before: &BTreeMap<IpAddr, T>,
        now: &BTreeMap<IpAddr, U>,
    ) {
        let gone = before.keys().filter(|address| !now.contains_key(address));
        let new = now.keys().filter(|address| !before.contains_key(address));
        for address in gone.chain(new) {
            self.names.extend(self.governing.get(address).into_iter().flatten().cloned());
        }
    }

    /// The cluster asks for something else.
    pub(super) fn note_desired(&mut self, desired: &Desired) {
        self.all = true;
        self.governing.clear();
        for (name, claim) in &desired.claims {
            for address in &claim.addresses {
                self.governing.entry(*address).or_default().push(name.clone());
            }
        }
    }

    /// The claims that are not settled, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LeaseName> {
        self.names.iter()
    }

    /// The claims that are asked for with this address.
    pub(super) fn governing(&self, address: IpAddr) -> &[LeaseName] {
        self.governing.get(&address).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Election {
    /// The claims that this pass looks at, in the order of their names.
    pub(super) fn open_claims(&mut self) -> Vec<LeaseName> {
        let open = &mut self.open;
        open.all |= open.sessions != self.sessions.revision()
            || open.session != self.own.id
            || open.ending != self.own.ending;
        if std::mem::take(&mut open.all) {
            open.sessions = self.sessions.revision();
            open.session.clone_from(&self.own.id);
            open.ending = self.own.ending;
            open.stale = true;
            let known = self.claims.iter().map(|(name, _)| name);
            let asked = self.desired.iter().flat_map(|desired| desired.claims.keys());
            open.names = known.chain(asked).chain(self.tenures.keys()).cloned().collect();
        }
        open.names.iter().cloned().collect()
    }

    /// Keeps of the claims that were looked at those that the next pass has to look at again.
    pub(super) fn close_settled(
        &mut self,
        now: Instant,
        looked_at: &[LeaseName],
        desired: &Desired,
    ) {
        for name in looked_at {
            if self.is_settled(now, name, desired.claims.get(name)) {
                self.open.names.remove(name);
            }
        }
    }

    fn is_settled(&self, now: Instant, name: &LeaseName, claim: Option<&DesiredClaim>) -> bool {
        let stored = self.claims.get(name);
        let Some(tenure) = self.tenures.get(name) else {
            return claim.is_none() && stored.is_none_or(|stored| !self.is_in_doubt(stored));
        };
        let (Some(stored), Some(claim)) = (stored, claim) else { return false };
        let idle = !tenure.must_read
            && tenure.retry <= now
            && tenure.yielding.is_none()
            && tenure.provisional.is_none()
            && tenure.probing.is_none()
            && tenure.orphan.is_none()
            && tenure.handover.is_none()
            && stored.record.successor.is_none()
            && self.silences.forsaken(name).is_none();
        idle && match self.owner(stored) {
            Owner::Me => self.is_served_as_asked(name, tenure, stored, claim),
            Owner::Other(_) => !tenure.mine && !self.is_in_doubt(stored),
            Owner::Nobody => false,
        }
    }

    fn is_served_as_asked(
        &self,
        name: &LeaseName,
        tenure: &Tenure,
        stored: &Stored<Claim>,
        claim: &DesiredClaim,
    ) -> bool {
        let has = |address| self.is_served(address) && self.kernel.ours.contains_key(&address);
        let stays = self
            .desired
            .as_ref()
            .is_some_and(|desired| self.must_move(name, claim, desired).is_none());
        tenure.mine
            && tenure.leaving.is_none()
            && tenure.missing.is_none()
            && tenure.ineligible.is_none()
            && stays
            && stored.record.addresses == claim.addresses
            && stored.record.services == claim.services
            && stored.record.interface == tenure.interface
            && self.better_interface(tenure, claim).is_none()
            && claim.addresses.iter().all(|address| has(*address))
    }
}
