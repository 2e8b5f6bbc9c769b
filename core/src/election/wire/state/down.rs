//! Nodes that are down, for all that this node knows.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::Down;

/// After what time a node is believed to be ready if Kubernetes still says so: more than twice as long as it takes to
/// say otherwise (`node-monitor-grace-period`: 40 s, 50 s from Kubernetes 1.32 on).
pub(in crate::election) const BELIEVED: Duration = Duration::from_secs(120);

/// After what pause this process has stood still: silences count from its end.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// The nodes that may be down.
#[derive(Debug, Default)]
pub(in crate::election) struct Falls {
    pub(in crate::election::wire) nodes: BTreeMap<NodeName, Fall>,
    /// As it was told last.
    pub(in crate::election::wire) told: Down,
    /// Grows whenever that changes.
    pub(in crate::election::wire) revision: u64,
    /// The revision of the sessions that it was made from, …
    pub(in crate::election::wire) sessions: u64,
    /// … and whether other nodes may be heard since.
    pub(in crate::election::wire) stale: bool,
    /// Since when this node has polled others.
    pub(in crate::election::wire) polls_since: Option<Instant>,
    /// When it was last looked at.
    pub(in crate::election::wire) looked: Option<Instant>,
}

/// The signs that a node is down.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing of the node")]
pub(in crate::election) struct Fall {
    /// When the first of them was seen.
    pub(in crate::election::wire) since: Instant,
    /// When the first was seen that is of the wire.
    pub(in crate::election::wire) wire: Option<Instant>,
    /// Whether it was down at any time since: it is until the signs have gone.
    pub(in crate::election::wire) down: bool,
    /// Whether it does not answer this node now.
    pub(in crate::election::wire) silent: bool,
    /// Whether it has answered since.
    pub(in crate::election::wire) answered: bool,
    /// Whether open connections to its pods end.
    pub(in crate::election::wire) lost: bool,
    /// Its kubelet says that it is not: that counts once it has had the time to stop saying so.
    pub(in crate::election::wire) trusted: bool,
}

impl Fall {
    /// Whether connections may have to end because nothing happens.
    pub(in crate::election::wire) const fn waits(&self) -> bool {
        self.wire.is_some() && !self.lost && !self.answered
    }
}

impl Falls {
    /// Notes that it is looked at. What was silent before this process stood still may have answered since.
    pub(in crate::election::wire) fn look(&mut self, now: Instant) {
        let before = self.looked.replace(now);
        if before.is_some_and(|before| now.saturating_since(before) >= STOOD_STILL) {
            for fall in self.nodes.values_mut().filter(|fall| !fall.lost) {
                fall.wire = fall.wire.map(|_| now);
            }
        }
    }

    /// Notes whether this node polls others.
    pub(in crate::election) fn note_part(&mut self, now: Instant, polls: bool) {
        self.polls_since = polls.then(|| self.polls_since.unwrap_or(now));
    }

    /// Whether this node has polled others for so long: before, it cannot tell who does not answer.
    pub(in crate::election) fn has_polled(&self, now: Instant, lasting: Duration) -> bool {
        self.polls_since.is_some_and(|since| now >= since + lasting)
    }

    /// Other nodes may be heard now.
    pub(in crate::election) const fn note_voices(&mut self) {
        self.stale = true;
    }
}
