//! Uncached reads of sessions, and the record of a fence.

use std::time::Duration;

use leasehold_crds::lease::{Session, Silenced, Stored};
use leasehold_crds::names::NodeName;

use crate::election::context::Context;
use crate::election::io::config::Config;

/// A node that was fenced so often lately takes orphans only after all others. The count is in its
/// session, and so the same for all: those that rank by what each alone has seen would wait for each other.
pub const UNSTEADY: u32 = 3;

/// More is not counted.
pub(in crate::election) const MOST_FENCES: u32 = UNSTEADY * 2;

/// The longest duration that is believed: a lease edited to a larger one would never end.
pub(in crate::election) const LONGEST: Duration = Duration::from_secs(300);

/// For how long a session may be silent: as long as it says, but never less than L.
pub(in crate::election) fn duration(session: &Session, config: &Config) -> Duration {
    let seconds = u64::try_from(session.duration_seconds).unwrap_or(0);
    Duration::from_secs(seconds).clamp(config.lease_duration, LONGEST.max(config.lease_duration))
}

/// What the cause of a fence says.
pub(in crate::election) const FENCED_BY: &str = "fenced by";

/// The record that ends a session: with it all its claims are orphans, for good.
pub(in crate::election) fn fenced(
    stored: &Stored<Session>,
    silence: Silenced,
    cause: String,
) -> Session {
    Session {
        holder: None,
        transitions: stored.record.transitions.saturating_add(1),
        restarting: false,
        fences: stored.record.fences.saturating_add(1).min(MOST_FENCES),
        silence: Some(silence),
        cause,
        ..stored.record.clone()
    }
}

impl Context {
    /// The nodes that are fenced again and again.
    pub(in crate::election) fn unsteady(&self) -> Vec<&NodeName> {
        let unsteady = self.live_sessions().filter(|(_, s)| s.record.fences >= UNSTEADY);
        unsteady.map(|(node, _)| node).collect()
    }
}
