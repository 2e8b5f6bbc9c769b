//! Moving claims to better nodes while their owners live, one after another.
//!
//! All speakers look for the same next move; the owner of that claim makes it, as a planned move. No
//! other begins while one is under way, while a claim has no owner, or while a speaker restarts: what
//! was lost comes first. What nobody has taken for a while nobody can have, and does not count: another host has its
//! address, or no kernel takes it.
//!
//! What has just been given out for the first time may go to nodes that join later, whatever the policy says
//! of others: speakers come one after another, and the first would keep everything.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, MoveReason, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, Failback, FailbackMode, NodeState};
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::candidates::Candidates;
use crate::election::context::state::facts::id_of;
use crate::election::context::state::owner::Owner;
use crate::election::io::event::Target;
use crate::election::placement::rank::{Held, next_move};
use crate::election::transfer::Transfer;
use crate::election::transfer::state::rebalance::{Chosen, GIVEN_OUT, Improving, LOOK};

/// After which time a move that was not made is given up; another is looked for.
pub(in crate::election) const MADE: Duration = Duration::from_secs(3);

/// The time for which a claim without an owner is waited for; longer where that is less than two rounds of turns.
pub(in crate::election) const STRANDED: Duration = Duration::from_secs(5);

/// Within which time moves are counted.
pub(in crate::election) const MINUTE: Duration = Duration::from_secs(60);

/// Nodes that have joined a short time ago, and could be given something.
#[derive(Debug)]
pub(in crate::election) struct Joined<'a> {
    nodes: BTreeMap<&'a NodeName, Instant>,
    loads: &'a BTreeMap<NodeName, usize>,
    /// The fewest addresses that any of them has.
    least: usize,
    /// Of all nodes the one with the most: no two give to the same node at the same time.
    heaviest: Option<&'a NodeName>,
}

impl<'a> Joined<'a> {
    /// Nodes that come and go at once are left alone.
    pub(in crate::election) fn new(
        now: Instant,
        improving: &'a Improving,
        loads: &'a BTreeMap<NodeName, usize>,
    ) -> Self {
        let there = |(node, at): &(&NodeName, &Instant)| {
            (LOOK..GIVEN_OUT).contains(&now.saturating_since(**at))
                && improving.ready.contains_key(*node)
        };
        let nodes = improving.joined.iter().filter(there);
        let nodes: BTreeMap<_, _> = nodes.map(|(node, at)| (node, *at)).collect();
        let least = nodes.keys().filter_map(|node| loads.get(*node)).min().copied();
        let heaviest = loads.iter().max_by_key(|(node, load)| (**load, Reverse(*node)));
        let heaviest = heaviest.map(|(node, _)| node);
        Self { nodes, loads, least: least.unwrap_or(usize::MAX), heaviest }
    }

    /// Whether `node` joined after something was given out at `at`.
    pub(in crate::election) fn since(&self, node: &NodeName, at: Instant) -> bool {
        self.nodes.get(node).is_some_and(|joined| *joined >= at)
    }

    /// What those that joined after `at`, when it was given out, would do for `claim` and its owner.
    pub(in crate::election) fn relief(
        &self,
        owner: &NodeName,
        claim: &DesiredClaim,
        at: Instant,
    ) -> Relief {
        if self.nodes.values().all(|joined| *joined < at) {
            return Relief::default();
        }
        let load = self.loads.get(owner).copied().unwrap_or(0);
        let lighter = self.least.saturating_add(claim.addresses.len()) < load;
        let due = lighter && self.heaviest == Some(owner) || !claim.preference.is_empty();
        Relief { lighter, due }
    }
}

/// The benefit that nodes that have joined would be for a claim and its owner.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::election) struct Relief {
    /// One would have fewer addresses with it than its owner has.
    lighter: bool,
    /// One would do better with it, and it is the owner's turn.
    due: bool,
}

impl Transfer {
    /// To which better node this claim of ours is on its way, and why: what people ask for is best.
    pub(in crate::election) fn bettered<'a>(
        &'a self,
        cx: &'a Context,
        name: &LeaseName,
    ) -> Option<(&'a NodeName, MoveReason)> {
        if let Some(node) = cx.asked_to(name) {
            return Some((node, MoveReason::ByHand));
        }
        let chosen = self.improving.chosen.as_ref().filter(|chosen| chosen.name == *name)?;
        let stored = cx.claims().get(name)?;
        let same = stored.record.transitions == chosen.transitions;
        same.then_some((&chosen.to, chosen.cause))
    }

    /// Looks for the next move, and begins it if it is this node's.
    pub(in crate::election) fn improve(
        &mut self,
        cx: &Context,
        claims: &mut Claims,
        now: Instant,
        desired: &Desired,
    ) {
        let pace = self.improving.pace();
        let due = self.improving.looked.is_none_or(|looked| now >= looked + pace);
        if !self.improving.is_asked(now) || !due {
            return;
        }
        self.note_ready(cx, now, desired);
        self.count_moves(cx, now);
        self.improving.looked = Some(now);
        if let Some(chosen) = self.improving.chosen.take() {
            // Looked at once more: it is served as it was asked to, or goes on.
            claims.open_mut().note(&chosen.name);
            let stored = cx.claims().get(&chosen.name);
            let same = stored.is_some_and(|it| it.record.transitions == chosen.transitions);
            if same && now < chosen.since + MADE {
                self.improving.chosen = Some(chosen);
                return;
            }
        }
        if !Self::is_calm(cx, claims, now, desired) {
            return;
        }
        (self.improving.chosen, self.improving.spreads) = self.best_move(cx, claims, now, desired);
        if let Some(chosen) = &self.improving.chosen {
            claims.open_mut().note(&chosen.name);
        }
    }

    /// Notes since when each node could have been given something.
    pub(in crate::election) fn note_ready(
        &mut self,
        cx: &Context,
        now: Instant,
        desired: &Desired,
    ) {
        let mut ready = BTreeMap::new();
        for (node, stored) in cx.live_sessions() {
            let willing = cx.state_of(node, desired) == Some(NodeState::Ready);
            if willing && !stored.record.restarting && !stored.record.interfaces.is_empty() {
                let session = id_of(stored);
                let before = self.improving.ready.get(node).filter(|(id, _)| *id == session);
                let since = before.map_or(now, |(_, since)| *since);
                ready.insert(node.clone(), (session, since));
            }
        }
        self.improving.ready = ready;
    }

    /// Counts the moves that were made, by anybody, since the last look.
    pub(in crate::election) fn count_moves(&mut self, cx: &Context, now: Instant) {
        let moves: BTreeMap<LeaseName, i32> = cx
            .claims()
            .stored()
            .filter(|stored| {
                let cause = &stored.record.cause;
                stored.record.successor.is_none() && MoveReason::improvement(cause).is_some()
            })
            .map(|stored| (stored.name.clone(), stored.record.transitions))
            .collect();
        if self.improving.looked.is_some() {
            let before = &self.improving.moves;
            let new = moves.iter().filter(|(name, number)| before.get(*name) != Some(number));
            let count = new.count();
            self.improving.moved.extend(std::iter::repeat_n(now, count));
        }
        self.improving.moves = moves;
        while self.improving.moved.front().is_some_and(|at| *at + MINUTE <= now) {
            self.improving.moved.pop_front();
        }
    }

    /// Whether everything that is asked for, and that anybody can have, has an owner that stays.
    pub(in crate::election) fn is_calm(
        cx: &Context,
        claims: &Claims,
        now: Instant,
        desired: &Desired,
    ) -> bool {
        let stays = |name: &LeaseName| {
            cx.claims().get(name).is_some_and(|stored| {
                cx.owner(stored) != Owner::Nobody
                    && stored.record.successor.is_none()
                    && !cx.is_pending(&Target::Claim(name.clone()))
            })
        };
        let mut asked = desired.claims.iter();
        cx.is_api_answering(now)
            && !cx.own().is_ending()
            && cx.live_sessions().all(|(_, stored)| !stored.record.restarting)
            && asked.all(|(name, claim)| {
                stays(name)
                    || Self::is_stranded(cx, claims, now, name)
                    || cx.candidates(claim, desired).is_empty()
            })
    }

    /// Whether nobody has taken a claim for so long that nobody can.
    pub(in crate::election) fn is_stranded(
        cx: &Context,
        claims: &Claims,
        now: Instant,
        name: &LeaseName,
    ) -> bool {
        let Some(tenure) = claims.tenures().get(name) else { return false };
        tenure.unowned().is_some_and(|unowned| {
            let round = Claims::round_ends(cx, unowned).saturating_since(unowned.since());
            now >= unowned.first_sign() + STRANDED.max(round * 2)
        })
    }

    /// When this claim of ours was given out that nobody had, as far as is known; if a node gave it to this one
    /// because this one had joined, that counts from then.
    pub(in crate::election) fn given_out(
        claims: &Claims,
        tenure: &Tenure,
        stored: &Stored<Claim>,
    ) -> Option<Instant> {
        let joined = || {
            (MoveReason::improvement(&stored.record.cause) == Some(MoveReason::Joined))
                .then_some(claims.joining().begun())
                .flatten()
        };
        tenure.given_out().or_else(joined)
    }

    /// The number of addresses that each live node owns: all that are asked for count, also where a claim was edited
    /// and does not list them for a moment.
    pub(in crate::election) fn loads_as_asked(
        cx: &Context,
        desired: &Desired,
    ) -> BTreeMap<NodeName, usize> {
        let mut loads = Claims::owned_loads(cx);
        for (name, claim) in &desired.claims {
            let Some(stored) = cx.claims().get(name) else { continue };
            let unlisted = claim.addresses.len().saturating_sub(stored.record.addresses.len());
            let owner = stored.record.holder.as_ref().filter(|_| unlisted > 0);
            let owner = owner.filter(|_| cx.owner(stored) != Owner::Nobody);
            if let Some(load) = owner.and_then(|owner| loads.get_mut(owner)) {
                *load += unlisted;
            }
        }
        loads
    }

    /// The next move, if it is one of a claim of this node; and whether any of them is to be spread.
    pub(in crate::election) fn best_move(
        &self,
        cx: &Context,
        claims: &Claims,
        now: Instant,
        desired: &Desired,
    ) -> (Option<Chosen>, bool) {
        let mut held = Vec::new();
        let mut uneven = false;
        let mut lists = Candidates::new(cx, desired);
        let loads = Self::loads_as_asked(cx, desired);
        let joined = Joined::new(now, &self.improving, &loads);
        for (name, claim) in &desired.claims {
            let Failback { mode, delay, moves_per_minute } = claim.failback;
            if self.improving.moved.len() >= moves_per_minute {
                continue;
            }
            let Some(stored) = cx.claims().get(name) else { continue };
            let Some(owner) = &stored.record.holder else { continue };
            let tenure = claims.tenures().get(name);
            // Each sees to its own: whoever joined later knows nothing of others'.
            let own = *owner == cx.config().node;
            let given_out =
                tenure.filter(|_| own).and_then(|tenure| Self::given_out(claims, tenure, stored));
            let given_out = given_out.filter(|at| now < *at + GIVEN_OUT);
            let relief = given_out.map(|at| joined.relief(owner, claim, at)).unwrap_or_default();
            uneven |= relief.lighter;
            let spreads = relief.due;
            if mode == FailbackMode::Never && !spreads {
                continue;
            }
            let excluded = tenure.map(super::super::claim::state::tenure::Tenure::excluded);
            let serves = |node: &&NodeName| {
                excluded.and_then(|e| e.get(*node)).is_none_or(|until| now >= *until)
            };
            let there = |node: &&NodeName| {
                let since = self.improving.ready.get(*node).map(|(_, since)| *since);
                let for_long = |since| now.saturating_since(since) >= delay;
                mode != FailbackMode::Never && since.is_some_and(for_long)
                    || given_out.is_some_and(|at| joined.since(node, at))
            };
            let may = lists.of(claim, 0, |_| true);
            let proxied = |node: &&NodeName| !cx.is_proxy_silent(node, claim);
            let others = may.iter().copied().filter(|node| *node != owner);
            let others = others.filter(there).filter(serves).filter(proxied);
            held.push(Held {
                name,
                addresses: claim.addresses.len(),
                owner,
                others: others.collect(),
                preference: &claim.preference,
                balance: mode == FailbackMode::Balance || spreads,
                apart: Claims::apart(cx, claim)
                    .into_iter()
                    .filter_map(|(_, owner)| owner)
                    .collect(),
            });
        }
        (Self::chosen(cx, now, &held, &loads), uneven)
    }

    /// The next move among those of `held`, if it is one of a claim of this node.
    pub(in crate::election) fn chosen(
        cx: &Context,
        now: Instant,
        held: &[Held<'_>],
        loads: &BTreeMap<NodeName, usize>,
    ) -> Option<Chosen> {
        let (name, to) = next_move(held, loads)?;
        let claim = held.iter().find(|claim| claim.name == name)?;
        if *claim.owner != cx.config().node {
            return None;
        }
        let preferred = |node| claim.preference.get(node).copied().unwrap_or(0);
        let policy = cx.desired_claim(name)?.failback.mode;
        let cause = if policy == FailbackMode::Never {
            MoveReason::Joined
        } else if preferred(to) > preferred(claim.owner) {
            MoveReason::Preferred
        } else if claim.apart.contains(&claim.owner) {
            MoveReason::Apart
        } else {
            MoveReason::Balance
        };
        let transitions = cx.claims().get(name)?.record.transitions;
        Some(Chosen { name: name.clone(), to: to.clone(), cause, since: now, transitions })
    }
}
