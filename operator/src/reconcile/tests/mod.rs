//! From objects as the API server sends them to the writes that follow, without an API server.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::service::Claims;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::index::outstanding::{Listing, Pending};
use super::index::{Index, Recollection};
use super::job::Job;
use super::jobs::jobs;
use super::service::write::ServiceWrite;
use super::watch::Change;
use crate::allocate::ServiceKey;
use crate::clock::Instant;

mod announcing;
mod data_path;
mod families;
mod page;
mod record;
mod retained;
mod rivals;
mod settled;
mod sharing;
mod spread;

const START: Instant = Duration::from_secs(1000);

fn read<O: DeserializeOwned>(object: Value) -> O {
    serde_json::from_value(object).unwrap()
}

fn observed<O: DeserializeOwned>(objects: Vec<Value>) -> Vec<Box<Event<O>>> {
    let listed = objects.into_iter().map(|object| Event::InitApply(read(object)));
    let events = std::iter::once(Event::Init).chain(listed).chain([Event::InitDone]);
    events.map(Box::new).collect()
}

#[expect(clippy::unnecessary_box_returns, reason = "as it is observed")]
fn applied<O: DeserializeOwned>(object: Value) -> Box<Event<O>> {
    Box::new(Event::Apply(read(object)))
}

#[expect(clippy::unnecessary_box_returns, reason = "as it is observed")]
fn deleted<O: DeserializeOwned>(object: Value) -> Box<Event<O>> {
    Box::new(Event::Delete(read(object)))
}

/// An index that has listed these objects, and nothing of the other kinds.
#[derive(Default)]
struct World {
    services: Vec<Value>,
    pools: Vec<Value>,
    nodes: Vec<Value>,
    claims: Vec<Value>,
    sessions: Vec<Value>,
    /// Services without an endpoint; all others of [`SERVED`] have one.
    idle: Vec<&'static str>,
}

/// The names of the Services of these tests.
const SERVED: [&str; 9] = ["shop", "next", "older", "a", "b", "c", "d", "e", "gone"];

/// The slice of a Service, with or without an endpoint.
fn slice(name: &str, version: u64, serves: bool) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{name}-1"), "namespace": "web", "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": name},
        },
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": serves}}],
    })
}

impl World {
    fn index(self) -> Index {
        self.index_after(Recollection::default())
    }

    fn index_after(self, recollection: Recollection) -> Index {
        let mut index = Index::new(true, recollection);
        let mut take = |change| {
            index.apply(change, START);
        };
        observed(self.services).into_iter().map(Change::Service).for_each(&mut take);
        let namespaces = vec![json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "web", "resourceVersion": "1", "labels": {"team": "blue"}},
        })];
        observed(namespaces).into_iter().map(Change::Namespace).for_each(&mut take);
        observed(self.pools).into_iter().map(Change::Pool).for_each(&mut take);
        observed(Vec::new()).into_iter().map(Change::Policy).for_each(&mut take);
        observed(self.nodes).into_iter().map(Change::Node).for_each(&mut take);
        let slices = SERVED.map(|name| slice(name, 1, !self.idle.contains(&name)));
        observed(slices.into()).into_iter().map(Change::Slice).for_each(&mut take);
        observed(self.claims).into_iter().map(Change::Claim).for_each(&mut take);
        observed(self.sessions).into_iter().map(Change::Session).for_each(&mut take);
        assert!(index.tables().missing().is_empty());
        index
    }
}

fn pool(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "5", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"addresses": addresses},
    })
}

fn service(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "web", "uid": format!("uid of {name}"),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
    })
}

fn claims(name: &str) -> Claims {
    Claims { claim: name.parse().unwrap(), by_address: BTreeSet::new() }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey { namespace: "web".to_owned(), name: name.to_owned() }
}

/// The Service after the API server has taken `patch` in.
fn patched(mut service: Value, patch: &Value, version: u64) -> Value {
    service["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
    service["metadata"]["resourceVersion"] = json!(version.to_string());
    let annotations = patch["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotations = annotations.map(|(name, _)| (format!("f:{name}"), json!({})));
    let annotations: serde_json::Map<_, _> = annotations.collect();
    service["metadata"]["managedFields"] = json!([{
        "manager": "leasehold-operator", "operation": "Apply", "subresource": "status",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": {"f:annotations": annotations},
            "f:status": {"f:loadBalancer": {"f:ingress": {}}, "f:conditions": {}},
        },
    }]);
    service["status"] = patch["status"].clone();
    service
}

fn all_jobs(index: &Index) -> Vec<Job> {
    jobs_at(index, START)
}

fn jobs_at(index: &Index, now: Instant) -> Vec<Job> {
    jobs(index, &index.plan(), now, Timestamp::UNIX_EPOCH)
}

fn service_jobs(index: &Index) -> Vec<(String, Value, Vec<String>)> {
    service_jobs_at(index, START)
}

fn body(write: &ServiceWrite) -> Value {
    serde_json::to_value(&write.body).unwrap()
}

/// The writes to Services, with the events that tell of them.
fn service_jobs_at(index: &Index, now: Instant) -> Vec<(String, Value, Vec<String>)> {
    let service_job = |job| match job {
        Job::Service { key, write, .. } => {
            let notices = write.notices.iter().map(|n| format!("{}: {}", n.reason, n.note));
            Some((key.name, body(&write), notices.collect()))
        }
        _ => None,
    };
    jobs_at(index, now).into_iter().filter_map(service_job).collect()
}

/// A Service without an address, and a pool that has one for it.
fn a_service_and_a_pool() -> Index {
    World {
        services: vec![service("shop", 7)],
        pools: vec![pool("lan", &["10.0.0.0/30"])],
        ..World::default()
    }
    .index()
}

#[test]
fn one_write_brings_address_claim_and_condition_and_then_there_is_nothing_to_do() {
    let mut index = a_service_and_a_pool();
    let [(_, patch, notices)] = &service_jobs(&index)[..] else { panic!("one write") };
    assert_eq!(
        patch["metadata"],
        json!({
            "name": "shop", "namespace": "web", "uid": "uid of shop", "resourceVersion": "7",
            "annotations": {"leasehold.dev/allocated-from": "lan", "leasehold.dev/claim": "web.shop"},
        })
    );
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "10.0.0.0", "ipMode": "VIP"}])
    );
    assert_eq!(patch["status"]["conditions"][0]["status"], "True");
    assert_eq!(notices, &["AddressAssigned: 10.0.0.0 from pool lan"]);
    index.apply(Change::Service(applied(patched(service("shop", 7), patch, 8))), START);
    assert!(service_jobs(&index).is_empty());
}

#[test]
fn a_failure_is_told_once_and_its_condition_keeps_its_time() {
    let mut index = World { services: vec![service("shop", 7)], ..World::default() }.index();
    let (_, patch, notices) = service_jobs(&index).remove(0);
    assert_eq!(
        notices,
        ["AllocationFailed: no address for web/shop: no IPAddressPool exists: create one"]
    );
    index.apply(Change::Service(applied(patched(service("shop", 7), &patch, 8))), START);
    assert!(service_jobs(&index).is_empty());
    index.apply(Change::Pool(applied(pool("six", &["2001:db8::/64"]))), START);
    let later = Timestamp::from_second(99).unwrap();
    let later_jobs = jobs(&index, &index.plan(), START, later);
    let Some(Job::Service { write, .. }) = later_jobs.first() else { panic!("another failure") };
    let condition = &body(write)["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z", "it is still false");
    assert_eq!(write.notices.len(), 1);
}

#[test]
fn a_request_that_cannot_be_understood_takes_no_address_and_is_told() {
    let mut index = a_service_and_a_pool();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let garbled = |patch: &Value, version| {
        let mut service = patched(service("shop", 7), patch, version);
        service["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.0.0");
        Change::Service(applied(service))
    };
    index.apply(garbled(&patch, 8), START);
    let (_, patch, notices) = service_jobs(&index).remove(0);
    let told = "web/shop keeps 10.0.0.0, because its request is invalid: \
                leasehold.dev/addresses: `10.0.0` is not a valid IP address: write 192.0.2.10, or \
                192.0.2.10,2001:db8::10";
    assert_eq!(notices, [format!("AllocationFailed: {told}")]);
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("MalformedRequest"))
    );
    assert_eq!(condition["message"], told);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    index.apply(garbled(&patch, 9), START);
    assert!(service_jobs(&index).is_empty());
}

#[test]
fn a_service_that_is_no_longer_ours_loses_all_that_is_ours_and_nothing_else() {
    let mut index = a_service_and_a_pool();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let had = patched(service("shop", 7), &patch, 8);
    let mut other_class = had.clone();
    other_class["spec"]["loadBalancerClass"] = json!("example.com/other");
    let mut deleting = had.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    for (version, mut gone) in [(9, other_class), (10, deleting)] {
        gone["metadata"]["resourceVersion"] = json!(version.to_string());
        index.apply(Change::Service(applied(gone)), START);
        let (_, patch, notices) = service_jobs(&index).remove(0);
        assert_eq!(patch["status"], json!({}));
        assert_eq!(patch["metadata"]["annotations"], json!({}));
        assert!(notices[0].starts_with("AddressReleased: released 10.0.0.0"), "{notices:?}");
    }
    // What it still has is not given to anybody else before it is taken back.
    index.apply(Change::Service(applied(service("next", 11))), START);
    let next = service_jobs(&index).into_iter().find(|(name, ..)| name == "next").unwrap();
    assert_eq!(next.1["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.1");
}

#[test]
fn services_without_our_class_or_marks_are_not_written_to() {
    let mut theirs = service("theirs", 7);
    theirs["spec"]["loadBalancerClass"] = json!("example.com/other");
    theirs["status"] = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.0"}]}});
    let mut internal = service("internal", 8);
    internal["spec"]["type"] = json!("ClusterIP");
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let index = World { services: vec![theirs, internal], pools, ..World::default() }.index();
    assert!(service_jobs(&index).is_empty());
}

#[test]
fn a_write_without_answer_keeps_its_addresses_from_others_until_its_outcome_is_known() {
    let pools = vec![pool("lan", &["10.0.0.0/31"])];
    let mut index = World { services: vec![service("shop", 7)], pools, ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let pending = Pending {
        version: 7,
        addresses: vec!["10.0.0.0".parse().unwrap()],
        allocated_from: Some("lan".to_owned()),
        claims: Some(claims("web.shop")),
    };
    index.sent(&key("shop"), pending);
    // Older, and so the first in turn.
    let mut older = service("older", 8);
    older["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    assert!(index.apply(Change::Service(applied(older)), START));
    let address = |index: &Index, name: &str| {
        let jobs = service_jobs(index);
        let job = jobs.iter().find(|(found, ..)| found == name);
        job.map(|(_, patch, _)| patch["status"]["loadBalancer"]["ingress"][0]["ip"].clone())
    };
    assert_eq!(address(&index, "older"), Some(json!("10.0.0.1")));
    assert_eq!(address(&index, "shop"), Some(json!("10.0.0.0")), "the same is tried again");
    index.resolve(&key("shop"));
    assert_eq!(index.pending().len(), 1, "the version that it replaces proves nothing");
    // The watch shows that it was carried out: no news, and nothing pending any more.
    let carried_out = patched(service("shop", 7), &patch, 9);
    assert!(!index.apply(Change::Service(applied(carried_out)), START));
    index.resolve(&key("shop"));
    assert!(index.pending().is_empty());
    assert_eq!(address(&index, "shop"), None);
}

#[test]
fn a_write_that_lost_against_another_gives_its_addresses_back() {
    let pools = vec![pool("lan", &["10.0.0.0/31"])];
    let mut index = World { services: vec![service("shop", 7)], pools, ..World::default() }.index();
    let pending = Pending { version: 7, addresses: Vec::new(), allocated_from: None, claims: None };
    index.sent(&key("shop"), pending);
    let mut edited = service("shop", 9);
    edited["metadata"]["annotations"] = json!({"leasehold.dev/addresses": "10.0.0.1"});
    let edited: k8s_openapi::api::core::v1::Service = serde_json::from_value(edited).unwrap();
    assert!(index.answered(&key("shop"), edited, START));
    assert!(index.pending().is_empty(), "a newer version than the write would replace");
}

fn lease(
    name: &str,
    version: u64,
    holder: Option<&str>,
    transitions: i32,
    annotations: &Value,
) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
            "annotations": annotations,
        },
        "spec": {"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 5},
    })
}

/// Has the session of node-1 own this claim, which lists this address.
fn own(index: &mut Index, claim: &str, address: &str, version: u64, now: Instant) {
    let session = lease("node-1", version, Some("node-1"), 3, &json!({}));
    index.apply(Change::Session(applied(session)), now);
    let says = json!({
        "leasehold.dev/addresses": address, "leasehold.dev/session": "uid of node-1/3",
    });
    let claim = lease(claim, version, Some("node-1"), 1, &says);
    index.apply(Change::Claim(applied(claim)), now);
}

fn claim(session: &str) -> Value {
    let says = json!({"leasehold.dev/addresses": "10.0.0.0", "leasehold.dev/session": session});
    lease("web.gone", 20, Some("node-1"), 1, &says)
}

#[test]
fn a_claim_counts_while_its_session_is_live_and_is_deleted_when_it_is_over() {
    let live = lease("node-1", 21, Some("node-1"), 3, &json!({}));
    let mut index = World {
        services: vec![service("shop", 7)],
        pools: vec![pool("lan", &["10.0.0.0/32"])],
        claims: vec![
            claim("uid of node-1/3"),
            lease("some.body", 22, None, 1, &json!({"example.com/not": "ours"})),
            lease("leasehold-operator", 23, Some("pod"), 1, &json!({})),
        ],
        sessions: vec![live],
        ..World::default()
    }
    .index();
    let (_, patch, notices) = service_jobs(&index).remove(0);
    assert_eq!(patch["status"]["conditions"][0]["reason"], "AddressReleasing");
    assert!(notices.is_empty(), "it passes by itself: {notices:?}");
    let on_leases = |index: &Index| -> Vec<Job> {
        let jobs = all_jobs(index).into_iter();
        let on_lease = |job: &Job| {
            matches!(job, Job::List(..) | Job::DeleteClaim(..) | Job::DeleteSession(..))
        };
        jobs.filter(on_lease).collect()
    };
    assert!(on_leases(&index).is_empty());

    // The session is fenced: one more transition, no holder.
    let fenced = lease("node-1", 30, None, 4, &json!({}));
    assert!(index.apply(Change::Session(applied(fenced)), START));
    // First the address goes from the list, if the session is over when it is read as well.
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(patch["status"]["conditions"][0]["reason"], "AddressReleasing");
    let found = on_leases(&index);
    let [Job::List(name, write), Job::DeleteSession(..)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(name.as_str(), "web.gone");
    assert_eq!(write.base.as_ref().map(|base| &*base.resource_version), Some("20"));
    assert!(write.record.addresses.is_empty() && write.record.holder.is_some());
    let over = write.over.as_ref().map(|(name, id)| (name.as_str(), id.to_string()));
    assert_eq!(over, Some(("node-1", "uid of node-1/3".to_owned())));
    let listing = Listing { version: Some(20), addresses: AddressSet::default(), unanswered: true };
    index.list_sent(name, listing);

    let says = json!({"leasehold.dev/addresses": "", "leasehold.dev/session": "uid of node-1/3"});
    let emptied = lease("web.gone", 31, Some("node-1"), 1, &says);
    assert!(index.apply(Change::Claim(applied(emptied)), START));
    assert!(index.listings().is_empty(), "the write was seen");
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    let found = on_leases(&index);
    let [Job::DeleteClaim(name, revision), Job::DeleteSession(session, _)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((name.as_str(), session.as_str()), ("web.gone", "node-1"));
    assert_eq!((&*revision.uid, revision.version), ("uid of web.gone", 31));
}

/// The lists that the jobs write, by claim, and whether the Lease is new.
fn lists(index: &Index) -> Vec<(String, Vec<String>, bool)> {
    let list = |job| match job {
        Job::List(name, write) => {
            let addresses = write.record.addresses.iter().map(ToString::to_string).collect();
            Some((name.to_string(), addresses, write.base.is_none()))
        }
        _ => None,
    };
    all_jobs(index).into_iter().filter_map(list).collect()
}

/// `name` as it is once it has `address`.
fn assigned(name: &str, version: u64, address: &str) -> Value {
    let patch = json!({
        "metadata": {"annotations": {
            "leasehold.dev/allocated-from": "lan", "leasehold.dev/claim": format!("web.{name}"),
        }},
        "status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}},
    });
    patched(service(name, version), &patch, version)
}

#[test]
fn a_claim_lists_an_address_once_it_is_on_record_and_no_other_claim_lists_it() {
    let mut index = a_service_and_a_pool();
    assert_eq!(lists(&index), [], "it is not on record");
    index.apply(Change::Service(applied(assigned("shop", 8, "10.0.0.0"))), START);
    let new = ("web.shop".to_owned(), vec!["10.0.0.0".to_owned()], true);
    assert_eq!(lists(&index), std::slice::from_ref(&new));
    // Another claim lists it still: an old one, or one that was written a moment ago.
    let says = json!({"leasehold.dev/addresses": "10.0.0.0", "leasehold.dev/services": "web/gone"});
    let old = lease("web.gone", 20, None, 1, &says);
    index.apply(Change::Claim(applied(old.clone())), START);
    assert_eq!(lists(&index), [("web.gone".to_owned(), vec![], false)]);
    index.apply(Change::Claim(deleted(old)), START);
    let addresses = AddressSet::from(["10.0.0.0".parse().unwrap()]);
    let listing = Listing { version: None, addresses, unanswered: true };
    index.list_sent(&"web.gone".parse().unwrap(), listing);
    // It may exist: to find out, an empty one is made.
    assert_eq!(lists(&index), [("web.gone".to_owned(), vec![], true)]);
    let empty = lease("web.gone", 30, None, 0, &json!({"leasehold.dev/services": "web/gone"}));
    assert!(index.apply(Change::Claim(applied(empty)), START));
    assert_eq!(lists(&index), [new]);
}

#[test]
fn the_owner_of_a_valid_claim_takes_off_what_its_service_has_lost() {
    let says = json!({
        "leasehold.dev/addresses": "10.0.0.0", "leasehold.dev/session": "uid of node-1/3",
        "leasehold.dev/services": "web/shop",
    });
    let mut index = World {
        services: vec![assigned("shop", 8, "10.0.0.1")],
        pools: vec![pool("lan", &["10.0.0.0/30"])],
        claims: vec![lease("web.shop", 20, Some("node-1"), 1, &says)],
        sessions: vec![lease("node-1", 21, Some("node-1"), 3, &json!({}))],
        ..World::default()
    }
    .index();
    let both = vec!["10.0.0.0".to_owned(), "10.0.0.1".to_owned()];
    assert_eq!(lists(&index), [("web.shop".to_owned(), both, false)]);
    let fenced = lease("node-1", 30, None, 4, &json!({}));
    index.apply(Change::Session(applied(fenced)), START);
    let one = vec!["10.0.0.1".to_owned()];
    assert_eq!(lists(&index), [("web.shop".to_owned(), one, false)]);
}

#[test]
fn a_session_outlives_its_node_until_it_ended_or_stood_still_for_ten_times_its_duration() {
    let world = || World {
        sessions: vec![lease("node-1", 21, Some("node-1"), 3, &json!({}))],
        ..World::default()
    };
    let deleted_at = |index: &Index, seconds: u64| {
        let at = START + Duration::from_secs(seconds);
        jobs_at(index, at).iter().any(|job| matches!(job, Job::DeleteSession(..)))
    };
    let mut index = world().index();
    assert!(!deleted_at(&index, 49));
    assert!(deleted_at(&index, 50));
    let renewed = lease("node-1", 22, Some("node-1"), 3, &json!({}));
    index.apply(Change::Session(applied(renewed)), START + Duration::from_secs(40));
    assert!(!deleted_at(&index, 89));
    assert!(deleted_at(&index, 90));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "resourceVersion": "23"}});
    index.apply(Change::Node(applied(node.clone())), START);
    assert!(!deleted_at(&index, 90));
    index.apply(Change::Node(deleted(node)), START);
    assert!(deleted_at(&index, 90));
}

#[test]
fn addresses_of_nodes_and_of_their_interfaces_are_not_given_out() {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "resourceVersion": "4"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.0"}, {"type": "Hostname", "address": "node-1"},
        ]},
    });
    let interfaces =
        r#"[{"name": "eth1", "mac": "02:00:5e:00:53:01", "addresses": ["10.0.0.1/24"]}]"#;
    let says = json!({"leasehold.dev/interfaces": interfaces});
    let index = World {
        services: vec![service("shop", 7)],
        pools: vec![pool("lan", &["10.0.0.0/30"])],
        nodes: vec![node],
        sessions: vec![lease("node-1", 21, Some("node-1"), 3, &says)],
        ..World::default()
    }
    .index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.2");
}

#[test]
fn addresses_that_no_host_in_a_nodes_subnet_can_have_are_not_given_out_and_the_pool_says_so() {
    let session = |version, address: &str| {
        let mac = "02:00:5e:00:53:01";
        let links = json!([{ "name": "eth1", "mac": mac, "addresses": [address] }]).to_string();
        lease("node-1", version, Some("node-1"), 3, &json!({ "leasehold.dev/interfaces": links }))
    };
    let mut index = World {
        services: vec![service("shop", 7)],
        pools: vec![pool("lan", &["10.0.0.0/30"])],
        sessions: vec![session(21, "10.0.0.9/24")],
        ..World::default()
    }
    .index();
    let given = |index: &Index| {
        let (_, patch, _) = service_jobs(index).remove(0);
        patch["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
    };
    let said = |index: &Index| {
        let jobs = all_jobs(index).into_iter();
        let mut writes = jobs.filter_map(|job| match job {
            Job::Pool(_, write) => Some(write.patch["status"].clone()),
            _ => None,
        });
        let status = writes.next().unwrap();
        let ready = &status["conditions"][0];
        let free = status["availableIPv4"].clone();
        (ready["status"].clone(), ready["message"].as_str().unwrap().to_owned(), free)
    };
    assert_eq!(given(&index), "10.0.0.1");
    let (ready, message, free) = said(&index);
    assert_eq!((ready, free), (json!("True"), json!(2)));
    assert_eq!(
        message,
        "all entries are valid; never allocated, because no host can use them: 10.0.0.0-10.0.0.0 (the \
         network address of the nodes' subnet 10.0.0.0/24)"
    );
    // The node is in another subnet.
    index.apply(Change::Session(applied(session(22, "10.0.9.9/24"))), START);
    assert_eq!(given(&index), "10.0.0.0");
    assert_eq!(said(&index).1, "all entries are valid");
}

#[test]
fn a_pool_names_a_few_of_its_overlaps_and_says_how_many_there_are() {
    let mut pools: Vec<Value> =
        (0..20).map(|n| pool(&format!("a{n:02}"), &[&format!("10.0.{n}.1/32")])).collect();
    pools.push(pool("b", &["10.0.0.0/16"]));
    let index = World { pools, ..World::default() }.index();
    let mut jobs = all_jobs(&index).into_iter();
    let Some(Job::Pool(_, write)) =
        jobs.find(|job| matches!(job, Job::Pool(name, _) if name == "b"))
    else {
        panic!("no write")
    };
    let message = write.patch["status"]["conditions"][1]["message"].as_str().unwrap();
    assert!(message.ends_with("; and 12 more: remove it from one of the pools"), "{message}");
}

#[test]
fn of_many_that_wait_for_an_address_the_one_that_gets_it_is_written_when_one_becomes_free() {
    let mut index = World {
        services: vec![service("shop", 7)],
        pools: vec![pool("lan", &["10.0.0.0/32"])],
        ..World::default()
    }
    .index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let shop = patched(service("shop", 7), &patch, 8);
    index.apply(Change::Service(applied(shop.clone())), START);
    own(&mut index, "web.shop", "10.0.0.0", 9, START);
    let waiting = ["a", "b", "c"];
    for (name, version) in waiting.into_iter().zip(10..) {
        index.apply(Change::Service(applied(service(name, version))), START);
    }
    let written = service_jobs(&index);
    assert_eq!(written.iter().flat_map(|(.., notices)| notices).count(), 3);
    for (name, patch, _) in written.iter().filter(|(name, ..)| waiting.contains(&&**name)) {
        assert_eq!(patch["status"]["conditions"][0]["reason"], "PoolExhausted");
        let told = patched(service(name, 10), patch, 20);
        index.apply(Change::Service(applied(told)), START);
    }

    // Until its owner has given it up.
    index.apply(Change::Service(deleted(shop)), START);
    let failures: Vec<_> =
        index.plan().services.values().map(|it| it.failure.as_ref().unwrap().reason()).collect();
    assert_eq!(failures, ["AddressReleasing"; 3]);
    assert_eq!(service_jobs(&index), []);
    let released = lease("web.shop", 40, None, 2, &json!({ "leasehold.dev/addresses": "" }));
    index.apply(Change::Claim(applied(released)), START);
    let written = service_jobs(&index);
    let [(name, patch, notices)] = &written[..] else { panic!("{written:?}") };
    assert_eq!(name, "a");
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    assert_eq!(notices, &["AddressAssigned: 10.0.0.0 from pool lan"]);
}

#[test]
fn the_status_of_a_pool_says_what_is_wrong_and_is_written_once() {
    let pools = vec![
        pool("a", &["10.0.0.0/30", "2001:db8::/64"]),
        pool("b", &["10.0.0.2-10.0.0.9", "2001:db8::9-2001:db8::1"]),
    ];
    let mut index = World { pools, ..World::default() }.index();
    let written = all_jobs(&index);
    let [Job::Pool(_, a), Job::Pool(_, b)] = &written[..] else { panic!("{written:?}") };
    assert_eq!(a.patch["status"]["availableIPv4"], 4);
    assert_eq!(a.patch["status"]["availableIPv6"], i64::MAX);
    assert!(a.notices.is_empty());
    assert_eq!(b.patch["status"]["availableIPv4"], 6);
    let notices: Vec<_> = b.notices.iter().map(|n| format!("{}: {}", n.reason, n.note)).collect();
    assert_eq!(
        notices,
        [
            "InvalidAddresses: `2001:db8::9-2001:db8::1`: the first address comes after the last: \
             write 2001:db8::1-2001:db8::9; the other entries remain in use",
            "Overlapping: 10.0.0.2-10.0.0.3 belongs to the older pool a: remove it from one of \
             the pools",
        ]
    );
    let mut stored = pool("b", &["10.0.0.2-10.0.0.9", "2001:db8::9-2001:db8::1"]);
    stored["status"] = b.patch["status"].clone();
    index.apply(Change::Pool(applied(stored)), START);
    let left = all_jobs(&index);
    assert!(matches!(&left[..], [Job::Pool(name, _)] if name == "a"), "{left:?}");
}

/// The condition `leasehold.dev/Announced` that the jobs write, and its events; `None` if they write none.
fn silence(jobs: &[(String, Value, Vec<String>)]) -> Option<(String, Vec<String>)> {
    let (_, patch, notices) = jobs.first()?;
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let announced =
        conditions.iter().find(|condition| condition["type"] == "leasehold.dev/Announced");
    let said = announced.map(|it| format!("{}: {}", it["reason"], it["message"]));
    Some((said.unwrap_or_default().replace('"', ""), notices.clone()))
}

#[test]
fn a_service_that_stays_without_an_endpoint_says_so_and_one_whose_pods_are_replaced_does_not() {
    let after = |seconds| START + Duration::from_secs(seconds);
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let mut index = World { services: vec![service("shop", 7)], pools, ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let shop = patched(service("shop", 7), &patch, 8);
    index.apply(Change::Service(applied(shop.clone())), START);
    let pods = |index: &mut Index, version, serve, at| {
        index.apply(Change::Slice(applied(slice("shop", version, serve))), after(at))
    };
    assert!(pods(&mut index, 2, false, 10));
    assert_eq!(index.reported_at(after(11)), Some(after(12)));
    assert!(service_jobs_at(&index, after(11)).is_empty());
    assert!(pods(&mut index, 3, true, 11));
    assert!(service_jobs_at(&index, after(99)).is_empty());
    assert!(!pods(&mut index, 4, true, 12), "no news");

    assert!(pods(&mut index, 5, false, 20));
    let says = "NoEndpoint: no node announces the addresses: the Service has no endpoint; set \
                `announceWithoutEndpoints: true` in its policy to announce them anyway";
    let event = says.replace("NoEndpoint", "NotAnnounced");
    let jobs = service_jobs_at(&index, after(22));
    assert_eq!(silence(&jobs), Some((says.to_owned(), vec![event])));
    let told = patched(shop, &jobs[0].1, 9);
    index.apply(Change::Service(applied(told.clone())), after(22));
    assert!(service_jobs_at(&index, after(23)).is_empty(), "it is told once");

    // An operator that starts now does not take it back.
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let next =
        World { services: vec![told], pools, idle: vec!["shop"], ..World::default() }.index();
    assert!(service_jobs(&next).is_empty());

    // The policy has it announced all the same; then the pods are back.
    let policy = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
        "metadata": {"name": "all", "uid": "p", "resourceVersion": "30"},
        "spec": {"announceWithoutEndpoints": true},
    });
    index.apply(Change::Policy(applied(policy.clone())), after(30));
    // No node follows the policy.
    let says = "NoNode: no node announces the addresses: policy all selects no node that can announce: \
                change its nodeSelectors";
    assert_eq!(silence(&service_jobs_at(&index, after(30))).unwrap().0, says);
    // Nor does one that a label excludes, unless its speaker passes over that.
    let excluded = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": "31", "labels": excluded}});
    index.apply(Change::Node(applied(node)), after(31));
    assert_eq!(silence(&service_jobs_at(&index, after(31))).unwrap().0, says);
    let ignores = json!({"leasehold.dev/ignores-exclude-label": "true"});
    index.apply(Change::Session(applied(lease("n", 31, Some("n"), 1, &ignores))), after(31));
    own(&mut index, "web.shop", "10.0.0.0", 31, after(31));
    let announced = ("Announced: node-1 announces 10.0.0.0".to_owned(), vec![]);
    assert_eq!(silence(&service_jobs_at(&index, after(32))), Some(announced.clone()));
    index.apply(Change::Policy(deleted(policy)), after(33));
    assert!(service_jobs_at(&index, after(33)).is_empty(), "it says so still");
    assert!(pods(&mut index, 34, true, 34));
    assert_eq!(silence(&service_jobs_at(&index, after(35))), Some(announced));
}

#[test]
fn a_policy_says_what_of_it_matches_nothing() {
    let mut lan = pool("lan", &["10.0.0.0/30"]);
    lan["metadata"]["labels"] = json!({"zone": "office"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": "3", "labels": {"rack": "a"}}});
    let (pools, nodes) = (vec![lan.clone()], vec![node]);
    let mut index =
        World { services: vec![service("shop", 7)], pools, nodes, ..World::default() }.index();
    let select = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    let policy = |version: u64, spec: Value| {
        json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": {"name": "p", "uid": "p", "resourceVersion": version.to_string()},
            "spec": spec,
        })
    };
    let effective = |index: &Index| {
        let patch = all_jobs(index).into_iter().find_map(|job| match job {
            Job::Policy(_, patch) => Some(patch),
            _ => None,
        });
        let condition = patch.unwrap()["status"]["conditions"][1].clone();
        assert_eq!(condition["type"], "Effective");
        format!("{} {}", condition["status"], condition["message"]).replace('"', "")
    };
    let spec = json!({
        "ipAddressPools": ["lan", "wan"],
        "ipAddressPoolSelectors": [select("zone", "office"), select("zone", "home")],
        "serviceSelectors": [select("app", "shop")],
        "nodeSelectors": [select("rack", "b"), select("rack", "a")],
        "preferredNodes": [{"weight": 1, "nodeSelector": select("rack", "c")}],
    });
    index.apply(Change::Policy(applied(policy(20, spec))), START);
    assert_eq!(
        effective(&index),
        "False IPAddressPool wan does not exist; ipAddressPoolSelectors[1] matches no IPAddressPool; \
         nodeSelectors[0] matches no node; preferredNodes[0] matches no node; the policy governs no \
         Service with an address"
    );
    let spec = json!({"ipAddressPoolSelectors": [select("zone", "office")]});
    index.apply(Change::Policy(applied(policy(21, spec.clone()))), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    index.apply(Change::Service(applied(patched(service("shop", 7), &patch, 8))), START);
    assert_eq!(effective(&index), "True every name and selector matches at least one object");
    // The pool gets another label: the policy governs nothing any more, and the Service says so.
    lan["metadata"]["labels"] = json!({"zone": "home"});
    lan["metadata"]["resourceVersion"] = json!("22");
    index.apply(Change::Pool(applied(lan)), START);
    assert_eq!(
        effective(&index),
        "False ipAddressPoolSelectors[0] matches no IPAddressPool; the policy governs no Service with an \
         address"
    );
    let says = json!({ "leasehold.dev/addresses": "10.0.0.0" });
    index.apply(Change::Claim(applied(lease("web.shop", 30, None, 1, &says))), START);
    let jobs = service_jobs_at(&index, START + Duration::from_secs(2));
    let says = "NoPolicy: no node announces the addresses: AnnouncementPolicies exist, but none matches \
                this Service: change or add one";
    assert_eq!(silence(&jobs).unwrap().0, says);
}
