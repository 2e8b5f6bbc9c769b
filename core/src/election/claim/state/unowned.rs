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
    /// Who acts first, and how many act before this node; none where nobody, or not this node, may.
    pub(in crate::election::claim) first: Option<NodeName>,
    pub(in crate::election::claim) place: Option<usize>,
    /// The first of those that act before this node.
    pub(in crate::election::claim) ahead: Vec<NodeName>,
    /// Who may, all in all; of unowned claims that the same nodes may take it is the same list.
    pub(in crate::election::claim) candidates: Arc<[NodeName]>,
    /// By how much each rank waits for the one before it.
    pub(in crate::election::claim) step: Duration,
    /// Who had it when its lease or its session's was deleted or edited: nobody gave it up.
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
