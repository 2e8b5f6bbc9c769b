//! The owner of a claim.

use leasehold_crds::names::NodeName;

/// Who owns a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::election) enum Owner {
    /// This node, under its present session.
    Me,
    /// Another node whose session lives.
    Other(NodeName),
    /// Nobody.
    Nobody,
}
