//! output.

pub(in crate::lease) mod addresses;
pub(in crate::lease) mod publish;
pub(in crate::lease) mod state;
