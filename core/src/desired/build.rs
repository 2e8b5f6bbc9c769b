//! From the cluster's objects to [`Desired`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfacePattern, NodeName};
use leasehold_crds::policy::{
    DEFAULT_HANDOVER, Governance, Holders, Policies, Policy, PolicyError,
};

use super::announcement::Announcement;
use super::endpoints::Endpoints;
use super::proxied::Proxied;
use super::reach::Reaches;
use super::snapshot::{NodeObject, ServiceFacts, Snapshot};
use super::{
    Desired, DesiredClaim, Detection, Failback, OnApiOutage, Sharing, Silence, SpreadOver, records,
};

/// The desired state of the cluster, and the policies that cannot be read. Equal parts are shared with `before`.
pub fn build(snapshot: &Snapshot, before: Option<&Desired>) -> (Desired, Vec<PolicyError>) {
    let (policies, errors) = Policies::new(snapshot.policies.values());
    let policies = policies.of_pools(snapshot.pools.clone());
    let mut governed: BTreeMap<IpAddr, &LeaseName> = BTreeMap::new();
    let mut reaches = Reaches::default();
    let mut parts: BTreeMap<&LeaseName, Vec<Part<'_>>> = BTreeMap::new();
    let claims_of = records::governed(&snapshot.services, &snapshot.lists);
    for (name, service) in &snapshot.services {
        let Some(claims) = claims_of.get(name.as_str()).filter(|claims| !claims.is_empty()) else {
            continue;
        };
        let governance = policies.govern(&service.labels, service.pool(claims, &snapshot.lists));
        let protection = governance.policy().map(|it| it.host_protection).unwrap_or_default();
        for (claim, addresses) in claims.iter() {
            reaches.add(claim, addresses, &service.ports, protection);
            for address in addresses {
                governed.entry(*address).or_insert(claim);
            }
            let part = Part { name, service, claims, addresses, governance };
            parts.entry(claim).or_insert_with(|| Vec::with_capacity(1)).push(part);
        }
    }
    let mut allowed =
        Allowed { snapshot, by_policy: BTreeMap::new(), preferences: BTreeMap::new() };
    let mut sharing = Sharing::with(before);
    let endpoints = Endpoints::new(snapshot);
    // One claim after the other, so that of most no more is made than is compared with what there was.
    let claims = parts.iter().filter_map(|(claim, parts)| {
        let (asked, without) = allowed.claim(claim, parts, &governed)?;
        let asked = endpoints.narrow(asked, without);
        Some((LeaseName::clone(claim), sharing.claim(claim, asked)))
    });
    let claims: BTreeMap<LeaseName, Arc<DesiredClaim>> = claims.collect();
    let reach = reaches.finish(&sharing);
    let polls = Desired::polls_of(&claims);
    (Desired { claims, nodes: snapshot.states(), polls, reach }, errors)
}

/// The request of one Service to a claim.
struct Part<'a> {
    name: &'a str,
    service: &'a ServiceFacts,
    /// All its claims.
    claims: &'a [(LeaseName, AddressSet)],
    addresses: &'a AddressSet,
    governance: Governance<'a>,
}

/// Adds to a claim what another service asks of it that records it as well.
fn join(claim: &mut DesiredClaim, other: DesiredClaim) {
    claim.services.extend(other.services);
    claim.addresses.extend(other.addresses);
    claim.nodes = Arc::new(claim.nodes.intersection(&other.nodes).cloned().collect());
    claim.silence = claim.silence.or(other.silence);
    claim.held |= other.held;
    claim.drain_on_cordon |= other.drain_on_cordon;
    claim.preference = both(&claim.preference, &other.preference);
    claim.interfaces = named_by_both(&claim.interfaces, &other.interfaces);
    claim.apart_from.extend(other.apart_from);
    claim.failback = claim.failback.gentler(other.failback);
    claim.announcement = claim.announcement.joined(other.announcement);
    claim.detection = stricter(claim.detection, other.detection);
    if other.on_api_outage == OnApiOutage::Drop {
        claim.on_api_outage = OnApiOutage::Drop;
    }
    claim.connection_handover = claim.connection_handover.max(other.connection_handover);
    claim.proxied.join(&other.proxied);
    let both = claim.spread.take().zip(other.spread);
    claim.spread = both.map(|(one, other)| one.joined(&other));
    claim.return_path = claim.return_path.max(other.return_path);
}

/// The interfaces that two policies name. Where these have none in common no interface can carry the claim,
/// and what is left says so: nothing would mean any.
fn named_by_both(one: &[InterfacePattern], other: &[InterfacePattern]) -> Vec<InterfacePattern> {
    if one.is_empty() || other.is_empty() || one == other {
        return [one, if one.is_empty() { other } else { &[] }].concat();
    }
    let pairs = one.iter().flat_map(|pattern| other.iter().map(|other| pattern.and(other)));
    let pairs: BTreeSet<InterfacePattern> = pairs.collect();
    let possible = pairs.iter().any(InterfacePattern::is_possible);
    pairs.into_iter().filter(|pair| pair.is_possible() || !possible).collect()
}

/// The node preferences of two policies together: the weights of a node add up.
fn both(
    one: &Arc<BTreeMap<NodeName, u32>>,
    other: &Arc<BTreeMap<NodeName, u32>>,
) -> Arc<BTreeMap<NodeName, u32>> {
    if one == other {
        return Arc::clone(one);
    }
    let mut sum = BTreeMap::clone(one);
    for (node, weight) in other.iter() {
        *sum.entry(node.clone()).or_default() += weight;
    }
    Arc::new(sum)
}

/// The settings for services that share a claim: the faster timings as a whole, for a mixture could
/// be faster than anybody asked for; and the wire only where all allow it.
fn stricter(one: Detection, other: Detection) -> Detection {
    let speed = |it: &Detection| (it.rank_step(), it.interval, it.retry_interval);
    let faster = if speed(&other) < speed(&one) { other } else { one };
    Detection { wire: one.wire && other.wire, ..faster }
}

/// The nodes that policies allow, each set made once.
struct Allowed<'a> {
    snapshot: &'a Snapshot,
    by_policy: BTreeMap<Option<String>, Arc<BTreeSet<NodeName>>>,
    preferences: BTreeMap<String, Arc<BTreeMap<NodeName, u32>>>,
}

impl Allowed<'_> {
    /// The requests of all Services that record a claim, joined, and whether it is announced without endpoints; `None`
    /// where it governs no address.
    ///
    /// An address is governed by one claim, which all services that share it record. Under two claims it
    /// only stands where somebody wrote a status by hand.
    fn claim(
        &mut self,
        claim: &LeaseName,
        parts: &[Part<'_>],
        governed: &BTreeMap<IpAddr, &LeaseName>,
    ) -> Option<(DesiredClaim, bool)> {
        let mut whole: Option<DesiredClaim> = None;
        let mut without = false;
        for Part { name, service, claims, addresses, governance } in parts {
            let governs = |address: &&IpAddr| governed.get(*address) == Some(&claim);
            let addresses: AddressSet = addresses.iter().filter(governs).copied().collect();
            if addresses.is_empty() {
                continue;
            }
            without |= governance.policy().is_some_and(|it| it.announce_without_endpoints);
            let others = claims.iter().map(|(other, _)| other);
            let asked = DesiredClaim {
                apart_from: others.filter(|other| *other != claim).cloned().collect(),
                ..self.asked(name, service, addresses, *governance)
            };
            match &mut whole {
                Some(whole) => join(whole, asked),
                None => whole = Some(asked),
            }
        }
        Some((whole?, without))
    }

    /// The request of a Service for these addresses.
    fn asked(
        &mut self,
        name: &str,
        service: &ServiceFacts,
        addresses: AddressSet,
        governance: Governance<'_>,
    ) -> DesiredClaim {
        let policy = governance.policy();
        let held = matches!(governance, Governance::Unreadable(_));
        let silent = matches!(governance, Governance::None)
            || !held && policy.is_some_and(|policy| policy.mode.holders() == Holders::None);
        DesiredClaim {
            services: vec![name.to_owned()],
            addresses,
            nodes: if silent || held { Arc::default() } else { self.nodes(policy) },
            silence: silent.then_some(Silence::Policy),
            held,
            drain_on_cordon: policy.is_some_and(|policy| policy.drain_on_cordon),
            preference: self.preference(policy),
            apart_from: BTreeSet::new(),
            failback: policy.map_or_else(Failback::default, |policy| policy.failback),
            interfaces: policy.map(|policy| policy.interfaces.clone()).unwrap_or_default(),
            announcement: policy.map(Announcement::of).unwrap_or_default(),
            detection: policy.map(|policy| policy.detection).unwrap_or_default(),
            on_api_outage: policy.map(|policy| policy.on_api_outage).unwrap_or_default(),
            connection_handover: policy.map_or(DEFAULT_HANDOVER, |it| it.connection_handover),
            proxied: Proxied::of(
                service,
                policy.map(|policy| policy.service_proxy).unwrap_or_default(),
            ),
            spread: SpreadOver::of(service, policy),
            return_path: policy.map(|policy| policy.return_path).unwrap_or_default(),
        }
    }

    fn preference(&mut self, policy: Option<&Policy>) -> Arc<BTreeMap<NodeName, u32>> {
        let Some(policy) = policy else { return Arc::default() };
        let snapshot = self.snapshot;
        let make = || {
            let weights =
                snapshot.nodes.iter().map(|(name, node)| (name, policy.preference(&node.labels)));
            let weights = weights.filter(|(_, weight)| *weight > 0);
            Arc::new(weights.map(|(name, weight)| (name.clone(), weight)).collect())
        };
        Arc::clone(self.preferences.entry(policy.name.clone()).or_insert_with(make))
    }

    fn nodes(&mut self, policy: Option<&Policy>) -> Arc<BTreeSet<NodeName>> {
        let snapshot = self.snapshot;
        let make = || {
            let allows = |node: &NodeObject| {
                !node.is_excluded() && policy.is_none_or(|policy| policy.allows_node(&node.labels))
            };
            let nodes = snapshot.nodes.iter().filter(|(_, node)| allows(node));
            Arc::new(nodes.map(|(name, _)| name.clone()).collect())
        };
        let name = policy.map(|policy| policy.name.clone());
        Arc::clone(self.by_policy.entry(name).or_insert_with(make))
    }
}
