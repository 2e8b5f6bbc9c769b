//! The state of the room, without behavior that concerns other rooms.

pub(in crate::lease) mod api;
pub(in crate::lease) mod facts;
pub(in crate::lease) mod owner;
pub(in crate::lease) mod proxy;
pub(in crate::lease) mod readiness;
pub(in crate::lease) mod requests;
pub(in crate::lease) mod segments;
pub(in crate::lease) mod session_reads;
pub(in crate::lease) mod speakers;
