//! A request that has not been answered.

use crate::clock::Instant;
use crate::election::io::event::Target;

/// A request that has not been answered.
#[derive(Clone, Debug)]
pub(in crate::election) struct Pending {
    pub(in crate::election) target: Target,
    pub(in crate::election) sent: Instant,
    pub(in crate::election) purpose: Purpose,
}

/// Why a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::election) enum Purpose {
    /// To know what is stored.
    Read,
    /// To know whether the store still names an owner that does not answer.
    Confirm,
    /// To acquire, adopt or renew the own session.
    Renew,
    /// To lengthen the own session over a restart.
    Restart,
    /// To end the own session.
    ReleaseSession,
    /// To end another's session.
    Fence,
    /// To become a claim's owner.
    Take,
    /// To say that a claim is still held, or to whom it is handed over.
    Refresh,
    /// To give a claim up.
    Release,
}

impl Purpose {
    pub(in crate::election) const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Confirm)
    }
}
