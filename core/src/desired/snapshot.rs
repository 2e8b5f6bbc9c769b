//! The snapshot of the cluster's objects: only the parts that decisions need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};
use kube::ResourceExt;
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::label::EXCLUDE;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{MemberWeights, PoolLabels};
use leasehold_crds::service;

use super::records::{Lists, Record};
use super::slices::{KeptSlice, News, SliceFacts, Slices, key};
use super::{NodeState, ServicePort};

/// The taint of a node that is known to be down for good (Kubernetes, non-graceful node shutdown).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The taints of a node whose kubelet says that it is not ready, or says nothing.
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The parts of the cluster's objects that decisions need.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Services of `type: LoadBalancer` that may have addresses from us, by `namespace/name`.
    pub services: BTreeMap<String, ServiceFacts>,
    /// The addresses that claims list.
    pub lists: Lists,
    /// Slices, by `namespace/name`.
    pub slices: Slices,
    /// Nodes.
    pub nodes: BTreeMap<NodeName, NodeObject>,
    /// Policies, by name.
    pub policies: BTreeMap<String, AnnouncementPolicy>,
    /// The labels of the pools, by name.
    pub pools: PoolLabels,
    /// Cordoned nodes that endpoints have left.
    draining: BTreeSet<NodeName>,
}

/// The parts of a Service that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// The record of its addresses.
    record: Record,
    /// The pool on record.
    pool: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ports: Arc<BTreeSet<ServicePort>>,
    /// `externalTrafficPolicy: Local`.
    pub(super) local: bool,
    /// `healthCheckNodePort`, which goes with it.
    pub(super) health_check: Option<u16>,
    /// The names of its ports, where it has several.
    names: Box<[(ServicePort, Box<str>)]>,
    /// Whether a client stays with its pod (`sessionAffinity: ClientIP`).
    pub(super) affine: bool,
    /// `loadBalancerSourceRanges`: the only clients that kube-proxy lets in; none: all.
    pub(super) sources: Box<[IpNet]>,
}

impl AsRef<Record> for ServiceFacts {
    fn as_ref(&self) -> &Record {
        &self.record
    }
}

/// The parts of a Node that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) state: NodeState,
    /// Whether a label excludes it from load balancing.
    labelled: bool,
    /// Whether a taint says that it is shut down for good.
    out_of_service: bool,
}

impl Snapshot {
    /// Whether a policy has the number of endpoints on a node count.
    fn weighs_endpoints(&self) -> bool {
        let mut policies = self.policies.values();
        policies.any(|policy| policy.spec.member_weights == MemberWeights::Endpoints)
    }

    /// Replaces what is kept of a slice. A cordoned node that an endpoint leaves is being drained. Returns
    /// what may follow from it.
    pub fn set_slice(&mut self, key: &str, slice: Option<&SliceFacts>) -> News {
        let cordoned = |node: &NodeName| {
            self.nodes.get(node).is_some_and(|it| it.state == NodeState::Cordoned)
        };
        let stays = |node: &NodeName| slice.is_some_and(|now| now.is_ready(node));
        let before = self.slices.get(key);
        let left = before.into_iter().flat_map(KeptSlice::ready).filter(|node| !stays(node));
        let leaving = slice.into_iter().flat_map(SliceFacts::leaving);
        let drained: Vec<_> = left.chain(leaving).filter(|it| cordoned(it)).cloned().collect();
        let mut ours = before.is_some_and(|before| self.services.contains_key(before.service()));
        let known = self.draining.len();
        self.draining.extend(drained);
        ours |= slice.is_some_and(|slice| self.services.contains_key(slice.service()));
        let news = match slice {
            Some(slice) => self.slices.insert(key, slice, ours),
            None if self.slices.remove(key) => News::Nodes,
            None => News::None,
        };
        if self.draining.len() > known {
            return News::Nodes;
        }
        match news {
            _ if !ours => News::None,
            News::Endpoints if self.weighs_endpoints() => News::Nodes,
            news => news,
        }
    }

    /// Adds a slice to a list that is to replace those that are kept.
    pub fn list_slice(&self, listing: &mut Slices, slice: &super::Slice) {
        if let Some((key, facts)) = SliceFacts::of(slice) {
            let ours = self.services.contains_key(facts.service());
            listing.insert(&key, &facts, ours);
        }
    }

    /// Takes over the endpoints of slices of a Service that has become ours; whether any were missing.
    pub fn complete(&mut self, service: &str, slices: &[super::Slice]) -> bool {
        let mut any = false;
        for (key, facts) in slices.iter().filter_map(SliceFacts::of) {
            let its = self.services.contains_key(service) && facts.service() == service;
            any |= its && self.slices.complete(&key, &facts) != News::None;
        }
        any
    }

    /// Our Services with slices of which only the nodes are known.
    pub fn unread(&self) -> BTreeSet<&str> {
        let unread = self.slices.iter().filter(|(_, slice)| slice.endpoints().is_none());
        let services = unread.map(|(_, slice)| slice.service());
        services.filter(|service| self.services.contains_key(*service)).collect()
    }

    /// To be called when nodes have changed: what is not cordoned any more is not drained, and a node
    /// that was cordoned while endpoints left it is.
    pub fn note_nodes(&mut self) {
        let nodes = &self.nodes;
        let is = |node: &NodeName| nodes.get(node).map_or(NodeState::Ready, |node| node.state);
        self.draining.retain(|node| is(node) >= NodeState::Cordoned);
        if nodes.values().any(|node| node.state == NodeState::Cordoned) {
            let leaving = self.slices.iter().flat_map(|(_, slice)| slice.leaving());
            let drained = leaving.filter(|node| is(node) == NodeState::Cordoned);
            self.draining.extend(drained.cloned());
        }
    }

    /// The state of each node.
    pub(super) fn states(&self) -> BTreeMap<NodeName, NodeState> {
        let state = |(name, node): (&NodeName, &NodeObject)| {
            let drained = self.draining.contains(name);
            let least = if drained { NodeState::Draining } else { NodeState::Ready };
            (name.clone(), node.state.max(least))
        };
        self.nodes.iter().map(state).collect()
    }
}

impl ServiceFacts {
    /// The parts of a Service that placement needs: the addresses that each of its claims governs, their pool,
    /// its labels, and whether it has `externalTrafficPolicy: Local`.
    pub fn placed(
        claims: BTreeMap<LeaseName, AddressSet>,
        pool: Option<String>,
        labels: BTreeMap<String, String>,
        local: bool,
    ) -> Self {
        let record = Record::new("", claims, AddressSet::default());
        Self {
            record,
            pool,
            labels,
            ports: Arc::default(),
            local,
            health_check: None,
            names: Box::default(),
            affine: false,
            sources: Box::default(),
        }
    }

    /// The facts of a living Service of `type: LoadBalancer` that is of our class or of none; `None` for
    /// all others. That it lacks a claim on record does not mean that none governs its addresses.
    pub fn of(object: &Service) -> Option<(String, Self)> {
        let spec = object.spec.as_ref()?;
        if !service::is_ours(object, true) {
            return None;
        }
        let addresses = service::ingress_ips(object).filter_map(|ip| ip.parse().ok());
        let (claims, bare) = match service::Claims::of(object) {
            Some(claims) => (claims.split(addresses), AddressSet::default()),
            None => (BTreeMap::new(), addresses.collect()),
        };
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let facts = Self {
            record: Record::new(uid, claims, bare),
            pool: service::allocated_from(object).map(str::to_owned),
            labels: object.labels().clone(),
            ports: Arc::new(named_ports(spec).map(|(port, _)| port).collect()),
            local: spec.external_traffic_policy.as_deref() == Some("Local"),
            health_check: spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()),
            names: named_ports(spec)
                .filter(|(_, name)| !name.is_empty())
                .map(|(port, name)| (port, name.into()))
                .collect(),
            affine: spec.session_affinity.as_deref() == Some("ClientIP"),
            sources: sources(spec),
        };
        Some((key(object), facts))
    }

    /// Its addresses, as kube-proxy knows them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.record.addresses()
    }

    /// The name of one of its ports: that by which EndpointSlices say where it leads.
    pub(super) fn name(&self, port: ServicePort) -> &str {
        self.names.iter().find(|(it, _)| *it == port).map_or("", |(_, name)| name)
    }

    /// The pool that its addresses are from. Its claims say it as soon as they are listed, and what somebody
    /// does to its annotation changes nothing.
    pub(super) fn pool<'a>(
        &'a self,
        claims: &[(LeaseName, AddressSet)],
        lists: &'a Lists,
    ) -> Option<&'a str> {
        claims.iter().find_map(|(claim, _)| lists.pool(claim)).or(self.pool.as_deref())
    }
}

fn named_ports(spec: &ServiceSpec) -> impl Iterator<Item = (ServicePort, &str)> {
    spec.ports.iter().flatten().filter_map(|port| {
        let name = port.name.as_deref().unwrap_or_default();
        Some((ServicePort::of(port.protocol.as_deref(), port.port)?, name))
    })
}

/// As kube-proxy reads them: with spaces around, and not at all where one is none.
fn sources(spec: &ServiceSpec) -> Box<[IpNet]> {
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    ranges.filter_map(|range| range.trim().parse().ok()).collect()
}

impl NodeObject {
    /// Its labels.
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Whether it announces nothing at all.
    pub const fn is_excluded(&self) -> bool {
        self.labelled || self.out_of_service
    }

    /// Whether a taint says that it is shut down for good.
    pub const fn is_out_of_service(&self) -> bool {
        self.out_of_service
    }

    /// The same, of a node that announces although a label excludes it from load balancing.
    #[must_use]
    pub fn ignoring_label(self) -> Self {
        Self { labelled: false, ..self }
    }

    /// The facts of a Node; `None` where its name is none.
    pub fn of(object: &Node) -> Option<(NodeName, Self)> {
        let spec = object.spec.as_ref();
        let taints = || spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let tainted = |keys: &[&str]| taints().any(|taint| keys.contains(&taint.key.as_str()));
        let conditions = object.status.as_ref().and_then(|status| status.conditions.as_ref());
        let unavailable = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "True");
        let state = if object.metadata.deletion_timestamp.is_some() {
            NodeState::Leaving
        } else if unavailable {
            NodeState::NetworkUnavailable
        } else if spec.and_then(|spec| spec.unschedulable).unwrap_or(false) {
            NodeState::Cordoned
        } else if tainted(&NOT_READY) {
            NodeState::NotReady
        } else {
            NodeState::Ready
        };
        let labelled = object.labels().contains_key(EXCLUDE);
        let out_of_service = tainted(&[OUT_OF_SERVICE]);
        let name = object.name_any().parse().ok()?;
        Some((name, Self { labels: object.labels().clone(), state, labelled, out_of_service }))
    }
}
