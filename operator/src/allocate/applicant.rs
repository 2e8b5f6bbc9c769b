//! A service during a plan: its request, and what it holds so far.

use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::decision::Lost;
use super::demand::Demand;
use super::failure::Failure;
use super::families::ByFamily;
use super::scope::Admission;
use super::sharing::Party;
use super::state::{Service, State};
use super::types::ServiceKey;

/// A service whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Applicant<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) service: &'a Service,
    pub(super) state: &'a State<'a>,
}

impl<'a> Applicant<'a> {
    /// The service as one of those that may share an address.
    pub(super) fn party(&self) -> Party<'a> {
        Party { key: self.key, terms: self.service.sharing.as_deref() }
    }

    /// The addresses and the pool that the service requests.
    pub(super) fn demand(&self) -> Result<Demand<'a>, Failure> {
        Demand::of(self.service, self.state.pool_map)
    }

    /// Decides whether `pool` admits the Service.
    pub(super) fn admission(&self, pool: &str) -> Admission {
        let Some(domain) = self.state.pool_map.domain(pool) else { return Admission::Refused };
        let namespace = self.key.namespace.as_str();
        let labels = self.state.namespaces.get(namespace).copied();
        domain.rules.scope.admits(namespace, labels, &self.service.labels)
    }

    /// The pool of an address that the service has.
    pub(super) fn pool_of(&self, ip: IpAddr, demand: &Demand<'a>) -> Option<&'a str> {
        let owner = self.state.pool_map.owner(ip);
        demand.pool().or(owner).or(self.service.allocated_from.as_deref())
    }

    /// The common pool of these addresses of the service: the one on record as long as one of them is
    /// in it.
    pub(super) fn pool_of_all(&self, addresses: &ByFamily, demand: &Demand<'a>) -> Option<&'a str> {
        let pools = || addresses.iter().filter_map(|ip| self.pool_of(ip, demand));
        let recorded = self.service.allocated_from.as_deref();
        pools().find(|pool| recorded == Some(pool)).or_else(|| pools().next())
    }
}

/// The addresses that a service holds, all under one claim, and those that it lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    addresses: ByFamily,
    claim: Option<LeaseName>,
    lost: Vec<Lost>,
}

impl Held {
    pub(super) const fn addresses(&self) -> &ByFamily {
        &self.addresses
    }

    /// The claim that governs all of them.
    pub(super) const fn claim(&self) -> Option<&LeaseName> {
        self.claim.as_ref()
    }

    /// The addresses that it had and that another service has by a better right.
    pub(super) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// Adds an address under `claim`, which governs the others as well.
    pub(super) fn add(&mut self, ip: IpAddr, claim: LeaseName) {
        self.addresses.insert(ip);
        self.claim = Some(claim);
    }

    /// Notes that another service has an address by a better right.
    pub(super) fn lose(&mut self, lost: Lost) {
        self.lost.push(lost);
    }

    /// A copy without these addresses; the claim goes with the last one.
    pub(super) fn without(&self, addresses: impl Iterator<Item = IpAddr>) -> Self {
        let mut rest = self.clone();
        addresses.for_each(|ip| rest.addresses.remove(ip));
        if rest.addresses.is_empty() {
            rest.claim = None;
        }
        rest
    }

    /// Adds `given`, under `claim` where no other governs yet.
    pub(super) fn extend(&mut self, given: &ByFamily, claim: Option<&LeaseName>) {
        self.claim = self.claim.take().or_else(|| claim.cloned());
        self.addresses.extend(given.iter());
    }
}
