//! Tests of [`build`], on objects as the API server sends them.

#![expect(clippy::needless_pass_by_value, reason = "rows of JSON literals read better without &")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::{Resource, ResourceExt};
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::lease::{Claim, LeaseName};
use leasehold_crds::names::NodeName;
use serde_json::json;

use super::*;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The snapshot of these objects; Services that are not local have a pod on some node.
fn snapshot(objects: &[serde_json::Value]) -> Snapshot {
    let mut snapshot = kept(objects);
    let (services, slices) = (&snapshot.services, &mut snapshot.slices);
    for (key, _) in services.iter().filter(|(_, service)| !service.local) {
        let name = key.strip_prefix("web/").unwrap_or(key);
        let slice = slice(name, json!([{"addresses": ["10.0.0.1"]}]));
        let slice: Slice = serde_json::from_value(slice).unwrap();
        slices.extend(SliceFacts::of(&slice).map(|(_, facts)| (format!("{key} elsewhere"), facts)));
    }
    snapshot
}

/// The snapshot of these objects.
fn kept(objects: &[serde_json::Value]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for object in objects {
        let object = object.clone();
        match object["kind"].as_str().unwrap() {
            "Service" => {
                let service: Service = serde_json::from_value(object).unwrap();
                snapshot.services.extend(ServiceFacts::of(&service));
            }
            "EndpointSlice" => {
                let slice: Slice = serde_json::from_value(object).unwrap();
                let (key, facts) = SliceFacts::of(&slice).unwrap();
                snapshot.set_slice(&key, Some(&facts));
            }
            "Node" => {
                let node: Node = serde_json::from_value(object).unwrap();
                snapshot.nodes.extend(NodeObject::of(&node));
                snapshot.note_nodes();
            }
            "IPAddressPool" => {
                let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                snapshot.pools.insert(name, labels);
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
    let (desired, _) = build(&snapshot(&objects), None);
    assert_eq!(desired.claims.keys().map(LeaseName::as_str).collect::<Vec<_>>(), ["web.c"]);
    assert_eq!(nodes_of(&desired, "web.c"), ["n"]);
}

#[test]
fn policies_and_the_exclusion_label_narrow_the_nodes() {
    let policy = json!({
        "kind": "AnnouncementPolicy", "apiVersion": "leasehold.dev/v1alpha1",
        "metadata": {"name": "edge"},
        "spec": {
            "nodeSelectors": [{"matchLabels": {"edge": "true"}}],
            "layer2": {"interfaces": ["eth1"]},
        },
    });
    let (desired, _) = build(
        &snapshot(&[
            service("a", "192.0.2.1", json!({})),
            node("n1", json!({"edge": "true"})),
            node("n2", json!({})),
            node("n3", json!({"edge": "true", EXCLUDE: ""})),
            policy,
        ]),
        None,
    );
    assert_eq!(nodes_of(&desired, "web.a"), ["n1"]);
    let claim = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()];
    assert_eq!(claim.interfaces[0].to_string(), "eth1");
}

#[test]
fn where_the_exclusion_label_is_passed_over_the_taint_of_a_dead_node_still_excludes() {
    let mut dead = node("n2", json!({EXCLUDE: ""}));
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
    dead["spec"] = json!({ "taints": [taint] });
    let mut all =
        snapshot(&[service("a", "192.0.2.1", json!({})), node("n1", json!({EXCLUDE: ""})), dead]);
    for node in all.nodes.values_mut() {
        *node = node.clone().ignoring_label();
    }
    assert_eq!(nodes_of(&build(&all, None).0, "web.a"), ["n1"]);
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
    let (desired, errors) = build(
        &snapshot(&[
            service("a", "192.0.2.1", json!({})),
            node("n1", json!({"rack": "a", "disk": "fast"})),
            node("n2", json!({"rack": "b", "disk": "fast"})),
            node("n3", json!({"rack": "b"})),
            policy,
        ]),
        None,
    );
    assert!(errors.is_empty(), "{errors:?}");
    let claim = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()];
    let weights: Vec<_> = claim.preference.iter().map(|(n, w)| (n.as_str(), *w)).collect();
    assert_eq!(weights, [("n1", 15), ("n2", 5)]);
    let mode = FailbackMode::Preferred;
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
        nodes_of(&build(&snapshot(&objects), None).0, "web.a")
    };
    assert_eq!(with(json!([endpoint("n1", true, true), endpoint("n2", false, true)])), ["n1"]);
    assert_eq!(with(json!([endpoint("n1", false, false), endpoint("n2", false, true)])), ["n2"]);
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
            "the claim of another, which has not that address",
            &[("web.a", "a", &["192.0.2.1"]), ("web.a", "b", &["192.0.2.2"])],
            &["web.a: 192.0.2.1 of web/a"],
        ),
        (
            "the claim of another that has no address yet",
            &[("web.a", "a", &[]), ("web.a", "b", &["192.0.2.2"])],
            &[],
        ),
        (
            "the claim of another that has left it",
            &[("web.c", "a", &["192.0.2.1"]), ("web.a", "b", &["192.0.2.2"])],
            &["web.a: 192.0.2.2 of web/b", "web.c: 192.0.2.1 of web/a"],
        ),
        (
            "the claim of another's address",
            &[
                ("192-0-2-1.address.leasehold", "a", &["192.0.2.1", "2001:db8::1"]),
                ("192-0-2-1.address.leasehold", "b", &["192.0.2.2"]),
            ],
            &["192-0-2-1.address.leasehold: 192.0.2.1, 2001:db8::1 of web/a"],
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
        let (desired, _) = build(&snapshot(&objects), None);
        assert_eq!(claims(&desired), *expected, "{name}");
    }
}

/// The desired claim `web.y` beside a Service of another user, who has written `annotations` on it; `listed`:
/// the operator has written the lists.
fn beside(
    policies: &[serde_json::Value],
    spec: serde_json::Value,
    annotations: serde_json::Value,
    listed: bool,
) -> DesiredClaim {
    let mut tenant = service("x", "192.0.2.9", spec);
    tenant["metadata"]["namespace"] = json!("tenant");
    tenant["metadata"]["labels"] = json!({"tenant": "true"});
    let own = json!({"leasehold.dev/claim": "tenant.x", "leasehold.dev/allocated-from": "lan"});
    tenant["metadata"]["annotations"] = own;
    let edited = annotations.as_object().unwrap().clone();
    tenant["metadata"]["annotations"].as_object_mut().unwrap().extend(edited);
    let mut objects =
        vec![service("y", "192.0.2.1", json!({})), node("n1", json!({})), node("n2", json!({}))];
    objects.push(tenant);
    objects.extend(policies.iter().cloned());
    let mut all = snapshot(&objects);
    let of_tenant = slice("x", json!([{"addresses": ["10.0.0.2"], "nodeName": "n2"}]));
    let mut of_tenant: Slice = serde_json::from_value(of_tenant).unwrap();
    of_tenant.meta_mut().namespace = Some("tenant".to_owned());
    all.slices.extend(SliceFacts::of(&of_tenant));
    for (claim, service, address) in
        [("web.y", "web/y", [192, 0, 2, 1]), ("tenant.x", "tenant/x", [192, 0, 2, 9])]
    {
        let list = Claim {
            services: vec![service.to_owned()],
            addresses: [IpAddr::from(address)].into(),
            pool: Some("lan".to_owned()),
            ..Claim::default()
        };
        if listed {
            all.lists.note(&claim.parse().unwrap(), &list);
        }
    }
    let (desired, errors) = build(&all, None);
    assert!(errors.is_empty(), "{errors:?}");
    DesiredClaim::clone(&desired.claims[&"web.y".parse::<LeaseName>().unwrap()])
}

#[test]
fn what_somebody_writes_on_his_service_changes_nothing_for_the_address_of_another() {
    let tenants = |spec: serde_json::Value| {
        let mut policy = policy("tenants", spec);
        policy["spec"]["serviceSelectors"] = json!([{"matchLabels": {"tenant": "true"}}]);
        policy["spec"]["priority"] = json!(1);
        policy
    };
    let all = policy("all", json!({}));
    for (name, policies, spec) in [
        ("announced by nobody", vec![all.clone(), tenants(json!({"mode": "None"}))], json!({})),
        (
            "matched by no policy",
            vec![policy(
                "y",
                json!({"serviceSelectors": [
            {"matchExpressions": [{"key": "tenant", "operator": "DoesNotExist"}]}]}),
            )],
            json!({}),
        ),
        ("a pod on one node", vec![], json!({"externalTrafficPolicy": "Local"})),
        (
            "other nodes",
            vec![all.clone(), tenants(json!({"nodeSelectors": [{"matchLabels": {"its": "own"}}]}))],
            json!({}),
        ),
        (
            "other settings",
            vec![
                all.clone(),
                tenants(json!({
                    "drainOnCordon": true, "onApiOutage": "Drop", "serviceProxy": "None",
                    "layer2": {"interfaces": ["eth9"], "detection": {"mode": "LeaseOnly"}},
                    "preferredNodes": [{"weight": 9, "nodeSelector": {}}],
                })),
            ],
            json!({}),
        ),
        (
            "another pool",
            vec![
                all,
                policy(
                    "dmz",
                    json!({
                "ipAddressPools": ["dmz"], "mode": "None", "priority": 1}),
                ),
            ],
            json!({}),
        ),
    ] {
        for listed in [true, false] {
            let without = beside(&policies, spec.clone(), json!({}), listed);
            for annotations in [
                json!({"leasehold.dev/claim": "web.y"}),
                json!({"leasehold.dev/claim": "web.y", "leasehold.dev/allocated-from": "dmz"}),
                json!({"leasehold.dev/claim": "192-0-2-1.address.leasehold"}),
                json!({"leasehold.dev/address-claims": "192-0-2-1.address.leasehold"}),
            ] {
                let with = beside(&policies, spec.clone(), annotations.clone(), listed);
                assert_eq!(with, without, "{name}, listed: {listed}, {annotations}");
                assert_eq!(with.services, ["web/y"], "{name}, listed: {listed}, {annotations}");
            }
        }
    }
}

#[test]
fn the_pool_of_a_shared_address_is_what_its_claim_says_and_not_one_of_its_services() {
    let dmz = policy("dmz", json!({"ipAddressPools": ["dmz"], "mode": "None", "priority": 1}));
    let mut objects = vec![policy("all", json!({})), dmz, node("n1", json!({}))];
    for name in ["a", "b"] {
        objects.push(under("web.a", name, &["192.0.2.1"], json!({})));
    }
    objects[4]["metadata"]["annotations"]["leasehold.dev/allocated-from"] = json!("dmz");
    let mut all = snapshot(&objects);
    let list = Claim {
        services: vec!["web/a".to_owned(), "web/b".to_owned()],
        addresses: [IpAddr::from([192, 0, 2, 1])].into(),
        pool: Some("lan".to_owned()),
        ..Claim::default()
    };
    all.lists.note(&"web.a".parse().unwrap(), &list);
    assert_eq!(nodes_of(&build(&all, None).0, "web.a"), ["n1"]);
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
        let nodes = nodes_of(&build(&snapshot(&objects), None).0, "web.a");
        assert_eq!(nodes, *expected, "{a:?} {b:?}");
    }
}

fn policy(name: &str, spec: serde_json::Value) -> serde_json::Value {
    json!({"kind": "AnnouncementPolicy", "apiVersion": "leasehold.dev/v1alpha1",
        "metadata": {"name": name}, "spec": spec})
}

/// The claim of Services that share one address, under `policies`: `a` of Service `a` and so on. There is a node
/// in each of the zones 1 to 3.
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
    let (desired, errors) = build(&snapshot(&objects), None);
    assert!(errors.is_empty(), "{errors:?}");
    DesiredClaim::clone(&desired.claims[&"web.a".parse::<LeaseName>().unwrap()])
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
fn services_that_share_an_address_are_on_interfaces_that_each_of_their_policies_names() {
    for (a, b, expected) in [
        (json!([]), json!([]), vec![]),
        (json!(["eth1"]), json!([]), vec!["eth1"]),
        (json!([]), json!(["eth1"]), vec!["eth1"]),
        (json!(["eth0", "eth1"]), json!(["eth1", "eth2"]), vec!["eth1"]),
        (json!(["eth*"]), json!(["eth1", "bond0"]), vec!["eth1"]),
        (json!(["eth*"]), json!(["*1"]), vec!["*1 and eth*"]),
        // No interface is both.
        (json!(["eth0"]), json!(["eth1"]), vec!["eth0 and eth1"]),
    ] {
        // One in the deprecated field.
        let policies =
            [("a", json!({"layer2": {"interfaces": a}})), ("b", json!({"interfaces": b}))];
        let interfaces = shared(&policies, &["a", "b"]).interfaces;
        let interfaces: Vec<_> = interfaces.iter().map(ToString::to_string).collect();
        assert_eq!(interfaces, expected, "{a} {b}");
    }
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
        let mut policies = vec![("a", json!({"layer2": {"detection": a}}))];
        let mut services = vec!["a"];
        if let Some(b) = b {
            policies.push(("b", json!({"layer2": {"detection": b}})));
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
        let (desired, _) = build(&snapshot(&objects), None);
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
fn signs_of_kube_proxy_count_where_all_policies_and_services_say_so() {
    let other_proxy = |mut service: serde_json::Value| {
        let labels = json!({"service.kubernetes.io/service-proxy-name": ""});
        service["metadata"]["labels"] = labels;
        service
    };
    let one = |port: u16| service("a", "192.0.2.1", json!({"ports": [{"port": port}]}));
    let shared = |mut service: serde_json::Value| {
        service["metadata"]["name"] = json!("b");
        service
    };
    let by_kube_proxy = |objects: &[serde_json::Value]| {
        let (desired, _) = build(&snapshot(objects), None);
        let proxied = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()].proxied;
        let ports = proxied.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        (proxied.asks(), ports)
    };
    let none = || policy("p", json!({"serviceProxy": "None"}));
    let plain = |ports: &str| (true, ports.to_owned());
    assert_eq!(by_kube_proxy(&[one(80)]), plain("80/TCP"));
    assert_eq!(by_kube_proxy(&[one(80), policy("p", json!({}))]), plain("80/TCP"));
    assert!(!by_kube_proxy(&[one(80), none()]).0);
    assert!(!by_kube_proxy(&[other_proxy(one(80))]).0);
    assert_eq!(by_kube_proxy(&[one(80), shared(one(443))]), plain("80/TCP 443/TCP"));
    assert!(!by_kube_proxy(&[one(80), shared(other_proxy(one(443)))]).0);
}

#[test]
fn local_services_are_asked_for_by_their_health_checks() {
    let local = |name: &str, port: u16| {
        let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": port});
        let mut service = service(name, "192.0.2.1", spec);
        service["metadata"]["annotations"]["leasehold.dev/claim"] = json!("web.a");
        service
    };
    let checks = |objects: &[serde_json::Value]| {
        let (desired, _) = build(&snapshot(objects), None);
        let proxied = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()].proxied;
        assert_eq!(proxied.is_local(), !proxied.health_checks.is_empty());
        proxied.health_checks.to_vec()
    };
    assert_eq!(checks(&[service("a", "192.0.2.1", json!({}))]), [0u16; 0]);
    assert_eq!(checks(&[local("a", 30_002)]), [30_002]);
    assert_eq!(checks(&[local("a", 30_002), local("b", 30_001)]), [30_001, 30_002]);
}

#[test]
fn what_a_policy_says_nobody_announces_has_no_node_and_keeps_its_claim() {
    let silent = policy("p", json!({"mode": "None"}));
    let objects = [service("a", "192.0.2.1", json!({})), node("n1", json!({})), silent];
    let (desired, errors) = build(&snapshot(&objects), None);
    assert!(errors.is_empty());
    assert!(nodes_of(&desired, "web.a").is_empty());
}

#[test]
fn what_a_policy_that_cannot_be_read_may_govern_is_held_by_who_has_it() {
    let typo = json!([{"matchExpressions": [
        {"key": "zone", "operator": "Inn", "values": ["dmz"]}]}]);
    for mode in ["None", "Layer2"] {
        let dmz = json!({
            "priority": 1, "serviceSelectors": typo, "layer2": {"interfaces": ["eth1"]},
            "mode": mode, "hostProtection": "Disabled",
        });
        let objects = [
            service("a", "192.0.2.1", json!({})),
            node("n1", json!({})),
            policy("dmz", dmz),
            policy("everything-else", json!({"priority": 1000})),
        ];
        let all = snapshot(&objects);
        let (desired, errors) = build(&all, None);
        assert_eq!(errors.len(), 1);
        let claim = desired.claim(&"web.a".parse().unwrap()).unwrap();
        assert!(claim.held && claim.nodes.is_empty(), "{mode}");
        assert_eq!(claim.silence, None, "{mode}");
        assert_eq!(claim.interfaces[0].to_string(), "eth1");
        let rules = Rules::new(&all);
        let why = rules.leaves_out(claim, &"n1".parse().unwrap());
        assert_eq!(why, Some(LeftOut::Unreadable("dmz".to_owned())));
    }
}

#[test]
fn a_service_that_no_policy_matches_has_the_defaults_and_no_node() {
    let lease_only = json!({"detection": {"mode": "LeaseOnly"}});
    let drop = json!({"onApiOutage": "Drop", "layer2": lease_only});
    let claim = shared(&[("other", drop)], &["a"]);
    assert!(claim.nodes.is_empty());
    assert_eq!((claim.detection, claim.on_api_outage), Default::default());
}

#[test]
fn the_most_serious_that_applies_is_the_state_of_a_node() {
    let taint = |key: &str| json!({"key": key, "effect": "NoExecute"});
    let (not_ready, unreachable) =
        ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let down = "node.kubernetes.io/out-of-service";
    let state = |spec: serde_json::Value, network: &str, deleted: bool| {
        let mut node = node("n", json!({}));
        node["spec"] = spec;
        node["status"] = json!({"conditions": [{"type": "NetworkUnavailable", "status": network}]});
        if deleted {
            node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let (desired, _) = build(&snapshot(&[node, service("a", "192.0.2.1", json!({}))]), None);
        (desired.nodes[&"n".parse::<NodeName>().unwrap()], nodes_of(&desired, "web.a").len())
    };
    let rows = [
        (json!({}), "False", false, (NodeState::Ready, 1)),
        (json!({"taints": [taint("dedicated")]}), "False", false, (NodeState::Ready, 1)),
        (json!({"taints": [taint(not_ready)]}), "False", false, (NodeState::NotReady, 1)),
        (json!({"taints": [taint(unreachable)]}), "Unknown", false, (NodeState::NotReady, 1)),
        (json!({"taints": [taint(down)]}), "False", false, (NodeState::Ready, 0)),
        (
            json!({"taints": [taint(not_ready)], "unschedulable": true}),
            "False",
            false,
            (NodeState::Cordoned, 1),
        ),
        (json!({"unschedulable": true}), "True", false, (NodeState::NetworkUnavailable, 1)),
        (json!({}), "True", true, (NodeState::Leaving, 1)),
    ];
    for (spec, network, deleted, expected) in rows {
        assert_eq!(state(spec.clone(), network, deleted), expected, "{spec} {network} {deleted}");
    }
}

#[test]
fn a_cordoned_node_that_an_endpoint_leaves_is_drained_until_it_takes_pods_again() {
    let cordoned = |on: bool| {
        let mut node = node("n", json!({}));
        node["spec"] = json!({"unschedulable": on});
        node
    };
    let on = |terminating: bool| {
        json!([{"addresses": ["10.0.0.1"], "nodeName": "n",
            "conditions": {"ready": !terminating, "terminating": terminating}}])
    };
    let there = || slice("a", on(false));
    let leaving = || slice("a", on(true));
    let gone = || slice("a", json!([]));
    let state = |objects: &[serde_json::Value]| {
        let (desired, _) = build(&kept(objects), None);
        desired.nodes[&"n".parse::<NodeName>().unwrap()]
    };
    for (name, objects, expected) in [
        ("not cordoned", vec![cordoned(false), there(), leaving()], NodeState::Ready),
        ("all stay", vec![there(), cordoned(true), there()], NodeState::Cordoned),
        ("one leaves", vec![cordoned(true), there(), leaving()], NodeState::Draining),
        ("one is gone", vec![cordoned(true), there(), gone()], NodeState::Draining),
        ("one left before", vec![there(), gone(), cordoned(true)], NodeState::Cordoned),
        ("seen first", vec![there(), leaving(), cordoned(true)], NodeState::Draining),
        ("since", vec![cordoned(true), there(), gone(), there()], NodeState::Draining),
        ("taken back", vec![cordoned(true), there(), gone(), cordoned(false)], NodeState::Ready),
        (
            "cordoned anew",
            vec![cordoned(true), there(), gone(), cordoned(false), cordoned(true)],
            NodeState::Cordoned,
        ),
    ] {
        assert_eq!(state(&objects), expected, "{name}");
    }
}

#[test]
fn without_an_endpoint_anywhere_nobody_announces_unless_the_policy_says_so() {
    let endpoint = |conditions: serde_json::Value| json!([{"addresses": ["10.0.0.1"], "conditions": conditions}]);
    let without = || policy("all", json!({"announceWithoutEndpoints": true}));
    let silence = |objects: &[serde_json::Value]| {
        let mut all = vec![node("n", json!({})), service("a", "192.0.2.1", json!({}))];
        all.extend(objects.iter().cloned());
        let (desired, errors) = build(&kept(&all), None);
        assert!(errors.is_empty(), "{errors:?}");
        let claim = DesiredClaim::clone(&desired.claims[&"web.a".parse::<LeaseName>().unwrap()]);
        assert_eq!(claim.nodes.is_empty(), claim.silence.is_some());
        claim.silence
    };
    let none = Some(Silence::NoEndpoint);
    for (name, objects, expected) in [
        ("no slice", vec![], none),
        ("an empty slice", vec![slice("a", json!([]))], none),
        ("of another service", vec![slice("b", endpoint(json!({})))], none),
        ("not ready", vec![slice("a", endpoint(json!({"ready": false})))], none),
        ("on no node", vec![slice("a", endpoint(json!({})))], None),
        (
            "terminating, and serving",
            vec![slice("a", endpoint(json!({"ready": false, "serving": true})))],
            None,
        ),
        ("the policy says so", vec![without()], None),
        (
            "the policy says more",
            vec![policy("all", json!({"announceWithoutEndpoints": true, "mode": "None"}))],
            Some(Silence::Policy),
        ),
    ] {
        assert_eq!(silence(&objects), expected, "{name}");
    }
}

#[test]
fn a_service_that_no_policy_matches_is_announced_by_nobody() {
    let selecting = json!({"serviceSelectors": [{"matchLabels": {"edge": "true"}}]});
    let objects =
        [node("n", json!({})), service("a", "192.0.2.1", json!({})), policy("edge", selecting)];
    let (desired, _) = build(&snapshot(&objects), None);
    let claim = &desired.claims[&"web.a".parse::<LeaseName>().unwrap()];
    assert_eq!((claim.nodes.len(), claim.silence), (0, Some(Silence::Policy)));
}

#[test]
fn a_policy_matches_pools_by_their_names_or_labels() {
    let pool = |labels: serde_json::Value| json!({"kind": "IPAddressPool", "metadata": {"name": "lan", "labels": labels}});
    let office = || json!([{"matchLabels": {"zone": "office"}}]);
    let announced = |spec: serde_json::Value, labels: serde_json::Value| {
        let objects = [
            node("n", json!({})),
            service("a", "192.0.2.1", json!({})),
            policy("p", spec),
            pool(labels),
        ];
        !nodes_of(&build(&snapshot(&objects), None).0, "web.a").is_empty()
    };
    for (spec, labels, expected) in [
        (json!({}), json!({}), true),
        (json!({"ipAddressPools": ["lan"]}), json!({}), true),
        (json!({"ipAddressPools": ["wan"]}), json!({}), false),
        (json!({"ipAddressPoolSelectors": office()}), json!({"zone": "office"}), true),
        (json!({"ipAddressPoolSelectors": office()}), json!({"zone": "home"}), false),
        (
            json!({"ipAddressPools": ["lan"], "ipAddressPoolSelectors": office()}),
            json!({"zone": "home"}),
            true,
        ),
        (
            json!({"ipAddressPools": ["wan"], "ipAddressPoolSelectors": office()}),
            json!({"zone": "office"}),
            true,
        ),
    ] {
        assert_eq!(announced(spec.clone(), labels.clone()), expected, "{spec} {labels}");
    }
}
