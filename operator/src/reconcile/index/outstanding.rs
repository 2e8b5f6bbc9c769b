//! Own writes whose outcome has not been seen yet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::service::Claims;

use crate::allocate::{self, ServiceKey};

/// A write to a Service whose outcome is not known yet. Until it is, the Service may have these
/// addresses as well as those that were last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The version that the write replaces: with any newer one, its outcome is known.
    pub version: u64,
    /// The addresses that it gives.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from.
    pub allocated_from: Option<String>,
    /// The claims that govern them.
    pub claims: Option<Claims>,
}

impl Pending {
    /// `service` as if this write were done.
    pub(super) fn overlay(&self, service: allocate::Service) -> allocate::Service {
        allocate::Service {
            present: self.addresses.clone(),
            allocated_from: self.allocated_from.clone(),
            claim: self.claims.as_ref().map(|claims| claims.claim.clone()),
            ..service
        }
    }
}

/// A write to the list of a claim that has not been seen yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The version that the write replaces; none for a new lease.
    pub version: Option<u64>,
    /// The addresses that it lists.
    pub addresses: AddressSet,
    /// Whether its outcome is not known.
    pub unanswered: bool,
}

/// The writes to Services and to the lists of claims that have not been seen yet.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    services: BTreeMap<ServiceKey, Pending>,
    lists: BTreeMap<LeaseName, Listing>,
}

impl Outstanding {
    pub(super) const fn services(&self) -> &BTreeMap<ServiceKey, Pending> {
        &self.services
    }

    pub(super) const fn lists(&self) -> &BTreeMap<LeaseName, Listing> {
        &self.lists
    }

    /// Notes that a write to a Service is under way.
    pub(super) fn send(&mut self, key: &ServiceKey, pending: Pending) {
        self.services.insert(key.clone(), pending);
    }

    /// Whether the write to a Service is resolved, now that the Service has this version: a newer one than
    /// the write replaces, or none because it is gone.
    pub(super) fn is_resolved(&self, key: &ServiceKey, version: Option<u64>) -> bool {
        let pending = self.services.get(key);
        pending.is_some_and(|pending| version.is_none_or(|version| version > pending.version))
    }

    /// Forgets the write to a Service; returns whether there was one.
    pub(super) fn forget(&mut self, key: &ServiceKey) -> bool {
        self.services.remove(key).is_some()
    }

    /// Notes that a write to the list of a claim is under way.
    pub(super) fn send_list(&mut self, name: &LeaseName, listing: Listing) {
        self.lists.insert(name.clone(), listing);
    }

    /// Notes that a write to the list of a claim may still be carried out.
    pub(super) fn list_unanswered(&mut self, name: &LeaseName) {
        if let Some(listing) = self.lists.get_mut(name) {
            listing.unanswered = true;
        }
    }

    /// Forgets the write to the list of a claim.
    pub(super) fn forget_list(&mut self, name: &LeaseName) {
        self.lists.remove(name);
    }

    /// The claims whose list writes were carried out and seen, or cannot be carried out any more because
    /// another write was first. `version` is that of a claim as last seen.
    pub(super) fn resolved_lists(
        &self,
        version: impl Fn(&LeaseName) -> Option<u64>,
    ) -> Vec<LeaseName> {
        let waits = |name: &LeaseName, listing: &Listing| match version(name) {
            None => listing.version.is_none(),
            seen => listing.version == seen,
        };
        let resolved = self.lists.iter().filter(|(name, listing)| !waits(name, listing));
        resolved.map(|(name, _)| name.clone()).collect()
    }
}
