//! A node whose kubelet is not ready, or not heard of.
//!
//! Its addresses answer: kube-proxy and the speaker go on. But its pods are about to go, and so may the
//! node; it gives its addresses to nodes that are ready, make before break. An API server that was away
//! makes all kubelets late at once, though, and they come back one after another, within some ten
//! seconds: so nothing moves while less than half of the nodes are ready, nor in the first ten seconds.

use std::time::Duration;

use crate::clock::Instant;
use crate::desired::{Desired, NodeState};
use crate::lease::context::Context;

/// For how long a node is not ready before it gives away what it has.
pub(in crate::lease) const LASTS: Duration = Duration::from_secs(10);

/// Whether this node is not ready while others are.
#[derive(Debug, Default)]
pub(in crate::lease) struct NotReady {
    since: Option<Instant>,
    /// Whether that has lasted.
    has_lasted: bool,
}

impl NotReady {
    /// Whether this node has not been ready for so long that it counts.
    pub(in crate::lease) const fn has_lasted(&self) -> bool {
        self.has_lasted
    }

    /// Whether it begins to count now.
    pub(in crate::lease) fn advance(&mut self, now: Instant) -> bool {
        let lasts = self.since.is_some_and(|since| now >= since + LASTS);
        let begins = lasts && !self.has_lasted;
        self.has_lasted |= lasts;
        begins
    }

    pub(in crate::lease) fn note_desired(
        &mut self,
        now: Instant,
        own: Option<NodeState>,
        desired: &Desired,
    ) {
        let of = |state| desired.nodes.values().filter(|other| **other == state).count();
        let most_are_ready = of(NodeState::Ready) >= of(NodeState::NotReady);
        let since = self.since.unwrap_or(now);
        self.since = (own == Some(NodeState::NotReady) && most_are_ready).then_some(since);
        self.has_lasted &= self.since.is_some();
    }
}

impl Context {
    pub(in crate::lease) fn not_ready_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.not_ready.since.map(|since| since + LASTS))
    }
}
