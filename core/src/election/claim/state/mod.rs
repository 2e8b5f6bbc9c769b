//! The state of the room, without behavior that concerns other rooms.

pub(in crate::election) mod addresses;
pub(in crate::election) mod cold_start;
pub(in crate::election) mod former;
pub(in crate::election) mod moves;
pub(in crate::election) mod preflight;
pub(in crate::election) mod probe;
pub(in crate::election) mod provisional;
pub(in crate::election) mod refresh;
pub(in crate::election) mod release;
pub(in crate::election) mod tenure;
pub(in crate::election) mod timers;
pub(in crate::election) mod unowned;
pub(in crate::election) mod worklist;
