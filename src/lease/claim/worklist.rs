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

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::lease::claim::Claims;
use crate::lease::claim::addresses::lists;
use crate::lease::claim::timers::{For, Waiting};
use crate::lease::context::Context;
use crate::lease::context::owner::Owner;
use crate::lease::io::event::Target;
use crate::lease::placement::rank::weight;
use crate::lease::session::state::Ending;

/// The claims that are not settled, as far as is known.
#[derive(Debug)]
pub(in crate::lease) struct Open {
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
    pub(in crate::lease) fn note(&mut self, name: &LeaseName) {
        if !self.names.contains(name) {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The next pass looks at all that waits.
    pub(in crate::lease) fn note_waiting(&mut self) {
        self.names.extend(std::mem::take(&mut self.waiting).into_names());
    }

    /// The next pass looks at all claims.
    pub(in crate::lease) const fn note_all(&mut self) {
        self.all = true;
    }

    /// Something was said of this session, which has taken the revision of all from `before` to `now`: the
    /// next pass looks at what its node holds.
    pub(in crate::lease) fn note_session(&mut self, name: LeaseName, before: u64, now: u64) {
        if before != now && self.sessions == before {
            self.sessions = now;
            self.nodes.insert(name);
        }
    }

    /// The next pass looks at the claims of the addresses of which one map says something and the
    /// other does not.
    pub(in crate::lease) fn note_changed<T, U>(
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
    pub(in crate::lease) fn note_address(&mut self, address: IpAddr) {
        for name in self.governing.get(&address).into_iter().flatten() {
            self.waiting.remove(name);
            self.names.insert(name.clone());
        }
    }

    /// The cluster asks for something else of these claims, or, where nodes have changed, of all.
    pub(in crate::lease) fn note_desired(
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
    pub(in crate::lease) fn iter(&self) -> impl Iterator<Item = &LeaseName> {
        self.names.iter()
    }

    /// Those that wait, and are not looked at before their time.
    pub(in crate::lease) fn waiting(&self) -> impl Iterator<Item = &LeaseName> {
        self.waiting.names()
    }

    /// When the first of them is due.
    pub(in crate::lease) fn first_due(&self) -> Option<Instant> {
        self.waiting.first_due()
    }

    /// Takes out the orphan that has waited longest for a write to be answered; the next pass looks at it.
    pub(in crate::lease) fn next_for_room(&mut self) -> Option<LeaseName> {
        let name = self.waiting.next_for_room()?;
        self.names.insert(name.clone());
        Some(name)
    }

    /// Nothing is to be done about this claim.
    pub(in crate::lease) fn close(&mut self, name: &LeaseName) {
        self.names.remove(name);
    }

    /// Nothing is to be done about this claim before that.
    pub(in crate::lease) fn wait(&mut self, name: &LeaseName, what: For) {
        self.names.remove(name);
        self.waiting.insert(name.clone(), what);
    }

    /// Whether the next pass looks at this claim, or one that comes.
    pub(in crate::lease) fn contains(&self, name: &LeaseName) -> bool {
        self.names.contains(name) || self.waiting.contains(name)
    }

    /// The claims that are asked for with this address.
    pub(in crate::lease) fn governing(&self, address: IpAddr) -> impl Iterator<Item = &LeaseName> {
        self.governing.get(&address).into_iter().flatten()
    }
}

impl Claims {
    /// The claims that this pass looks at, in the order of their names.
    pub(in crate::lease) fn open_claims(
        &mut self,
        cx: &mut Context,
        now: Instant,
    ) -> Vec<LeaseName> {
        let open = &mut self.open;
        open.names.extend(open.waiting.take_due(now));
        open.all |= open.sessions != cx.sessions().revision()
            || open.session.as_ref() != cx.own().id()
            || open.ending != cx.own().ending();
        let nodes = std::mem::take(&mut open.nodes);
        if std::mem::take(&mut open.all) {
            if open.sessions != cx.sessions().revision() || !nodes.is_empty() {
                cx.watch_mut().note_all();
            }
            open.sessions = cx.sessions().revision();
            open.session = cx.own().id().cloned();
            open.ending = cx.own().ending();
            cx.published_mut().touch_all();
            open.waiting = Waiting::default();
            let known = cx.claims().iter().map(|(name, _)| name);
            let asked = cx.desired().into_iter().flat_map(|desired| desired.claims.keys());
            open.names = known.chain(asked).chain(self.tenures.keys()).cloned().collect();
        } else if !nodes.is_empty() {
            let concerned = |stored: &&Arc<Stored<Claim>>| {
                let holder = stored.record.holder.as_ref();
                holder.is_some_and(|it| *it == cx.config().node || nodes.contains(it.as_str()))
            };
            let concerned = cx.claims().stored().filter(concerned);
            let concerned: Vec<LeaseName> = concerned.map(|stored| stored.name.clone()).collect();
            for name in concerned {
                cx.watch_mut().note_claim(&name, true);
                open.names.insert(name);
            }
            open.names.extend(cx.published().counting().cloned());
            // Orphans rest on all sessions: those are their candidates.
            open.note_waiting();
            cx.published_mut().touch_record();
        }
        open.names.iter().cloned().collect()
    }

    /// What an orphan, or a claim that lists nothing yet, waits for, where nothing else is to be done about it.
    pub(in crate::lease) fn waits_for(
        &self,
        cx: &Context,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
    ) -> Option<For> {
        let (tenure, claim) = (self.tenures.get(name)?, claim?);
        let stored = cx.claims().get(name);
        let nobodys = stored.is_none_or(|stored| {
            cx.owner(stored) == Owner::Nobody && stored.record.successor.is_none()
        });
        let idle = !tenure.mine
            && !tenure.must_read
            && tenure.leaving.is_none()
            && tenure.yielding.is_none()
            && tenure.provisional.is_none()
            && tenure.probing.is_none()
            && tenure.handover.is_none()
            && !cx.forsaken().contains_key(name)
            && !cx.is_pending(&Target::Claim(name.clone()));
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
        let turn = Self::turn(cx, orphan).max(tenure.retry);
        let round_ends = Self::round_ends(cx, orphan);
        let due = turn.min(round_ends);
        if now < due {
            return Some(For::Time(due));
        }
        // Others whose turn it is as well begin with other claims.
        let order = || weight(name.as_str(), cx.config().node.as_str());
        let waits = orphan.place.is_some() && now < round_ends && !self.has_room(cx);
        waits.then(|| For::Room { turn, order: order(), round_ends })
    }
}
