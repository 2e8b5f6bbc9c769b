//! Moving claims to better nodes while their owners live, one after another.
//!
//! All speakers look for the same next move; the owner of that claim makes it, as a planned move. No
//! other begins while one is under way, while a claim has no owner, or while a speaker restarts: what
//! was lost comes first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, SessionId};
use leasehold_crds::names::NodeName;

use super::by_hand::BY_HAND;
use super::election::{Election, id_of};
use super::event::Target;
use super::place::{Held, next_move};
use super::validity::Owner;
use crate::clock::Instant;
use crate::desired::{Desired, Failback, FailbackMode, NodeState};

/// How often the next move is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// After which time a move that was not made is given up; another is looked for.
const MADE: Duration = Duration::from_secs(3);
/// Within which time moves are counted.
const MINUTE: Duration = Duration::from_secs(60);
/// What a claim says of why it moves.
const PREFERRED: &str = "another node is preferred";
const BALANCE: &str = "another node has fewer addresses";
const APART: &str = "another address of the service is on the node";

/// What is known about better nodes.
#[derive(Debug, Default)]
pub(super) struct Improving {
    /// Whether any policy asks for it.
    asked: bool,
    looked: Option<Instant>,
    /// Since when each node could have been given something.
    ready: BTreeMap<NodeName, (SessionId, Instant)>,
    /// What each claim said when it was moved last, by anybody, for this.
    moves: BTreeMap<LeaseName, i32>,
    /// When that was seen.
    moved: VecDeque<Instant>,
    chosen: Option<Chosen>,
}

/// A claim of this node that is on its way.
#[derive(Debug)]
struct Chosen {
    name: LeaseName,
    to: NodeName,
    cause: &'static str,
    since: Instant,
    /// The ownership that ends so: should the claim come back at once, it stays until the next look.
    transitions: i32,
}

impl Improving {
    pub(super) fn note_desired(&mut self, desired: &Desired) {
        let asks = |mode| mode != FailbackMode::Never;
        self.asked = desired.claims.values().any(|claim| asks(claim.failback.mode));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.looked.filter(|_| self.asked).map(|looked| looked + LOOK)
    }
}

impl Election {
    /// To which better node this claim of ours is on its way, and why: what people ask for is best.
    pub(super) fn bettered(&self, name: &LeaseName) -> Option<(&NodeName, &'static str)> {
        if let Some(node) = self.asked_to(name) {
            return Some((node, BY_HAND));
        }
        let chosen = self.improving.chosen.as_ref().filter(|chosen| chosen.name == *name)?;
        let stored = self.claims.get(name)?;
        let same = stored.record.transitions == chosen.transitions;
        same.then_some((&chosen.to, chosen.cause))
    }

    /// Looks for the next move, and begins it if it is this node's.
    pub(super) fn improve(&mut self, now: Instant, desired: &Desired) {
        let due = self.improving.looked.is_none_or(|looked| now >= looked + LOOK);
        if !self.improving.asked || !due {
            return;
        }
        self.note_ready(now, desired);
        self.count_moves(now);
        self.improving.looked = Some(now);
        if let Some(chosen) = self.improving.chosen.take() {
            // Looked at once more: it is served as it was asked to, or goes on.
            self.open.note(&chosen.name);
            let stored = self.claims.get(&chosen.name);
            let same = stored.is_some_and(|it| it.record.transitions == chosen.transitions);
            if same && now < chosen.since + MADE {
                self.improving.chosen = Some(chosen);
                return;
            }
        }
        if !self.is_calm(now, desired) {
            return;
        }
        if let Some(chosen) = self.best_move(now, desired) {
            self.open.note(&chosen.name);
            self.improving.chosen = Some(chosen);
        }
    }

    /// Notes since when each node could have been given something.
    fn note_ready(&mut self, now: Instant, desired: &Desired) {
        let mut ready = BTreeMap::new();
        for (node, stored) in self.live_sessions() {
            let willing = self.state_of(node, desired) == Some(NodeState::Ready);
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
    fn count_moves(&mut self, now: Instant) {
        let moves: BTreeMap<LeaseName, i32> = self
            .claims
            .stored()
            .filter(|stored| {
                let cause = &stored.record.cause;
                [PREFERRED, BALANCE, APART].iter().any(|improved| cause.ends_with(improved))
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

    /// Whether everything that is asked for has an owner that stays.
    fn is_calm(&self, now: Instant, desired: &Desired) -> bool {
        let stays = |name: &LeaseName| {
            self.claims.get(name).is_some_and(|stored| {
                self.owner(stored) != Owner::Nobody
                    && stored.record.successor.is_none()
                    && !self.is_pending(&Target::Claim(name.clone()))
            })
        };
        let mut claims = desired.claims.iter();
        self.is_api_answering(now)
            && !self.own.is_ending()
            && self.live_sessions().all(|(_, stored)| !stored.record.restarting)
            && claims.all(|(name, claim)| stays(name) || self.candidates(claim, desired).is_empty())
    }

    /// The next move, if it is one of a claim of this node.
    fn best_move(&self, now: Instant, desired: &Desired) -> Option<Chosen> {
        let mut held = Vec::new();
        for (name, claim) in &desired.claims {
            let Failback { mode, delay, moves_per_minute } = claim.failback;
            if mode == FailbackMode::Never || self.improving.moved.len() >= moves_per_minute {
                continue;
            }
            let Some(stored) = self.claims.get(name) else { continue };
            let Some(owner) = &stored.record.holder else { continue };
            let excluded = self.tenures.get(name).map(|tenure| &tenure.excluded);
            let serves = |node: &&NodeName| {
                excluded.and_then(|e| e.get(*node)).is_none_or(|until| now >= *until)
            };
            let there = |node: &&NodeName| {
                let since = self.improving.ready.get(*node).map(|(_, since)| *since);
                since.is_some_and(|since| now.saturating_since(since) >= delay)
            };
            let others = self.candidates(claim, desired).into_iter();
            let proxied = |node: &&NodeName| !self.is_proxy_silent(node, claim);
            let others = others.filter(|node| *node != owner).filter(there).filter(serves);
            let others = others.filter(proxied);
            held.push(Held {
                name,
                addresses: claim.addresses.len(),
                owner,
                others: others.collect(),
                preference: &claim.preference,
                balance: mode == FailbackMode::Balance,
                apart: self.apart(claim).into_iter().filter_map(|(_, owner)| owner).collect(),
            });
        }
        let (name, to) = next_move(&held, &self.loads())?;
        let claim = held.iter().find(|claim| claim.name == name)?;
        if *claim.owner != self.config.node {
            return None;
        }
        let preferred = |node| claim.preference.get(node).copied().unwrap_or(0);
        let cause = if preferred(to) > preferred(claim.owner) {
            PREFERRED
        } else if claim.apart.contains(&claim.owner) {
            APART
        } else {
            BALANCE
        };
        let transitions = self.claims.get(name)?.record.transitions;
        Some(Chosen { name: name.clone(), to: to.clone(), cause, since: now, transitions })
    }
}
