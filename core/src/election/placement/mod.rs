//! placement.

pub(in crate::election) mod eligibility;
pub(in crate::election) mod interface;
pub(in crate::election) mod rank;
