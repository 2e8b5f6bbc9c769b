//! Planned moves: make before break, authority first.
//!
//! The owner names a successor in the claim; the successor takes it by compare-and-swap, adds the
//! address and announces it; the old owner goes on answering until it has heard the announcement.
//! Where that does not come it probes, and takes the claim back from a successor that does not
//! serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, MoveReason, Reason, Stored, Successor};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, NodeState};
use crate::election::claim::Claims;
use crate::election::claim::acquire::Why;
use crate::election::claim::state::moves::{
    AGAIN, ASK, Handover, PROBE, Phase, TAKE, TAKE_LEAVING, Yielding,
};
use crate::election::claim::state::release::{Leaving, Obstacle};
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::candidates::Candidates;
use crate::election::context::proxy::LATE_LOCAL;
use crate::election::context::state::facts::id_of;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::{Action, Target};
use crate::election::io::transition::Cause;
use crate::election::placement::rank::{Unowned as Ranked, turns};
use crate::election::transfer::Transfer;

/// For how long a node that did not take or serve a claim is not named again for it.
pub(in crate::election) const EXCLUDED: Duration = Duration::from_secs(30);

/// The interval in which a move without a willing successor is tried again.
pub(in crate::election) const RETRY: Duration = Duration::from_secs(1);

/// The willing nodes for claims that do not mind kube-proxy.
pub(in crate::election) const UNPROXIED: usize = usize::MAX;

impl Transfer {
    pub(in crate::election) fn moves_deadline(
        &self,
        cx: &Context,
        claims: &Claims,
    ) -> Option<Instant> {
        cx.own().id()?;
        cx.first_ahead(
            Self::handover_deadline(cx, claims).into_iter().chain(self.improving.deadline()),
        )
    }

    pub(in crate::election) fn handover_deadline(cx: &Context, claims: &Claims) -> Option<Instant> {
        let free = |name: &LeaseName| !cx.is_pending(&Target::Claim(name.clone()));
        let open =
            || claims.open().iter().filter_map(|name| Some((name, claims.tenures().get(name)?)));
        let handovers = open()
            .filter(|(name, tenure)| tenure.is_mine() && free(name))
            .filter_map(|(_, tenure)| tenure.handover().map(Handover::until));
        let yields = open().filter_map(|(_, t)| t.yielding().map(Yielding::deadline));
        cx.first_ahead(handovers.chain(yields))
    }

    /// Why this node is to hand `claim` over, if it is to.
    pub(in crate::election) fn must_move(
        &self,
        cx: &Context,
        claims: &Claims,
        name: &LeaseName,
        claim: &DesiredClaim,
        desired: &Desired,
    ) -> Option<MoveReason> {
        if cx.own().is_leaving() {
            return Some(MoveReason::SpeakerLeaves);
        }
        if cx.own().is_restarting() {
            return None;
        }
        // A Node that is missing says nothing; it may be back at once.
        let state = cx.state_of(&cx.config().node, desired)?;
        let gives = match state {
            NodeState::Ready => None,
            NodeState::NotReady => cx.not_ready().has_lasted().then_some(MoveReason::NotReady),
            NodeState::Cordoned => claim.drain_on_cordon.then_some(MoveReason::Cordoned),
            NodeState::Draining => Some(MoveReason::Drained),
            NodeState::NetworkUnavailable => Some(MoveReason::NetworkUnavailable),
            NodeState::Leaving => Some(MoveReason::NodeDeleted),
        };
        if let Some(silence) = claim.silence {
            Some(silence.reason())
        } else if claim.held {
            None
        } else if !claim.nodes.contains(&cx.config().node) {
            Some(MoveReason::NotAllowed)
        } else if gives.is_some() {
            gives
        } else if cx.is_left_by_proxy(claim) {
            Some(MoveReason::ProxySilent)
        } else if !cx.leads(claim) {
            Some(MoveReason::CannotSpread)
        } else if cx.is_misplaced(claim) {
            Some(MoveReason::Misplaced)
        } else if cx.is_out_of_reach(claim, desired) {
            Some(MoveReason::OutOfReach)
        } else if claims.is_barred(name, claim) || Claims::is_uncarried(cx, claim) {
            Some(MoveReason::Uncarried)
        } else {
            self.bettered(cx, name).map(|(_, cause)| cause)
        }
    }

    /// Whether a successor is named or has taken over a moment ago: addresses must not be left
    /// behind that are another's by the time this process is gone.
    pub(in crate::election) fn is_anything_moving(cx: &Context, claims: &Claims) -> bool {
        claims.tenures().iter().any(|(name, tenure)| {
            let named =
                cx.claims().get(name).is_some_and(|stored| stored.record.successor.is_some());
            let pending = cx.is_pending(&Target::Claim(name.clone()));
            tenure.yielding().is_some() || tenure.is_mine() && (named || pending)
        })
    }

    pub(in crate::election) fn advance_handovers(
        &self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        Self::advance_yields(cx, claims, now, names, desired, actions);
        let mut moving: Vec<(LeaseName, Arc<Stored<Claim>>, &DesiredClaim, MoveReason)> =
            Vec::new();
        for name in names {
            let Some(claim) = desired.claims.get(name) else { continue };
            if claims.tenures().get(name).is_none_or(|t| !t.is_mine() || t.leaving().is_some()) {
                continue;
            }
            let Some(stored) = cx.claims().get(name).filter(|s| cx.owner(s) == Owner::Me) else {
                continue;
            };
            let stored = stored.clone();
            if claims.refuse_move(cx, now, name, claim, &stored, desired, actions) {
                continue;
            }
            let Some(tenure) = claims.tenures().get(name) else { continue };
            let cause = self
                .must_move(cx, claims, name, claim, desired)
                .filter(|_| tenure.probing().is_none());
            match cause {
                Some(cause) => moving.push((name.clone(), stored.clone(), claim, cause)),
                None if stored.record.successor.is_some() => {
                    let stored = stored.clone();
                    Self::withdraw(cx, claims, now, name, stored, actions);
                }
                None => claims.with(cx, name, Tenure::end_handover),
            }
        }
        if moving.is_empty() {
            return;
        }
        let successors = self.choose_successors(cx, claims, now, &moving, desired);
        for ((name, stored, claim, cause), successor) in moving.into_iter().zip(successors) {
            Self::hand_over(
                cx,
                claims,
                now,
                &name,
                &stored,
                claim,
                cause,
                successor.as_ref(),
                actions,
            );
        }
    }

    /// Nothing asks for the move any more.
    pub(in crate::election) fn withdraw(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        stored: Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) {
        let due = claims.tenures().get(name).is_some_and(|tenure| now >= tenure.retry());
        if cx.is_pending(&Target::Claim(name.clone())) || !claims.has_room(cx) || !due {
            return;
        }
        claims.with(cx, name, Tenure::end_handover);
        let record = Claim { successor: None, ..stored.record.clone() };
        Claims::put_claim(cx, now, name, Some(stored), record, Purpose::Refresh, actions);
    }

    /// All that moves is placed jointly.
    pub(in crate::election) fn choose_successors(
        &self,
        cx: &Context,
        claims: &Claims,
        now: Instant,
        moving: &[(LeaseName, Arc<Stored<Claim>>, &DesiredClaim, MoveReason)],
        desired: &Desired,
    ) -> Vec<Option<NodeName>> {
        // From one node that is not ready to another nothing is won.
        let own = cx.state_of(&cx.config().node, desired);
        let also_not_ready = own != Some(NodeState::NotReady) || cx.own().is_leaving();
        // Nor from one whose kube-proxy is silent to another.
        let own_proxy = !cx.proxy().is_silent() || cx.own().is_leaving();
        let mut lists = Candidates::new(cx, desired);
        let unfit = Claims::last_in_line(cx, desired);
        let unowned: Vec<Ranked<'_>> = moving
            .iter()
            .enumerate()
            .map(|(number, (name, _, claim, cause))| {
                let excluded = claims
                    .tenures()
                    .get(name)
                    .map(super::super::claim::state::tenure::Tenure::excluded);
                // What has to go for another reason meanwhile goes to whoever takes it.
                let chosen = self.bettered(cx, name).filter(|(_, why)| why == cause);
                let chosen = chosen.map(|(node, _)| node);
                let willing = |node: &NodeName| {
                    *node != cx.config().node
                        && (also_not_ready || cx.state_of(node, desired) == Some(NodeState::Ready))
                        && (own_proxy || !cx.is_proxy_silent(node, claim))
                        && chosen.is_none_or(|chosen| node == chosen)
                        && excluded.and_then(|e| e.get(node)).is_none_or(|until| now >= *until)
                };
                let alike = chosen.is_none() && excluded.is_none_or(BTreeMap::is_empty);
                let sieve = match (alike, claim.proxied.asks()) {
                    (true, true) => 0,
                    (true, false) => UNPROXIED,
                    (false, _) => number + 1,
                };
                Ranked {
                    name,
                    addresses: claim.addresses.len(),
                    candidates: lists.of(claim, sieve, willing),
                    preference: &claim.preference,
                    last: unfit.of(claim).collect(),
                    apart: Claims::apart(cx, claim),
                }
            })
            .collect();
        let turns = turns(&unowned, &claims.loads(cx), &cx.config().node);
        turns.into_iter().map(|turn| turn.first.cloned()).collect()
    }

    #[expect(clippy::too_many_arguments, reason = "one move, told apart by what is known of it")]
    pub(in crate::election) fn hand_over(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        claim: &DesiredClaim,
        cause: MoveReason,
        successor: Option<&NodeName>,
        actions: &mut Vec<Action>,
    ) {
        if cx.is_pending(&Target::Claim(name.clone())) || !claims.has_room(cx) {
            return;
        }
        let given_up = Self::is_given_up(cx, claims, name, claim);
        let leaving = cx.own().is_leaving();
        let Some(tenure) = claims.tenures().get(name) else { return };
        if let Some(handover) = tenure.handover() {
            if now < handover.until() && !given_up {
                return;
            }
            let named = handover.successor();
            let offered = stored.record.successor.as_ref().map(|successor| &successor.node);
            let untold = !given_up && !leaving && named.is_some() && offered != named;
            if untold && (tenure.must_read() || now < tenure.retry()) {
                return;
            }
            // Nobody can have taken what no lease has offered: it is offered again.
            if let Some(named) = named.filter(|_| !untold).cloned() {
                // It did not take the claim in time, or cannot any more: another is named, or none.
                let again = successor == Some(&named);
                claims.with(cx, name, |tenure| {
                    tenure.end_handover();
                    if again {
                        tenure.hand_over(None, now + AGAIN);
                    }
                    if !given_up {
                        tenure.exclude(named, now + EXCLUDED);
                    }
                });
                if again {
                    return;
                }
            }
        }
        let Some((node, session)) =
            successor.and_then(|node| Some((node.clone(), id_of(cx.live_session(node)?))))
        else {
            Self::stay_or_leave(cx, claims, now, name, stored, claim, cause, actions);
            return;
        };
        // There the rules for its pods may come later.
        let local = claim.proxied.asks() && claim.proxied.is_local();
        let patience = match leaving {
            true => TAKE_LEAVING,
            false if local => TAKE + LATE_LOCAL,
            false => TAKE,
        };
        claims.with(cx, name, |tenure| tenure.hand_over(Some(node.clone()), now + patience));
        let transitions = stored.record.transitions;
        let record = Claim {
            successor: Some(Successor { node, session, transitions }),
            cause: Reason::HandingOver(cause).to_string(),
            ..stored.record.clone()
        };
        Claims::put_claim(
            cx,
            now,
            name,
            Some(Arc::clone(stored)),
            record,
            Purpose::Refresh,
            actions,
        );
    }

    /// Whether the named successor need not be waited for: it is gone, or may not have the claim any more.
    pub(in crate::election) fn is_given_up(
        cx: &Context,
        claims: &Claims,
        name: &LeaseName,
        claim: &DesiredClaim,
    ) -> bool {
        let Some(desired) = cx.desired() else { return false };
        let handover = claims.tenures().get(name).and_then(|tenure| tenure.handover());
        let named = handover.and_then(Handover::successor);
        named.is_some_and(|node| !cx.candidates(claim, desired).contains(&node))
    }

    /// Nobody is willing. Whatever the state of the node, it keeps what it has: an address that
    /// answers is better than none. Without the API server it keeps what others are to have, too: it cannot
    /// release it, and as its claim stands nobody takes it while the node answers for others.
    pub(in crate::election) fn stay_or_leave(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        claim: &DesiredClaim,
        cause: MoveReason,
        actions: &mut Vec<Action>,
    ) {
        let allowed = claim.held || claim.nodes.contains(&cx.config().node);
        let barred = !allowed || claims.is_barred(name, claim);
        let elsewhere = claim.silence.is_none() && !claim.nodes.is_empty();
        let stuck = elsewhere && cx.is_api_failing();
        if cx.own().is_leaving() || barred && !stuck {
            claims.leave_claim(
                cx,
                now,
                name,
                stored,
                &Leaving::new(Obstacle::Asked, cause.text()),
                actions,
            );
        } else {
            claims.with(cx, name, |tenure| tenure.hand_over(None, now + RETRY));
        }
    }

    /// Takes a claim whose owner names this node as its successor.
    pub(in crate::election) fn succeed(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let Some(successor) = &stored.record.successor else { return };
        let meant = successor.node == cx.config().node
            && cx.own().id() == Some(&successor.session)
            && successor.transitions == stored.record.transitions;
        let willing = cx.candidates(claim, desired).contains(&&cx.config().node);
        let able = claims
            .tenures()
            .get(name)
            .is_some_and(|t| Claims::may_take(cx, now, t, claim).is_some());
        if meant && willing && able && cx.may_succeed(now, name, claim, actions) {
            let Some(holder) = stored.record.holder.clone() else { return };
            let why = Reason::handover(&stored.record.cause).unwrap_or("handed over");
            let why = Why::new(Reason::MovedFrom(holder, why.to_owned()), Cause::Move, now);
            claims.put_taken(cx, now, name, claim, Some(Arc::clone(stored)), why, actions);
        }
    }

    pub(in crate::election) fn advance_yields(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        for name in names {
            Self::advance_yield(cx, claims, now, name, desired, actions);
        }
    }

    pub(in crate::election) fn advance_yield(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = claims.tenures().get(name) else { return };
        let (Some(yielding), Some(interface)) = (tenure.yielding(), tenure.interface().cloned())
        else {
            return;
        };
        let carried =
            cx.own_interfaces().get(&interface).is_some_and(|interface| interface.carrier);
        let Some(claim) = desired.claims.get(name).filter(|_| carried) else {
            claims.with(cx, name, Tenure::end_yielding);
            return;
        };
        let (phase, mac) = (yielding.phase(), yielding.mac());
        let due = now >= yielding.deadline();
        let node = yielding.node().clone();
        let waits = tenure.must_read() || now < tenure.retry();
        if matches!(phase, Phase::TakingBack { .. }) && due {
            Claims::probe(&interface, &claim.addresses, actions);
            Self::set_phase(cx, claims, name, Phase::TakingBack { ask: now + ASK });
        }
        if cx.is_pending(&Target::Claim(name.clone())) || waits {
            return;
        }
        let owner = cx.claims().get(name).map_or(Owner::Nobody, |stored| cx.owner(stored));
        let silent = match owner {
            Owner::Me => return,
            // It died, or gave the claim up.
            Owner::Nobody => true,
            Owner::Other(other) if other != node => {
                let next = cx.claims().get(name).map(|stored| Yielding::new(now, other, stored));
                claims.with(cx, name, |tenure| tenure.yield_to(next));
                return;
            }
            Owner::Other(_) if !due => return,
            // Silent on a segment where it was heard: it does not serve what it owns.
            Owner::Other(_) => {
                let heard = mac.is_some_and(|mac| cx.heard_speakers().contains(&mac));
                heard && matches!(phase, Phase::ProbedTwice { .. } | Phase::TakingBack { .. })
            }
        };
        let next = match phase {
            _ if silent => {
                Self::take_back(cx, claims, now, name, claim, node, actions);
                Some(Phase::TakingBack { ask: now + ASK })
            }
            Phase::Listening { .. } => Some(Phase::Probed { until: now + PROBE }),
            Phase::Probed { .. } => Some(Phase::ProbedTwice { until: now + PROBE }),
            Phase::ProbedTwice { .. } | Phase::TakingBack { .. } => None,
        };
        if matches!(next, Some(Phase::Probed { .. } | Phase::ProbedTwice { .. })) {
            Claims::probe(&interface, &claim.addresses, actions);
        }
        match next {
            Some(phase) => Self::set_phase(cx, claims, name, phase),
            None => claims.with(cx, name, Tenure::end_yielding),
        }
    }

    pub(in crate::election) fn set_phase(
        cx: &mut Context,
        claims: &mut Claims,
        name: &LeaseName,
        phase: Phase,
    ) {
        claims.with(cx, name, |tenure| tenure.set_phase(phase));
    }

    pub(in crate::election) fn take_back(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        node: NodeName,
        actions: &mut Vec<Action>,
    ) {
        let reason = Reason::TakenBack(node.clone());
        claims.with(cx, name, |tenure| {
            tenure.exclude(node, now + EXCLUDED);
        });
        let stored = cx.claims().get(name).cloned();
        claims.put_taken(
            cx,
            now,
            name,
            claim,
            stored,
            Why::new(reason, Cause::Silence, now),
            actions,
        );
    }
}
