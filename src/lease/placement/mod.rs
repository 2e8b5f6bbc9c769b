//! placement.

pub(in crate::lease) mod eligibility;
pub(in crate::lease) mod interface;
pub(in crate::lease) mod rank;
