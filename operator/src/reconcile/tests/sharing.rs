//! Services that have one address together: one claim, one list.

use leasehold_crds::lease::Record as _;

use super::*;

/// A Service that shares by the key `k`, with this port.
fn sharer(name: &str, version: u64, port: u16) -> Value {
    let mut sharer = service(name, version);
    sharer["metadata"]["annotations"] = json!({"leasehold.dev/shared-address": "k"});
    sharer["spec"]["ports"] = json!([{"port": port}]);
    sharer
}

/// The Service after `patch`, with the annotations that its user wrote.
fn stored(user: &Value, patch: &Value, version: u64) -> Value {
    let mut stored = patched(user.clone(), patch, version);
    let annotations = stored["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.extend(user["metadata"]["annotations"].as_object().unwrap().clone());
    stored
}

/// Carries out the writes to Services.
fn carry_out(index: &mut Index, users: &[Value], version: u64) {
    for (name, patch, _) in service_jobs(index) {
        let user = users.iter().find(|user| user["metadata"]["name"] == name).unwrap();
        index.apply(Change::Service(applied(stored(user, &patch, version))), START);
    }
}

/// Carries out the writes of lists: `name addresses services`.
fn list_all(index: &mut Index, version: u64) -> Vec<String> {
    let mut written = Vec::new();
    for job in all_jobs(index) {
        let Job::List(name, write) = job else { continue };
        let addresses: Vec<_> = write.record.addresses.iter().map(ToString::to_string).collect();
        let (addresses, services) = (addresses.join(","), write.record.services.join(","));
        written.push(format!("{name} [{addresses}] [{services}]"));
        let says = json!(write.record.annotations());
        let lease = lease(name.as_str(), version, None, 0, &says);
        index.apply(Change::Claim(applied(lease)), START);
    }
    written
}

fn deletions(index: &Index) -> Vec<String> {
    let deletion = |job| match job {
        Job::DeleteClaim(name, _) => Some(name.to_string()),
        _ => None,
    };
    all_jobs(index).into_iter().filter_map(deletion).collect()
}

fn claim_and_address(patch: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&patch["metadata"]["annotations"]["leasehold.dev/claim"]),
        text(&patch["status"]["loadBalancer"]["ingress"][0]["ip"]),
    )
}

#[test]
fn sharers_record_one_claim_that_outlives_the_service_that_it_is_named_after() {
    let users = [sharer("a", 7, 80), sharer("b", 8, 443)];
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let mut index = World { services: users.to_vec(), pools, ..World::default() }.index();
    for (_, patch, _) in service_jobs(&index) {
        assert_eq!(claim_and_address(&patch), ("web.a".to_owned(), "10.0.0.0".to_owned()));
    }
    carry_out(&mut index, &users, 20);
    assert!(service_jobs(&index).is_empty());
    assert_eq!(list_all(&mut index, 30), ["web.a [10.0.0.0] [web/a,web/b]"]);
    assert_eq!(list_all(&mut index, 31), Vec::<String>::new());

    index.apply(Change::Service(deleted(users[0].clone())), START);
    assert!(service_jobs(&index).is_empty(), "nothing changes for those that stay");
    assert_eq!(list_all(&mut index, 32), ["web.a [10.0.0.0] [web/b]"]);
    assert_eq!(deletions(&index), Vec::<String>::new());

    // Back again, without a key: another address, under a claim of another name.
    let mut back = service("a", 40);
    back["metadata"]["annotations"] = json!({});
    index.apply(Change::Service(applied(back.clone())), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    let own = ("10-0-0-1.address.leasehold".to_owned(), "10.0.0.1".to_owned());
    assert_eq!(claim_and_address(&patch), own);
    carry_out(&mut index, &[back.clone()], 41);
    assert_eq!(list_all(&mut index, 42), ["10-0-0-1.address.leasehold [10.0.0.1] [web/a]"]);

    // When the last one goes, so do the claims.
    index.apply(Change::Service(deleted(users[1].clone())), START);
    index.apply(Change::Service(deleted(back)), START);
    assert_eq!(
        list_all(&mut index, 50),
        ["10-0-0-1.address.leasehold [] [web/a]", "web.a [] [web/b]"]
    );
    assert_eq!(deletions(&index), ["10-0-0-1.address.leasehold", "web.a"]);
}

#[test]
fn who_joins_others_leaves_its_own_claim_behind() {
    let users = [sharer("a", 7, 80), service("b", 8)];
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let mut users = users.to_vec();
    users[1]["metadata"]["annotations"] = json!({});
    let mut index = World { services: users.clone(), pools, ..World::default() }.index();
    carry_out(&mut index, &users, 20);
    assert_eq!(list_all(&mut index, 21), ["web.a [10.0.0.0] [web/a]", "web.b [10.0.0.1] [web/b]"]);
    // A key alone moves nothing.
    let mut joins = sharer("b", 8, 443);
    let mut now = stored(
        &joins,
        &json!({
            "metadata": {"annotations": {
                "leasehold.dev/allocated-from": "lan", "leasehold.dev/claim": "web.b"}},
            "status": {
                "loadBalancer": {"ingress": [{"ip": "10.0.0.1", "ipMode": "VIP"}]},
                "conditions": [{
                    "type": "leasehold.dev/Allocated", "status": "True", "reason": "AddressAssigned",
                    "message": "10.0.0.1 from pool lan", "lastTransitionTime": "1970-01-01T00:00:00Z",
                }],
            },
        }),
        22,
    );
    index.apply(Change::Service(applied(now.clone())), START);
    assert!(service_jobs(&index).is_empty());
    // A request does.
    let asks = json!("10.0.0.0");
    joins["metadata"]["annotations"]["leasehold.dev/addresses"] = asks.clone();
    now["metadata"]["annotations"]["leasehold.dev/addresses"] = asks;
    now["metadata"]["resourceVersion"] = json!("23");
    index.apply(Change::Service(applied(now)), START);
    carry_out(&mut index, &[joins], 24);
    assert!(service_jobs(&index).is_empty());
    assert_eq!(list_all(&mut index, 25), ["web.a [10.0.0.0] [web/a,web/b]", "web.b [] [web/b]"]);
    assert_eq!(deletions(&index), ["web.b"]);
}

#[test]
fn an_address_stays_on_the_list_while_a_write_that_gives_it_may_still_be_carried_out() {
    let users = [sharer("a", 7, 80), sharer("b", 8, 443)];
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let mut index = World { services: users.to_vec(), pools, ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(0);
    index.apply(Change::Service(applied(stored(&users[0], &patch, 20))), START);
    list_all(&mut index, 21);
    index.sent(
        &key("b"),
        Pending {
            version: 8,
            addresses: vec!["10.0.0.0".parse().unwrap()],
            allocated_from: Some("lan".to_owned()),
            claims: Some(claims("web.a")),
        },
    );
    index.apply(Change::Service(deleted(users[0].clone())), START);
    assert_eq!(list_all(&mut index, 22), Vec::<String>::new());
    assert_eq!(deletions(&index), Vec::<String>::new());
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(claim_and_address(&patch), ("web.a".to_owned(), "10.0.0.0".to_owned()));
    // It was not: the address goes.
    index.failed(&key("b"));
    assert_eq!(list_all(&mut index, 23), ["web.a [] [web/a]"]);
}

#[test]
fn who_cannot_share_any_more_is_told_why_it_moves() {
    let users = [sharer("a", 7, 80), sharer("b", 8, 443)];
    let pools = vec![pool("lan", &["10.0.0.0/30"])];
    let mut index = World { services: users.to_vec(), pools, ..World::default() }.index();
    let (_, patch, _) = service_jobs(&index).remove(1);
    carry_out(&mut index, &users, 20);
    index.apply(Change::Service(applied(stored(&sharer("b", 8, 80), &patch, 21))), START);
    let written = service_jobs(&index);
    let [(name, patch, notices)] = &written[..] else { panic!("one write") };
    assert_eq!(name, "b");
    assert_eq!(claim_and_address(patch), ("web.b".to_owned(), "10.0.0.1".to_owned()));
    assert_eq!(
        notices,
        &["AddressAssigned: 10.0.0.1 from pool lan, instead of 10.0.0.0; 10.0.0.0 belongs to \
             Service web/a, which also uses port 80/TCP: request another one, or use different ports"]
    );
}

#[test]
fn the_pool_of_a_shared_claim_is_the_one_that_has_the_address_whatever_one_of_its_services_asks_for()
 {
    let users = [sharer("a", 7, 80), sharer("b", 8, 443)];
    let pools = vec![pool("lan", &["10.0.0.0/30"]), pool("dmz", &["10.9.0.0/30"])];
    let mut index =
        World { services: users.to_vec(), pools: pools.clone(), ..World::default() }.index();
    let pool_of_claim = |index: &Index| {
        let claim = index.tables().claims().get(&"web.a".parse().unwrap()).unwrap();
        claim.record.pool.clone()
    };
    let (_, patch, _) = service_jobs(&index).remove(0);
    carry_out(&mut index, &users, 20);
    list_all(&mut index, 21);
    let pool_before = pool_of_claim(&index);

    // Whoever may edit a Service may say that its address is from elsewhere, and ask for that.
    let mut edited = stored(&users[0], &patch, 22);
    for name in ["leasehold.dev/address-pool", "leasehold.dev/allocated-from"] {
        let other = if pool_before.as_deref() == Some("lan") { "dmz" } else { "lan" };
        edited["metadata"]["annotations"][name] = json!(other);
    }
    index.apply(Change::Service(applied(edited)), START);
    list_all(&mut index, 23);
    assert_eq!(pool_of_claim(&index), pool_before);

    // Also where no pool has the address any more.
    for pool in pools
        .into_iter()
        .filter(|it| Some(it["metadata"]["name"].as_str().unwrap()) == pool_before.as_deref())
    {
        index.apply(Change::Pool(deleted(pool)), START);
    }
    list_all(&mut index, 24);
    assert_eq!(pool_of_claim(&index), pool_before);
}
