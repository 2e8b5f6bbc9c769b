//! The state of the room, without behavior that concerns other rooms.

pub(in crate::lease) mod publication;
pub(in crate::lease) mod rows;
