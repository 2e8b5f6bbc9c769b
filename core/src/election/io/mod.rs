//! io.

pub(in crate::election) mod checkpoint;
pub(in crate::election) mod claim_state;
pub(in crate::election) mod config;
pub(in crate::election) mod data_path;
pub(in crate::election) mod event;
pub(in crate::election) mod forwarding;
pub(in crate::election) mod probes;
pub(in crate::election) mod proxy;
pub(in crate::election) mod serving;
pub(in crate::election) mod spreading;
pub(in crate::election) mod transition;
