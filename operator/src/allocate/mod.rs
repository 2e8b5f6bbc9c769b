//! Allocation: the addresses of each service, as a pure function of the cluster's state.
//!
//! ```text
//! pools ──► PoolMap (the owner of each address, its rules) ───────┐
//! services (requests, present addresses), namespaces ─────────────┼─► plan() ──► Plan: per service
//! addresses of nodes, on the lists of claims, in quarantine ──────┘      a Decision, per pool Usage
//! ```
//!
//! | module | what |
//! |---|---|
//! | `types` | plain values that the other rooms share |
//! | `scope` | the services that a pool admits, and the order of the pools |
//! | `unusable` | addresses that no host can use |
//! | `pool_map` | the pool that owns each address |
//! | `sharing` | the terms on which services have one address together |
//! | `listed` | the claims that list each address |
//! | `usage` | the usage of each pool |
//! | `occupancy` | the addresses of services that the plan leaves out |
//! | `failure` | the reasons for which a service lacks an address |
//! | `state` | the input |
//! | `decision` | the output |
//! | `families` | one address of each family |
//! | `demand` | the request of a service, checked against the pools |
//! | `applicant` | a service during a plan |
//! | `space` | held, leaving and free addresses during a plan |
//! | `retained` | addresses that a service keeps, also where no pool offers them any more |
//! | `pick` | addresses for a service that lacks some |
//! | `plan` | each service retains its addresses, then those that lack some are served |
//!
//! The rules, in this order:
//!
//! 1. A service retains its addresses as long as they fit its request; pools may change or go, and an
//!    invalid request asks for nothing. Where two services have the same address and may not share it, because
//!    they never could or because ports, selectors or policies have changed since, the one to which the
//!    allocator gave it retains it, then the older one. The other is served anew, and waits if it requests this
//!    very address.
//! 2. Services that lack an address are served by age. Those that request addresses get these or nothing.
//!    Those with a sharing key join an address that others of their key have. The others get an address of
//!    the first pool that has room for all families: pools that are pinned to some services before general
//!    ones, then by priority, then by name. Within a pool it is the lowest free address; one in quarantine
//!    comes last, unless it was the service's own.
//! 3. Never given out are: an address that no host can use, an address of a node, one that another service has
//!    or is just losing and does not share, and one that another claim still lists.
//! 4. All addresses of a service are under one claim, and an address stays under its claim as long as any
//!    service has it.

mod applicant;
mod decision;
mod demand;
mod failure;
mod families;
mod listed;
mod occupancy;
mod pick;
mod plan;
mod pool_map;
#[cfg(test)]
mod properties;
mod retained;
mod scope;
mod sharing;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod types;
mod unusable;
mod usage;

pub use decision::{Decision, Lost, Plan, Retained, Unoffered};
pub use failure::Failure;
pub use listed::Listed;
pub use occupancy::Occupancy;
pub use plan::plan;
pub use pool_map::{Overlap, Pool, PoolMap, Rules};
pub use scope::{Labels, Scope};
pub use sharing::{Apart, Clash, Port, Protocol, Terms, Traffic};
pub use state::{Departing, Freed, Service, State};
pub use types::{Asked, Created, Request, ServiceKey, Stack};
pub use unusable::{Unusable, Why};
pub use usage::Usage;
