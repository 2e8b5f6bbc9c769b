//! Metrics, events, health and status of the operator.

pub mod events;
pub mod health;
pub mod metrics;
mod page;
pub mod quota;
pub mod status;
