//! From watched objects to writes, level-triggered: each plan follows from everything that is known,
//! and only what differs from it is written.
//!
//! | module | what |
//! |---|---|
//! | [`watch`] | the streams of changes |
//! | [`table`] | one kind of object as last seen |
//! | [`index`] | everything that is known, and the plan for it |
//! | `settled` | which part of it something may have to be done about |
//! | [`service`], [`pool`], [`policy`], [`leases`] | what is kept of each kind, and what is written to it |
//! | [`endpoints`] | which Services have endpoints |
//! | [`announcing`] | who announces a Service, or why nobody does |
//! | `governing` | which policy governs which Service |
//! | `managers` | who wrote what of a Service |
//! | `news` | what became of a Service, and by whom |
//! | `rivals` | others who undo what we write, and how patient we are with them |
//! | `wish` | what a Service asks for |
//! | `tell` | what people are told about a Service |
//! | `record` | what the claims say that Services have, if these do not say it any more |
//! | `resting` | addresses that were freed of late |
//! | [`lists`] | which addresses the claims list |
//! | [`jobs`] | all that differs from the plan |
//! | [`mod@write`] | one call |
//! | [`lead`] | the loop of the active replica |

pub mod announcing;
mod condition;
pub mod endpoints;
mod families;
mod governing;
pub mod index;
pub mod jobs;
pub mod lead;
pub mod leases;
pub mod lists;
mod managers;
mod news;
pub mod policy;
pub mod pool;
mod record;
mod resting;
mod rivals;
pub mod service;
mod settled;
pub mod table;
mod tell;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod wish;
pub mod write;
