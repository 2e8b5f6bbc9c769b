//! The identity of sessions.

use leasehold_crds::lease::{Session, SessionId, Stored};

/// Whether `stored` stands for `session`.
pub(in crate::election) fn is_under(stored: &Stored<Session>, session: &SessionId) -> bool {
    stored.record.transitions == session.transitions && stored.uid == session.uid
}

/// The session that `stored` stands for.
pub(in crate::election) fn id_of(stored: &Stored<Session>) -> SessionId {
    SessionId { uid: stored.uid.clone(), transitions: stored.record.transitions }
}
