//! store.

pub(in crate::lease) mod cache;
