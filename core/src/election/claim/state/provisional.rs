//! Provisional ownership of one claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::io::transition::Story;

/// An address that this node serves without being its owner, until the API server answers.
#[derive(Clone, Debug)]
pub(in crate::election) struct Provisional {
    /// The owner that died.
    pub(in crate::election::claim) from: NodeName,
    /// Since when this node asks for it, or serves it.
    pub(in crate::election::claim) since: Instant,
    /// The version of its session when it did: another one says that it lives.
    pub(in crate::election::claim) version: Option<Arc<str>>,
    /// When each of the others that have it was told first, and last, that this node has it.
    pub(in crate::election::claim) told: BTreeMap<MacAddr, (Instant, Instant)>,
    /// The reason and the beginning of the change of ownership.
    pub(in crate::election::claim) story: Story,
    /// Since when its owner is known to be back: it is about to serve again.
    pub(in crate::election::claim) returned: Option<Instant>,
}

impl Provisional {
    /// Begins now, for an owner that does not answer; `version` is the last observed version of its session.
    pub(in crate::election) const fn new(
        from: NodeName,
        now: Instant,
        version: Option<Arc<str>>,
        story: Story,
    ) -> Self {
        Self { from, since: now, version, told: BTreeMap::new(), story, returned: None }
    }

    /// The owner that does not answer.
    pub(in crate::election) const fn from(&self) -> &NodeName {
        &self.from
    }

    /// The time at which this node began to probe for the addresses.
    pub(in crate::election) const fn since(&self) -> Instant {
        self.since
    }

    /// The version of the owner's session at that time.
    pub(in crate::election) const fn version(&self) -> Option<&Arc<str>> {
        self.version.as_ref()
    }

    /// The time at which the owner was observed to have renewed its session.
    pub(in crate::election) const fn returned(&self) -> Option<Instant> {
        self.returned
    }

    /// The first and the last time at which the host with this MAC address was told that this node serves the
    /// addresses.
    pub(in crate::election) fn told(&self, mac: MacAddr) -> Option<(Instant, Instant)> {
        self.told.get(&mac).copied()
    }

    /// The last time at which any host was told so.
    pub(in crate::election) fn last_told(&self) -> Option<Instant> {
        self.told.values().map(|(_, last)| *last).max()
    }
}
