//! The nodes that may announce, by endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_crds::names::NodeName;

use super::snapshot::Snapshot;
use super::{DesiredClaim, Silence};

/// The endpoints of all services.
pub(super) struct Endpoints<'a> {
    snapshot: &'a Snapshot,
    /// The nodes with an endpoint of each local service: ready ones, or where there is none, those that
    /// still serve while they terminate (KEP-1669).
    nodes: BTreeMap<&'a str, BTreeSet<&'a NodeName>>,
    /// Those of our services with an endpoint that serves, on a node or elsewhere.
    served: BTreeSet<&'a str>,
}

impl<'a> Endpoints<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut nodes: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
        let mut serving: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
        let mut served = BTreeSet::new();
        for (_, slice) in snapshot.slices.iter() {
            let Some(service) = snapshot.services.get(slice.service()) else { continue };
            if service.local {
                nodes.entry(slice.service()).or_default().extend(slice.ready());
                serving.entry(slice.service()).or_default().extend(slice.serving());
            }
            if slice.serves() {
                served.insert(slice.service());
            }
        }
        for (service, nodes) in &mut nodes {
            if nodes.is_empty()
                && let Some(serving) = serving.remove(service)
            {
                *nodes = serving;
            }
        }
        Self { snapshot, nodes, served }
    }

    /// Leaves a claim to nobody while none of its services has an endpoint, unless a policy has it
    /// announced all the same; and one of local services to the nodes that have an endpoint of each of
    /// them, unless the owner spreads packets over these.
    ///
    /// Local services that share an address have the same pods. One of which no slice has been seen has
    /// just joined the others, and does not take the address from them.
    pub(super) fn narrow(&self, mut claim: DesiredClaim, without: bool) -> DesiredClaim {
        if !claim.services.iter().any(|service| self.served.contains(service.as_str())) {
            if !without {
                claim.nodes = Arc::default();
                claim.silence.get_or_insert(Silence::NoEndpoint);
            }
            return claim;
        }
        let is_local =
            |name: &&String| self.snapshot.services.get(*name).is_some_and(|it| it.local);
        let mut local = claim.services.iter().filter(is_local).peekable();
        if local.peek().is_none() {
            return claim;
        }
        let seen: Vec<_> = local.filter_map(|name| self.nodes.get(name.as_str())).collect();
        let serves = |node: &NodeName| seen.iter().all(|nodes| nodes.contains(node));
        if let Some(spread) = &mut claim.spread {
            // Its owner need not have an endpoint.
            let all = seen.iter().flat_map(|nodes| nodes.iter()).copied();
            let all: BTreeSet<&NodeName> = all.filter(|node| serves(node)).collect();
            spread.over(self.snapshot, &claim.services, all.into_iter().cloned());
            return claim;
        }
        let narrowed = claim.nodes.iter().filter(|node| !seen.is_empty() && serves(node));
        claim.nodes = Arc::new(narrowed.cloned().collect());
        claim
    }
}
