//! io.

pub(in crate::lease) mod checkpoint;
pub(in crate::lease) mod claim_state;
pub(in crate::lease) mod config;
pub(in crate::lease) mod event;
pub(in crate::lease) mod probes;
pub(in crate::lease) mod proxy;
pub(in crate::lease) mod serving;
pub(in crate::lease) mod transition;
