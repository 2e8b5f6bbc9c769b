//! The state of moves to better nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, MoveReason, SessionId};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, FailbackMode, NodeState};
use crate::election::claim::state::tenure::TOGETHER;

/// The interval in which the next move is sought, …
pub(in crate::election) const LOOK: Duration = Duration::from_secs(1);

/// … and while what has just been given out is spread: nobody has used it for long.
pub(in crate::election) const SPREAD: Duration = Duration::from_millis(200);

/// For how long what was given out for the first time goes to nodes that join.
pub(in crate::election) const GIVEN_OUT: Duration = Duration::from_secs(60);

/// The knowledge about better nodes.
#[derive(Debug, Default)]
pub(in crate::election) struct Improving {
    /// Whether any policy asks for it.
    asked: bool,
    /// When the first and the last claim of late were given out.
    given_out: Option<(Instant, Instant)>,
    /// The nodes that this process has seen with a session, and when those joined that it had not seen before.
    seen: BTreeSet<NodeName>,
    pub(in crate::election::transfer) joined: BTreeMap<NodeName, Instant>,
    pub(in crate::election::transfer) looked: Option<Instant>,
    /// Whether that found that something of this node is to be spread.
    pub(in crate::election::transfer) spreads: bool,
    /// Since when each node could have been given something.
    pub(in crate::election::transfer) ready: BTreeMap<NodeName, (SessionId, Instant)>,
    /// The number of transitions of each claim at its last improvement, by any node.
    pub(in crate::election::transfer) moves: BTreeMap<LeaseName, i32>,
    /// When that was seen.
    pub(in crate::election::transfer) moved: VecDeque<Instant>,
    pub(in crate::election::transfer) chosen: Option<Chosen>,
}

/// A claim of this node that is on its way.
#[derive(Debug)]
pub(in crate::election) struct Chosen {
    pub(in crate::election::transfer) name: LeaseName,
    pub(in crate::election::transfer) to: NodeName,
    pub(in crate::election::transfer) cause: MoveReason,
    pub(in crate::election::transfer) since: Instant,
    /// The ownership that ends so: should the claim come back at once, it stays until the next look.
    pub(in crate::election::transfer) transitions: i32,
}

impl Improving {
    pub(in crate::election) fn note_desired(&mut self, desired: &Desired) {
        let asks = |mode| mode != FailbackMode::Never;
        self.asked = desired.claims.values().any(|claim| asks(claim.failback.mode));
        // Whom people took out for a while has not joined when they put it back.
        let out = |node: &NodeName| {
            let state = desired.nodes.get(node);
            matches!(state, Some(NodeState::Cordoned | NodeState::Draining))
        };
        self.joined.retain(|node, _| !out(node));
    }

    /// A claim was given out that nobody had.
    pub(in crate::election) fn note_given_out(&mut self, now: Instant) {
        let before = self.given_out.filter(|(_, last)| now < *last + GIVEN_OUT);
        self.given_out = Some((before.map_or(now, |(first, _)| first), now));
    }

    /// This node has a session; whether it began just now, and without anybody having ended one before.
    pub(in crate::election) fn note_session(
        &mut self,
        now: Instant,
        node: &NodeName,
        new: bool,
        anew: bool,
    ) {
        let unseen = !self.seen.contains(node);
        if unseen {
            self.seen.insert(node.clone());
        }
        if new && (unseen || anew) {
            self.joined.retain(|_, at| now < *at + GIVEN_OUT);
            self.joined.insert(node.clone(), now);
        }
    }

    /// The lease of its session is gone.
    pub(in crate::election) fn note_session_gone(&mut self, node: &LeaseName) {
        self.seen.retain(|seen| seen.as_str() != node.as_str());
    }

    /// Whether anything may go to a better node at `now`.
    pub(in crate::election) fn is_asked(&self, now: Instant) -> bool {
        self.asked
            || self.given_out.is_some_and(|(first, last)| {
                let later = |at: &Instant| *at + TOGETHER >= first && now < *at + GIVEN_OUT;
                now < last + GIVEN_OUT && self.joined.values().any(later)
            })
    }

    pub(in crate::election) fn deadline(&self) -> Option<Instant> {
        self.looked.filter(|looked| self.is_asked(*looked)).map(|looked| looked + self.pace())
    }

    /// From one look to the next.
    pub(in crate::election) const fn pace(&self) -> Duration {
        if self.spreads { SPREAD } else { LOOK }
    }
}
