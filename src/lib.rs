//! The speaker of Leasehold.

pub mod announce;
pub mod clock;
pub mod lease;
pub mod net;
