//! Logs, metrics, events, health and status of the speaker.
//!
//! Every stage writes facts; nothing here decides anything.

pub mod ask;
mod exposition;
pub mod facts;
pub mod gauges;
pub mod health;
pub mod heartbeat;
pub mod log;
pub mod metrics;
mod notice;
pub mod page;
pub mod server;
pub mod status;
mod takeovers;
