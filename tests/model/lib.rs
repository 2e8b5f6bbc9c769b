//! The model.

mod action;
pub mod check;
mod lease;
pub mod model;
mod names;
mod properties;
mod request;
pub mod rules;
mod speaker;
mod state;
mod step;
pub mod variants;
