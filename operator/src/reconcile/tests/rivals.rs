//! Services to which somebody else writes.

use super::*;

/// The Service after `manager` has put these addresses into its status.
fn forged(mut service: Value, manager: &str, addresses: &[&str], version: u64) -> Value {
    let ingress: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    service["status"]["loadBalancer"] = json!({ "ingress": ingress });
    service["metadata"]["resourceVersion"] = json!(version.to_string());
    let entries = service["metadata"]["managedFields"].as_array_mut().unwrap();
    entries[0]["fieldsV1"]["f:status"].as_object_mut().unwrap().remove("f:loadBalancer");
    entries.truncate(1);
    entries.push(json!({
        "manager": manager, "operation": "Update", "subresource": "status",
        "time": "2026-01-01T00:00:09Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    }));
    service
}

/// The Service after somebody has replaced it by a manifest without annotations.
fn replaced(mut service: Value, version: u64) -> Value {
    service["metadata"]["annotations"] = json!({});
    service["metadata"]["resourceVersion"] = json!(version.to_string());
    service["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = json!({});
    service
}

/// The claim of `shop`, which lists this address for it.
fn listing(address: &str) -> Value {
    let says = json!({
        "leasehold.dev/addresses": address, "leasehold.dev/allocated-from": "lan",
        "leasehold.dev/services": "web/shop", "leasehold.dev/service-uids": "uid of shop",
    });
    lease("web.shop", 9, None, 0, &says)
}

fn written(index: &Index) -> Vec<(String, Value, Vec<String>)> {
    service_jobs(index)
}

fn address(patch: &Value) -> &str {
    patch["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap_or_default()
}

/// `shop` with its address and its claim, which nobody holds, in a pool that is full with it.
fn served() -> (Index, Value) {
    let shop = assigned("shop", 8, "10.0.0.0");
    let index = World {
        services: vec![shop.clone()],
        pools: vec![pool("lan", &["10.0.0.0/32"])],
        claims: vec![listing("10.0.0.0")],
        ..World::default()
    }
    .index();
    (index, shop)
}

#[test]
fn what_others_write_into_a_status_takes_no_address_away() {
    let (mut index, shop) = served();
    let mut older = service("older", 10);
    older["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    index.apply(Change::Service(applied(older)), START);
    let mut version = 20;
    for forgery in [
        forged(shop.clone(), "k3s", &["192.168.1.11", "192.168.1.12"], 20),
        forged(shop.clone(), "k3s", &[], 21),
        forged(shop.clone(), "k3s", &["10.0.0.0", "192.168.1.11"], 22),
        replaced(shop.clone(), 23),
        replaced(forged(shop.clone(), "k3s", &["192.168.1.11"], 24), 24),
    ] {
        index.apply(Change::Service(applied(forgery.clone())), START);
        let jobs = written(&index);
        let (_, patch, notices) = jobs.iter().find(|(name, ..)| name == "shop").unwrap();
        assert_eq!(address(patch), "10.0.0.0", "{forgery}");
        assert_eq!(patch["metadata"]["annotations"]["leasehold.dev/claim"], "web.shop");
        assert_eq!(patch["metadata"]["annotations"]["leasehold.dev/allocated-from"], "lan");
        assert!(notices.is_empty(), "nothing has changed for anybody: {notices:?}");
        let (_, patch, _) = jobs.iter().find(|(name, ..)| name == "older").unwrap();
        assert_eq!(address(patch), "", "it got what another has");
        assert_eq!(lists(&index), [], "the claim lists what it did");
        version += 10;
        let shop = assigned("shop", version, "10.0.0.0");
        index.apply(Change::Service(applied(shop)), START);
    }
}

#[test]
fn a_replica_that_starts_now_reads_from_the_claim_what_others_have_overwritten() {
    let mut shop = assigned("shop", 8, "10.0.0.1");
    shop["status"]["conditions"] = json!([{
        "type": "leasehold.dev/Allocated", "status": "True", "reason": "AddressAssigned",
        "message": "10.0.0.1 from pool lan", "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]);
    for forgery in [
        forged(shop.clone(), "k3s", &["192.168.1.11"], 20),
        forged(shop.clone(), "k3s", &["10.0.0.2"], 20),
        replaced(shop.clone(), 20),
    ] {
        let mut older = service("older", 10);
        older["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        let index = World {
            services: vec![forgery, older],
            pools: vec![pool("lan", &["10.0.0.0/30"])],
            claims: vec![listing("10.0.0.1")],
            ..World::default()
        }
        .index();
        let jobs = written(&index);
        let (_, patch, _) = jobs.iter().find(|(name, ..)| name == "shop").unwrap();
        assert_eq!(address(patch), "10.0.0.1");
        assert_eq!(lists(&index), []);
    }
}

#[test]
fn what_a_service_asks_for_counts_whatever_others_write() {
    let (mut index, shop) = served();
    index.apply(Change::Pool(applied(pool("wan", &["10.1.0.0/30"]))), START);
    let mut asks = forged(shop.clone(), "k3s", &["192.168.1.11"], 20);
    asks["metadata"]["annotations"]["leasehold.dev/addresses"] = json!("10.1.0.2");
    index.apply(Change::Service(applied(asks)), START);
    let (_, patch, notices) = written(&index).remove(0);
    assert_eq!(address(&patch), "10.1.0.2");
    assert_eq!(notices, ["AddressAssigned: 10.1.0.2 from pool wan, instead of 10.0.0.0"]);
    // Another type is the end of it.
    let mut internal = forged(shop, "k3s", &["192.168.1.11"], 21);
    internal["spec"]["type"] = json!("ClusterIP");
    index.apply(Change::Service(applied(internal)), START);
    assert_eq!(lists(&index), [("web.shop".to_owned(), vec![], false)]);
}

#[test]
fn a_name_and_ports_that_others_add_to_our_entry_stay() {
    let (mut index, shop) = served();
    let mut named = forged(shop, "dns", &["10.0.0.0"], 20);
    let entry = json!({
        "ip": "10.0.0.0", "ipMode": "VIP", "hostname": "shop.example.com",
        "ports": [{"port": 80, "protocol": "TCP"}],
    });
    named["status"]["loadBalancer"]["ingress"] = json!([entry]);
    named["status"]["conditions"] = json!([{
        "type": "leasehold.dev/Allocated", "status": "True", "reason": "AddressAssigned",
        "message": "10.0.0.0 from pool lan", "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]);
    index.apply(Change::Service(applied(named.clone())), START);
    assert!(written(&index).is_empty());
    // They stay when something else is written.
    named["metadata"]["annotations"].as_object_mut().unwrap().remove("leasehold.dev/claim");
    named["metadata"]["resourceVersion"] = json!("21");
    index.apply(Change::Service(applied(named)), START);
    let (_, patch, _) = written(&index).remove(0);
    assert_eq!(patch["status"]["loadBalancer"]["ingress"], json!([entry]));
}

/// Carries out the writes to `shop` at `now`, of version `version`; returns whether there was one, and
/// the events.
fn carry_out(index: &mut Index, version: u64, now: Instant) -> Option<(Value, Vec<String>)> {
    let write = jobs_at(index, now).into_iter().find_map(|job| match job {
        Job::Service { key, write, .. } if key.name == "shop" => Some(write),
        _ => None,
    })?;
    let notices = write.notices.iter().map(|it| format!("{}: {}", it.reason, it.note)).collect();
    let shop = patched(service("shop", 7), &body(&write), version);
    let pending = Pending {
        version: version - 1,
        addresses: write.addresses.clone(),
        allocated_from: write.allocated_from.clone(),
        claims: write.claims.clone(),
    };
    index.sent(&key("shop"), pending);
    index.answered(&key("shop"), serde_json::from_value(shop.clone()).unwrap(), now);
    index.written(&key("shop"), &write, Some(version), now);
    index.failed(&key("shop"));
    Some((shop, notices))
}

#[test]
fn a_rival_is_named_once_and_answered_more_and_more_slowly() {
    let mut index = served().0;
    index.apply(Change::Service(applied(service("shop", 10))), START);
    let (mut shop, _) = carry_out(&mut index, 11, START).unwrap();
    let (mut version, mut writes, mut told) = (12, 0, Vec::new());
    let at = |tick: u64| START + Duration::from_millis(tick * 10);
    for tick in 0..1000 {
        let now = at(tick);
        let garbage = forged(shop.clone(), "k3s", &["192.168.1.11", "192.168.1.12"], version);
        index.apply(Change::Service(applied(garbage)), now);
        if let Some((stored, notices)) = carry_out(&mut index, version + 1, now) {
            (shop, version, writes) = (stored, version + 2, writes + 1);
            told.extend(notices);
        }
        index.forget(now);
    }
    assert_eq!(writes, 12, "ten seconds of a rival that answers at once");
    let note = "field manager k3s (subresource status) repeatedly reverts the status or annotations \
                that Leasehold writes to this Service; Leasehold restores them after increasing delays \
                of at most 30 s; start the k3s or rke2 servers with --disable servicelb";
    assert_eq!(told, [format!("OtherWriter: {note}")]);
    let condition = &shop["status"]["conditions"][0];
    assert_eq!(condition["message"], format!("10.0.0.0 from pool lan; {note}"));
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("OtherWriter"))
    );
    assert_eq!(index.rivals().contested(), 1);

    // It is put right within half a minute of the end, and a minute later the condition says so no more.
    let end = at(1000);
    let due = index.rivals().next(end).unwrap();
    assert!(due <= end + Duration::from_secs(30));
    assert!(carry_out(&mut index, version + 1, due).is_some());
    // Nor does anybody announce it, which is told now that it stands.
    let (_, notices) = carry_out(&mut index, version + 2, due).unwrap();
    assert!(notices[0].starts_with("NotAnnounced"), "{notices:?}");
    assert!(carry_out(&mut index, version + 3, due).is_none());
    let over = due + Duration::from_secs(60);
    assert_eq!(index.rivals().next(due), Some(over));
    index.forget(over);
    let (shop, notices) = carry_out(&mut index, version + 3, over).unwrap();
    assert_eq!(shop["status"]["conditions"][0]["message"], "10.0.0.0 from pool lan");
    assert!(notices.is_empty(), "{notices:?}");
    assert_eq!(index.rivals().contested(), 0);
}
