//! The input of an allocation: the services that request addresses, and the addresses in use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

use super::failure::Failure;
use super::listed::Listed;
use super::occupancy::Occupancy;
use super::pool_map::PoolMap;
use super::scope::Labels;
use super::sharing::Terms;
use super::types::{Created, Request, ServiceKey, Stack};
use crate::clock::Instant;

/// A service that requests an address from us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Decides which service is served first, and which keeps an address that two have.
    pub created: Created,
    /// The labels by which pools admit services.
    pub labels: Labels,
    /// The requested families, the primary first, without repetition.
    pub families: Vec<Family>,
    /// The policy for the second address family.
    pub stack: Stack,
    /// The request, or the error in it.
    pub request: Result<Request, Failure>,
    /// The terms on which it shares an address; none: it does not share.
    pub sharing: Option<Box<Terms>>,
    /// Whether it gives up addresses that no pool offers any more, in exchange for others.
    pub reassign: bool,
    /// The addresses that it has.
    pub present: Vec<IpAddr>,
    /// The pool that allocated them; none if another controller did.
    pub allocated_from: Option<String>,
    /// The claim on record.
    pub claim: Option<LeaseName>,
    /// The claim that is named after it.
    pub own_claim: LeaseName,
}

/// An address in quarantine, because it was freed a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The time of its release.
    pub since: Instant,
    /// The service that had it.
    pub former: ServiceKey,
}

/// An address that a service may still have although it is not, or will not be, its own.
#[derive(Clone, Copy, Debug)]
pub struct Departing<'a> {
    /// The address.
    pub address: IpAddr,
    /// The service.
    pub key: &'a ServiceKey,
    /// The terms on which the service shares the address.
    pub sharing: Option<&'a Terms>,
}

/// The complete input of an allocation.
#[derive(Clone, Debug)]
pub struct State<'a> {
    /// The pool that owns each address.
    pub pool_map: &'a PoolMap,
    /// The labels of namespaces.
    pub namespaces: BTreeMap<&'a str, &'a Labels>,
    /// The services that request addresses from us, except those whose addresses are in `occupancy`.
    pub services: BTreeMap<&'a ServiceKey, &'a Service>,
    /// The addresses of services that the plan leaves out. None of `services` has one of them, or
    /// records a claim that is named after one of those.
    pub occupancy: &'a Occupancy,
    /// The addresses of nodes, with the node.
    pub nodes: &'a BTreeMap<IpAddr, String>,
    /// The addresses of services that do not request them from us.
    pub foreign: &'a BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// The addresses that are being given up, by services in `services` and by others.
    pub departing: Vec<Departing<'a>>,
    /// The claims under which each address is listed, or may be.
    pub listed: &'a Listed,
    /// The addresses that were freed recently.
    pub quarantine: &'a BTreeMap<IpAddr, Freed>,
}
