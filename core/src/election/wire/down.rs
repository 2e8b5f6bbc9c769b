//! Nodes that are down: to which no new connection is to lead, although the cluster's objects still say that their pods
//! are ready.
//!
//! Two signs say so. On the wire, the node answers on no segment on which this node polls it; that counts at
//! once, also when its speaker has ended its session before. Or its session was ended by a fence: because it did not
//! answer another node, so that those learn of it who do not poll it, or do so later; or because it was not renewed, and
//! it has begun no other shortly after: its kernel may still answer.
//!
//! What follows from a false alarm is an uneven spread of connections, and UDP flows that change their pod. That open
//! connections to its pods end takes more: a silence that lasts. And where Kubernetes goes on to say that the node is
//! ready, for longer than it takes to notice that it is not, that is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_crds::lease::EvidenceKind;
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Down, NodeState};
use crate::election::context::Context;
use crate::election::io::event::{Action, Fact};
use crate::election::io::probes::Voice;
use crate::election::wire::Wire;
use crate::election::wire::state::down::{BELIEVED, Fall};

/// The time that a node has to begin another session after it was fenced because its session was not renewed.
pub(in crate::election) const BEGINS_ANEW: Duration = Duration::from_millis(100);

/// Duration of the silence after which open connections to the pods of a node end.
pub(in crate::election) const LOST: Duration = Duration::from_secs(2);

/// The API server must have answered this node so long after a fence.
pub(in crate::election) const CURRENT: Duration = Duration::from_millis(500);

/// Interval of looks meanwhile: who does not look for long stands still, and cannot tell who is silent.
pub(in crate::election) const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A sign that a node is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// Its session was ended because it was not renewed.
    Lease,
    /// Its session was ended because it did not answer.
    Fenced,
    /// It does not answer this node.
    Silent,
}

impl Wire {
    /// Tells which nodes are down, if that has changed.
    pub(in crate::election) fn tell_down(
        &mut self,
        cx: &Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let revision = cx.sessions().revision();
        let other = std::mem::replace(&mut self.falls.sessions, revision) != revision;
        if std::mem::take(&mut self.falls.stale) || other {
            self.follow_falls(cx, now);
        }
        self.falls.look(now);
        let takes_part = cx.own().id().is_some() && !cx.own().is_ending();
        self.falls.note_part(now, takes_part);
        let polls = self.falls.has_polled(now, LOST);
        let mut down = Down::default();
        let answering = cx.is_api_answering(now);
        let mut falls = std::mem::take(&mut self.falls.nodes);
        let waits = falls.values().any(Fall::waits);
        let heard = if waits { self.silent_and_heard(cx).1 } else { BTreeSet::new() };
        for (node, fall) in &mut falls {
            fall.down |= now >= fall.since + BEGINS_ANEW;
            let ready = || {
                let nodes = cx.desired().map(|desired| &desired.nodes);
                nodes.and_then(|nodes| nodes.get(node)) == Some(&NodeState::Ready)
            };
            fall.trusted |= now >= fall.since + BELIEVED && answering && ready();
            if !fall.down || fall.trusted {
                continue;
            }
            down.nodes.insert(node.clone());
            let (wire, lives) = (fall.wire, |at| self.lives(cx, node, at));
            // What was heard of it at first was heard before.
            let heard = now >= fall.since + CURRENT && heard.contains(node);
            fall.answered |= heard || wire.is_some_and(lives);
            // Who does not hear from the API server does not hear either that a fenced node is back.
            let current = |at| fall.silent || cx.own().answered() >= Some(at + CURRENT);
            let lasts = polls && wire.is_some_and(|at| now >= at + LOST && current(at));
            fall.lost = !fall.answered && (fall.lost || lasts);
            if fall.lost {
                down.lost.insert(node.clone());
            }
        }
        self.falls.nodes = falls;
        if down == self.falls.told {
            return;
        }
        for node in down.nodes.symmetric_difference(&self.falls.told.nodes) {
            let is_down = down.nodes.contains(node);
            Context::report(Fact::NodeDown { node: node.clone(), down: is_down }, actions);
        }
        self.falls.told = down.clone();
        self.falls.revision += 1;
        actions.push(Action::Down(down));
    }

    /// Whether no new connection is to lead to pods of this node.
    pub(in crate::election) fn is_down(&self, node: &NodeName) -> bool {
        self.falls.told.nodes.contains(node)
    }

    /// The nodes that are down.
    pub(in crate::election) const fn down(&self) -> &BTreeSet<NodeName> {
        &self.falls.told.nodes
    }

    /// The nodes that are down and have been silent for so long that open connections to their pods end.
    pub(in crate::election) const fn lost(&self) -> &BTreeSet<NodeName> {
        &self.falls.told.lost
    }

    /// Differs whenever [`Self::down`] or [`Self::lost`] may differ.
    pub(in crate::election) const fn falls_revision(&self) -> u64 {
        self.falls.revision
    }

    /// When that may change although nothing happens.
    pub(in crate::election) fn falls_deadline(&self, cx: &Context) -> Option<Instant> {
        let times = self.falls.nodes.values().flat_map(|fall| {
            let begins = (!fall.down).then_some(fall.since + BEGINS_ANEW);
            let believed = (!fall.trusted).then_some(fall.since + BELIEVED);
            [begins, believed, fall.wire.map(|at| at + LOST)].into_iter().flatten()
        });
        let waits = self.falls.nodes.values().any(Fall::waits);
        let look = self.falls.looked.filter(|_| waits).map(|at| at + LOOK_AGAIN);
        let part = self.falls.polls_since.filter(|_| waits).map(|since| since + LOST);
        cx.first_ahead(times.chain(look).chain(part))
    }

    /// Takes in which nodes show a sign.
    fn follow_falls(&mut self, cx: &Context, now: Instant) {
        let mut signs: BTreeMap<NodeName, Sign> = BTreeMap::new();
        for (node, stored) in Self::fenced_sessions(cx) {
            let evidence = stored.record.silence.map(|silence| silence.evidence);
            let by_wire = evidence == Some(EvidenceKind::Wire);
            signs.insert(node, if by_wire { Sign::Fenced } else { Sign::Lease });
        }
        for node in self.silent_everywhere(cx) {
            signs.insert(node, Sign::Silent);
        }
        let falls = &mut self.falls.nodes;
        falls.retain(|node, _| signs.contains_key(node));
        for (node, sign) in signs {
            let new = || Fall { since: now, ..Fall::default() };
            let fall = falls.entry(node).or_insert_with(new);
            fall.silent = sign == Sign::Silent;
            if sign > Sign::Lease {
                fall.wire.get_or_insert(now);
            }
            if sign == Sign::Silent && fall.answered {
                // It was there in between.
                fall.answered = false;
                fall.wire = Some(now);
            }
            fall.down |= sign > Sign::Lease;
        }
    }

    /// The nodes with a session that answer this node nowhere although it polls them.
    pub(in crate::election) fn silent_everywhere(&self, cx: &Context) -> BTreeSet<NodeName> {
        self.silent_and_heard(cx).0
    }

    /// The nodes that answer this node nowhere although it polls them, and those that answer anywhere.
    fn silent_and_heard(&self, cx: &Context) -> (BTreeSet<NodeName>, BTreeSet<NodeName>) {
        let mut silent = BTreeSet::new();
        let mut heard = BTreeSet::new();
        for (id, voice) in cx.voices().owners.iter() {
            let polled = || self.asked_of(id).is_some_and(|watched| watched.polled);
            match voice {
                Voice::Silent(silence)
                    if !silence.node_answers && self.departed.session_of(cx, id).is_some() =>
                {
                    silent.insert(id.node.clone());
                }
                Voice::Heard | Voice::Silent(_) if polled() => {
                    heard.insert(id.node.clone());
                }
                _ => {}
            }
        }
        silent.retain(|node| !heard.contains(node));
        (silent, heard)
    }

    /// Whether a node has answered since: it is asked for what it may still have.
    fn lives(&self, cx: &Context, node: &NodeName, since: Instant) -> bool {
        let session = cx.sessions().get(node.as_str());
        let mut links = session.into_iter().flat_map(|stored| &stored.record.interfaces);
        links.any(|link| self.old_owners.has_answered_since(link.mac, since))
    }
}
