//! The identity of sessions.

use leasehold_crds::lease::{Session, SessionId, Stored};

/// Whether `stored` stands for `session`.
pub(in crate::election) fn is_under(stored: &Stored<Session>, session: &SessionId) -> bool {
    stored.record.transitions == session.transitions && stored.uid == session.uid
}

/// The session that `stored` stood for before it was ended.
pub(in crate::election) fn former_id_of(stored: &Stored<Session>) -> SessionId {
    let transitions = stored.record.transitions.saturating_sub(1);
    SessionId { uid: stored.uid.clone(), transitions }
}

/// The session that `stored` stands for.
pub(in crate::election) fn id_of(stored: &Stored<Session>) -> SessionId {
    SessionId { uid: stored.uid.clone(), transitions: stored.record.transitions }
}
