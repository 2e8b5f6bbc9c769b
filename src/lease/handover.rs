//! Planned moves: make before break, authority first.
//!
//! The owner names a successor in the claim; the successor takes it by compare-and-swap, adds the
//! address and announces it; the old owner goes on answering until it has heard the announcement.
//! Where that does not come it probes, and takes the claim back from a successor that does not
//! serve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored, Successor};
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use super::candidates::Candidates;
use super::election::{Election, id_of};
use super::event::{Action, Target};
use super::leaving::{Leaving, Reason};
use super::place::{Orphan as Ranked, turns};
use super::proxy::LATE_LOCAL;
use super::requests::Purpose;
use super::story::Cause;
use super::taking::Why;
use super::validity::Owner;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, NodeState};

/// Within which time a successor takes the claim.
const TAKE: Duration = Duration::from_secs(1);
/// For how long a node that did not take or serve a claim is not named again for it.
const EXCLUDED: Duration = Duration::from_secs(30);
/// For how long the old owner waits for the announcement before it probes.
const ANNOUNCEMENT: Duration = Duration::from_millis(200);
/// Between the two probes, and after the second.
const PROBE: Duration = Duration::from_millis(30);
/// How often the address is asked for while it is being taken back: the answer to that may not come.
const ASK: Duration = Duration::from_millis(100);
/// How soon another successor is looked for.
const AGAIN: Duration = Duration::from_millis(10);
/// How often a move without a willing successor is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The willing nodes for claims that do not mind kube-proxy.
const UNPROXIED: usize = usize::MAX;

/// A claim of ours that is to go to another node.
#[derive(Debug)]
pub(super) struct Handover {
    successor: Option<NodeName>,
    until: Instant,
}

impl Handover {
    pub(super) const fn successor(&self) -> Option<&NodeName> {
        self.successor.as_ref()
    }
}

/// A claim that was ours until its named successor took it.
#[derive(Debug)]
pub(super) struct Yielding {
    node: NodeName,
    mac: Option<MacAddr>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Waits for the announcement.
    Listening { until: Instant },
    /// The first probe is sent.
    Probed { until: Instant },
    /// The second is sent.
    ProbedTwice { until: Instant },
    /// The claim is being taken back.
    TakingBack { ask: Instant },
}

impl Yielding {
    pub(super) fn new(now: Instant, node: NodeName, stored: &Stored<Claim>) -> Self {
        let phase = Phase::Listening { until: now + ANNOUNCEMENT };
        Self { node, mac: stored.record.mac, phase }
    }

    pub(super) fn is_served_by(&self, mac: MacAddr) -> bool {
        self.mac.is_none_or(|expected| expected == mac)
    }

    /// Frames were dropped: the answers to probes may have been among them, so it probes anew.
    pub(super) const fn note_missed(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Probed { .. } | Phase::ProbedTwice { .. }) {
            self.phase = Phase::Listening { until: now };
        }
    }

    const fn deadline(&self) -> Instant {
        match self.phase {
            Phase::Listening { until }
            | Phase::Probed { until }
            | Phase::ProbedTwice { until }
            | Phase::TakingBack { ask: until } => until,
        }
    }
}

impl Election {
    pub(super) fn moves_deadline(&self) -> Option<Instant> {
        self.own.id.as_ref()?;
        self.first_ahead(self.handover_deadline().into_iter().chain(self.improving.deadline()))
    }

    fn handover_deadline(&self) -> Option<Instant> {
        let free = |name: &LeaseName| !self.is_pending(&Target::Claim(name.clone()));
        let open = || self.open.iter().filter_map(|name| Some((name, self.tenures.get(name)?)));
        let handovers = open()
            .filter(|(name, tenure)| tenure.mine && free(name))
            .filter_map(|(_, tenure)| tenure.handover.as_ref().map(|handover| handover.until));
        let yields = open().filter_map(|(_, t)| t.yielding.as_deref().map(Yielding::deadline));
        self.first_ahead(handovers.chain(yields))
    }

    /// Why this node is to hand `claim` over, if it is to.
    pub(super) fn must_move(
        &self,
        name: &LeaseName,
        claim: &DesiredClaim,
        desired: &Desired,
    ) -> Option<&'static str> {
        if self.own.is_leaving() {
            return Some("speaker leaves");
        }
        if self.own.is_restarting() {
            return None;
        }
        // A Node that is missing says nothing; it may be back at once.
        let state = self.state_of(&self.config.node, desired)?;
        let gives = match state {
            NodeState::Ready => None,
            NodeState::NotReady => self.not_ready.has_lasted.then_some("node is not ready"),
            NodeState::Cordoned => claim.drain_on_cordon.then_some("node is cordoned"),
            NodeState::Draining => Some("node is drained"),
            NodeState::NetworkUnavailable => Some("network of the node is unavailable"),
            NodeState::Leaving => Some("node is being deleted"),
        };
        if let Some(silence) = claim.silence {
            Some(silence.text())
        } else if claim.held {
            None
        } else if !claim.nodes.contains(&self.config.node) {
            Some("node may not announce it any more")
        } else if gives.is_some() {
            gives
        } else if self.is_left_by_proxy(claim) {
            Some("kube-proxy of the node does not answer")
        } else if self.is_misplaced(claim) {
            Some("another node has the subnet of its addresses")
        } else if self.is_out_of_reach(claim, desired) {
            Some("the node does not answer the clients there, and another does")
        } else if self.is_barred(name, claim) || self.is_uncarried(claim) {
            Some("no interface of the node can carry it")
        } else {
            self.bettered(name).map(|(_, cause)| cause)
        }
    }

    /// Whether a successor is named or has taken over a moment ago: addresses must not be left
    /// behind that are another's by the time this process is gone.
    pub(super) fn is_anything_moving(&self) -> bool {
        self.tenures.iter().any(|(name, tenure)| {
            let named =
                self.claims.get(name).is_some_and(|stored| stored.record.successor.is_some());
            let pending = self.is_pending(&Target::Claim(name.clone()));
            tenure.yielding.is_some() || tenure.mine && (named || pending)
        })
    }

    pub(super) fn advance_handovers(
        &mut self,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        self.advance_yields(now, names, desired, actions);
        let mut moving: Vec<(LeaseName, Arc<Stored<Claim>>, &DesiredClaim, &'static str)> =
            Vec::new();
        for name in names {
            let Some(claim) = desired.claims.get(name) else { continue };
            if self.tenures.get(name).is_none_or(|t| !t.mine || t.leaving.is_some()) {
                continue;
            }
            let Some(stored) = self.claims.get(name).filter(|s| self.owner(s) == Owner::Me) else {
                continue;
            };
            let stored = stored.clone();
            if self.refuse_move(now, name, claim, &stored, desired, actions) {
                continue;
            }
            let Some(tenure) = self.tenures.get(name) else { continue };
            let cause = self.must_move(name, claim, desired).filter(|_| tenure.probing.is_none());
            match cause {
                Some(cause) => moving.push((name.clone(), stored.clone(), claim, cause)),
                None if stored.record.successor.is_some() => {
                    let stored = stored.clone();
                    self.withdraw(now, name, stored, actions);
                }
                None => self.with(name, |tenure| tenure.handover = None),
            }
        }
        if moving.is_empty() {
            return;
        }
        let successors = self.choose_successors(now, &moving, desired);
        for ((name, stored, claim, cause), successor) in moving.into_iter().zip(successors) {
            self.hand_over(now, &name, &stored, claim, cause, successor.as_ref(), actions);
        }
    }

    /// Nothing asks for the move any more.
    fn withdraw(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) {
        let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
        if self.is_pending(&Target::Claim(name.clone())) || !self.has_room() || !due {
            return;
        }
        self.with(name, |tenure| tenure.handover = None);
        let record = Claim { successor: None, ..stored.record.clone() };
        self.put_claim(now, name, Some(stored), record, Purpose::Refresh, actions);
    }

    /// All that moves is placed jointly.
    fn choose_successors(
        &self,
        now: Instant,
        moving: &[(LeaseName, Arc<Stored<Claim>>, &DesiredClaim, &'static str)],
        desired: &Desired,
    ) -> Vec<Option<NodeName>> {
        // From one node that is not ready to another nothing is won.
        let own = self.state_of(&self.config.node, desired);
        let also_not_ready = own != Some(NodeState::NotReady) || self.own.is_leaving();
        // Nor from one whose kube-proxy is silent to another.
        let own_proxy = !self.proxy.is_silent() || self.own.is_leaving();
        let mut lists = Candidates::new(self, desired);
        let unfit = self.last_in_line(desired);
        let orphans: Vec<Ranked<'_>> = moving
            .iter()
            .enumerate()
            .map(|(number, (name, _, claim, cause))| {
                let excluded = self.tenures.get(name).map(|tenure| &tenure.excluded);
                // What has to go for another reason meanwhile goes to whoever takes it.
                let chosen = self.bettered(name).filter(|(_, why)| why == cause);
                let chosen = chosen.map(|(node, _)| node);
                let willing = |node: &NodeName| {
                    *node != self.config.node
                        && (also_not_ready
                            || self.state_of(node, desired) == Some(NodeState::Ready))
                        && (own_proxy || !self.is_proxy_silent(node, claim))
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
                    apart: self.apart(claim),
                }
            })
            .collect();
        let turns = turns(&orphans, &self.loads(), &self.config.node);
        turns.into_iter().map(|turn| turn.first.cloned()).collect()
    }

    #[expect(clippy::too_many_arguments, reason = "one move, told apart by what is known of it")]
    fn hand_over(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        claim: &DesiredClaim,
        cause: &str,
        successor: Option<&NodeName>,
        actions: &mut Vec<Action>,
    ) {
        if self.is_pending(&Target::Claim(name.clone())) || !self.has_room() {
            return;
        }
        let given_up = self.is_given_up(name, claim);
        let leaving = self.own.is_leaving();
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if let Some(handover) = &tenure.handover {
            if now < handover.until && !given_up {
                return;
            }
            let named = handover.successor.as_ref();
            let offered = stored.record.successor.as_ref().map(|successor| &successor.node);
            let untold = !given_up && !leaving && named.is_some() && offered != named;
            if untold && (tenure.must_read || now < tenure.retry) {
                return;
            }
            // Nobody can have taken what no lease has offered: it is offered again.
            if let Some(named) = named.filter(|_| !untold).cloned() {
                // It did not take the claim in time, or cannot any more: another is named, or none.
                if !given_up {
                    tenure.excluded.insert(named.clone(), now + EXCLUDED);
                }
                tenure.handover = None;
                if successor == Some(&named) {
                    tenure.handover = Some(Handover { successor: None, until: now + AGAIN });
                    return;
                }
            }
        }
        let Some((node, session)) =
            successor.and_then(|node| Some((node.clone(), id_of(self.live_session(node)?))))
        else {
            self.stay_or_leave(now, name, stored, claim, cause, actions);
            return;
        };
        // There the rules for its pods may come later.
        let local = claim.proxied.asks() && claim.proxied.is_local() && !self.own.is_leaving();
        let patience = if local { LATE_LOCAL } else { Duration::ZERO };
        self.with(name, |tenure| {
            let until = now + TAKE + patience;
            tenure.handover = Some(Handover { successor: Some(node.clone()), until });
        });
        let transitions = stored.record.transitions;
        let record = Claim {
            successor: Some(Successor { node, session, transitions }),
            cause: format!("handing over: {cause}"),
            ..stored.record.clone()
        };
        self.put_claim(now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
    }

    /// Whether the named successor of a claim that may wait for long need not be waited for: it is gone, or may
    /// not have it any more.
    fn is_given_up(&self, name: &LeaseName, claim: &DesiredClaim) -> bool {
        let Some(desired) = self.desired.as_ref().filter(|_| claim.proxied.is_local()) else {
            return false;
        };
        let handover = self.tenures.get(name).and_then(|tenure| tenure.handover.as_ref());
        let named = handover.and_then(Handover::successor);
        named.is_some_and(|node| !self.candidates(claim, desired).contains(&node))
    }

    /// Nobody is willing. Whatever the state of the node, it keeps what it has: an address that
    /// answers is better than none. Without the API server it keeps what others are to have, too: it cannot
    /// release it, and as its claim stands nobody takes it while the node answers for others.
    fn stay_or_leave(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        claim: &DesiredClaim,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let allowed = claim.held || claim.nodes.contains(&self.config.node);
        let barred = !allowed || self.is_barred(name, claim);
        let elsewhere = claim.silence.is_none() && !claim.nodes.is_empty();
        let stuck = elsewhere && self.is_api_failing();
        if self.own.is_leaving() || barred && !stuck {
            self.leave_claim(now, name, stored, &Leaving::new(Reason::Asked, cause), actions);
        } else {
            self.with(name, |tenure| {
                tenure.handover = Some(Handover { successor: None, until: now + RETRY });
            });
        }
    }

    /// Takes a claim whose owner names this node as its successor.
    pub(super) fn succeed(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let Some(successor) = &stored.record.successor else { return };
        let meant = successor.node == self.config.node
            && self.own.id.as_ref() == Some(&successor.session)
            && successor.transitions == stored.record.transitions;
        let willing = self.candidates(claim, desired).contains(&&self.config.node);
        let able = self.tenures.get(name).is_some_and(|t| self.may_take(now, t, claim).is_some());
        if meant && willing && able && self.may_succeed(now, name, claim, actions) {
            let holder = stored.record.holder.as_ref().map(ToString::to_string).unwrap_or_default();
            let why = stored.record.cause.strip_prefix("handing over: ").unwrap_or("handed over");
            let why = Why::new(format!("moved from {holder}: {why}"), Cause::Move, now);
            self.put_taken(now, name, claim, Some(Arc::clone(stored)), why, actions);
        }
    }

    fn advance_yields(
        &mut self,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        for name in names {
            self.advance_yield(now, name, desired, actions);
        }
    }

    fn advance_yield(
        &mut self,
        now: Instant,
        name: &LeaseName,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name) else { return };
        let (Some(yielding), Some(interface)) = (&tenure.yielding, tenure.interface.clone()) else {
            return;
        };
        let carried = self.interfaces.get(&interface).is_some_and(|interface| interface.carrier);
        let Some(claim) = desired.claims.get(name).filter(|_| carried) else {
            self.with(name, |tenure| tenure.yielding = None);
            return;
        };
        let (phase, mac) = (yielding.phase, yielding.mac);
        let due = now >= yielding.deadline();
        let node = yielding.node.clone();
        let waits = tenure.must_read || now < tenure.retry;
        if matches!(phase, Phase::TakingBack { .. }) && due {
            Self::probe(&interface, &claim.addresses, actions);
            self.set_phase(name, Phase::TakingBack { ask: now + ASK });
        }
        if self.is_pending(&Target::Claim(name.clone())) || waits {
            return;
        }
        let owner = self.claims.get(name).map_or(Owner::Nobody, |stored| self.owner(stored));
        let silent = match owner {
            Owner::Me => return,
            // It died, or gave the claim up.
            Owner::Nobody => true,
            Owner::Other(other) if other != node => {
                let next = self.claims.get(name).map(|stored| Yielding::new(now, other, stored));
                self.with(name, |tenure| tenure.yielding = next.map(Box::new));
                return;
            }
            Owner::Other(_) if !due => return,
            // Silent on a segment where it was heard: it does not serve what it owns.
            Owner::Other(_) => {
                let heard = mac.is_some_and(|mac| self.heard_speakers.contains(&mac));
                heard && matches!(phase, Phase::ProbedTwice { .. } | Phase::TakingBack { .. })
            }
        };
        let next = match phase {
            _ if silent => {
                self.take_back(now, name, claim, node, actions);
                Some(Phase::TakingBack { ask: now + ASK })
            }
            Phase::Listening { .. } => Some(Phase::Probed { until: now + PROBE }),
            Phase::Probed { .. } => Some(Phase::ProbedTwice { until: now + PROBE }),
            Phase::ProbedTwice { .. } | Phase::TakingBack { .. } => None,
        };
        if matches!(next, Some(Phase::Probed { .. } | Phase::ProbedTwice { .. })) {
            Self::probe(&interface, &claim.addresses, actions);
        }
        match next {
            Some(phase) => self.set_phase(name, phase),
            None => self.with(name, |tenure| tenure.yielding = None),
        }
    }

    fn set_phase(&mut self, name: &LeaseName, phase: Phase) {
        self.with(name, |tenure| {
            if let Some(yielding) = &mut tenure.yielding {
                yielding.phase = phase;
            }
        });
    }

    fn take_back(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        node: NodeName,
        actions: &mut Vec<Action>,
    ) {
        let text = format!("taken back: {node} does not serve it");
        self.with(name, |tenure| {
            tenure.excluded.insert(node, now + EXCLUDED);
        });
        let stored = self.claims.get(name).cloned();
        self.put_taken(now, name, claim, stored, Why::new(text, Cause::Silence, now), actions);
    }
}
