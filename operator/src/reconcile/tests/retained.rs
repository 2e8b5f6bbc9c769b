//! Addresses that stay, addresses that rest, and pools that change.

use leasehold_crds::event::Reason;
use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

fn addresses(index: &Index) -> Vec<(String, String)> {
    let address = |patch: &Value| {
        patch["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap_or_default().to_owned()
    };
    let jobs = service_jobs(index).into_iter();
    jobs.map(|(name, patch, _)| (name, address(&patch))).collect()
}

/// A Service that has its address, and a pool; nothing is left to do but the status of the pool.
fn settled() -> (Index, Value) {
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let nodes = vec![json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": "3"}})];
    let services = vec![service("shop", 7)];
    let mut index = World { services, pools, nodes, ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    let shop = patched(service("shop", 7), &patch, 8);
    index.apply(Change::Service(applied(shop.clone())), START);
    assert!(service_jobs(&index).is_empty());
    (index, shop)
}

#[test]
fn a_service_is_told_once_that_it_keeps_what_no_pool_offers_and_how_to_change_that() {
    let (mut index, _) = settled();
    index.apply(Change::Pool(deleted(pool("lan", &["10.0.0.0/30"]))), START);
    assert!(service_jobs_at(&index, at(1)).is_empty(), "the pool may be about to come back");
    let (_, patch, notices) = service_jobs_at(&index, at(2)).remove(0);
    let note = "10.0.0.0 is kept although no IPAddressPool contains it anymore; to replace it: kubectl \
                annotate service -n web shop leasehold.dev/reassign=true";
    assert_eq!(notices, [format!("AddressKept: {note}")]);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    let condition = &patch["status"]["conditions"][0];
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["reason"], "AddressKept");
    assert_eq!(condition["message"], format!("10.0.0.0 from pool lan; {note}"));
    let mut told = patched(service("shop", 7), &patch, 9);
    index.apply(Change::Service(applied(told.clone())), at(2));
    assert!(service_jobs_at(&index, at(2)).is_empty());

    // With the annotation, but without another address, it stays.
    told["metadata"]["annotations"]["leasehold.dev/reassign"] = json!("true");
    told["metadata"]["resourceVersion"] = json!("10");
    index.apply(Change::Service(applied(told.clone())), at(3));
    let (_, patch, notices) = service_jobs_at(&index, at(3)).remove(0);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    assert_eq!(
        notices,
        ["AddressKept: 10.0.0.0 is kept although no IPAddressPool contains it anymore; \
             leasehold.dev/reassign is set, but no other address is available: no IPAddressPool \
             exists: create one"]
    );
    index.apply(Change::Pool(applied(pool("wan", &["10.1.0.0/30"]))), at(4));
    let (_, patch, notices) = service_jobs_at(&index, at(4)).remove(0);
    assert_eq!(patch["metadata"]["annotations"]["leasehold.dev/claim"], "web.shop");
    assert_eq!(notices, ["AddressAssigned: 10.1.0.0 from pool wan, instead of 10.0.0.0"]);
}

#[test]
fn a_pool_that_is_replaced_changes_nothing() {
    let (mut index, _) = settled();
    index.apply(Change::Pool(deleted(pool("lan", &["10.0.0.0/30"]))), START);
    assert!(service_jobs_at(&index, at(1)).is_empty());
    let mut again = pool("lan", &["10.0.0.0/30"]);
    again["metadata"]["uid"] = json!("another");
    again["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    index.apply(Change::Pool(applied(again)), at(1));
    assert!(service_jobs_at(&index, at(9)).is_empty());
}

#[test]
fn what_a_service_gives_back_rests_for_a_minute_but_not_from_itself() {
    let (mut index, shop) = settled();
    index.apply(Change::Service(deleted(shop)), START);
    index.apply(Change::Service(applied(service("other", 9))), START);
    assert_eq!(addresses(&index), [("other".to_owned(), "10.0.0.1".to_owned())]);
    index.apply(Change::Service(applied(service("shop", 10))), START);
    let (other, shop) = ("10.0.0.1".to_owned(), "10.0.0.0".to_owned());
    assert_eq!(addresses(&index), [("other".to_owned(), other), ("shop".to_owned(), shop)]);
    index.apply(Change::Service(deleted(service("shop", 10))), START);
    index.forget(at(59));
    assert_eq!(addresses(&index), [("other".to_owned(), "10.0.0.1".to_owned())]);
    index.forget(at(60));
    assert_eq!(addresses(&index), [("other".to_owned(), "10.0.0.0".to_owned())]);
}

#[test]
fn what_is_missing_from_a_new_list_was_freed() {
    let (mut index, _) = settled();
    let listed = observed(vec![service("other", 9)]);
    listed.into_iter().map(Change::Service).for_each(|change| {
        index.apply(change, START);
    });
    assert_eq!(addresses(&index), [("other".to_owned(), "10.0.0.1".to_owned())]);
}

#[test]
fn a_pool_with_a_selector_that_cannot_be_read_says_so_and_hurts_no_other() {
    let mut near = pool("near", &["10.0.0.0/30"]);
    near["spec"]["serviceAllocation"] = json!({
        "namespaceSelectors": [
            {"matchLabels": {"team": "blue"}},
            {"matchExpressions": [{"key": "team", "operator": "Near"}]},
        ],
    });
    let world = World {
        services: vec![service("shop", 7)],
        pools: vec![near.clone(), pool("wide", &["10.1.0.0/30"])],
        ..World::default()
    };
    let index = world.index();
    assert_eq!(addresses(&index), [("shop".to_owned(), "10.1.0.0".to_owned())]);
    let written = all_jobs(&index).into_iter().find_map(|job| match job {
        Job::Pool(name, write) if name == "near" => Some(write),
        _ => None,
    });
    let write = written.unwrap();
    let ready = &write.patch["status"]["conditions"][0];
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["reason"], "InvalidSelector");
    assert_eq!(
        ready["message"],
        "serviceAllocation.namespaceSelectors[1] is not a valid selector: the expression for label \
         `team` has the invalid operator `Near`: use In, NotIn, Exists, or DoesNotExist; until you \
         correct the pool, it serves no Service"
    );
    assert_eq!(write.notices[0].reason, Reason::InvalidSelector);
}

#[test]
fn the_labels_of_a_namespace_decide_which_pool_serves_it() {
    let mut pinned = pool("pinned", &["10.5.0.0/30"]);
    pinned["spec"]["serviceAllocation"] =
        json!({"namespaceSelectors": [{"matchLabels": {"team": "red"}}]});
    let world = World {
        services: vec![service("shop", 7)],
        pools: vec![pinned, pool("general", &["10.0.0.0/30"])],
        ..World::default()
    };
    let mut index = world.index();
    assert_eq!(addresses(&index), [("shop".to_owned(), "10.0.0.0".to_owned())]);
    let red = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "web", "resourceVersion": "2", "labels": {"team": "red"}},
    });
    assert!(index.apply(Change::Namespace(applied(red)), START));
    assert_eq!(addresses(&index), [("shop".to_owned(), "10.5.0.0".to_owned())]);
}

#[test]
fn a_name_that_somebody_wrote_to_a_service_without_an_address_is_left_alone() {
    let mut copy = service("copy", 7);
    copy["metadata"]["annotations"] =
        json!({"leasehold.dev/claim": "web.shop", "leasehold.dev/allocated-from": "lan"});
    let mut index = World { services: vec![copy.clone()], ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    copy["status"] = patch["status"].clone();
    copy["metadata"]["resourceVersion"] = json!("8");
    index.apply(Change::Service(applied(copy.clone())), START);
    assert!(service_jobs(&index).is_empty());
    // It is no mark of ours either.
    copy["spec"]["type"] = json!("ClusterIP");
    copy["status"] = json!({});
    copy["metadata"]["resourceVersion"] = json!("9");
    index.apply(Change::Service(applied(copy)), START);
    assert!(service_jobs(&index).is_empty());
}

/// A small cluster in which some Services have addresses and others want them.
fn events() -> Vec<Change> {
    let mut changes = vec![
        Change::Pool(applied(pool("a", &["10.0.0.0/30"]))),
        Change::Pool(applied(pool("b", &["10.0.0.2-10.0.0.5"]))),
        Change::Service(applied(super::assigned("kept", 11, "10.0.0.2"))),
        Change::Service(applied(super::assigned("gone", 12, "10.9.0.0"))),
    ];
    for name in ["x", "y", "z"] {
        changes.push(Change::Service(applied(service(name, 13))));
    }
    let mut asks = service("asks", 14);
    asks["metadata"]["annotations"] = json!({"leasehold.dev/addresses": "10.0.0.0"});
    changes.push(Change::Service(applied(asks)));
    changes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_events_decides_nothing(
        order in Just((0..events().len()).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let plan_after = |order: &[usize]| {
            let mut index = World::default().index();
            let mut changes: Vec<_> = events().into_iter().map(Some).collect();
            for at in order {
                index.apply(changes[*at].take().unwrap(), START);
            }
            index.plan()
        };
        let in_order: Vec<_> = (0..order.len()).collect();
        prop_assert_eq!(plan_after(&order), plan_after(&in_order));
    }
}

#[test]
fn a_service_that_nobody_announces_says_by_which_policy_and_only_as_long() {
    let (mut index, shop) = settled();
    let policy = |mode: &str, version: u64| {
        json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": {"name": "hold", "uid": "p", "resourceVersion": version.to_string()},
            "spec": {"mode": mode},
        })
    };
    index.apply(Change::Policy(applied(policy("Layer2", 20))), START);
    assert!(service_jobs(&index).is_empty());
    index.apply(Change::Policy(applied(policy("None", 21))), START);
    let (_, patch, notices) = service_jobs(&index).remove(0);
    let says = "no node announces the addresses: policy hold sets `mode: None`";
    assert_eq!(notices, [format!("NotAnnounced: {says}")]);
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let types: Vec<_> = conditions.iter().map(|condition| &condition["type"]).collect();
    assert_eq!(types, ["leasehold.dev/Allocated", "leasehold.dev/Announced"]);
    assert_eq!(
        (&conditions[1]["status"], &conditions[1]["message"]),
        (&json!("False"), &json!(says))
    );
    assert_eq!(patch["status"]["loadBalancer"]["ingress"][0]["ip"], "10.0.0.0");
    let told = patched(shop, &patch, 22);
    index.apply(Change::Service(applied(told.clone())), START);
    assert!(service_jobs(&index).is_empty(), "it is told once");

    // From then on somebody may take it, and is given the time to.
    index.apply(Change::Policy(applied(policy("Layer2", 23))), START);
    own(&mut index, "web.shop", "10.0.0.0", 24, START);
    assert!(service_jobs(&index).is_empty());
    let (_, patch, notices) = service_jobs_at(&index, START + Duration::from_secs(1)).remove(0);
    assert!(notices.is_empty());
    assert_eq!(patch["status"]["conditions"][1]["status"], "True");
}
