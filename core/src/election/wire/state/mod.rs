//! The state of the room, without behavior that concerns other rooms.

pub(in crate::election) mod conflict;
pub(in crate::election) mod dispute;
pub(in crate::election) mod down;
pub(in crate::election) mod lapsed;
pub(in crate::election) mod stale_owners;
pub(in crate::election) mod suspicion;
pub(in crate::election) mod watchlist;
