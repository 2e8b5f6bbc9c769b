//! Which address each service has: a pure function of everything that is known.
//!
//! ```text
//! pools ──► Territory (who owns which address) ──┐
//! services (wishes, what they have) ─────────────┼──► plan() ──► Plan: per service a Decision,
//! addresses of nodes, addresses under claims ────┘               per pool its Usage
//! ```
//!
//! The rules, in this order:
//!
//! 1. A service keeps what it has as long as it still fits what it asks for; pools may change or go.
//!    Where two have the same address, the one that the allocator gave it to keeps it, then the
//!    older.
//! 2. Services that lack an address are served by age. Those that name addresses get these or
//!    nothing; the others get the lowest free address of the first pool, by name, that has room for
//!    all families.
//! 3. Never given out: an address of a node, one that another service has or is just losing, and one
//!    that the claim of another service still lists.

mod failure;
mod plan;
#[cfg(test)]
mod properties;
mod space;
mod territory;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use leasehold_crds::range::{Family, IpRange};

pub use failure::Failure;
pub use plan::plan;
pub use territory::{Overlap, Territory};

/// Namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// When an object was created, in milliseconds since the epoch, by the API server's clock.
pub type Created = i64;

/// A pool, as far as its entries can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Decides which of two overlapping pools owns the addresses: the earlier.
    pub created: Created,
    /// The entries.
    pub ranges: Vec<IpRange>,
    /// Whether services that name no address are served from here.
    pub auto_assign: bool,
}

/// What to do about a second family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// All families of the service, or nothing: `SingleStack` and `RequireDualStack`.
    All,
    /// One is enough: `PreferDualStack`.
    Any,
}

/// A service that wants an address from us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Decides who is served first, and who keeps an address that two have.
    pub created: Created,
    /// The families that it wants, the primary first, without repetition.
    pub families: Vec<Family>,
    /// Whether it needs all of them.
    pub stack: Stack,
    /// The addresses that it asks for, or what is wrong with the request.
    pub request: Result<Vec<IpAddr>, Failure>,
    /// The addresses that it has.
    pub present: Vec<IpAddr>,
    /// The pool that they were allocated from; none if it was not us who gave them.
    pub allocated_from: Option<String>,
    /// The claim that governs its addresses.
    pub claim: String,
}

/// Everything that the allocation depends on.
#[derive(Clone, Debug)]
pub struct State<'a> {
    /// Which pool owns which addresses.
    pub territory: &'a Territory,
    /// The services that want addresses from us.
    pub services: BTreeMap<&'a ServiceKey, &'a Service>,
    /// The addresses of nodes, with the node.
    pub nodes: &'a BTreeMap<IpAddr, String>,
    /// The addresses of services that are not in `services`.
    pub foreign: BTreeMap<IpAddr, &'a ServiceKey>,
    /// The addresses that are being given up, with the claims that still list them.
    pub claimed: BTreeMap<IpAddr, BTreeSet<String>>,
}

/// What one service is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Its addresses, the primary family first.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from; none without addresses.
    pub allocated_from: Option<String>,
    /// Why it does not have (all) that it needs.
    pub failure: Option<Failure>,
    /// Why it does not have the second family, which it would only prefer to have.
    pub shortfall: Option<Failure>,
}

/// How much of a pool is in use, per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// IPv4 addresses that services hold.
    pub assigned_v4: u128,
    /// IPv4 addresses that services could get.
    pub available_v4: u128,
    /// IPv6 addresses that services hold.
    pub assigned_v6: u128,
    /// IPv6 addresses that services could get.
    pub available_v6: u128,
}

/// What is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One decision for each service of the state.
    pub services: BTreeMap<ServiceKey, Decision>,
    /// One entry for each pool of the territory.
    pub pools: BTreeMap<String, Usage>,
}
