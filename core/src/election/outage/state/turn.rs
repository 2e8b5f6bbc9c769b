//! The turn of what is served provisionally.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;

/// The turn of what is served provisionally.
#[derive(Debug, Default)]
pub(in crate::election) struct Outage {
    /// When the next provisional address is asked for, and which was last.
    pub(in crate::election::outage) probe: Instant,
    pub(in crate::election::outage) probed: Option<LeaseName>,
    /// When another was heard to have an address that is served here provisionally, and how many are to
    /// be asked for because of that.
    pub(in crate::election::outage) joined: Option<Instant>,
    pub(in crate::election::outage) sweep: usize,
}
