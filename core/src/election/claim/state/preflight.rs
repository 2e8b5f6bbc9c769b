//! Obstacles to serving a claim on this node, and for how long they last.

use std::time::Duration;

use crate::clock::Instant;

/// The time for which an address that the kernel refuses is tried.
pub(in crate::election) const REFUSED: Duration = Duration::from_millis(200);

/// The time after the request to add an address within which it must be seen in the kernel.
pub(in crate::election) const SEEN: Duration = Duration::from_secs(1);

/// The time after the claim within which the kernel must have been told: on a node that is overloaded, or that
/// adds a thousand at once, that takes some time.
pub(in crate::election) const TOLD: Duration = Duration::from_secs(5);

/// The time for which a node that could not serve is not eligible; it doubles each time.
pub(in crate::election) const INELIGIBLE: Duration = Duration::from_secs(30);

/// The longest such time.
pub(in crate::election) const INELIGIBLE_MAX: Duration = Duration::from_secs(600);

/// The time in which this node does not take a claim that it could not serve.
#[derive(Debug)]
pub(in crate::election) struct Ineligible {
    pub(in crate::election::claim) until: Instant,
    pub(in crate::election::claim) backoff: Duration,
}

/// An address is to be in the kernel and is not.
#[derive(Clone, Copy, Debug)]
pub(in crate::election) struct Missing {
    pub(in crate::election::claim) since: Instant,
    /// The generation that was served then, and the time at which the kernel was known to have been told it.
    pub(in crate::election::claim) generation: u64,
    pub(in crate::election::claim) told: Option<Instant>,
}

impl Missing {
    /// When the claim is given up if nothing changes.
    pub(in crate::election) fn due(&self, refused: bool) -> Instant {
        if refused {
            return self.since + REFUSED;
        }
        self.told.map_or(self.since + TOLD, |told| told + SEEN)
    }

    /// The same, whether the kernel refuses it or not.
    pub(in crate::election) fn deadlines(&self) -> [Instant; 2] {
        [self.due(true), self.due(false)]
    }
}
