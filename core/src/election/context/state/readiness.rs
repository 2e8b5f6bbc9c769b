//! The readiness of this node.

use std::time::Duration;

use crate::clock::Instant;
use crate::desired::{Desired, NodeState};

/// For how long a node is not ready before it gives away what it has.
pub(in crate::election) const LASTS: Duration = Duration::from_secs(10);

/// Whether this node is not ready while others are.
#[derive(Debug, Default)]
pub(in crate::election) struct NotReady {
    pub(in crate::election::context) since: Option<Instant>,
    /// Whether that has lasted.
    has_lasted: bool,
}

impl NotReady {
    /// Whether this node has not been ready for so long that it counts.
    pub(in crate::election) const fn has_lasted(&self) -> bool {
        self.has_lasted
    }

    /// Whether it begins to count now.
    pub(in crate::election) fn advance(&mut self, now: Instant) -> bool {
        let lasts = self.since.is_some_and(|since| now >= since + LASTS);
        let begins = lasts && !self.has_lasted;
        self.has_lasted |= lasts;
        begins
    }

    pub(in crate::election) fn note_desired(
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
