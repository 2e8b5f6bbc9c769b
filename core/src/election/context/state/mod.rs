//! The state of the room, without behavior that concerns other rooms.

pub(in crate::election) mod api;
pub(in crate::election) mod data_path;
pub(in crate::election) mod facts;
pub(in crate::election) mod owner;
pub(in crate::election) mod proxy;
pub(in crate::election) mod readiness;
pub(in crate::election) mod requests;
pub(in crate::election) mod segments;
pub(in crate::election) mod session_reads;
pub(in crate::election) mod speakers;
