//! Which policy governs which Service, and what of the policies matches nothing.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::desired::NodeObject;
use leasehold_crds::policy::{
    AnnouncementMode, AnnouncementPolicySpec, Governance, Policies, Policy, PoolLabels,
};

use super::leases::{NodeRow, SessionRow};
use super::policy::PolicyRow;
use super::pool::PoolRow;
use super::table::Table;
use crate::allocate::Labels;

/// The policies, with what they are told apart by.
#[derive(Debug, Default)]
pub(super) struct Governing {
    /// The policies without their status.
    specs: Vec<(String, AnnouncementPolicySpec)>,
    pools: PoolLabels,
    policies: Policies,
    /// Those that no node may follow.
    deserted: BTreeSet<String>,
    /// What of each matches nothing.
    unmatched: BTreeMap<String, Vec<String>>,
}

/// Why nobody announces a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence<'a> {
    /// There are policies, and none matches it.
    NoPolicy,
    /// The policy says `mode: None`.
    Mode(&'a str),
    /// The policy selects no node that may announce.
    NoNode(&'a str),
    /// It has no endpoint, and no policy has it announced all the same.
    NoEndpoint,
}

impl Governing {
    /// Takes over what is known; returns whether Services may be governed otherwise now.
    pub(super) fn update(
        &mut self,
        policies: &Table<PolicyRow>,
        pools: &Table<PoolRow>,
        nodes: &Table<NodeRow>,
        sessions: &Table<SessionRow>,
    ) -> bool {
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
                && policy.mode == AnnouncementMode::Layer2
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

    /// What governs a Service with these labels whose addresses are from `pool`.
    pub(super) fn governs(&self, labels: &Labels, pool: &str) -> Governance<'_> {
        self.policies.govern(labels, Some(pool))
    }

    /// Why nobody announces what `governance` governs, whatever its endpoints.
    pub(super) fn silence<'a>(&'a self, governance: Governance<'a>) -> Option<Silence<'a>> {
        match governance {
            // Who announces it goes on.
            Governance::Default | Governance::Unreadable(_) => None,
            Governance::None => Some(Silence::NoPolicy),
            Governance::Policy(policy) if policy.mode == AnnouncementMode::None => {
                Some(Silence::Mode(&policy.name))
            }
            Governance::Policy(policy) => {
                self.deserted.contains(&policy.name).then_some(Silence::NoNode(&policy.name))
            }
        }
    }

    /// What of a policy matches nothing.
    pub(super) fn unmatched(&self, name: &str) -> &[String] {
        self.unmatched.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether a policy has Services announced that have no endpoint.
pub(super) const fn announces_without_endpoints(governance: Governance<'_>) -> bool {
    matches!(governance.policy(), Some(Policy { announce_without_endpoints: true, .. }))
}
