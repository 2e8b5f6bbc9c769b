//! The nodes that packets for the addresses of a Service are spread over, for its condition.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::explain;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{DataPath, Governance};

use super::tables::Tables;
use crate::reconcile::service::conditions::Report;
use crate::reconcile::service::data_path::{self, Part};
use crate::reconcile::service::{ServiceRow, Traffic};

/// Whether a policy says `dataPath: Spread`.
pub(super) fn is_asked_for(governance: Option<Governance<'_>>) -> bool {
    let policy = governance.and_then(Governance::policy);
    policy.is_some_and(|policy| policy.data_path == DataPath::Spread)
}

/// The nodes on which each of these Services has endpoints: those that are ready, or else those that serve.
pub(super) fn with_endpoints<'a>(
    tables: &'a Tables,
    keys: &BTreeSet<String>,
) -> BTreeMap<String, BTreeSet<&'a NodeName>> {
    let mut found: BTreeMap<String, [BTreeSet<&NodeName>; 2]> = BTreeMap::new();
    let slices = tables.endpoints().slices().iter();
    for (_, slice) in slices.filter(|(_, slice)| keys.contains(slice.service())) {
        let [ready, serving] = found.entry(slice.service().to_owned()).or_default();
        ready.extend(slice.ready());
        serving.extend(slice.serving());
    }
    let nodes = |[ready, serving]: [BTreeSet<_>; 2]| if ready.is_empty() { serving } else { ready };
    found.into_iter().map(|(key, found)| (key, nodes(found))).collect()
}

/// The condition of a Service whose addresses have these claims, with endpoints on `nodes`.
pub(super) fn report(
    tables: &Tables,
    split: &BTreeMap<LeaseName, AddressSet>,
    row: &ServiceRow,
    governance: Option<Governance<'_>>,
    nodes: Option<&BTreeSet<&NodeName>>,
) -> Report {
    if !is_asked_for(governance) {
        return Report::Nothing;
    }
    if row.traffic == Traffic::Cluster {
        return Report::Now(data_path::not_local());
    }
    let session = |node: &NodeName| {
        let row = tables.sessions().get(&LeaseName::session(node))?;
        row.live.is_some().then_some(&row.record)
    };
    let is_excluded = |node: &NodeName| {
        let session = tables.sessions().get(&LeaseName::session(node));
        tables.nodes().get(&node.to_string()).is_none_or(|row| row.is_excluded(session))
    };
    let part = |(name, addresses)| {
        let (owner, _) = tables.announcer(name)?;
        let claim = &tables.claims().get(name)?.record;
        let own = session(owner)?;
        let with_endpoints = nodes.into_iter().flatten().copied();
        let asked = with_endpoints.filter(|node| !is_excluded(node));
        let asked = asked.map(|node| (node, session(node)));
        let left_out = explain::all_left_out(claim, own, asked);
        Some(Part { addresses, claim, owner, state: own.data_path, left_out })
    };
    let parts: Option<Vec<Part<'_>>> = split.iter().map(part).collect();
    let Some(parts) = parts else { return Report::Nothing };
    // Its owner has not said yet what it does.
    let new = |part: &Part<'_>| part.claim.members.is_empty() && part.state.is_none();
    if parts.iter().any(new) { Report::Later } else { Report::Now(data_path::spread(&parts)) }
}
