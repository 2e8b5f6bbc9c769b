//! The state of the room, without behavior that concerns other rooms.

pub(in crate::lease) mod addresses;
pub(in crate::lease) mod cold_start;
pub(in crate::lease) mod former;
pub(in crate::lease) mod interface;
pub(in crate::lease) mod moves;
pub(in crate::lease) mod preflight;
pub(in crate::lease) mod probe;
pub(in crate::lease) mod provisional;
pub(in crate::lease) mod reconcile;
pub(in crate::lease) mod refresh;
pub(in crate::lease) mod release;
pub(in crate::lease) mod tenure;
pub(in crate::lease) mod timers;
pub(in crate::lease) mod unowned;
pub(in crate::lease) mod worklist;
