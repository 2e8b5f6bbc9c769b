//! outage.

pub(in crate::lease) mod provisional;
pub(in crate::lease) mod state;
