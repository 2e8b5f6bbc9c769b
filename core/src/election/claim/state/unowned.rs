//! A claim without a valid owner.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::SessionId;
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::election::io::transition::Cause;

/// A claim without a valid owner.
#[derive(Debug)]
pub(in crate::election) struct Unowned {
    /// When this round of turns began.
    pub(in crate::election::claim) since: Instant,
    /// When it became one, or when a candidate of the round before was gone: somebody has to have answered
    /// this node since.
    pub(in crate::election::claim) hear_since: Instant,
    /// Why, and when the first sign of it was seen.
    pub(in crate::election::claim) sign: (Cause, Instant),
    /// The node that acts first, and the number of nodes that act before this one; `None` where no node, or not this
    /// one, may.
    pub(in crate::election::claim) first: Option<NodeName>,
    pub(in crate::election::claim) place: Option<usize>,
    /// The first of those that act before this node.
    pub(in crate::election::claim) ahead: Vec<NodeName>,
    /// All candidates; unowned claims with the same candidates share the list.
    pub(in crate::election::claim) candidates: Arc<[NodeName]>,
    /// By how much each rank waits for the one before it.
    pub(in crate::election::claim) step: Duration,
    /// The owner when the Lease, or that of the session, was deleted or edited: it did not give the claim up.
    pub(in crate::election::claim) edited: Option<NodeName>,
}

impl Unowned {
    /// The beginning of this round of turns.
    pub(in crate::election) const fn since(&self) -> Instant {
        self.since
    }

    /// The time of the first sign that the claim has no valid owner.
    pub(in crate::election) const fn first_sign(&self) -> Instant {
        self.sign.1
    }
}

/// A valid ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::election) struct LastOwner {
    pub(in crate::election::claim) node: NodeName,
    pub(in crate::election::claim) session: SessionId,
    pub(in crate::election::claim) transitions: i32,
    /// To whom it was being handed over.
    pub(in crate::election::claim) successor: Option<NodeName>,
}
