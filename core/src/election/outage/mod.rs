//! outage.

pub(in crate::election) mod provisional;
pub(in crate::election) mod state;
