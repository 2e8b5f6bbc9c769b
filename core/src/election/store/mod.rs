//! store.

pub(in crate::election) mod cache;
