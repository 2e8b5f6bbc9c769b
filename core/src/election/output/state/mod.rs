//! The state of the room, without behavior that concerns other rooms.

pub(in crate::election) mod publication;
pub(in crate::election) mod rows;
