//! The cause of a release.

use leasehold_crds::names::NodeName;

/// What a claim says that its owner gave up.
pub(in crate::election) fn released_by(owner: &NodeName, cause: &str) -> String {
    format!("released by {owner}: {cause}")
}
