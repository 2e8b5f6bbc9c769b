//! Governance: the policy of each Service, and the names and selectors of policies that match nothing.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::desired::NodeObject;
use leasehold_crds::policy::{
    AnnouncementPolicySpec, Governance, Holders, Policies, Policy, PoolLabels,
};

use super::tables::Tables;
use crate::allocate::{self, Decision, Labels};
use crate::reconcile::leases::NodeRow;
use crate::reconcile::service::conditions::Silence;

/// The policies, with the inputs by which changes are recognised.
#[derive(Debug, Default)]
pub(super) struct Governing {
    /// The policies without their status.
    specs: Vec<(String, AnnouncementPolicySpec)>,
    pools: PoolLabels,
    policies: Policies,
    /// The policies that select no node that may announce.
    deserted: BTreeSet<String>,
    /// The names and selectors of each that match nothing.
    unmatched: BTreeMap<String, Vec<String>>,
}

impl Governing {
    /// Takes over the tables; returns whether Services may be governed otherwise now.
    pub(super) fn update(&mut self, tables: &Tables) -> bool {
        let (policies, pools) = (tables.policies(), tables.pools());
        let (nodes, sessions) = (tables.nodes(), tables.sessions());
        let specs: Vec<_> =
            policies.iter().map(|(name, row)| (name.clone(), row.object.spec.clone())).collect();
        let pools: PoolLabels =
            pools.iter().map(|(name, row)| (name.clone(), row.labels.clone())).collect();
        let changed = specs != self.specs || pools != self.pools;
        if changed {
            let objects = policies.iter().map(|(_, row)| &row.object);
            self.policies = Policies::new(objects).0.of_pools(pools.clone());
            (self.specs, self.pools) = (specs, pools);
        }
        let facts = || nodes.iter().map(|(_, node)| &node.facts);
        let announces = |name: &str, node: &NodeRow| {
            let session = name.parse().ok().and_then(|name| sessions.get(&name));
            !node.is_excluded(session)
        };
        let announcing = nodes.iter().filter(|(name, node)| announces(name, node));
        let announcing: Vec<&Labels> = announcing.map(|(_, node)| node.facts.labels()).collect();
        let deserted = self.policies.iter().filter(|policy| {
            policy.is_readable()
                && policy.mode.holders() != Holders::None
                && !announcing.iter().any(|labels| policy.allows_node(labels))
        });
        let deserted = deserted.map(|policy| policy.name.clone()).collect();
        let labels: Vec<&Labels> = facts().map(NodeObject::labels).collect();
        self.unmatched = self
            .policies
            .iter()
            .map(|policy| (policy.name.clone(), policy.unmatched(&self.pools, &labels)))
            .collect();
        let moved = deserted != self.deserted;
        self.deserted = deserted;
        changed || moved
    }

    /// The governance of a Service by its labels and the pool of its addresses.
    pub(super) fn governs(&self, labels: &Labels, pool: &str) -> Governance<'_> {
        self.policies.govern(labels, Some(pool))
    }

    /// The governance of a Service that makes `request` and has an address.
    pub(super) fn of(
        &self,
        request: Option<&allocate::Service>,
        decision: &Decision,
    ) -> Option<Governance<'_>> {
        Some(self.governs(&request?.labels, decision.allocated_from.as_deref()?))
    }

    /// The reason for which no node may announce a Service under `governance`, whatever its endpoints.
    pub(super) fn silence<'a>(&'a self, governance: Governance<'a>) -> Option<Silence<'a>> {
        match governance {
            // The owner goes on announcing it.
            Governance::Default | Governance::Unreadable(_) => None,
            Governance::None => Some(Silence::NoPolicy),
            Governance::Policy(policy) if policy.mode.holders() == Holders::None => {
                Some(Silence::Mode(&policy.name))
            }
            Governance::Policy(policy) => {
                self.deserted.contains(&policy.name).then_some(Silence::NoNode(&policy.name))
            }
        }
    }

    /// The names and selectors of a policy that match nothing.
    pub(super) fn unmatched(&self, name: &str) -> &[String] {
        self.unmatched.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether a policy announces Services without endpoints.
pub(super) const fn announces_without_endpoints(governance: Governance<'_>) -> bool {
    matches!(governance.policy(), Some(Policy { announce_without_endpoints: true, .. }))
}
