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

/// A claim that lists this address for these Services.
fn listing(claim: &str, address: &str, services: &str, version: u64) -> Value {
    let says = json!({"leasehold.dev/addresses": address, "leasehold.dev/services": services});
    lease(claim, version, None, 0, &says)
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
        claims: vec![listing("web.shop", "10.0.0.0", "web/shop", 9)],
        ..World::default()
    }
    .index();
    (index, shop)
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
    let shop = patched(service("shop", 7), &write.patch, version);
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
            told.extend(notices.into_iter().filter(|it| !it.starts_with("AddressAssigned")));
        }
        index.forget(now);
    }
    assert_eq!(writes, 9, "ten seconds of a rival that answers at once");
    let note = "field manager k3s (subresource status) undoes what Leasehold writes to this Service, \
                again and again: it is put right more and more slowly, at the latest after 30 s; start \
                its servers with --disable servicelb";
    assert_eq!(told, [format!("OtherWriter: {note}")]);
    let condition = &shop["status"]["conditions"][0];
    assert_eq!(condition["message"], format!("10.0.0.0 from pool lan; {note}"));
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("OtherWriter"))
    );
    assert_eq!(index.rivals.contested(), 1);

    // It is put right within half a minute of the end, and a minute later the condition says so no more.
    let end = at(1000);
    let due = index.rivals.next(end).unwrap();
    assert!(due <= end + Duration::from_secs(30));
    assert!(carry_out(&mut index, version + 1, due).is_some());
    // Nor does anybody announce it, which is told now that it stands.
    let (_, notices) = carry_out(&mut index, version + 2, due).unwrap();
    assert!(notices[0].starts_with("NotAnnounced"), "{notices:?}");
    assert!(carry_out(&mut index, version + 3, due).is_none());
    let over = due + Duration::from_secs(60);
    assert_eq!(index.rivals.next(due), Some(over));
    index.forget(over);
    let (shop, notices) = carry_out(&mut index, version + 3, over).unwrap();
    assert_eq!(shop["status"]["conditions"][0]["message"], "10.0.0.0 from pool lan");
    assert!(notices.is_empty(), "{notices:?}");
    assert_eq!(index.rivals.contested(), 0);
}
