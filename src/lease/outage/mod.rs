//! outage.

pub(in crate::lease) mod provisional;
