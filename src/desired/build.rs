//! From the cluster's objects to [`Desired`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{Governance, Policies, Policy, PolicyError};
use leasehold_crds::service;

use super::reach::Reaches;
use super::{Desired, DesiredClaim, Detection, Failback, NodeFacts, OnApiOutage, ServicePort};

/// The label that takes a node out of load balancing (Kubernetes, well-known labels).
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label of an EndpointSlice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What is kept of the cluster's objects: only what decisions need.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Services that have a claim, by `namespace/name`.
    pub services: BTreeMap<String, ServiceFacts>,
    /// Slices, by `namespace/name`.
    pub slices: BTreeMap<String, SliceFacts>,
    /// Nodes.
    pub nodes: BTreeMap<NodeName, NodeObject>,
    /// Policies, by name.
    pub policies: BTreeMap<String, AnnouncementPolicy>,
}

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    claim: LeaseName,
    pool: Option<String>,
    labels: BTreeMap<String, String>,
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<ServicePort>,
    /// `externalTrafficPolicy: Local`.
    local: bool,
}

/// What is kept of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFacts {
    service: String,
    ready: BTreeSet<NodeName>,
    serving: BTreeSet<NodeName>,
}

/// What is kept of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    labels: BTreeMap<String, String>,
    facts: NodeFacts,
}

/// `namespace/name` of an object.
fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

impl ServiceFacts {
    /// The facts of a Service that has a claim and addresses; `None` for all others.
    pub fn of(object: &Service) -> Option<(String, Self)> {
        let spec = object.spec.as_ref()?;
        let alive = object.metadata.deletion_timestamp.is_none();
        if !alive || spec.type_.as_deref() != Some("LoadBalancer") {
            return None;
        }
        let facts = Self {
            claim: service::governing_claim(object)?,
            pool: service::allocated_from(object).map(str::to_owned),
            labels: object.labels().clone(),
            addresses: service::ingress_ips(object).filter_map(|ip| ip.parse().ok()).collect(),
            ports: spec.ports.iter().flatten().filter_map(ServicePort::of).collect(),
            local: spec.external_traffic_policy.as_deref() == Some("Local"),
        };
        (!facts.addresses.is_empty()).then(|| (key(object), facts))
    }
}

impl SliceFacts {
    /// The facts of a slice that belongs to a Service; `None` for all others.
    pub fn of(object: &EndpointSlice) -> Option<(String, Self)> {
        let name = object.labels().get(SERVICE_NAME)?;
        let service = format!("{}/{name}", object.namespace().unwrap_or_default());
        let mut facts = Self { service, ready: BTreeSet::new(), serving: BTreeSet::new() };
        for endpoint in &object.endpoints {
            let Some(node) = endpoint.node_name.as_deref().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let node: NodeName = node;
            // Unknown counts as true (discovery.k8s.io/v1, EndpointConditions).
            let conditions = endpoint.conditions.as_ref();
            let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
            if ready {
                facts.ready.insert(node.clone());
            }
            if conditions.and_then(|c| c.serving).unwrap_or(ready) {
                facts.serving.insert(node);
            }
        }
        Some((key(object), facts))
    }
}

impl NodeObject {
    /// The facts of a Node; `None` where its name is none.
    pub fn of(object: &Node) -> Option<(NodeName, Self)> {
        let facts = NodeFacts {
            cordoned: object.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
            leaving: object.metadata.deletion_timestamp.is_some(),
        };
        let name = object.name_any().parse().ok()?;
        Some((name, Self { labels: object.labels().clone(), facts }))
    }
}

/// What the cluster asks for, and the policies that cannot be followed.
pub fn build(snapshot: &Snapshot) -> (Desired, Vec<PolicyError>) {
    let (policies, errors) = Policies::new(snapshot.policies.values());
    let mut desired = Desired {
        nodes: snapshot.nodes.iter().map(|(name, node)| (name.clone(), node.facts)).collect(),
        ..Desired::default()
    };
    let mut allowed =
        Allowed { snapshot, by_policy: BTreeMap::new(), preferences: BTreeMap::new() };
    let mut governed: BTreeMap<IpAddr, &LeaseName> = BTreeMap::new();
    let mut reaches = Reaches::default();
    for (name, service) in &snapshot.services {
        let governance = policies.govern(&service.labels, service.pool.as_deref());
        let policy = match governance {
            Governance::Policy(policy) => Some(policy),
            Governance::Default | Governance::None => None,
        };
        let nodes = match governance {
            Governance::None => Arc::default(),
            Governance::Default | Governance::Policy(_) => allowed.nodes(policy),
        };
        let preference = allowed.preference(policy);
        let failback = policy.map_or_else(Failback::default, |policy| policy.failback);
        let detection = policy.map(|policy| policy.detection).unwrap_or_default();
        let on_api_outage = policy.map(|policy| policy.on_api_outage).unwrap_or_default();
        let protection = policy.map(|policy| policy.host_protection).unwrap_or_default();
        reaches.add(&service.claim, &service.addresses, &service.ports, protection);
        // An address is governed by one claim, which all services that share it record. Under two
        // claims it only stands where somebody wrote a status by hand.
        let mut governs = |address: &IpAddr| {
            *governed.entry(*address).or_insert(&service.claim) == &service.claim
        };
        let addresses: BTreeSet<IpAddr> =
            service.addresses.iter().copied().filter(|address| governs(address)).collect();
        if addresses.is_empty() {
            continue;
        }
        if let Some(claim) = desired.claims.get_mut(&service.claim) {
            claim.services.push(name.clone());
            claim.addresses.extend(addresses);
            claim.nodes = Arc::new(claim.nodes.intersection(&nodes).cloned().collect());
            claim.preference = both(&claim.preference, &preference);
            claim.failback = claim.failback.gentler(failback);
            claim.detection = stricter(claim.detection, detection);
            if on_api_outage == OnApiOutage::Drop {
                claim.on_api_outage = OnApiOutage::Drop;
            }
        } else {
            let services = vec![name.clone()];
            let claim = DesiredClaim {
                services,
                addresses,
                nodes,
                preference,
                failback,
                interfaces: policy.map(|policy| policy.interfaces.clone()).unwrap_or_default(),
                detection,
                on_api_outage,
            };
            desired.claims.insert(service.claim.clone(), claim);
        }
    }
    narrow(&mut desired, snapshot);
    desired.reach = reaches.finish();
    (desired, errors)
}

/// Leaves the claims of local services to the nodes that have an endpoint of each of them.
///
/// Local services that share an address have the same pods. One of which no slice has been seen has
/// just joined the others, and does not take the address from them.
fn narrow(desired: &mut Desired, snapshot: &Snapshot) {
    let endpoints = local_nodes(snapshot);
    for claim in desired.claims.values_mut() {
        let is_local = |name: &&String| snapshot.services.get(*name).is_some_and(|it| it.local);
        let mut local = claim.services.iter().filter(is_local).peekable();
        if local.peek().is_none() {
            continue;
        }
        let seen: Vec<_> = local.filter_map(|name| endpoints.get(name.as_str())).collect();
        let serves = |node: &NodeName| seen.iter().all(|nodes| nodes.contains(node));
        let narrowed = claim.nodes.iter().filter(|node| !seen.is_empty() && serves(node));
        claim.nodes = Arc::new(narrowed.cloned().collect());
    }
}

/// What two policies prefer together.
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
                !node.labels.contains_key(EXCLUDE)
                    && policy.is_none_or(|policy| policy.allows_node(&node.labels))
            };
            let nodes = snapshot.nodes.iter().filter(|(_, node)| allows(node));
            Arc::new(nodes.map(|(name, _)| name.clone()).collect())
        };
        let name = policy.map(|policy| policy.name.clone());
        Arc::clone(self.by_policy.entry(name).or_insert_with(make))
    }
}

/// The nodes with an endpoint of each service: ready ones, or where there is none, those that
/// still serve while they terminate (KEP-1669).
fn local_nodes(snapshot: &Snapshot) -> BTreeMap<&str, BTreeSet<&NodeName>> {
    let mut ready: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
    let mut serving: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
    for slice in snapshot.slices.values() {
        ready.entry(&slice.service).or_default().extend(&slice.ready);
        serving.entry(&slice.service).or_default().extend(&slice.serving);
    }
    for (service, nodes) in &mut ready {
        if nodes.is_empty()
            && let Some(serving) = serving.remove(service)
        {
            *nodes = serving;
        }
    }
    ready
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "rows of JSON literals read better without &")]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::desired::Reach;

    fn snapshot(objects: &[serde_json::Value]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for object in objects {
            let object = object.clone();
            match object["kind"].as_str().unwrap() {
                "Service" => {
                    let service: Service = serde_json::from_value(object).unwrap();
                    snapshot.services.extend(ServiceFacts::of(&service));
                }
                "EndpointSlice" => {
                    let slice: EndpointSlice = serde_json::from_value(object).unwrap();
                    snapshot.slices.extend(SliceFacts::of(&slice));
                }
                "Node" => {
                    let node: Node = serde_json::from_value(object).unwrap();
                    snapshot.nodes.extend(NodeObject::of(&node));
                }
                _ => {
                    let policy: AnnouncementPolicy = serde_json::from_value(object).unwrap();
                    snapshot.policies.insert(policy.name_any(), policy);
                }
            }
        }
        snapshot
    }

    fn service(name: &str, address: &str, spec: serde_json::Value) -> serde_json::Value {
        let mut service = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"namespace": "web", "name": name, "annotations": {
                "leasehold.dev/claim": format!("web.{name}"), "leasehold.dev/allocated-from": "lan"}},
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        });
        service["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        service
    }

    fn node(name: &str, labels: serde_json::Value) -> serde_json::Value {
        json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}})
    }

    fn slice(service: &str, endpoints: serde_json::Value) -> serde_json::Value {
        json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"namespace": "web", "name": format!("{service}-1"),
                "labels": {"kubernetes.io/service-name": service}},
            "endpoints": endpoints,
        })
    }

    fn nodes_of(desired: &Desired, claim: &str) -> Vec<String> {
        let claim = &desired.claims[&claim.parse::<LeaseName>().unwrap()];
        claim.nodes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_without_a_recorded_claim_asks_for_nothing() {
        let mut unrecorded = service("a", "192.0.2.1", json!({}));
        unrecorded["metadata"]["annotations"] = json!({});
        let mut other_type = service("b", "192.0.2.2", json!({}));
        other_type["spec"]["type"] = json!("ClusterIP");
        let objects =
            [unrecorded, other_type, service("c", "192.0.2.3", json!({})), node("n", json!({}))];
        let (desired, _) = build(&snapshot(&objects));
        assert_eq!(desired.claims.keys().map(LeaseName::as_str).collect::<Vec<_>>(), ["web.c"]);
        assert_eq!(nodes_of(&desired, "web.c"), ["n"]);
    }

    #[test]
    fn policies_and_the_exclusion_label_narrow_the_nodes() {
        let policy = json!({
            "kind": "AnnouncementPolicy", "apiVersion": "leasehold.dev/v1alpha1",
            "metadata": {"name": "edge"},
            "spec": {"nodeSelectors": [{"matchLabels": {"edge": "true"}}], "interfaces": ["eth1"]},
        });
        let (desired, _) = build(&snapshot(&[
            service("a", "192.0.2.1", json!({})),
            node("n1", json!({"edge": "true"})),
            node("n2", json!({})),
            node("n3", json!({"edge": "true", EXCLUDE: ""})),
            policy,
        ]));
        assert_eq!(nodes_of(&desired, "web.a"), ["n1"]);
        let claim = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()];
        assert_eq!(claim.interfaces[0].as_str(), "eth1");
    }

    #[test]
    fn the_weights_of_all_entries_that_select_a_node_add_up() {
        let policy = json!({
            "kind": "AnnouncementPolicy", "apiVersion": "leasehold.dev/v1alpha1",
            "metadata": {"name": "racks"},
            "spec": {
                "preferredNodes": [
                    {"weight": 10, "nodeSelector": {"matchLabels": {"rack": "a"}}},
                    {"weight": 5, "nodeSelector": {"matchLabels": {"disk": "fast"}}},
                ],
                "failback": "Preferred", "failbackDelay": "5s", "maxMovesPerMinute": 6,
            },
        });
        let (desired, errors) = build(&snapshot(&[
            service("a", "192.0.2.1", json!({})),
            node("n1", json!({"rack": "a", "disk": "fast"})),
            node("n2", json!({"rack": "b", "disk": "fast"})),
            node("n3", json!({"rack": "b"})),
            policy,
        ]));
        assert!(errors.is_empty(), "{errors:?}");
        let claim = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()];
        let weights: Vec<_> = claim.preference.iter().map(|(n, w)| (n.as_str(), *w)).collect();
        assert_eq!(weights, [("n1", 15), ("n2", 5)]);
        let mode = super::super::FailbackMode::Preferred;
        let delay = Duration::from_secs(5);
        assert_eq!(claim.failback, Failback { mode, delay, moves_per_minute: 6 });
    }

    #[test]
    fn a_local_service_needs_an_endpoint_on_the_node() {
        let local = json!({"externalTrafficPolicy": "Local"});
        let endpoint = |node: &str, ready: bool, serving: bool| {
            json!({"addresses": ["10.0.0.1"], "nodeName": node,
                "conditions": {"ready": ready, "serving": serving}})
        };
        let nodes = [node("n1", json!({})), node("n2", json!({})), node("n3", json!({}))];
        let with = |endpoints: serde_json::Value| {
            let mut objects = nodes.to_vec();
            objects.push(service("a", "192.0.2.1", local.clone()));
            objects.push(slice("a", endpoints));
            nodes_of(&build(&snapshot(&objects)).0, "web.a")
        };
        assert_eq!(with(json!([endpoint("n1", true, true), endpoint("n2", false, true)])), ["n1"]);
        assert_eq!(
            with(json!([endpoint("n1", false, false), endpoint("n2", false, true)])),
            ["n2"]
        );
        assert!(with(json!([endpoint("n1", false, false)])).is_empty());
    }

    /// A service whose addresses `claim` governs.
    fn under(
        claim: &str,
        name: &str,
        addresses: &[&str],
        spec: serde_json::Value,
    ) -> serde_json::Value {
        let mut service = service(name, "", spec);
        service["metadata"]["annotations"]["leasehold.dev/claim"] = json!(claim);
        let ingress: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        service["status"]["loadBalancer"]["ingress"] = json!(ingress);
        service
    }

    /// The claims, with their addresses and services.
    fn claims(desired: &Desired) -> Vec<String> {
        let claims = desired.claims.iter().map(|(name, claim)| {
            let addresses: Vec<_> = claim.addresses.iter().map(ToString::to_string).collect();
            format!("{name}: {} of {}", addresses.join(", "), claim.services.join(", "))
        });
        claims.collect()
    }

    #[test]
    fn an_address_is_governed_by_one_claim_and_that_by_all_services_that_record_it() {
        type Recorded<'a> = (&'a str, &'a str, &'a [&'a str]);
        let rows: &[(&str, &[Recorded<'_>], &[&str])] = &[
            (
                "two claims",
                &[("web.a", "a", &["192.0.2.1"]), ("web.b", "b", &["192.0.2.1"])],
                &["web.a: 192.0.2.1 of web/a"],
            ),
            (
                "shared",
                &[("web.a", "a", &["192.0.2.1"]), ("web.a", "b", &["192.0.2.1"])],
                &["web.a: 192.0.2.1 of web/a, web/b"],
            ),
            (
                "shared under the claim of one that is gone",
                &[("web.gone", "a", &["192.0.2.1"]), ("web.gone", "b", &["192.0.2.1"])],
                &["web.gone: 192.0.2.1 of web/a, web/b"],
            ),
            (
                "one of two families shared",
                &[("web.a", "a", &["192.0.2.1", "2001:db8::1"]), ("web.a", "b", &["192.0.2.1"])],
                &["web.a: 192.0.2.1, 2001:db8::1 of web/a, web/b"],
            ),
            (
                "one claim, an address each",
                &[("web.a", "a", &["192.0.2.1"]), ("web.a", "b", &["192.0.2.2"])],
                &["web.a: 192.0.2.1, 192.0.2.2 of web/a, web/b"],
            ),
            (
                "shared, and another claim",
                &[
                    ("web.a", "a", &["192.0.2.1"]),
                    ("web.b", "b", &["192.0.2.1", "2001:db8::1"]),
                    ("web.a", "c", &["192.0.2.1"]),
                    ("web.b", "d", &["192.0.2.1"]),
                ],
                &["web.a: 192.0.2.1 of web/a, web/c", "web.b: 2001:db8::1 of web/b"],
            ),
        ];
        for (name, services, expected) in rows {
            let services = services.iter();
            let objects: Vec<_> = services
                .map(|(claim, name, addresses)| under(claim, name, addresses, json!({})))
                .collect();
            let (desired, _) = build(&snapshot(&objects));
            assert_eq!(claims(&desired), *expected, "{name}");
        }
    }

    #[test]
    fn local_services_that_share_an_address_are_where_all_have_an_endpoint() {
        type Seen<'a> = Option<&'a [&'a str]>;
        let local = || json!({"externalTrafficPolicy": "Local"});
        let on = |nodes: &[&str]| {
            let endpoint = |node| json!({"addresses": ["10.0.0.1"], "nodeName": node});
            json!(nodes.iter().map(endpoint).collect::<Vec<_>>())
        };
        let rows: &[(Seen<'_>, Seen<'_>, &[&str])] = &[
            (Some(&["n1", "n2"]), Some(&["n1", "n2"]), &["n1", "n2"]),
            // The slices of one are seen a moment before those of the other.
            (Some(&["n1", "n2"]), Some(&["n2", "n3"]), &["n2"]),
            (Some(&["n1"]), Some(&[]), &[]),
            // One has just joined.
            (Some(&["n1", "n2"]), None, &["n1", "n2"]),
            (None, Some(&["n2"]), &["n2"]),
            (None, None, &[]),
        ];
        for (a, b, expected) in rows {
            let mut objects = vec![
                under("web.a", "a", &["192.0.2.1"], local()),
                under("web.a", "b", &["192.0.2.1"], local()),
                node("n1", json!({})),
                node("n2", json!({})),
                node("n3", json!({})),
            ];
            objects.extend(a.map(|nodes| slice("a", on(nodes))));
            objects.extend(b.map(|nodes| slice("b", on(nodes))));
            let nodes = nodes_of(&build(&snapshot(&objects)).0, "web.a");
            assert_eq!(nodes, *expected, "{a:?} {b:?}");
        }
    }

    fn policy(name: &str, spec: serde_json::Value) -> serde_json::Value {
        json!({"kind": "AnnouncementPolicy", "apiVersion": "leasehold.dev/v1alpha1",
            "metadata": {"name": name}, "spec": spec})
    }

    /// What policies `a` and `b` say, `a` of service `a` and so on; all services share one address. There
    /// is a node in each of the zones 1 to 3.
    fn shared(policies: &[(&str, serde_json::Value)], services: &[&str]) -> DesiredClaim {
        let zones = ["1", "2", "3"];
        let mut objects: Vec<_> =
            zones.iter().map(|zone| node(&format!("n{zone}"), json!({"zone": zone}))).collect();
        for (name, spec) in policies {
            let mut spec = spec.clone();
            spec["serviceSelectors"] = json!([{"matchLabels": {"policy": name}}]);
            objects.push(policy(name, spec));
        }
        for name in services {
            let mut service = under("web.a", name, &["192.0.2.1"], json!({}));
            service["metadata"]["labels"] = json!({"policy": name});
            objects.push(service);
        }
        let (desired, errors) = build(&snapshot(&objects));
        assert!(errors.is_empty(), "{errors:?}");
        desired.claims[&"web.a".parse::<LeaseName>().unwrap()].clone()
    }

    #[test]
    fn services_that_share_an_address_are_where_all_of_them_may_be() {
        let in_zones = |zones: &[&str]| {
            let selectors: Vec<_> =
                zones.iter().map(|zone| json!({"matchLabels": {"zone": zone}})).collect();
            json!({"nodeSelectors": selectors})
        };
        let mut left = in_zones(&["1", "2"]);
        left["detection"] = json!({"interval": "50ms", "retryInterval": "10ms", "misses": 4});
        let mut right = in_zones(&["2", "3"]);
        right["onApiOutage"] = json!("Drop");
        let claim = shared(&[("a", left.clone()), ("b", right)], &["a", "b"]);
        assert_eq!(claim.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>(), ["n2"]);
        assert_eq!(claim.detection.interval, Duration::from_millis(50));
        assert_eq!(claim.on_api_outage, OnApiOutage::Drop);
        let apart = shared(&[("a", left.clone()), ("b", in_zones(&["3"]))], &["a", "b"]);
        assert!(apart.nodes.is_empty());
        // `b` is matched by no policy.
        assert!(shared(&[("a", left)], &["a", "b"]).nodes.is_empty());
    }

    #[test]
    fn the_policy_says_how_the_death_of_the_owner_is_told() {
        let fast = json!({"interval": "50ms", "retryInterval": "10ms", "misses": 4});
        let detection = |interval: u64, retry_interval: u64, misses, wire| Detection {
            interval: Duration::from_millis(interval),
            retry_interval: Duration::from_millis(retry_interval),
            misses,
            wire,
        };
        let default = detection(100, 20, 3, true);
        for (name, a, b, expected) in [
            ("no settings", json!({}), None, default),
            ("one", fast.clone(), None, detection(50, 10, 4, true)),
            ("lease only", json!({"mode": "LeaseOnly"}), None, detection(100, 20, 3, false)),
            // Not 50, 10, 3: nobody asked for that.
            ("the faster second", json!({}), Some(fast.clone()), detection(50, 10, 4, true)),
            ("the faster first", fast.clone(), Some(json!({})), detection(50, 10, 4, true)),
            (
                "lease only first",
                json!({"mode": "LeaseOnly"}),
                Some(fast.clone()),
                detection(50, 10, 4, false),
            ),
            (
                "lease only second",
                fast,
                Some(json!({"interval": "1s", "mode": "LeaseOnly"})),
                detection(50, 10, 4, false),
            ),
            (
                "rarer polls that take as long",
                json!({"interval": "100ms", "retryInterval": "20ms", "misses": 4}),
                Some(json!({"interval": "80ms", "retryInterval": "20ms", "misses": 5})),
                detection(80, 20, 5, true),
            ),
        ] {
            let mut policies = vec![("a", json!({"detection": a}))];
            let mut services = vec!["a"];
            if let Some(b) = b {
                policies.push(("b", json!({"detection": b})));
                services.push("b");
            }
            assert_eq!(shared(&policies, &services).detection, expected, "{name}");
        }
        assert_eq!(shared(&[], &["a", "b"]).detection, default);
        assert_eq!(shared(&[], &["a", "b"]).on_api_outage, OnApiOutage::Hold);
    }

    #[test]
    fn addresses_are_dropped_in_an_outage_if_any_service_of_the_claim_says_so() {
        use OnApiOutage::{Drop, Hold};
        for (policies, expected) in [
            (vec![json!({})], Hold),
            (vec![json!({"onApiOutage": "Drop"})], Drop),
            (vec![json!({}), json!({})], Hold),
            (vec![json!({"onApiOutage": "Drop"}), json!({"onApiOutage": "Hold"})], Drop),
            (vec![json!({}), json!({"onApiOutage": "Drop"})], Drop),
        ] {
            let names = ["a", "b"];
            let policies: Vec<_> = names.into_iter().zip(policies).collect();
            let services = names.get(..policies.len()).unwrap();
            assert_eq!(shared(&policies, services).on_api_outage, expected, "{policies:?}");
        }
    }

    #[test]
    fn the_policy_says_whether_an_address_leads_to_more_than_its_service() {
        let ports = json!({"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]});
        let reach = |policies: Vec<serde_json::Value>| {
            let mut objects = policies;
            objects.push(service("a", "192.0.2.1", ports.clone()));
            let (desired, _) = build(&snapshot(&objects));
            match &desired.reach[&IpAddr::from([192, 0, 2, 1])] {
                Reach::Everything => "everything".to_owned(),
                Reach::Only(ports) => {
                    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
                }
            }
        };
        assert_eq!(reach(vec![]), "80/TCP 53/UDP");
        assert_eq!(reach(vec![policy("p", json!({}))]), "80/TCP 53/UDP");
        let open = json!({"hostProtection": "Disabled"});
        assert_eq!(reach(vec![policy("p", open)]), "everything");
        let other = json!({"hostProtection": "Disabled", "ipAddressPools": ["other"]});
        assert_eq!(reach(vec![policy("p", other)]), "80/TCP 53/UDP");
    }

    #[test]
    fn what_a_policy_says_nobody_announces_has_no_node_and_keeps_its_claim() {
        let silent = policy("p", json!({"mode": "None"}));
        let objects = [service("a", "192.0.2.1", json!({})), node("n1", json!({})), silent];
        let (desired, errors) = build(&snapshot(&objects));
        assert!(errors.is_empty());
        assert!(nodes_of(&desired, "web.a").is_empty());
    }

    #[test]
    fn a_service_that_no_policy_matches_has_the_defaults_and_no_node() {
        let drop = json!({"onApiOutage": "Drop", "detection": {"mode": "LeaseOnly"}});
        let claim = shared(&[("other", drop)], &["a"]);
        assert!(claim.nodes.is_empty());
        assert_eq!((claim.detection, claim.on_api_outage), Default::default());
    }
}
