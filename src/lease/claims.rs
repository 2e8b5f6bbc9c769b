//! The claims: in each pass those that are open are settled, taken, held or given up.
//!
//! Everything here is level-triggered: each pass looks at what is stored, what is asked for and
//! what this node believes to hold, and does what is missing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::NodeName;

use super::election::{Election, is_begun_anew};
use super::eligible::Missing;
use super::event::{Action, Answer, Change, Fact, Target, Write};
use super::handover::{Handover, Yielding};
use super::leaving::Leaving;
use super::listed::List;
use super::orphans::LastOwner;
use super::refresh::{IN_FLIGHT, THROTTLED};
use super::requests::{Pending, Purpose};
use super::story::{Cause, OwnerId};
use super::taking::{Acquire, Why};
use super::improve::JOINED;
use super::tenure::Tenure;
use super::validity::Owner;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};

/// How long after a failed request on a claim the next is sent.
const RETRY: Duration = Duration::from_millis(250);
/// How long an address that no service asks for stays on the list of a claim: the watch on the services
/// may be behind the operator, which has just put it there.
const UNASKED: Duration = Duration::from_secs(1);
/// The same of an address that is asked for under another claim, which waits for it.
const ELSEWHERE: Duration = Duration::from_millis(100);

/// What a claim says that its owner gave up.
pub(super) fn released_by(owner: &NodeName, cause: &str) -> String {
    format!("released by {owner}: {cause}")
}

/// Signs that a claim was given out that nobody had.
#[derive(Clone, Copy, Debug, Default)]
struct GivenOut {
    /// It has an owner now, and had none.
    seen: bool,
    /// It was given to this node because it had joined.
    taken: bool,
}

impl Election {
    pub(super) fn claims_deadline(&self) -> Option<Instant> {
        self.own.id.as_ref()?;
        let mut deadlines = Vec::new();
        for name in self.open.iter() {
            let Some(tenure) = self.tenures.get(name) else { continue };
            if self.is_pending(&Target::Claim(name.clone())) {
                continue;
            }
            if let Some(orphan) = &tenure.orphan
                && self.desired_claim(name).is_some()
            {
                deadlines.push(self.turn(orphan).max(tenure.retry));
                deadlines.push(self.round_ends(orphan));
                deadlines.push(self.api_given_up(orphan.since));
                deadlines.extend(tenure.ineligible.as_ref().map(|ineligible| ineligible.until));
            }
            if let (Some(_), Some(ineligible)) = (&tenure.leaving, &tenure.ineligible) {
                deadlines.push(ineligible.until);
            }
            deadlines.extend(tenure.missing.iter().flat_map(Missing::deadlines));
            deadlines.extend(tenure.unasked.map(|since| since + UNASKED));
            deadlines.extend(tenure.unasked.map(|since| since + ELSEWHERE));
            deadlines.push(tenure.retry);
        }
        deadlines.extend(self.open.first_due());
        deadlines.extend((self.published.count() > 0).then_some(self.refresh.due));
        deadlines.extend(self.asking_around());
        self.first_ahead(deadlines)
    }

    pub(super) fn desired_claim(&self, name: &LeaseName) -> Option<&DesiredClaim> {
        self.desired.as_ref().and_then(|desired| desired.claim(name))
    }

    pub(super) fn advance_claims(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(desired) = self.desired.clone() else { return };
        let names = self.open_claims(now);
        for name in &names {
            // A claim that nobody asks for is looked at as long as it is ours to give up.
            let ours = || self.claims.get(name).is_some_and(|stored| self.names_us(stored));
            if desired.claims.contains_key(name) || ours() {
                self.tenures.begin(now, name);
            }
        }
        self.touch_counting(&names);
        for name in &names {
            self.note_holder(name);
            let given_out = self.settle_owner(now, name, actions);
            if given_out.seen {
                self.improving.note_given_out(now);
            }
            if given_out.taken {
                self.improving.note_given_out(now);
            }
            self.tell_served(now, name, actions);
        }
        self.give_up_listed(&names);
        if self.own.id.is_some() {
            self.resolve_doubts(now, &names, actions);
            self.rank_orphans(now, &names, &desired);
            for name in &names {
                if let Some(claim) = desired.claims.get(name) {
                    self.keep_interface(now, name, claim);
                }
            }
            self.keep_link(now, &names);
            self.keep_what_may_stay(now, &names, actions);
            for name in &names {
                self.pursue(now, name, &desired, actions);
            }
            while self.has_room()
                && let Some(name) = self.open.next_for_room()
            {
                self.pursue(now, &name, &desired, actions);
            }
            self.improve(now, &desired);
            self.advance_handovers(now, &names, &desired, actions);
            self.refresh_in_turn(now, actions);
        }
        self.touch_counting(&names);
        for name in &names {
            let ours = self.claims.get(name).is_some_and(|stored| self.names_us(stored));
            let kept = |tenure: &Tenure| tenure.mine || tenure.yielding.is_some() || ours;
            if !desired.claims.contains_key(name) && !self.tenures.get(name).is_some_and(kept) {
                self.tenures.remove(name);
                self.claims.prune(name);
            }
        }
        self.close_settled(now, &names, &desired);
    }

    /// What is served of those of these claims that count may change, or has changed.
    fn touch_counting(&mut self, names: &[LeaseName]) {
        for name in names {
            if self.tenures.get(name).is_some_and(Tenure::counts) {
                self.published.touch(name);
            }
        }
    }

    /// Brings what this node believes to own in line with what is stored.
    fn settle_owner(
        &mut self,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) -> GivenOut {
        let mut given_out = GivenOut::default();
        let stored = self.claims.get(name).cloned();
        let owner = stored.as_ref().map_or(Owner::Nobody, |stored| self.owner(stored));
        let (live, own) = (self.own.id.is_some(), self.own_id());
        // An owner goes on until it is known whether another one is valid.
        let doubtful = stored.as_ref().is_some_and(|stored| self.is_in_doubt(stored));
        if owner != Owner::Nobody && !doubtful {
            self.note_owned(now);
        }
        let Some(tenure) = self.tenures.get_mut(name) else { return given_out };
        if doubtful && tenure.mine && live {
            return given_out;
        }
        if let (Some(stored), Owner::Nobody) = (&stored, &owner) {
            tenure.note_given_up(now, stored);
            tenure.anew = self.joining.is_starting(now)
                && tenure.last.as_ref().is_some_and(|last| {
                    let session = self.sessions.get(last.node.as_str());
                    session.is_some_and(|now| is_begun_anew(&last.node, &last.session, now))
                });
        }
        if let (Some(stored), Owner::Me | Owner::Other(_)) = (&stored, &owner) {
            let record = &stored.record;
            let last = record.session.clone().zip(record.holder.clone()).map(|(session, node)| {
                let successor = record.successor.as_ref().map(|successor| successor.node.clone());
                LastOwner { node, session, transitions: record.transitions, successor }
            });
            if tenure.note_owner(now, last) {
                given_out.seen = true;
            }
            if !self.forsaken.contains_key(name) {
                tenure.orphan = None;
            }
        }
        let asked = self.desired.as_ref().and_then(|desired| desired.claim(name));
        if stored.as_ref().is_some_and(|stored| stored.record.took == tenure.took) {
            tenure.took = None;
        }
        match owner {
            Owner::Me if !tenure.mine => {
                let Some(stored) = stored else { return given_out };
                tenure.mine = true;
                tenure.yielding = None;
                tenure.orphan = None;
                given_out.taken = stored.record.cause.ends_with(JOINED);
                let provisional = tenure.provisional.take().filter(|_| tenure.probing.is_none());
                if provisional.is_none() {
                    self.ownerships += 1;
                    tenure.ownership = self.ownerships;
                }
                tenure.interface.clone_from(&stored.record.interface);
                tenure.list = List::of(&stored.record);
                let story =
                    provisional.map(|it| it.story).or_else(|| tenure.story.as_deref().cloned());
                if std::mem::take(&mut tenure.vacant) {
                    let waits = self.await_rules(now, name);
                    self.with(name, |tenure| tenure.unproxied = waits);
                    self.probe_first(now, name, &stored, actions);
                }
                let (claim, cause) = (name.clone(), stored.record.cause.clone());
                let after =
                    story.as_ref().map_or(Duration::ZERO, |it| now.saturating_since(it.began));
                Self::report(Fact::Claimed { claim, cause, story, after }, actions);
            }
            Owner::Other(node) if tenure.mine => {
                tenure.yielding = stored.and_then(|stored| {
                    let named =
                        tenure.handover.as_ref().and_then(Handover::successor) == Some(&node);
                    named.then(|| Box::new(Yielding::new(now, node.clone(), &stored)))
                });
                tenure.end();
                let (claim, cause) = (name.clone(), format!("now owned by {node}"));
                Self::report(Fact::Yielded { claim, cause, owner: own }, actions);
            }
            Owner::Nobody if tenure.mine && !live => tenure.end(),
            Owner::Me => {
                if let Some(stored) = stored.filter(|stored| !tenure.list.is_of(&stored.record)) {
                    tenure.relist(List::of(&stored.record), asked);
                }
            }
            Owner::Nobody if tenure.mine => {
                let emptied = tenure.list.emptied();
                tenure.relist(emptied, asked);
            }
            Owner::Other(_) | Owner::Nobody => {}
        }
        given_out
    }

    pub(super) fn lose_all_claims(
        &mut self,
        cause: &str,
        owner: Option<&OwnerId>,
        actions: &mut Vec<Action>,
    ) {
        self.open.note_all();
        for (name, tenure) in self.tenures.iter_mut() {
            tenure.yielding = None;
            if tenure.provisional.take().is_some() {
                tenure.probing = None;
            }
            if tenure.mine {
                tenure.end();
                let (claim, cause) = (name.clone(), cause.to_owned());
                Self::report(Fact::Yielded { claim, cause, owner: owner.cloned() }, actions);
            }
        }
    }

    /// Does what is due about one claim.
    fn pursue(
        &mut self,
        now: Instant,
        name: &LeaseName,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let claim = desired.claim(name);
        if let Some(claim) = claim.filter(|_| self.is_blocked(name)) {
            let acquire = self.outlive_outage(now, name, claim, actions);
            self.acquire(now, name, claim, acquire, desired, actions);
        }
        let acquire = self.advance_claim(now, name, claim, actions);
        if let Some(claim) = claim {
            self.acquire(now, name, claim, acquire, desired, actions);
        }
    }

    fn acquire(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        acquire: Option<Acquire>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        match acquire {
            Some(Acquire::Succeed(stored)) => {
                self.succeed(now, name, claim, &stored, desired, actions);
            }
            Some(Acquire::Provisionally(stored)) => {
                self.take_provisionally(now, name, claim, stored.as_deref(), actions);
            }
            None => {}
        }
    }

    /// Whether a request on the claim has to be answered, or to be sent, first.
    fn is_blocked(&self, name: &LeaseName) -> bool {
        let pending = || self.is_pending(&Target::Claim(name.clone()));
        self.tenures.get(name).is_some_and(|tenure| tenure.must_read || pending())
    }

    fn advance_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        actions: &mut Vec<Action>,
    ) -> Option<Acquire> {
        let target = Target::Claim(name.clone());
        let pending = self.is_pending(&target);
        let Some(tenure) = self.tenures.get(name).filter(|_| !pending) else { return None };
        if tenure.must_read && now >= tenure.retry {
            self.with(name, |tenure| tenure.must_read = false);
            self.read(now, target, actions);
            return None;
        }
        if tenure.must_read {
            return None;
        }
        if tenure.mine {
            self.hold_claim(now, name, claim, actions);
        } else if let Some(claim) = claim {
            return self.take_claim(now, name, claim, actions);
        } else if let Some(stored) = self.claims.get(name).filter(|stored| self.names_us(stored)) {
            // Set back to when it was ours, and nobody but us can tell that it is not any more.
            let stored = Arc::clone(stored);
            self.leave_claim(now, name, &stored, &Leaving::unasked(), actions);
        }
        None
    }

    fn hold_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        actions: &mut Vec<Action>,
    ) {
        let stored = self.claims.get(name).cloned();
        let owned = stored.as_ref().is_some_and(|stored| self.owner(stored) == Owner::Me);
        if stored.as_ref().is_some_and(|stored| self.is_in_doubt(stored)) {
            return;
        }
        if !owned {
            // Deleted, edited, or our session was: nobody else owns it, so it is still ours.
            let edited = "lease or session was deleted or edited";
            let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
            let released = stored.as_ref().is_some_and(|stored| stored.record.holder.is_none());
            let leaving = self.tenures.get(name).is_some_and(|tenure| tenure.leaving.is_some());
            match claim {
                // Its release was carried out, and the answer lost.
                Some(_) if leaving && released => self.with(name, Tenure::end),
                Some(claim) if due && self.has_room() => {
                    let why = Why::new(edited.to_owned(), Cause::Edit, now);
                    self.put_taken(now, name, claim, stored, why, actions);
                }
                Some(_) => {}
                None => self.with(name, Tenure::end),
            }
            return;
        }
        let Some(stored) = stored else { return };
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(claim) = claim else {
            self.leave_claim(now, name, &stored, &Leaving::unasked(), actions);
            return;
        };
        if let Some(leaving) = tenure.leaving.clone() {
            if !leaving.is_over() {
                self.leave_claim(now, name, &stored, &leaving, actions);
            }
            return;
        }
        if self.check_kernel(now, name, claim, &stored, actions)
            || self.tell_interface(now, name, &stored, actions)
        {
            return;
        }
        let unasked = !stored.record.addresses.is_subset(&claim.addresses);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        tenure.unasked = unasked.then(|| tenure.unasked.unwrap_or(now));
        let elsewhere = {
            let mut unasked = stored.record.addresses.difference(&claim.addresses);
            unasked.all(|address| self.open.governing(*address).next().is_some())
        };
        let withdrawn = || {
            let mut unasked = stored.record.addresses.difference(&claim.addresses);
            unasked.all(|address| stored.record.withdrawn.contains(address))
        };
        let patience = match elsewhere {
            _ if withdrawn() => Duration::ZERO,
            true => ELSEWHERE,
            false => UNASKED,
        };
        let due =
            now >= tenure.retry && tenure.unasked.is_some_and(|since| now >= since + patience);
        // What is listed no longer goes from the kernel before it goes from the claim.
        let gone =
            stored.record.addresses.difference(&claim.addresses).all(|a| self.is_removed(*a));
        if gone && due && self.has_room() {
            let mut record = self.held_record(&stored);
            record.addresses.retain(|address| claim.addresses.contains(address));
            self.put_claim(now, name, Some(stored), record, Purpose::Refresh, actions);
        }
    }

    /// First the addresses go, then the claim.
    pub(super) fn leave_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        leaving: &Leaving,
        actions: &mut Vec<Action>,
    ) {
        let unlisted = self.tenures.get(name).map(|tenure| &tenure.unlisted);
        let mut addresses = stored.record.addresses.iter().chain(unlisted.into_iter().flatten());
        let removed = addresses.all(|address| self.is_removed(*address));
        let whole_session = self.own.release;
        let room = self.has_room();
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if tenure.leaving.is_none() {
            tenure.leaving = Some(leaving.clone());
            tenure.retry = now;
        }
        if !removed || whole_session || !room || now < tenure.retry {
            return;
        }
        let record = Claim {
            holder: None,
            session: None,
            successor: None,
            interface: None,
            mac: None,
            transitions: self.next_claim_transitions(name),
            cause: released_by(&self.config.node, &leaving.cause),
            ..stored.record.clone()
        };
        self.put_claim(now, name, Some(Arc::clone(stored)), record, Purpose::Release, actions);
    }

    /// What a claim of ours says now.
    pub(super) fn held_record(&self, stored: &Stored<Claim>) -> Claim {
        let tenure = self.tenures.get(&stored.name);
        let (interface, mac) = self.carried_by(&stored.name).unzip();
        Claim {
            duration_seconds: self.claim_duration(),
            mac: mac.flatten(),
            interface: interface.cloned(),
            took: tenure.and_then(|tenure| tenure.took).or(stored.record.took),
            ..stored.record.clone()
        }
    }

    pub(super) fn put_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        base: Option<Arc<Stored<Claim>>>,
        record: Claim,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let change = Change { name: name.clone(), base, record };
        self.write(now, Write::Claim(change), purpose, actions);
    }

    pub(super) fn claim_answered(
        &mut self,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
    ) {
        if matches!(answer, Answer::Throttled) {
            self.refresh.throttle(now, pending.sent);
        } else if let (Answer::Claim(_), Some(allowed)) = (answer, self.refresh.allowed) {
            self.refresh.allowed = (allowed + 1 < IN_FLIGHT).then_some(allowed + 1);
        }
        let released = pending.purpose == Purpose::Release;
        match answer {
            Answer::Claim(_) if released => self.with(name, |tenure| {
                tenure.end();
                tenure.retry = now;
            }),
            Answer::Claim(_) => self.stay_as_read(now, name, pending),
            Answer::Session(_) | Answer::Absent => {}
            Answer::Conflict => self.with(name, |tenure| {
                tenure.must_read = true;
                tenure.retry = now;
                if pending.purpose == Purpose::Take {
                    tenure.story = None;
                }
            }),
            Answer::Unknown(_) => self.with(name, |tenure| {
                tenure.must_read = true;
                tenure.retry = tenure.retry.max(now + RETRY);
            }),
            Answer::Throttled | Answer::Refused(_) => {
                let (later, busy) = (self.renew_interval(), matches!(answer, Answer::Throttled));
                self.with(name, |tenure| {
                    // An address that nobody serves waits no longer than it has to.
                    let soon = busy && tenure.orphan.is_some();
                    tenure.retry = now + if soon { later.min(THROTTLED) } else { later };
                });
            }
        }
    }

    pub(super) fn with(&mut self, name: &LeaseName, change: impl FnOnce(&mut Tenure)) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            let counted = tenure.counts();
            change(tenure);
            if counted || tenure.counts() {
                self.published.touch(name);
            }
        }
    }
}
