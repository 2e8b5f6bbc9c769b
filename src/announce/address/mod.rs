//! The kernel's addresses.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to add, refresh and delete; pure |
//! | [`apply`] | the task that owns the addresses |

pub mod apply;
pub mod plan;
