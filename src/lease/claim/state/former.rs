//! A previous owner that may not have observed its loss.

use std::sync::Arc;

use leasehold_crds::lease::SessionId;
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

/// The owner of a claim before another one.
#[derive(Clone, Debug)]
pub(in crate::lease) struct Former {
    pub(in crate::lease) node: NodeName,
    pub(in crate::lease) session: SessionId,
    pub(in crate::lease) mac: MacAddr,
    /// The version of its session as it was last seen, and how often that has changed since.
    pub(in crate::lease) version: Option<Arc<str>>,
    pub(in crate::lease) renewals: u32,
}

impl Former {
    pub(in crate::lease) fn new(
        node: &NodeName,
        session: &SessionId,
        mac: MacAddr,
        version: Option<Arc<str>>,
    ) -> Self {
        Self { node: node.clone(), session: session.clone(), mac, version, renewals: 0 }
    }
}
