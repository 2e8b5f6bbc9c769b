//! The state of the room, without behavior that concerns other rooms.

pub(in crate::lease) mod conflict;
pub(in crate::lease) mod dispute;
pub(in crate::lease) mod lapsed;
pub(in crate::lease) mod stale_owners;
pub(in crate::lease) mod suspicion;
pub(in crate::lease) mod watchlist;
