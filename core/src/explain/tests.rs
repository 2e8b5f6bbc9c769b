//! Tests of what is explained, on objects as the API server sends them.

#![expect(clippy::needless_pass_by_value, reason = "rows of JSON literals read better without &")]

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use leasehold_crds::lease::annotation;
use serde_json::{Value, json};

use super::*;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A node with a live speaker that has the subnet of the addresses.
fn session(node: &str, annotations: &[(&str, &str)]) -> Value {
    let interfaces =
        json!([{ "name": "eth0", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.250/24"] }]);
    let mut all = json!({ annotation::INTERFACES: interfaces.to_string() });
    for (key, value) in annotations {
        all[*key] = json!(value);
    }
    json!({
        "metadata": { "name": node, "uid": format!("uid-{node}"), "resourceVersion": "1",
            "annotations": all },
        "spec": { "holderIdentity": node, "leaseTransitions": 1, "leaseDurationSeconds": 5 },
    })
}

fn node(name: &str, spec: Value, labels: Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })
}

fn plain(name: &str) -> Value {
    node(name, json!({}), json!({}))
}

fn service(name: &str, address: &str) -> Value {
    json!({
        "metadata": { "namespace": "web", "name": name, "annotations": {
            "leasehold.dev/claim": format!("web.{name}"), "leasehold.dev/allocated-from": "lan" } },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease" },
        "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
    })
}

fn slice(service: &str, nodes: &[&str]) -> Value {
    let endpoint = |node: &&str| json!({ "addresses": ["10.0.0.1"], "nodeName": node });
    json!({
        "addressType": "IPv4",
        "metadata": { "namespace": "web", "name": format!("{service}-1"),
            "labels": { "kubernetes.io/service-name": service } },
        "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn claim(service: &str, address: &str, owner: Option<&str>) -> Value {
    let mut annotations = json!({
        annotation::SERVICES: format!("web/{service}"), annotation::ADDRESSES: address,
        annotation::CAUSE: "new service", annotation::INTERFACE: "eth0",
    });
    if let Some(owner) = owner {
        annotations[annotation::SESSION] = json!(format!("uid-{owner}/1"));
    }
    json!({
        "metadata": { "name": format!("web.{service}"), "uid": "c", "resourceVersion": "1",
            "annotations": annotations },
        "spec": { "holderIdentity": owner, "leaseTransitions": 4 },
    })
}

fn policy(spec: Value) -> Value {
    json!({ "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
        "metadata": { "name": "edge" }, "spec": spec })
}

/// Three nodes with speakers, and `web/shop` with an endpoint on each, owned by `n1`.
fn cluster() -> Objects {
    let nodes = ["n1", "n2", "n3"];
    Objects {
        services: vec![of(service("shop", "192.0.2.7"))],
        slices: vec![of(slice("shop", &nodes))],
        nodes: nodes.iter().map(|name| of(plain(name))).collect(),
        sessions: nodes.iter().map(|name| of(session(name, &[]))).collect(),
        claims: vec![of(claim("shop", "192.0.2.7", Some("n1")))],
        ..Objects::default()
    }
}

fn story(objects: &Objects) -> Story {
    let world = World::of(objects);
    explain(&View::new(&world), "web/shop").unwrap()
}

fn verdict_of(story: &Story, node: &str) -> (Verdict, String) {
    let mut nodes = story.claims.iter().flat_map(|claim| &claim.nodes);
    let found = nodes.find(|it| it.node.as_str() == node).unwrap();
    (found.verdict, found.reason.clone())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table with a row for each verdict")]
fn each_node_has_a_verdict_with_its_reason() {
    type Change = fn(&mut Objects);
    let rows: [(&str, Change, Verdict, &str); 17] = [
        ("as it is", |_| {}, Verdict::Candidate, "owns 0 addresses now"),
        (
            "cordoned",
            |it| it.nodes[1] = of(node("n2", json!({ "unschedulable": true }), json!({}))),
            Verdict::Cordoned,
            "cordoned",
        ),
        (
            "excluded",
            |it| it.nodes[1] = of(node("n2", json!({}), json!({ EXCLUDE: "" }))),
            Verdict::Excluded,
            "excluded from load balancing",
        ),
        (
            "excluded, which its speaker passes over",
            |it| {
                it.nodes[1] = of(node("n2", json!({}), json!({ EXCLUDE: "" })));
                let ignores = [(annotation::IGNORES_EXCLUDE_LABEL, "true")];
                it.sessions[1] = of(session("n2", &ignores));
            },
            Verdict::Candidate,
            "owns 0 addresses now",
        ),
        (
            "not ready",
            |it| {
                let taint =
                    json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" }]);
                it.nodes[1] = of(node("n2", json!({ "taints": taint }), json!({})));
            },
            Verdict::Candidate,
            "not ready: takes only addresses that no other node can take",
        ),
        (
            "silent kube-proxy",
            |it| it.sessions[1] = of(session("n2", &[(annotation::SERVICE_PROXY, "silent")])),
            Verdict::Candidate,
            "rank 2; owns 0 addresses now; its kube-proxy does not answer: takes only addresses that no \
             other node can take",
        ),
        (
            "silent kube-proxy that nobody minds",
            |it| {
                it.sessions[1] = of(session("n2", &[(annotation::SERVICE_PROXY, "silent")]));
                it.policies = vec![of(policy(json!({ "serviceProxy": "None" })))];
            },
            Verdict::Candidate,
            "owns 0 addresses now",
        ),
        (
            "network unavailable",
            |it| {
                it.nodes[1] = of(json!({ "metadata": { "name": "n2" }, "status": { "conditions": [
                    { "type": "NetworkUnavailable", "status": "True" },
                ] } }));
            },
            Verdict::NetworkUnavailable,
            "its network is unavailable",
        ),
        (
            "not selected",
            |it| {
                it.policies = vec![of(policy(json!({ "nodeSelectors": [{ "matchExpressions": [
                    { "key": "edge", "operator": "DoesNotExist" },
                ] }] })))];
                it.nodes[1] = of(node("n2", json!({}), json!({ "edge": "no" })));
            },
            Verdict::NotSelected,
            "not selected by policy edge",
        ),
        (
            "policy that cannot be read",
            |it| {
                it.policies = vec![of(policy(json!({ "nodeSelectors": [{ "matchExpressions": [
                    { "key": "edge", "operator": "Near" },
                ] }] })))];
            },
            Verdict::Held,
            "the governing policy edge is invalid (see its condition Accepted): no node takes it until \
             the policy is corrected",
        ),
        (
            "no speaker",
            |it| drop(it.sessions.remove(1)),
            Verdict::NoSession,
            "no speaker has run on the node",
        ),
        (
            "speaker ended",
            |it| {
                it.sessions[1].spec.as_mut().unwrap().holder_identity = None;
                let annotations = it.sessions[1].metadata.annotations.as_mut().unwrap();
                annotations.insert(annotation::CAUSE.to_owned(), "released".to_owned());
            },
            Verdict::NoSession,
            "no live session: released",
        ),
        (
            "drained",
            |it| it.sessions[1] = of(session("n2", &[(annotation::DRAIN, "true")])),
            Verdict::Drained,
            "drained by annotation",
        ),
        (
            "restarting",
            |it| it.sessions[1] = of(session("n2", &[(annotation::RESTARTING, "true")])),
            Verdict::Restarting,
            "its speaker is restarting",
        ),
        (
            "no subnet",
            |it| {
                let json =
                    r#"[{"name":"eth1","mac":"02:00:00:00:00:02","addresses":["10.0.0.2/8"]}]"#;
                let changed =
                    [(annotation::INTERFACES, json), (annotation::LINKS_DOWN, "02:00:00:00:00:03")];
                it.sessions[1] = of(session("n2", &changed));
            },
            Verdict::NoInterface,
            "no interface has a subnet that contains 192.0.2.7 (interfaces of the node: eth1 \
             10.0.0.2/8); no carrier on the link with MAC address 02:00:00:00:00:03",
        ),
        (
            "another way back",
            |it| {
                let json = r#"[{"name":"eth0","mac":"02:00:00:00:00:02","addresses":
                    ["192.0.2.251/24"],"bypassed":["192.0.2.0/24"],"unanswered":["192.0.2.0/24"]}]"#;
                it.sessions[1] = of(session("n2", &[(annotation::INTERFACES, json)]));
            },
            Verdict::Candidate,
            "could take it; owns 0 addresses now; the node does not answer hosts of 192.0.2.0/24 on eth0: ",
        ),
        (
            "local without endpoint",
            |it| {
                let mut local = service("shop", "192.0.2.7");
                local["spec"]["externalTrafficPolicy"] = json!("Local");
                it.services = vec![of(local)];
                it.slices = vec![of(slice("shop", &["n1", "n3"]))];
            },
            Verdict::NoEndpoint,
            "externalTrafficPolicy: Local",
        ),
    ];
    for (what, change, verdict, reason) in rows {
        let mut objects = cluster();
        change(&mut objects);
        let story = story(&objects);
        assert_eq!(story.state, State::Owned, "{what}");
        let (found, why) = verdict_of(&story, "n2");
        assert_eq!(found, verdict, "{what}: {why}");
        assert!(why.contains(reason), "{what}: {why}");
        assert_eq!(verdict_of(&story, "n1").0, Verdict::Owns, "{what}");
    }
}

#[test]
fn the_nodes_of_a_spread_claim_are_told_with_their_shares() {
    let mut objects = cluster();
    let mut spread = claim("shop", "192.0.2.7", Some("n1"));
    spread["metadata"]["annotations"][annotation::MEMBERS] = json!("n2=3,n3");
    objects.claims = vec![of(spread)];
    let story = story(&objects);
    assert_eq!(
        serde_json::to_value(&story.claims[0].shares).unwrap(),
        json!([
            { "node": "n2", "weight": 3, "buckets": 766, "percent": 75 },
            { "node": "n3", "weight": 1, "buckets": 255, "percent": 25 },
        ])
    );
    assert_eq!(verdict_of(&story, "n1").0, Verdict::Owns, "it need not be one of them");
}

#[test]
fn a_claim_that_is_not_spread_has_no_shares() {
    assert_eq!(story(&cluster()).claims[0].shares, []);
}

#[test]
fn an_owner_that_would_not_take_it_says_why_it_has_it() {
    let mut objects = cluster();
    objects.nodes[0] = of(node("n1", json!({ "unschedulable": true }), json!({})));
    let (verdict, why) = verdict_of(&story(&objects), "n1");
    assert_eq!(verdict, Verdict::Owns);
    assert_eq!(
        why,
        "owns it, and keeps it until pods leave the node: cordoned: takes no addresses"
    );
}

#[test]
fn an_interface_that_the_policy_names_and_no_node_has_is_named() {
    let mut objects = cluster();
    objects.policies = vec![of(policy(json!({ "layer2": { "interfaces": ["bond*"] } })))];
    let (verdict, why) = verdict_of(&story(&objects), "n2");
    assert_eq!(verdict, Verdict::NoInterface);
    assert_eq!(why, "no interface with a carrier matches the policy (bond*)");
}

#[test]
fn what_nobody_owns_says_who_takes_it_or_why_nobody_does() {
    type Change = fn(&mut Objects);
    let unowned: Change = |it| it.claims = vec![of(claim("shop", "192.0.2.7", None))];
    let rows: [(&str, Change, State, &str); 6] = [
        ("unowned", unowned, State::Unowned, "takes it next"),
        (
            "its session ended",
            |it| it.sessions[0].spec.as_mut().unwrap().lease_transitions = Some(2),
            State::Unowned,
            "takes it next",
        ),
        (
            "no speaker",
            |it| {
                it.claims = vec![of(claim("shop", "192.0.2.7", None))];
                it.sessions.clear();
            },
            State::Unowned,
            "no node can take it",
        ),
        ("no claim", |it| it.claims.clear(), State::Unowned, "has not listed the addresses"),
        (
            "silent",
            |it| {
                it.claims = vec![of(claim("shop", "192.0.2.7", None))];
                it.policies = vec![of(policy(json!({ "mode": "None" })))];
            },
            State::Silent,
            "no policy announces it",
        ),
        (
            "no endpoint",
            |it| {
                it.claims = vec![of(claim("shop", "192.0.2.7", None))];
                it.slices.clear();
            },
            State::Silent,
            "its Services have no endpoint",
        ),
    ];
    for (what, change, state, summary) in rows {
        let mut objects = cluster();
        change(&mut objects);
        let story = story(&objects);
        assert_eq!(story.state, state, "{what}");
        assert!(story.summary.contains(summary), "{what}: {}", story.summary);
        let takes = story.claims[0].nodes.iter().filter(|it| it.verdict == Verdict::Takes);
        assert_eq!(takes.count(), usize::from(summary.contains("next")), "{what}");
    }
}

#[test]
fn a_service_without_an_address_says_what_the_operator_says() {
    let condition = json!([{ "type": "leasehold.dev/Allocated", "status": "False",
        "reason": "PoolExhausted", "message": "no address for web/shop: pool lan is full",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    for (what, service, state, summary) in [
        (
            "pending",
            json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease" },
                "status": { "conditions": condition } }),
            State::Pending,
            "no address for web/shop: pool lan is full",
        ),
        (
            "not seen",
            json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease" } }),
            State::Pending,
            "the operator has not processed the Service: check that the operator runs",
        ),
        (
            "another class",
            json!({ "spec": { "type": "LoadBalancer", "loadBalancerClass": "other.io/lb" } }),
            State::NotOurs,
            "the Service has loadBalancerClass other.io/lb, not leasehold.dev/lease",
        ),
        (
            "another type",
            json!({ "spec": { "type": "ClusterIP" } }),
            State::NotOurs,
            "the Service has type ClusterIP, not LoadBalancer",
        ),
    ] {
        let mut service = service;
        service["metadata"] = json!({ "namespace": "web", "name": "shop" });
        let objects = Objects { services: vec![of(service)], ..Objects::default() };
        let story = story(&objects);
        assert_eq!((story.state, story.summary.as_str()), (state, summary), "{what}");
    }
}

/// Nine services, three on each node.
fn full() -> Objects {
    let mut objects = cluster();
    objects.services.clear();
    objects.slices.clear();
    objects.claims.clear();
    for number in 0..9 {
        let (name, address) = (format!("s{number}"), format!("192.0.2.{}", number + 10));
        objects.services.push(of(service(&name, &address)));
        objects.slices.push(of(slice(&name, &["elsewhere"])));
        let owner = format!("n{}", number % 3 + 1);
        let lease: Lease = of(claim(&name, &address, Some(&owner)));
        objects.claims.push(lease);
    }
    objects
}

fn down(names: &[&str]) -> BTreeSet<leasehold_crds::names::NodeName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn what_a_dead_node_has_goes_to_those_that_have_the_fewest() {
    let world = World::of(&full());
    let view = View::new(&world);
    let simulation = simulate(&view, &down(&["n1"]));
    assert_eq!(simulation.moves.len(), 3);
    assert_eq!(simulation.lost().count(), 0);
    let mut after: Vec<usize> = simulation.loads.iter().map(|load| load.after).collect();
    after.sort_unstable();
    assert_eq!(after, [0, 4, 5]);
    // What is said of one service is the same.
    for step in &simulation.moves {
        let story = explain(&view, &step.services[0]).unwrap();
        let next = story.claims[0].nodes.iter().find(|it| it.rank == Some(1)).unwrap();
        assert_eq!(Some(&next.node), step.to.as_ref(), "{}", step.claim);
    }
}

#[test]
fn what_nobody_can_take_says_what_is_wrong_with_each_node() {
    let mut objects = full();
    objects.nodes[1] = of(node("n2", json!({ "unschedulable": true }), json!({})));
    let world = World::of(&objects);
    let simulation = simulate(&View::new(&world), &down(&["n1", "n3"]));
    assert_eq!(simulation.moves.len(), 6);
    assert_eq!(simulation.lost().count(), 6);
    assert_eq!(simulation.moves[0].obstacles, ["n2: cordoned: takes no addresses"]);
}

#[test]
fn a_node_that_owns_nothing_takes_nothing_along() {
    let world = World::of(&cluster());
    assert!(simulate(&View::new(&world), &down(&["n3"])).moves.is_empty());
}
