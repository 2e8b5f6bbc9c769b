//! Sessions of others under suspicion.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;

/// The sessions of others that are under suspicion.
#[derive(Debug, Default)]
pub(in crate::election) struct Peers {
    pub(in crate::election::session) suspects: BTreeMap<LeaseName, Suspect>,
    /// No session will have been silent for long before that, if that is known: there may be thousands.
    pub(in crate::election::session) none_silent_before: Option<Instant>,
}

/// A session that was silent for as long as it said.
#[derive(Debug)]
pub(in crate::election) struct Suspect {
    /// The version that an uncached read confirmed.
    pub(in crate::election) confirmed: Option<Arc<str>>,
    pub(in crate::election) next: Instant,
}

impl Peers {
    /// Something is said of a session now; it may be silent for `least` at least.
    pub(in crate::election) fn note_session(&mut self, now: Instant, least: Duration) {
        self.none_silent_before = self.none_silent_before.map(|until| until.min(now + least));
    }

    /// Something is said of all of them.
    pub(in crate::election) const fn note_all(&mut self) {
        self.none_silent_before = None;
    }
}
