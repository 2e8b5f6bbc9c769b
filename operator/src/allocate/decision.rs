//! The output of an allocation: one decision for each service, and the usage of each pool.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::failure::Failure;
use super::sharing::{Apart, Clash};
use super::state::Service;
use super::types::ServiceKey;
use super::unusable::Why;
use super::usage::Usage;

/// The addresses that one service is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Its addresses, the primary family first.
    pub addresses: Vec<IpAddr>,
    /// The pool of all of them; none without addresses.
    pub allocated_from: Option<String>,
    /// The claim that governs them; none without addresses.
    pub claim: Option<LeaseName>,
    /// The reason for which it lacks an address that it needs.
    pub failure: Option<Failure>,
    /// The reason for which it lacks the second family, which it prefers but does not need.
    pub shortfall: Option<Failure>,
    /// The addresses that it had and that another service has by a better right.
    pub lost: Vec<Lost>,
    /// Its addresses that no pool offers to it any more.
    pub retained: Vec<Retained>,
    /// The reason for which these are not replaced, if it requests that.
    pub stuck: Option<Failure>,
    /// The address of the older services of its sharing key, if it cannot share it.
    pub apart: Option<Apart>,
}

impl Decision {
    /// Whether `service` is as it is to be, for as long as neither it nor the pools change and no other
    /// service requests its addresses: it lacks nothing, shares nothing, and has its own claim.
    pub fn is_final(&self, service: &Service) -> bool {
        let content = self.failure.is_none()
            && self.shortfall.is_none()
            && self.lost.is_empty()
            && self.retained.is_empty()
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

/// The output of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One decision for each service of the state.
    pub services: BTreeMap<ServiceKey, Decision>,
    /// One entry for each pool of the pool map.
    pub pools: BTreeMap<String, Usage>,
}

/// An address that a service keeps although no pool offers it to that service any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The address.
    pub address: IpAddr,
    /// The reason for which no pool offers it.
    pub why: Unoffered,
}

/// The reason for which no pool offers an address to the service that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unoffered {
    /// No pool contains it: its pool was deleted, or shrunk.
    NoPool,
    /// The service requests a pool, and the address now belongs to another.
    OtherPool(String),
    /// The pool does not admit the service.
    NotAdmitted {
        /// The pool.
        pool: String,
        /// The services that it serves, as a predicate.
        scope: String,
    },
    /// The pool excludes it.
    LeftOut(String),
    /// No host can use it.
    Unusable(Why),
    /// The pool does not let services of several namespaces share it.
    NotShared(String),
    /// The pool is disabled. Reported only where the address is to be replaced: existing addresses of a
    /// disabled pool stay by design.
    Disabled(String),
}

impl fmt::Display for Unoffered {
    /// The text after `it is kept although`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool => f.write_str("no IPAddressPool contains it anymore"),
            Self::OtherPool(pool) => write!(f, "it now belongs to pool {pool}"),
            Self::NotAdmitted { pool, scope } => write!(f, "pool {pool} {scope}"),
            Self::LeftOut(pool) => {
                write!(f, "pool {pool} excludes addresses that end in .0 or .255")
            }
            Self::Unusable(why) => write!(f, "no host can use it: it is {why}"),
            Self::NotShared(pool) => {
                write!(f, "pool {pool} allows sharing only within one namespace")
            }
            Self::Disabled(pool) => write!(f, "pool {pool} is disabled"),
        }
    }
}

/// An address that a service had and another has by a better right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The address.
    pub address: IpAddr,
    /// The service that has it.
    pub owner: ServiceKey,
    /// The reason for which they do not share it.
    pub clash: Clash,
}
