//! Which policy governs a Service, and why a node is left out of a claim: [`build`](super::build) says
//! who may hold it, this says why somebody may not.

use std::collections::BTreeMap;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{Governance, Policies, PolicyError};

use super::records::{Governed, governed};
use super::snapshot::Snapshot;
use super::{DesiredClaim, Silence};

/// The policies of a snapshot.
#[derive(Debug)]
pub struct Rules<'a> {
    snapshot: &'a Snapshot,
    policies: Policies,
    errors: Vec<PolicyError>,
    claims: BTreeMap<&'a str, Governed<'a>>,
}

/// Why a node may not hold a claim, whatever its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The policy or the lack of endpoints lets no node announce it.
    Silent(Silence),
    /// A label or taint takes it out of load balancing.
    Excluded,
    /// This policy cannot be read: nobody begins to announce what it governs.
    Unreadable(String),
    /// This policy does not select it.
    NotSelected(String),
    /// `externalTrafficPolicy: Local`, and no endpoint there.
    NoEndpoint,
    /// There is no such Node.
    NoNode,
}

impl<'a> Rules<'a> {
    /// Those of `snapshot`.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let (policies, errors) = Policies::new(snapshot.policies.values());
        let policies = policies.of_pools(snapshot.pools.clone());
        Self { snapshot, policies, errors, claims: governed(&snapshot.services, &snapshot.lists) }
    }

    /// The policies, in the order in which they are tried.
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The errors of policies that cannot be read.
    pub fn errors(&self) -> &[PolicyError] {
        &self.errors
    }

    /// The claims that govern the addresses of a Service, named `namespace/name`, and which of them.
    pub fn claims(&self, service: &str) -> &[(LeaseName, AddressSet)] {
        self.claims.get(service).map(|claims| &**claims).unwrap_or_default()
    }

    /// The policy of a Service that has a claim; `service` is `namespace/name`.
    pub fn govern(&self, service: &str) -> Option<Governance<'_>> {
        let claims = Some(self.claims(service)).filter(|claims| !claims.is_empty())?;
        let service = self.snapshot.services.get(service)?;
        let pool = service.pool(claims, &self.snapshot.lists);
        Some(self.policies.govern(&service.labels, pool))
    }

    /// Why `node` is not among those that may hold `claim`; `None` where it is.
    pub fn leaves_out(&self, claim: &DesiredClaim, node: &NodeName) -> Option<LeftOut> {
        if claim.nodes.contains(node) {
            return None;
        }
        if let Some(silence) = claim.silence {
            return Some(LeftOut::Silent(silence));
        }
        let mut governing = claim.services.iter().filter_map(|service| self.govern(service));
        if claim.held
            && let Some(Governance::Unreadable(policy)) =
                governing.find(|it| matches!(it, Governance::Unreadable(_)))
        {
            return Some(LeftOut::Unreadable(policy.name.clone()));
        }
        let Some(object) = self.snapshot.nodes.get(node) else { return Some(LeftOut::NoNode) };
        if object.is_excluded() {
            return Some(LeftOut::Excluded);
        }
        let refusing = claim.services.iter().find_map(|service| {
            let policy = self.govern(service)?.policy()?;
            (!policy.allows_node(&object.labels)).then(|| policy.name.clone())
        });
        Some(refusing.map_or(LeftOut::NoEndpoint, LeftOut::NotSelected))
    }
}
