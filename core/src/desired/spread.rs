//! The nodes that packets for the addresses of a claim are spread over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::Members;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{DataPath, MemberWeights, Policy};

use super::slices::Use;
use super::snapshot::{ServiceFacts, Snapshot};

/// The spreading that the Services of a claim ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadOver {
    /// The nodes with endpoints, whatever their state, with their weights.
    pub members: Arc<Members>,
    /// Whether all connections of a client go to one node.
    pub by_client: bool,
    /// The rule for the weights.
    pub weights: MemberWeights,
}

impl SpreadOver {
    /// The spreading that a Service asks for, without the nodes.
    pub(super) fn of(service: &ServiceFacts, policy: Option<&Policy>) -> Option<Self> {
        let policy = policy.filter(|it| service.local && it.data_path == DataPath::Spread)?;
        let weights = policy.member_weights;
        Some(Self { members: Arc::default(), by_client: service.affine, weights })
    }

    /// The spreading for Services that share a claim.
    pub(super) fn joined(self, other: &Self) -> Self {
        let same = self.weights == other.weights;
        let weights = if same { self.weights } else { MemberWeights::default() };
        Self { by_client: self.by_client || other.by_client, weights, ..self }
    }

    /// Takes in the nodes on which all of these Services have endpoints.
    pub(super) fn over(
        &mut self,
        snapshot: &Snapshot,
        services: &[String],
        nodes: impl Iterator<Item = NodeName>,
    ) {
        let known = |node: &NodeName| snapshot.nodes.get(node).is_some_and(|it| !it.is_excluded());
        let counts = match self.weights {
            MemberWeights::Equal => BTreeMap::new(),
            MemberWeights::Endpoints => counts(snapshot, services),
        };
        let weights = nodes.filter(known).map(|node| {
            let count = counts.get(&node).copied().unwrap_or(1);
            (node, count)
        });
        let weights: Vec<(NodeName, u16)> = weights.collect();
        // Twice as many everywhere changes nothing.
        let unit = weights.iter().fold(0, |unit, (_, count)| greatest_divisor(unit, *count)).max(1);
        let weights = weights.into_iter().map(|(node, count)| (node, count / unit));
        self.members = Arc::new(weights.collect());
    }
}

/// The number of ready endpoints of these Services on each node. Those of both families are the same pods.
fn counts(snapshot: &Snapshot, services: &[String]) -> BTreeMap<NodeName, u16> {
    let mut found: BTreeMap<NodeName, [BTreeSet<IpAddr>; 2]> = BTreeMap::new();
    let its = snapshot
        .slices
        .iter()
        .filter(|(_, slice)| services.iter().any(|service| *service == *slice.service()));
    for (_, slice) in its {
        let Some((_, endpoints)) = slice.endpoints() else { continue };
        for endpoint in endpoints.filter(|it| it.used == Use::Ready) {
            let Some(node) = endpoint.node else { continue };
            let [four, six] = found.entry(node.clone()).or_default();
            if endpoint.ip.is_ipv4() { four } else { six }.insert(endpoint.ip);
        }
    }
    let count = |[four, six]: [BTreeSet<IpAddr>; 2]| {
        u16::try_from(four.len().max(six.len())).unwrap_or(u16::MAX).max(1)
    };
    found.into_iter().map(|(node, addresses)| (node, count(addresses))).collect()
}

fn greatest_divisor(one: u16, other: u16) -> u16 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}
