//! Reconciliation: from watched objects to writes, level-triggered. Each plan follows from all that is known,
//! and only differences from it are written.
//!
//! | module | what |
//! |---|---|
//! | [`watch`] | the streams of changes |
//! | [`table`] | a table of the objects of one kind |
//! | `condition` | conditions of any kind |
//! | [`service`], [`pool`], [`policy`], [`leases`], [`endpoints`] | the row of each kind, and the write to it |
//! | [`job`] | one write or deletion |
//! | [`index`] | all that is known, and the plan for it |
//! | [`lists`] | the lists of claims |
//! | [`jobs`] | all that differs from the plan |
//! | [`mod@write`] | one call |
//! | [`lead`] | the loop of the active replica |
//!
//! The table is in the order of imports: each module imports those above it only, as the test
//! `architecture` checks.

mod condition;
pub mod endpoints;
pub mod index;
pub mod job;
pub mod jobs;
pub mod lead;
pub mod leases;
pub mod lists;
pub mod policy;
pub mod pool;
pub mod service;
pub mod table;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod write;
