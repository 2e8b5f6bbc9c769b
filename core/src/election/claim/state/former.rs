//! A previous owner that may not have observed its loss.

use std::sync::Arc;

use leasehold_crds::lease::SessionId;
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

/// The owner of a claim before another one.
#[derive(Clone, Debug)]
pub(in crate::election) struct Former {
    pub(in crate::election::claim) node: NodeName,
    pub(in crate::election::claim) session: SessionId,
    pub(in crate::election::claim) mac: MacAddr,
    /// The version of its session as it was last seen, and how often that has changed since.
    pub(in crate::election::claim) version: Option<Arc<str>>,
    pub(in crate::election::claim) renewals: u32,
}

impl Former {
    pub(in crate::election) fn new(
        node: &NodeName,
        session: &SessionId,
        mac: MacAddr,
        version: Option<Arc<str>>,
    ) -> Self {
        Self { node: node.clone(), session: session.clone(), mac, version, renewals: 0 }
    }

    /// Its node.
    pub(in crate::election) const fn node(&self) -> &NodeName {
        &self.node
    }

    /// Its session.
    pub(in crate::election) const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Its MAC address.
    pub(in crate::election) const fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The number of changes of its session since it lost the claim.
    pub(in crate::election) const fn renewals(&self) -> u32 {
        self.renewals
    }

    /// Counts a change of its session.
    pub(in crate::election) fn note_version(&mut self, version: Option<Arc<str>>) {
        if version != self.version {
            self.version = version;
            self.renewals = self.renewals.saturating_add(1);
        }
    }
}
