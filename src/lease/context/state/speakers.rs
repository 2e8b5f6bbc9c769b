//! The MAC addresses of speakers.

use std::collections::BTreeMap;

use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

/// The MAC addresses that sessions list, of links that are down as well, and those that they listed.
#[derive(Debug, Default)]
pub(in crate::lease) struct Speakers {
    pub(in crate::lease::context) macs: BTreeMap<MacAddr, NodeName>,
    /// How many sessions live.
    pub(in crate::lease::context) living: usize,
    /// The revision of the sessions when they were last looked at.
    pub(in crate::lease::context) revision: Option<u64>,
}
