//! Which claims a pass looks at.
//!
//! A claim is *settled* when a pass over it changes nothing and waits for nothing: another node owns
//! it, or this node does and serves it as it is asked to. It stays settled until its lease or its holder's
//! session changes, a request on it is answered, or something changes that all claims rest on. An orphan *waits* for its
//! turn, or for one of the writes that are under way to be answered (`waiting`), and is looked at before
//! that for the same reasons only. So an event costs what it concerns, and not as much as there are claims.
//!
//! Whatever else a pass reads of a settled claim has to be noted here where it changes: sessions (of all
//! that is settled elsewhere a pass reads the holder's alone), the own session and its ending, what is asked for, interfaces, and of which addresses the kernel
//! and what is served say anything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};

use super::election::Election;
use super::ending::Ending;
use super::event::Target;
use super::listed::lists;
use super::place::weight;
use super::tenure::Tenure;
use super::validity::Owner;
use super::waiting::{For, Waiting};
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};

/// The claims that are not settled, as far as is known.
#[derive(Debug)]
pub(super) struct Open {
    names: BTreeSet<LeaseName>,
    /// Those at which nothing is to be done before their time.
    waiting: Waiting,
    /// Something has changed that all claims rest on: each of them is looked at.
    all: bool,
    /// The nodes whose sessions have changed since the last pass.
    nodes: BTreeSet<LeaseName>,
    /// The revision of the sessions up to which that is known.
    sessions: u64,
    /// What all claims rest on, as it was at the last pass.
    session: Option<SessionId>,
    ending: Ending,
    /// The claims that govern each address that is asked for.
    governing: BTreeMap<IpAddr, Vec<LeaseName>>,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            names: BTreeSet::new(),
            waiting: Waiting::default(),
            all: true,
            nodes: BTreeSet::new(),
            sessions: 0,
            session: None,
            ending: Ending::No,
            governing: BTreeMap::new(),
        }
    }
}

impl Open {
    /// The next pass looks at this claim.
    pub(super) fn note(&mut self, name: &LeaseName) {
        if !self.names.contains(name) {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The next pass looks at all that waits.
    pub(super) fn note_waiting(&mut self) {
        self.names.extend(std::mem::take(&mut self.waiting).into_names());
    }

    /// The next pass looks at all claims.
    pub(super) const fn note_all(&mut self) {
        self.all = true;
    }

    /// Something was said of this session, which has taken the revision of all from `before` to `now`: the
    /// next pass looks at what its node holds.
    pub(super) fn note_session(&mut self, name: LeaseName, before: u64, now: u64) {
        if before != now && self.sessions == before {
            self.sessions = now;
            self.nodes.insert(name);
        }
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
            self.note_address(*address);
        }
    }

    /// The next pass looks at the claims of this address.
    pub(super) fn note_address(&mut self, address: IpAddr) {
        for name in self.governing.get(&address).into_iter().flatten() {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The cluster asks for something else of these claims, or, where nodes have changed, of all.
    pub(super) fn note_desired(
        &mut self,
        before: Option<&Desired>,
        desired: &Desired,
        changed: &[LeaseName],
    ) {
        self.all |= before.is_none_or(|before| before.nodes != desired.nodes);
        for name in changed {
            let addresses = |desired: &Desired| {
                let claim = desired.claims.get(name);
                claim.map(|claim| claim.addresses.clone()).unwrap_or_default()
            };
            for address in before.map(addresses).into_iter().flatten() {
                if let Some(names) = self.governing.get_mut(&address) {
                    names.retain(|known| known != name);
                    if names.is_empty() {
                        self.governing.remove(&address);
                    }
                }
            }
            for address in addresses(desired) {
                let names = self.governing.entry(address).or_insert_with(|| Vec::with_capacity(1));
                let at = names.partition_point(|known| known < name);
                names.insert(at, name.clone());
            }
            self.note(name);
        }
    }

    /// The claims that are not settled, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LeaseName> {
        self.names.iter()
    }

    /// Those that wait, and are not looked at before their time.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &LeaseName> {
        self.waiting.names()
    }

    /// When the first of them is due.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.waiting.first_due()
    }

    /// Takes out the orphan that has waited longest for a write to be answered; the next pass looks at it.
    pub(super) fn next_for_room(&mut self) -> Option<LeaseName> {
        let name = self.waiting.next_for_room()?;
        self.names.insert(name.clone());
        Some(name)
    }

    /// Nothing is to be done about this claim.
    pub(super) fn close(&mut self, name: &LeaseName) {
        self.names.remove(name);
    }

    /// Nothing is to be done about this claim before that.
    pub(super) fn wait(&mut self, name: &LeaseName, what: For) {
        self.names.remove(name);
        self.waiting.insert(name.clone(), what);
    }

    /// Whether the next pass looks at this claim, or one that comes.
    pub(super) fn contains(&self, name: &LeaseName) -> bool {
        self.names.contains(name) || self.waiting.contains(name)
    }

    /// The claims that are asked for with this address.
    pub(super) fn governing(&self, address: IpAddr) -> impl Iterator<Item = &LeaseName> {
        self.governing.get(&address).into_iter().flatten()
    }
}

impl Election {
    /// The claims that this pass looks at, in the order of their names.
    pub(super) fn open_claims(&mut self, now: Instant) -> Vec<LeaseName> {
        let open = &mut self.open;
        open.names.extend(open.waiting.take_due(now));
        open.all |= open.sessions != self.sessions.revision()
            || open.session != self.own.id
            || open.ending != self.own.ending;
        let nodes = std::mem::take(&mut open.nodes);
        if std::mem::take(&mut open.all) {
            self.watch.stale |= open.sessions != self.sessions.revision() || !nodes.is_empty();
            open.sessions = self.sessions.revision();
            open.session.clone_from(&self.own.id);
            open.ending = self.own.ending;
            self.published.all = true;
            open.waiting = Waiting::default();
            let known = self.claims.iter().map(|(name, _)| name);
            let asked = self.desired.iter().flat_map(|desired| desired.claims.keys());
            open.names = known.chain(asked).chain(self.tenures.keys()).cloned().collect();
        } else if !nodes.is_empty() {
            let concerned = |stored: &&Arc<Stored<Claim>>| {
                let holder = stored.record.holder.as_ref();
                holder.is_some_and(|it| *it == self.config.node || nodes.contains(it.as_str()))
            };
            for stored in self.claims.stored().filter(concerned) {
                self.watch.note_claim(&stored.name, true);
                open.names.insert(stored.name.clone());
            }
            open.names.extend(self.published.counting().cloned());
            // Orphans rest on all sessions: those are their candidates.
            open.note_waiting();
            self.published.touch_record();
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
            let claim = desired.claim(name);
            if self.is_settled(now, name, claim) {
                self.open.close(name);
            } else if let Some(what) = self.waits_for(now, name, claim) {
                self.open.wait(name, what);
            }
        }
        debug_assert_eq!(self.overlooked(now, desired), None, "it is neither settled nor open");
    }

    /// A claim that is not settled and at which the next pass would not look: there is none.
    fn overlooked(&self, now: Instant, desired: &Desired) -> Option<&LeaseName> {
        let mut closed =
            self.claims.iter().map(|(name, _)| name).filter(|name| !self.open.contains(name));
        closed.find(|name| !self.is_settled(now, name, desired.claim(name)))
    }

    /// What an orphan, or a claim that lists nothing yet, waits for, where nothing else is to be done about it.
    fn waits_for(
        &self,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
    ) -> Option<For> {
        let (tenure, claim) = (self.tenures.get(name)?, claim?);
        let stored = self.claims.get(name);
        let nobodys = stored.is_none_or(|stored| {
            self.owner(stored) == Owner::Nobody && stored.record.successor.is_none()
        });
        let idle = !tenure.mine
            && !tenure.must_read
            && tenure.leaving.is_none()
            && tenure.yielding.is_none()
            && tenure.provisional.is_none()
            && tenure.probing.is_none()
            && tenure.handover.is_none()
            && !self.forsaken.contains_key(name)
            && !self.is_pending(&Target::Claim(name.clone()));
        if !nobodys || !idle {
            return None;
        }
        let Some(orphan) = &tenure.orphan else {
            let listed = stored.is_some_and(|stored| lists(stored, claim));
            if listed && self.awaits_others(tenure, claim) {
                return self.joined_by().map(For::Time);
            }
            return (!listed).then_some(For::News);
        };
        let turn = self.turn(orphan).max(tenure.retry);
        let round_ends = self.round_ends(orphan);
        let due = turn.min(round_ends);
        if now < due {
            return Some(For::Time(due));
        }
        // Others whose turn it is as well begin with other claims.
        let order = || weight(name.as_str(), self.config.node.as_str());
        let waits = orphan.place.is_some() && now < round_ends && !self.has_room();
        waits.then(|| For::Room { turn, order: order(), round_ends })
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
            && !self.forsaken.contains_key(name);
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
            && self.is_interface_told(stored)
            && self.better_interface(tenure, claim).is_none()
            && stored.record.addresses == claim.addresses
            && stored.record.services == claim.services
            && claim.addresses.iter().all(|address| has(*address))
    }
}
