//! The claims: in each pass those that are open are settled, taken, held or given up.
//!
//! Everything here is level-triggered: each pass looks at what is stored, what is asked for and
//! what this node believes to hold, and does what is missing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, MoveReason, Reason, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::acquire::{Acquire, Why};
use crate::election::claim::refresh::THROTTLED;
use crate::election::claim::state::addresses::List;
use crate::election::claim::state::preflight::Missing;
use crate::election::claim::state::refresh::IN_FLIGHT;
use crate::election::claim::state::release::Leaving;
use crate::election::claim::state::tenure::Tenure;
use crate::election::claim::state::unowned::LastOwner;
use crate::election::context::Context;
use crate::election::context::facts::is_begun_anew;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::{Action, Answer, Change, Fact, Target, Write};
use crate::election::io::transition::{Cause, OwnerId};

/// The time between a failed request for a claim and the next one.
pub(in crate::election) const RETRY: Duration = Duration::from_millis(250);

/// The time for which an address that no Service asks for stays on the list of a claim: the watch on the Services
/// may be behind the operator, which has just put it there.
pub(in crate::election) const UNASKED: Duration = Duration::from_secs(1);

/// The same of an address that is asked for under another claim, which waits for it.
pub(in crate::election) const ELSEWHERE: Duration = Duration::from_millis(100);

/// Signs that a claim was given out that nobody had.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::election) struct GivenOut {
    /// It has an owner now, and had none.
    pub(in crate::election) seen: bool,
    /// It was given to this node because it had joined.
    pub(in crate::election) taken: bool,
}

impl Claims {
    pub(in crate::election) fn claims_deadline(&self, cx: &Context) -> Option<Instant> {
        cx.own().id()?;
        let mut deadlines = Vec::new();
        for name in self.open.iter() {
            let Some(tenure) = self.tenures.get(name) else { continue };
            if cx.is_pending(&Target::Claim(name.clone())) {
                continue;
            }
            if let Some(unowned) = tenure.unowned()
                && cx.desired_claim(name).is_some()
            {
                deadlines.push(Self::turn(cx, unowned).max(tenure.retry()));
                deadlines.push(Self::round_ends(cx, unowned));
                deadlines.push(cx.api_given_up(unowned.since));
                deadlines.extend(tenure.ineligible().map(|ineligible| ineligible.until));
            }
            if let (Some(_), Some(ineligible)) = (tenure.leaving(), tenure.ineligible()) {
                deadlines.push(ineligible.until);
            }
            deadlines.extend(tenure.missing().into_iter().flat_map(Missing::deadlines));
            deadlines.extend(tenure.unasked().map(|since| since + UNASKED));
            deadlines.extend(tenure.unasked().map(|since| since + ELSEWHERE));
            deadlines.push(tenure.retry());
        }
        deadlines.extend(self.open.first_due());
        deadlines.extend((cx.published().count() > 0).then_some(self.refresh.due));
        deadlines.extend(cx.asking_around());
        cx.first_ahead(deadlines)
    }

    /// Compares the state of each of these claims with the table, and notes that those that count may change, or have
    /// changed.
    pub(in crate::election) fn touch_counting(
        &mut self,
        cx: &mut Context,
        names: &[LeaseName],
        actions: &mut Vec<Action>,
    ) {
        for name in names {
            let Some(tenure) = self.tenures.get_mut(name) else { continue };
            Self::check_state(name, tenure, actions);
            if tenure.counts() {
                cx.published_mut().touch(name);
            }
        }
    }

    /// Compares the state of a claim with the table of [`ClaimState`](crate::election::io::claim_state::ClaimState), and
    /// reports a transition that is not in it.
    pub(in crate::election) fn check_state(
        name: &LeaseName,
        tenure: &mut Tenure,
        actions: &mut Vec<Action>,
    ) {
        if let Some(from) = tenure.check_state() {
            let (claim, to) = (name.clone(), tenure.state());
            Context::report(Fact::UnexpectedTransition { claim, from, to }, actions);
        }
    }

    /// Brings what this node believes to own in line with what is stored.
    pub(in crate::election) fn settle_owner(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) -> GivenOut {
        let mut given_out = GivenOut::default();
        let stored = cx.claims().get(name).cloned();
        let owner = stored.as_ref().map_or(Owner::Nobody, |stored| cx.owner(stored));
        let (live, own) = (cx.own().id().is_some(), cx.own_id());
        // An owner goes on until it is known whether another one is valid.
        let doubtful = stored.as_ref().is_some_and(|stored| cx.is_in_doubt(stored));
        if owner != Owner::Nobody && !doubtful {
            self.note_owned(now);
        }
        let Some(tenure) = self.tenures.get_mut(name) else { return given_out };
        if doubtful && tenure.is_mine() && live {
            return given_out;
        }
        if let (Some(stored), Owner::Nobody) = (&stored, &owner) {
            tenure.note_given_up(now, stored);
            let anew = self.joining.is_starting(now)
                && tenure.last().is_some_and(|last| {
                    let session = cx.sessions().get(last.node.as_str());
                    session.is_some_and(|now| is_begun_anew(&last.node, &last.session, now))
                });
            tenure.set_anew(anew);
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
            if !cx.forsaken().contains_key(name) {
                tenure.end_unowned();
            }
        }
        let asked = cx.desired().and_then(|desired| desired.claim(name));
        if let Some(stored) = &stored {
            tenure.note_told(stored.record.took);
        }
        match owner {
            Owner::Me if !tenure.is_mine() => {
                let Some(stored) = stored else { return given_out };
                given_out.taken =
                    MoveReason::improvement(&stored.record.cause) == Some(MoveReason::Joined);
                let provisional = tenure.own(&stored.record);
                if provisional.is_none() {
                    self.ownerships += 1;
                    tenure.set_ownership(self.ownerships);
                }
                let story = provisional.map(|it| it.story).or_else(|| tenure.story().cloned());
                if tenure.take_vacant() {
                    let waits = cx.await_rules(now, name);
                    self.with(cx, name, |tenure| tenure.set_awaits_rules(waits));
                    self.probe_first(cx, now, name, &stored, actions);
                }
                let (claim, cause) = (name.clone(), stored.record.cause.clone());
                let after =
                    story.as_ref().map_or(Duration::ZERO, |it| now.saturating_since(it.began));
                Context::report(Fact::Claimed { claim, cause, story, after }, actions);
            }
            Owner::Other(node) if tenure.is_mine() => {
                tenure.lose(now, &node, stored.as_deref());
                let (claim, cause) = (name.clone(), format!("now owned by {node}"));
                Context::report(Fact::Yielded { claim, cause, owner: own }, actions);
            }
            Owner::Nobody if tenure.is_mine() && !live => tenure.end(),
            Owner::Me => {
                if let Some(stored) = stored.filter(|stored| !tenure.list().is_of(&stored.record)) {
                    tenure.relist(List::of(&stored.record), asked);
                }
            }
            Owner::Nobody if tenure.is_mine() => {
                let emptied = tenure.list().emptied();
                tenure.relist(emptied, asked);
            }
            Owner::Other(_) | Owner::Nobody => {}
        }
        given_out
    }

    pub(in crate::election) fn lose_all_claims(
        &mut self,
        cause: &str,
        owner: Option<&OwnerId>,
        actions: &mut Vec<Action>,
    ) {
        self.open.note_all();
        for (name, tenure) in self.tenures.iter_mut() {
            if tenure.lose_session() {
                let (claim, cause) = (name.clone(), cause.to_owned());
                Context::report(Fact::Yielded { claim, cause, owner: owner.cloned() }, actions);
            }
        }
    }

    /// Whether a request on the claim has to be answered, or to be sent, first.
    pub(in crate::election) fn is_blocked(&self, name: &LeaseName, pending: bool) -> bool {
        self.tenures.get(name).is_some_and(|tenure| pending || tenure.must_read())
    }

    pub(in crate::election) fn advance_claim(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        pending: bool,
        actions: &mut Vec<Action>,
    ) -> Option<Acquire> {
        let tenure = self.tenures.get(name).filter(|_| !pending)?;
        if tenure.must_read() && now >= tenure.retry() {
            self.with(cx, name, Tenure::note_reading);
            cx.read(now, Target::Claim(name.clone()), actions);
            return None;
        }
        if tenure.must_read() {
            return None;
        }
        if tenure.is_mine() {
            self.hold_claim(cx, now, name, claim, actions);
        } else if let Some(claim) = claim {
            return self.take_claim(cx, now, name, claim, actions);
        } else if let Some(stored) = cx.claims().get(name).filter(|stored| cx.names_us(stored)) {
            // Set back to when it was ours, and nobody but us can tell that it is not any more.
            let stored = Arc::clone(stored);
            self.leave_claim(cx, now, name, &stored, &Leaving::unasked(), actions);
        }
        None
    }

    pub(in crate::election) fn hold_claim(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        actions: &mut Vec<Action>,
    ) {
        let stored = cx.claims().get(name).cloned();
        let owned = stored.as_ref().is_some_and(|stored| cx.owner(stored) == Owner::Me);
        if stored.as_ref().is_some_and(|stored| cx.is_in_doubt(stored)) {
            return;
        }
        if !owned {
            // Deleted, edited, or our session was: nobody else owns it, so it is still ours.
            let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry());
            let released = stored.as_ref().is_some_and(|stored| stored.record.holder.is_none());
            let leaving = self.tenures.get(name).is_some_and(|tenure| tenure.leaving().is_some());
            match claim {
                // Its release was carried out, and the answer lost.
                Some(_) if leaving && released => self.with(cx, name, Tenure::end),
                Some(claim) if due && self.has_room(cx) => {
                    let why = Why::new(Reason::ClaimOrSessionEdited, Cause::Edit, now);
                    self.put_taken(cx, now, name, claim, stored, why, actions);
                }
                Some(_) => {}
                None => self.with(cx, name, Tenure::end),
            }
            return;
        }
        let Some(stored) = stored else { return };
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(claim) = claim else {
            self.leave_claim(cx, now, name, &stored, &Leaving::unasked(), actions);
            return;
        };
        if let Some(leaving) = tenure.leaving().cloned() {
            if !leaving.is_over() {
                self.leave_claim(cx, now, name, &stored, &leaving, actions);
            }
            return;
        }
        if self.check_kernel(cx, now, name, claim, &stored, actions)
            || self.tell_interface(cx, now, name, &stored, actions)
            || self.tell_members(cx, now, name, &stored, actions)
        {
            return;
        }
        let unasked = !stored.record.addresses.is_subset(&claim.addresses);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        tenure.note_unasked(now, unasked);
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
            now >= tenure.retry() && tenure.unasked().is_some_and(|since| now >= since + patience);
        // What is listed no longer goes from the kernel before it goes from the claim.
        let gone = stored.record.addresses.difference(&claim.addresses).all(|a| cx.is_removed(*a));
        if gone && due && self.has_room(cx) {
            let mut record = self.held_record(cx, &stored);
            record.addresses.retain(|address| claim.addresses.contains(address));
            Self::put_claim(cx, now, name, Some(stored), record, Purpose::Refresh, actions);
        }
    }

    /// First the addresses go, then the claim.
    pub(in crate::election) fn leave_claim(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        leaving: &Leaving,
        actions: &mut Vec<Action>,
    ) {
        let unlisted = self.tenures.get(name).map(super::state::tenure::Tenure::unlisted);
        let mut addresses = stored.record.addresses.iter().chain(unlisted.into_iter().flatten());
        let removed = addresses.all(|address| cx.is_removed(*address));
        let whole_session = cx.own().releases();
        let room = self.has_room(cx);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        tenure.leave(now, leaving);
        if !removed || whole_session || !room || now < tenure.retry() {
            return;
        }
        let record = Claim {
            holder: None,
            session: None,
            successor: None,
            interface: None,
            mac: None,
            former: Self::with_own_first(cx, name, &stored.record),
            transitions: Self::next_claim_transitions(cx, name),
            cause: Reason::ReleasedBy(cx.config().node.clone(), leaving.cause.clone()).to_string(),
            ..stored.record.clone()
        };
        Self::put_claim(cx, now, name, Some(Arc::clone(stored)), record, Purpose::Release, actions);
    }

    /// The former owners that a claim names when this node has released it: this one first.
    fn with_own_first(cx: &Context, name: &LeaseName, record: &Claim) -> Box<[NodeName]> {
        if !record.members.is_empty() {
            return record.former.clone();
        }
        let lasts = cx.desired_claim(name).is_some_and(|it| !it.connection_handover.is_zero());
        let own = lasts.then_some(cx.node()).into_iter();
        own.chain(record.former.iter().filter(|node| *node != cx.node())).cloned().collect()
    }

    /// The record of a claim of ours, as it is now.
    pub(in crate::election) fn held_record(&self, cx: &Context, stored: &Stored<Claim>) -> Claim {
        let tenure = self.tenures.get(&stored.name);
        let (interface, mac) = self.carried_by(cx, &stored.name).unzip();
        let mut record = Claim {
            duration_seconds: cx.claim_duration(),
            mac: mac.flatten(),
            interface: interface.cloned(),
            took: tenure.and_then(super::state::tenure::Tenure::took).or(stored.record.took),
            ..stored.record.clone()
        };
        if tenure.is_some_and(Tenure::forgets_former_owners) {
            record.former = Box::default();
            record.former_members = Box::default();
        }
        self.note_members(cx, &stored.name, &mut record);
        record
    }

    pub(in crate::election) fn put_claim(
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        base: Option<Arc<Stored<Claim>>>,
        record: Claim,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let change = Change { name: name.clone(), base, record };
        cx.write(now, Write::Claim(change), purpose, actions);
    }

    pub(in crate::election) fn claim_answered(
        &mut self,
        cx: &mut Context,
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
            Answer::Claim(_) if released => self.with(cx, name, |tenure| {
                tenure.end();
                tenure.retry_at(now);
            }),
            Answer::Claim(_) => self.stay_as_read(cx, now, name, pending),
            Answer::Session(_) | Answer::Absent => {}
            Answer::Conflict => self.with(cx, name, |tenure| {
                tenure.require_read(now);
                if pending.purpose == Purpose::Take {
                    tenure.forget_story();
                }
            }),
            Answer::Unknown(_) => self.with(cx, name, |tenure| {
                tenure.require_read(tenure.retry().max(now + RETRY));
            }),
            Answer::Throttled | Answer::Refused(_) => {
                let (later, busy) = (cx.renew_interval(), matches!(answer, Answer::Throttled));
                self.with(cx, name, |tenure| {
                    // An address that nobody serves waits no longer than it has to.
                    let soon = busy && tenure.unowned().is_some();
                    tenure.retry_at(now + if soon { later.min(THROTTLED) } else { later });
                });
            }
        }
    }

    pub(in crate::election) fn with(
        &mut self,
        cx: &mut Context,
        name: &LeaseName,
        change: impl FnOnce(&mut Tenure),
    ) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            let counted = tenure.counts();
            change(tenure);
            if counted || tenure.counts() {
                cx.published_mut().touch(name);
            }
        }
    }
}
