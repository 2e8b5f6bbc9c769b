//! Uncached reads of sessions, and the record of a fence.

use std::time::Duration;

use leasehold_crds::lease::Session;
use leasehold_crds::names::NodeName;

use crate::election::context::Context;
use crate::election::io::config::Config;

/// A node that was fenced so often lately takes unowned claims only after all others. The count is in its
/// session, and so the same for all: those that rank by what each alone has seen would wait for each other.
pub const UNSTEADY: u32 = 3;

/// The longest duration that is believed: a lease edited to a larger one would never end.
pub(in crate::election) const LONGEST: Duration = Duration::from_secs(300);

/// For how long a session may be silent: as long as it says, but never less than L.
pub(in crate::election) fn duration(session: &Session, config: &Config) -> Duration {
    let seconds = u64::try_from(session.duration_seconds).unwrap_or(0);
    Duration::from_secs(seconds).clamp(config.lease_duration, LONGEST.max(config.lease_duration))
}

impl Context {
    /// The nodes that are fenced again and again.
    pub(in crate::election) fn unsteady(&self) -> Vec<&NodeName> {
        let unsteady = self.live_sessions().filter(|(_, s)| s.record.fences >= UNSTEADY);
        unsteady.map(|(node, _)| node).collect()
    }
}
