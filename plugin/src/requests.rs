//! Requests of commands: a big cluster is listed once, page by page, and not again.

use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use leasehold_crds::lease::annotation;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::args::{DrainArguments, MoveArguments};
use super::connect::Cluster;
use super::error::PluginError;
use super::fake::{Answer, Asked, Log};
use super::outcome::Outcome;
use super::{draining, moving, read};

/// Time for which a claim stays where it is.
const STAYS: Duration = Duration::from_millis(800);

fn node(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn session(node: &str) -> Value {
    let interfaces =
        json!([{ "name": "eth0", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.250/24"] }]);
    json!({
        "metadata": { "name": node, "uid": format!("uid-{node}"), "resourceVersion": "1",
            "annotations": { annotation::INTERFACES: interfaces.to_string() } },
        "spec": { "holderIdentity": node, "leaseTransitions": 1, "leaseDurationSeconds": 5 },
    })
}

fn service() -> Value {
    json!({
        "metadata": { "namespace": "web", "name": "shop", "annotations": {
            "leasehold.dev/claim": "web.shop", "leasehold.dev/allocated-from": "lan" } },
        "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease" },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
    })
}

fn slice() -> Value {
    json!({
        "addressType": "IPv4",
        "metadata": { "namespace": "web", "name": "shop-1",
            "labels": { "kubernetes.io/service-name": "shop" } },
        "endpoints": [{ "addresses": ["10.0.0.1"], "nodeName": "n1" }],
    })
}

/// The claim of the Service with this owner, which is asked to go elsewhere.
fn claim(owner: Option<&str>, asked: Option<&str>) -> Value {
    let mut annotations = json!({
        annotation::SERVICES: "web/shop", annotation::ADDRESSES: "192.0.2.7",
        annotation::CAUSE: "moved by hand", annotation::INTERFACE: "eth0", annotation::TOOK: "9ms",
    });
    if let Some(owner) = owner {
        annotations[annotation::SESSION] = json!(format!("uid-{owner}/1"));
    }
    if let Some(node) = asked {
        annotations[annotation::MOVE_TO] = json!(node);
    }
    json!({
        "metadata": { "name": "web.shop", "uid": "c", "resourceVersion": "1",
            "annotations": annotations },
        "spec": { "holderIdentity": owner, "leaseTransitions": 4 },
    })
}

/// A cluster of two nodes and one Service, whose claim is this.
fn cluster(claim: impl Fn() -> Answer + Send + 'static) -> (Cluster, Log) {
    Cluster::that_says(move |asked| match asked.last() {
        "services" => Answer::list(&[service()]),
        "endpointslices" => Answer::list(&[slice()]),
        "nodes" => Answer::list(&[node("n1"), node("n2")]),
        "leases" if asked.path.contains("leasehold-sessions") => {
            Answer::list(&[session("n1"), session("n2")])
        }
        "leases" if asked.is_watch() => {
            let lines = claim().lines.into_iter();
            let event = |object| json!({ "type": "MODIFIED", "object": object });
            Answer::events(lines.map(event).collect(), Duration::from_millis(100))
        }
        "leases" => Answer::list(&claim().lines),
        "events" => Answer::list(&[json!({
            "metadata": { "namespace": "web", "name": "e" }, "reason": "MoveRefused",
            "regarding": { "kind": "Service", "namespace": "web", "name": "shop" },
            "note": "the move to n2 was refused: n2 cannot take it now", "eventTime": null,
        })]),
        "web.shop" => claim(),
        "n1" => Answer::now(session("n1")),
        _ => Answer::list(&[]),
    })
}

fn lists(log: &Log, plural: &str) -> usize {
    log.count(|asked| asked.last() == plural && !asked.is_watch())
}

fn drains() -> DrainArguments {
    let timeout = Duration::from_secs(5);
    DrainArguments { node: "n1".to_owned(), timeout, wait_connections: None }
}

/// Of a claim that is at `n1` for a while, and then at `n2`.
fn goes() -> impl Fn() -> Answer {
    let begun = Instant::now();
    move || {
        let owner = if begun.elapsed() < STAYS { "n1" } else { "n2" };
        Answer::now(claim(Some(owner), (owner == "n1").then_some("n2")))
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (cluster, log) = Cluster::that_says(|asked| {
        let page = |name: &str, next| Answer::page(&[node(name)], next);
        match asked.query.get("continue").map(String::as_str) {
            None => page("a", Some("more")),
            Some("more") => page("b", Some("last")),
            Some(_) => page("c", None),
        }
    });
    let nodes: Vec<Node> = read::list(&cluster, Api::all(cluster.client.clone())).await.unwrap();
    assert_eq!(nodes.len(), 3);
    let limited = |asked: &Asked| asked.query.get("limit").is_some_and(|limit| limit == "500");
    assert_eq!((log.count(limited), log.all().len()), (3, 3));
}

#[tokio::test]
async fn whoever_waits_for_a_drain_lists_the_cluster_once_and_watches_the_claims() {
    let (cluster, log) = cluster(goes());
    let asked = drains();
    assert_eq!(draining::drain(&cluster, &asked).await.unwrap(), Outcome::Well);
    for plural in ["services", "endpointslices", "nodes", "announcementpolicies", "ipaddresspools"]
    {
        assert_eq!(lists(&log, plural), 1, "{plural}");
    }
    // Those of claims and of sessions, one with which the watch begins, and the sessions at the end.
    assert_eq!(lists(&log, "leases"), 4);
}

#[tokio::test]
async fn a_drain_whose_watch_is_refused_says_so() {
    let (cluster, _) = Cluster::that_says(|asked| match asked.last() {
        "services" => Answer::list(&[service()]),
        "nodes" => Answer::list(&[node("n1")]),
        "leases" if asked.is_watch() => Answer::refused(403, "no right to watch"),
        "leases" if asked.path.contains("leasehold-sessions") => Answer::list(&[session("n1")]),
        "leases" => Answer::list(&[claim(Some("n1"), None)]),
        "n1" => Answer::now(session("n1")),
        _ => Answer::list(&[]),
    });
    let asked = drains();
    let error = draining::drain(&cluster, &asked).await.unwrap_err();
    assert_eq!((error.exit_code(), error.to_string().contains("no right to watch")), (3, true));
}

#[tokio::test]
async fn whoever_waits_for_a_move_reads_one_claim() {
    let (cluster, log) = cluster(goes());
    let asked = MoveArguments {
        service: "web/shop".to_owned(),
        to: "n2".to_owned(),
        timeout: Duration::from_secs(5),
    };
    assert_eq!(moving::run(&cluster, &asked).await.unwrap(), Outcome::Well);
    assert_eq!((lists(&log, "services"), lists(&log, "leases")), (1, 2));
    let reads = log.count(|asked| asked.last() == "web.shop" && asked.method == "GET");
    assert!((2..20).contains(&reads), "{reads}");
}

#[tokio::test]
async fn why_a_move_was_refused_is_asked_of_the_events_about_that() {
    let first = Mutex::new(true);
    let (cluster, log) = cluster(move || {
        let asked = std::mem::take(&mut *first.lock().unwrap());
        Answer::now(claim(Some("n1"), asked.then_some("n2")))
    });
    let asked = MoveArguments {
        service: "web/shop".to_owned(),
        to: "n2".to_owned(),
        timeout: Duration::from_secs(5),
    };
    assert_eq!(moving::run(&cluster, &asked).await.unwrap(), Outcome::Negative);
    let events: Vec<Asked> =
        log.all().into_iter().filter(|asked| asked.last() == "events").collect();
    assert_eq!(events.len(), 1);
    assert!(events[0].path.contains("/namespaces/web/"), "{events:?}");
    let fields = events[0].query.get("fieldSelector").unwrap();
    assert_eq!(fields, "reason=MoveRefused,regarding.kind=Service");
}

/// A claim that becomes what `later` is once a move was asked for.
async fn moved_while(later: fn() -> Answer) -> (Result<Outcome, PluginError>, usize) {
    let reads = Mutex::new(0);
    let (cluster, log) = cluster(move || {
        let mut reads = reads.lock().unwrap();
        *reads += 1;
        if *reads <= 2 { Answer::now(claim(Some("n1"), None)) } else { later() }
    });
    let asked = MoveArguments {
        service: "web/shop".to_owned(),
        to: "n2".to_owned(),
        timeout: Duration::from_millis(500),
    };
    let ended = timeout(Duration::from_secs(3), moving::run(&cluster, &asked)).await.unwrap();
    (ended, log.count(|asked| asked.last() == "web.shop"))
}

#[tokio::test]
async fn a_move_of_a_claim_that_cannot_be_read_any_more_ends_and_asks_in_peace() {
    let unreadable = || Answer::now(json!({ "metadata": { "name": "web.shop" } }));
    let (ended, reads) = moved_while(unreadable).await;
    assert_eq!(ended.unwrap(), Outcome::Negative);
    assert!(reads < 20, "{reads}");
    let (ended, _) = moved_while(Answer::missing).await;
    assert_eq!(ended.unwrap(), Outcome::Negative);
}
