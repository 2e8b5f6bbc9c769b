//! The verdict on a node.

use serde::Serialize;

/// The part of a node in the ownership of a claim: owner, candidate, or the obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Owns it.
    Owns,
    /// Takes it, because it has no owner.
    Takes,
    /// Takes it if the candidates that rank before it cannot.
    Candidate,
    /// No node announces it.
    Silent,
    /// The policy cannot be read.
    Held,
    /// The policy does not select the node.
    NotSelected,
    /// A label or taint excludes the node.
    Excluded,
    /// `externalTrafficPolicy: Local` and no endpoint there.
    NoEndpoint,
    /// There is no such Node.
    NoNode,
    /// The node is cordoned.
    Cordoned,
    /// It is cordoned, and pods leave it.
    Draining,
    /// Its network is unavailable.
    NetworkUnavailable,
    /// It is being deleted.
    Leaving,
    /// Its speaker does not run.
    NoSession,
    /// It is drained by annotation.
    Drained,
    /// Its speaker restarts.
    Restarting,
    /// It has no endpoint, and cannot spread packets over nodes with endpoints.
    CannotSpread,
    /// None of its interfaces can carry the addresses.
    NoInterface,
}
