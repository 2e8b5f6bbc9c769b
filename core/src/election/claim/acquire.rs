//! Taking a claim: whose turn it is, and what the lease says then.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Reason, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::Claims;
use crate::election::claim::state::addresses::List;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::Action;
use crate::election::io::transition::{Cause, Story};

/// The most former owners that a claim names.
pub(in crate::election) const FORMER_OWNERS: usize = 8;

/// Why a claim is taken.
#[derive(Debug)]
pub(in crate::election) struct Why {
    reason: Reason,
    cause: Cause,
    /// When the first sign of it was seen.
    began: Instant,
}

impl Why {
    pub(in crate::election) const fn new(reason: Reason, cause: Cause, began: Instant) -> Self {
        Self { reason, cause, began }
    }
}

/// A way to serve a claim that another room has to go.
#[derive(Debug)]
pub(in crate::election) enum Acquire {
    /// Its owner hands it over to this node.
    Succeed(Arc<Stored<Claim>>),
    /// The API server is gone.
    Provisionally(Option<Arc<Stored<Claim>>>),
}

impl Claims {
    pub(in crate::election) fn take_claim(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) -> Option<Acquire> {
        let tenure = self.tenures.get(name)?;
        if now < tenure.retry() || !self.has_room(cx) {
            return None;
        }
        let stored = cx.claims().get(name).cloned();
        let forsaken = cx.forsaken().get(name).map(|forsaken| forsaken.since);
        let owned = stored.as_ref().filter(|stored| cx.owner(stored) != Owner::Nobody);
        if let Some(stored) = owned.filter(|_| forsaken.is_none()) {
            return Some(Acquire::Succeed(Arc::clone(stored)));
        }
        let unowned = tenure.unowned()?;
        // Who serves it already need not wait for its turn.
        let served = self.serves_provisionally(name);
        let turn = Self::turn(cx, unowned);
        if !served && (now < turn || unowned.place.is_none()) {
            return None;
        }
        let (since, hear_since) = (unowned.since, unowned.hear_since);
        if !served && !cx.hears_since(now, hear_since, claim, actions) {
            return None;
        }
        let tenure = self.tenures.get(name)?;
        let unowned = tenure.unowned()?;
        if cx.is_api_gone(now, forsaken.unwrap_or(since)) {
            return Some(Acquire::Provisionally(stored));
        }
        if served && (cx.is_settling() || forsaken.is_some() && self.is_returning(name)) {
            return None;
        }
        let (first, edited) = (unowned.place == Some(0), unowned.edited.is_some());
        let (sign, began) = unowned.sign;
        if first {
            self.report_address_of_a_node(cx, name, claim, actions);
        }
        let tenure = self.tenures.get(name)?;
        Self::may_take(cx, now, tenure, claim)?;
        let reason = match (self.last_owner(cx, name), edited) {
            (Some(last), _) if forsaken.is_some() => Reason::Unanswered(last.clone()),
            (_, true) => Reason::ClaimEdited,
            (None, _) => Reason::NewService,
            (Some(last), _) => Self::why_vacant(cx, last, stored.as_deref()),
        };
        self.put_taken(cx, now, name, claim, stored, Why::new(reason, sign, began), actions);
        None
    }

    /// What became of a write may stay unknown for as long as the API server is away: the wire decides
    /// meanwhile. If it was carried out, this node serves what is its own.
    pub(in crate::election) fn outlive_outage(
        &self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) -> Option<Acquire> {
        let tenure = self.tenures.get(name)?;
        let unowned = tenure.unowned()?;
        let waits = now < tenure.retry() || now < Self::turn(cx, unowned);
        if tenure.is_mine() || tenure.provisional().is_some() || unowned.place.is_none() || waits {
            return None;
        }
        let (since, hear_since) = (unowned.since, unowned.hear_since);
        let unanswered = cx.forsaken().get(name).map_or(since, |forsaken| forsaken.since);
        let takes =
            cx.is_api_gone(now, unanswered) && cx.hears_since(now, hear_since, claim, actions);
        takes.then(|| Acquire::Provisionally(cx.claims().get(name).cloned()))
    }

    /// The reason for which the last owner lost the claim, as its session or the claim itself gives it.
    pub(in crate::election) fn why_vacant(
        cx: &Context,
        last: &NodeName,
        stored: Option<&Stored<Claim>>,
    ) -> Reason {
        let session = cx.sessions().get(last.as_str());
        let ended = session.filter(|session| session.record.holder.is_none());
        let released = stored.filter(|stored| stored.record.holder.is_none());
        let cause = ended.map(|s| &s.record.cause).or_else(|| released.map(|s| &s.record.cause));
        cause.filter(|cause| !cause.is_empty()).map_or_else(
            || Reason::SessionOver(last.clone()),
            |cause| Reason::TakenOver(cause.clone()),
        )
    }

    /// Makes this node the owner.
    pub(in crate::election) fn put_taken(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        base: Option<Arc<Stored<Claim>>>,
        why: Why,
        actions: &mut Vec<Action>,
    ) {
        let Why { reason, cause, began } = why;
        let held = self.tenures.get(name).filter(|tenure| tenure.is_mine());
        let kept = held.and_then(|tenure| tenure.interface());
        let kept = kept.and_then(|name| Some((name.clone(), cx.own_interfaces().get(name)?.mac)));
        let chosen = || cx.local_interface(claim).map(|(name, link)| (name.clone(), link.mac));
        // While the session itself is deleted or edited, what is held under it is invalid for all.
        let session = cx.own().id().cloned().filter(|id| cx.is_live(&cx.config().node, id));
        let (Some((interface, mac)), Some(session)) = (kept.or_else(chosen), session) else {
            return;
        };
        // One that is created anew lists nothing: its addresses may be another claim's meanwhile.
        let known = || self.tenures.get(name).map(|tenure| tenure.list().emptied());
        let list = base.as_ref().map(|base| List::of(&base.record)).or_else(known);
        let list = list.unwrap_or_default();
        if base.is_some() && list.addresses.is_empty() {
            return;
        }
        let former = Self::former_owners(cx, claim, base.as_deref(), &reason);
        let spread = base.as_ref().map(|base| (&base.record.members, &base.record.former_members));
        let (members, former_members) = spread.unzip();
        let mut record = Claim {
            holder: Some(cx.config().node.clone()),
            transitions: Self::next_claim_transitions(cx, name),
            duration_seconds: cx.claim_duration(),
            services: list.services,
            uids: list.uids,
            addresses: list.addresses,
            pool: list.pool,
            withdrawn: list.withdrawn,
            interface: Some(interface),
            mac: Some(mac),
            session: Some(session),
            cause: reason.to_string(),
            took: None,
            successor: None,
            move_to: None,
            former,
            members: members.cloned().unwrap_or_default(),
            former_members: former_members.cloned().unwrap_or_default(),
        };
        if claim.spread.is_none() && !claim.held && !record.members.is_empty() {
            Self::unspread(cx.node(), claim, &mut record);
        }
        let from = self.former_owner(cx, name);
        let released = base.as_ref().filter(|base| base.record.holder.is_none());
        let mut vacant = false;
        self.with(cx, name, |tenure| {
            let served =
                tenure.is_mine() || tenure.yielding().is_some() || tenure.provisional().is_some();
            let in_use = released.is_some_and(|base| tenure.was_in_use(now, base));
            // What somebody deleted or edited its owner serves until another has it.
            let edited = tenure.unowned().is_some_and(|unowned| unowned.edited.is_some());
            let given_up = released.is_some() && !in_use && !edited;
            vacant = !served && (given_up || tenure.last().is_none());
            tenure.ask(vacant, Story { cause, from, began });
        });
        if vacant {
            cx.await_rules(now, name);
        }
        Self::put_claim(cx, now, name, base, record, Purpose::Take, actions);
    }

    /// The owners before this node, the last one first, to which packets of their connections are forwarded. The last one
    /// is among them if it lives: it has handed the claim over, or has left in order.
    fn former_owners(
        cx: &Context,
        claim: &DesiredClaim,
        base: Option<&Stored<Claim>>,
        reason: &Reason,
    ) -> Box<[NodeName]> {
        let Some(record) = base.map(|base| &base.record) else { return Box::default() };
        let own = cx.node();
        if !record.members.is_empty() {
            // Connections do not depend on its owner.
            return record.former.clone();
        }
        if claim.connection_handover.is_zero() {
            return Box::default();
        }
        let serves = |node: &NodeName| !matches!(reason, Reason::TakenBack(it) if it == node);
        let last = record.holder.as_ref().zip(record.session.as_ref());
        let last = last.filter(|(node, session)| serves(node) && cx.is_there(node, session));
        let last = last.map(|(node, _)| node);
        let before = record.former.iter().filter(|node| Some(*node) != last && serves(node));
        let others = last.into_iter().chain(before).filter(|node| *node != own);
        others.take(FORMER_OWNERS).cloned().collect()
    }

    pub(in crate::election) fn next_claim_transitions(cx: &Context, name: &LeaseName) -> i32 {
        cx.claims().highest(name).saturating_add(1)
    }
}
