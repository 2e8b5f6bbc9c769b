//! The MAC addresses of speakers.

use std::collections::BTreeMap;

use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

/// The MAC addresses that sessions list, of links that are down as well, and those that they listed.
#[derive(Debug, Default)]
pub(in crate::election) struct Speakers {
    pub(in crate::election::context) macs: BTreeMap<MacAddr, NodeName>,
    /// How many sessions live.
    pub(in crate::election::context) living: usize,
    /// The revision of the sessions when they were last looked at.
    pub(in crate::election::context) revision: Option<u64>,
}
