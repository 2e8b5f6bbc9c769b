//! The settings of the core.

use std::time::Duration;

use leasehold_crds::lease::Incarnation;
use leasehold_crds::names::NodeName;

/// The settings of the core.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node whose speaker this is.
    pub node: NodeName,
    /// This boot of this host.
    pub incarnation: Incarnation,
    /// L: for how long a session may go without renewal, at least; whole seconds. It grows with the
    /// number of speakers, so that all sessions together are written 30 times per second at most.
    pub lease_duration: Duration,
    /// After which time a request counts as unanswered.
    pub request_timeout: Duration,
    /// For how long the addresses of a speaker stay whose pod is being replaced, at least; whole seconds.
    pub restart_grace: Duration,
    /// Whether nodes announce that a label excludes from load balancing: told in the session, for all that
    /// look at nodes without being speakers.
    pub ignores_exclude_label: bool,
}

/// How much longer than the session the kernel is to keep an address. It is told whole seconds,
/// rounded down: so it gets L + 1 s for a renewal that is answered within half a second, and removes
/// 1.0 to 2.03 s after the session's end.
pub(in crate::election) const KERNEL_GRACE: Duration = Duration::from_millis(1500);
