//! output.

pub(in crate::election) mod addresses;
pub(in crate::election) mod publish;
pub(in crate::election) mod state;
