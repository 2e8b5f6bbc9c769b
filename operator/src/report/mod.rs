//! What the operator tells: metrics, events, health.

pub mod events;
pub mod health;
pub mod metrics;
mod page;
pub mod status;
