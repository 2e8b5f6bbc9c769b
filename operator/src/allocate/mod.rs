//! Which address each service has: a pure function of everything that is known.
//!
//! ```text
//! pools ──► Territory (who owns which address, who serves whom) ──┐
//! services (wishes, what they have), namespaces ──────────────────┼─► plan() ──► Plan: per service
//! addresses of nodes, on the lists of claims, freed of late ──────┘      a Decision, per pool Usage
//! ```
//!
//! | module | what |
//! |---|---|
//! | `territory` | which pool owns which address |
//! | `scope` | which services a pool admits, and in which order pools are tried |
//! | `request` | what a service asks for |
//! | `sharing` | which services may have one address together |
//! | `space` | what is free while a plan is made |
//! | `plan` | first everybody keeps what still fits, then those that lack something are served |
//! | `draw` | how those are served |
//! | `settled` | services about which nothing is to be decided |
//! | `kept` | addresses that no pool would give out any more |
//! | `failure` | why a service does not get what it asks for |
//! | `unusable` | addresses that no host can have |
//! | `usage` | how much of each pool is in use |
//!
//! The rules, in this order:
//!
//! 1. A service keeps what it has as long as it still fits what it asks for; pools may change or go, and a
//!    request that cannot be understood asks for nothing.
//!    Where two have the same address and may not share it, because they never could or because
//!    ports, selectors or policies have changed since, the one that the allocator gave it to keeps it,
//!    then the elder: who was created first. The younger is served anew, and waits if it asks for this
//!    very address.
//! 2. Services that lack an address are served by age. Those that name addresses get these or
//!    nothing. Those with a sharing key join an address that others of their key have. The others get
//!    an address of the first pool that has room for all families: pools that are pinned to some
//!    services before general ones, then by priority, then by name. Within a pool it is the lowest
//!    free address, but one that was freed of late comes last, unless it was the service's own.
//! 3. Never given out: an address that no host can have, an address of a node, one that another service has or is just losing without
//!    leave to share it, and one that another claim still lists.
//! 4. All addresses of a service are under one claim, and an address stays under its claim as long as
//!    any service has it.

mod draw;
mod failure;
mod families;
mod kept;
mod listed;
mod plan;
#[cfg(test)]
mod properties;
mod request;
mod scope;
mod settled;
mod sharing;
mod space;
mod territory;
#[cfg(test)]
mod tests;
mod unusable;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

pub use failure::Failure;
pub use kept::{Kept, Lost, Unoffered};
pub use listed::Listed;
pub use plan::plan;
pub use request::{Asked, Request};
pub use scope::{Labels, Scope};
pub use settled::Settled;
pub use sharing::{Apart, Clash, Port, Protocol, Terms, Traffic};
pub use territory::{Overlap, Pool, Rules, Territory};
pub use unusable::{Unusable, Why};
pub use usage::Usage;

use crate::clock::Instant;

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
    /// The labels, by which pools admit services.
    pub labels: Labels,
    /// The families that it wants, the primary first, without repetition.
    pub families: Vec<Family>,
    /// Whether it needs all of them.
    pub stack: Stack,
    /// What it asks for, or what is wrong with that.
    pub request: Result<Request, Failure>,
    /// With whom it would share an address; none: with nobody.
    pub sharing: Option<Box<Terms>>,
    /// Whether it gives up addresses that no pool would give out any more, for others.
    pub reassign: bool,
    /// The addresses that it has.
    pub present: Vec<IpAddr>,
    /// The pool that they were allocated from; none if it was not us who gave them.
    pub allocated_from: Option<String>,
    /// The claim on record.
    pub claim: Option<LeaseName>,
    /// The claim that is named after it.
    pub own_claim: LeaseName,
}

/// An address that was freed a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Since when.
    pub since: Instant,
    /// Who had it.
    pub former: ServiceKey,
}

/// An address that a service may still have although it is not, or will not be, its own.
#[derive(Clone, Copy, Debug)]
pub struct Departing<'a> {
    /// The address.
    pub address: IpAddr,
    /// The service.
    pub key: &'a ServiceKey,
    /// With whom it shares the address.
    pub sharing: Option<&'a Terms>,
}

/// Everything that the allocation depends on.
#[derive(Clone, Debug)]
pub struct State<'a> {
    /// Which pool owns which addresses.
    pub territory: &'a Territory,
    /// The labels of namespaces.
    pub namespaces: BTreeMap<&'a str, &'a Labels>,
    /// The services that want addresses from us, but for those that are settled.
    pub services: BTreeMap<&'a ServiceKey, &'a Service>,
    /// The addresses of those that are settled. None of `services` has one of them, or records a claim
    /// that is named after one of those.
    pub settled: &'a Settled,
    /// The addresses of nodes, with the node.
    pub nodes: &'a BTreeMap<IpAddr, String>,
    /// The addresses of services that do not want them from us.
    pub foreign: &'a BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// The addresses that are being given up, by services in `services` and by others.
    pub departing: Vec<Departing<'a>>,
    /// Under which claims each address is listed, or may be.
    pub listed: &'a Listed,
    /// The addresses that were freed of late.
    pub resting: &'a BTreeMap<IpAddr, Rest>,
}

/// What one service is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Its addresses, the primary family first.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from; none without addresses.
    pub allocated_from: Option<String>,
    /// The claim that governs them; none without addresses.
    pub claim: Option<LeaseName>,
    /// Why it does not have (all) that it needs.
    pub failure: Option<Failure>,
    /// Why it does not have the second family, which it would only prefer to have.
    pub shortfall: Option<Failure>,
    /// Which of the addresses that it had others have by a better right.
    pub lost: Vec<Lost>,
    /// Which of its addresses no pool would give out to it any more.
    pub kept: Vec<Kept>,
    /// Why these are not replaced, if it asks for that.
    pub stuck: Option<Failure>,
    /// The address of the elder ones of its key, if it cannot share it.
    pub apart: Option<Apart>,
}

impl Decision {
    /// Whether `service` is as it is to be, for as long as neither it nor the pools change and nobody
    /// asks for what it has: it lacks nothing, shares nothing, and has its own claim.
    pub fn is_final(&self, service: &Service) -> bool {
        let content = self.failure.is_none()
            && self.shortfall.is_none()
            && self.lost.is_empty()
            && self.kept.is_empty()
            && self.stuck.is_none();
        content
            && !self.addresses.is_empty()
            && service.sharing.is_none()
            && self.addresses == service.present
            && self.allocated_from == service.allocated_from
            && self.claim == service.claim
            && self.claim.as_ref() == Some(&service.own_claim)
    }
}

/// What is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One decision for each service of the state.
    pub services: BTreeMap<ServiceKey, Decision>,
    /// One entry for each pool of the territory.
    pub pools: BTreeMap<String, Usage>,
}
