//! Which policy governs a Service, and why a node is left out of a claim: [`build`](super::build) says
//! who may hold it, this says why somebody may not.

use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{Governance, Policies, PolicyError};

use super::snapshot::Snapshot;
use super::{DesiredClaim, Silence};

/// The policies of a snapshot.
#[derive(Debug)]
pub struct Rules<'a> {
    snapshot: &'a Snapshot,
    policies: Policies,
    errors: Vec<PolicyError>,
}

/// Why a node may not hold a claim, whatever its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Nobody may.
    Silent(Silence),
    /// A label or taint takes it out of load balancing.
    Excluded,
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
        Self { snapshot, policies: policies.of_pools(snapshot.pools.clone()), errors }
    }

    /// The policies that can be followed, in the order in which they are tried.
    pub const fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Those that cannot.
    pub fn errors(&self) -> &[PolicyError] {
        &self.errors
    }

    /// What governs a Service that has a claim, named `namespace/name`.
    pub fn govern(&self, service: &str) -> Option<Governance<'_>> {
        let service = self.snapshot.services.get(service)?;
        Some(self.policies.govern(&service.labels, service.pool.as_deref()))
    }

    /// Why `node` is not among those that may hold `claim`; `None` where it is.
    pub fn leaves_out(&self, claim: &DesiredClaim, node: &NodeName) -> Option<LeftOut> {
        if claim.nodes.contains(node) {
            return None;
        }
        if let Some(silence) = claim.silence {
            return Some(LeftOut::Silent(silence));
        }
        let Some(object) = self.snapshot.nodes.get(node) else { return Some(LeftOut::NoNode) };
        if object.is_excluded() {
            return Some(LeftOut::Excluded);
        }
        let refusing = claim.services.iter().find_map(|service| match self.govern(service)? {
            Governance::Policy(policy) => {
                (!policy.allows_node(&object.labels)).then(|| policy.name.clone())
            }
            Governance::Default | Governance::None => None,
        });
        Some(refusing.map_or(LeftOut::NoEndpoint, LeftOut::NotSelected))
    }
}
