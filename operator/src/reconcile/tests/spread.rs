//! Services whose addresses are on different nodes: a claim for each.

use leasehold_crds::lease::Record as _;

use super::*;

const SIX: &str = "2001-db8-0-0-0-0-0-0.address.leasehold";

fn policy(spread: &str, version: u64) -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
        "metadata": {"name": "p", "uid": "p", "resourceVersion": version.to_string()},
        "spec": {"spread": spread},
    })
}

fn dual_stack(annotations: &Value) -> Value {
    let mut service = service("shop", 7);
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    service["metadata"]["annotations"] = annotations.clone();
    service
}

fn world(annotations: &Value) -> Index {
    let pools = vec![pool("lan", &["10.0.0.0/30", "2001:db8::/126"])];
    let nodes = vec![json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": "3"}})];
    World { services: vec![dual_stack(annotations)], pools, nodes, ..World::default() }.index()
}

fn recorded(patch: &Value) -> (Value, Value) {
    let annotations = &patch["metadata"]["annotations"];
    (
        annotations["leasehold.dev/claim"].clone(),
        annotations["leasehold.dev/address-claims"].clone(),
    )
}

/// Carries out all writes of lists; which they are, with their addresses and whether the claim is held.
fn list(index: &mut Index, held: bool, version: u64) -> Vec<String> {
    let mut written = Vec::new();
    for job in all_jobs(index) {
        let Job::List(name, write) = job else { continue };
        let text =
            |it: &AddressSet| it.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let withdrawn = write.record.addresses.intersection(&write.record.withdrawn).copied();
        let withdrawn = text(&withdrawn.collect());
        let withdrawn =
            if withdrawn.is_empty() { withdrawn } else { format!(", withdrawn {withdrawn}") };
        written.push(format!("{name}: {}{withdrawn}", text(&write.record.addresses)));
        claim_says(index, name.as_str(), json!(write.record.annotations()), held, version);
    }
    written
}

fn claim(index: &mut Index, name: &str, addresses: &str, held: bool, version: u64) {
    let says = json!({
        "leasehold.dev/addresses": addresses, "leasehold.dev/services": "web/shop",
        "leasehold.dev/service-uids": "uid of shop", "leasehold.dev/allocated-from": "lan",
    });
    claim_says(index, name, says, held, version);
}

fn claim_says(index: &mut Index, name: &str, mut says: Value, held: bool, version: u64) {
    if held {
        says["leasehold.dev/session"] = json!("uid of node-1/3");
    }
    let lease = lease(name, version, held.then_some("node-1"), 1, &says);
    index.apply(Change::Claim(applied(lease)), START);
}

#[test]
fn each_address_gets_a_claim_of_its_own_and_is_listed_by_one_at_a_time() {
    let mut index = world(&json!({}));
    index.apply(Change::Session(applied(lease("node-1", 5, Some("node-1"), 3, &json!({})))), START);
    index.apply(Change::Policy(applied(policy("PerAddress", 20))), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(recorded(&patch), (json!("web.shop"), json!(SIX)));
    let apart = patched(service("shop", 7), &patch, 8);
    let mut stored = dual_stack(&apart["metadata"]["annotations"]);
    for field in ["status", "metadata"] {
        stored[field] = apart[field].clone();
    }
    index.apply(Change::Service(applied(stored.clone())), START);
    assert!(service_jobs(&index).is_empty());
    let six = format!("{SIX}: 2001:db8::");
    assert_eq!(list(&mut index, true, 30), [six.clone(), "web.shop: 10.0.0.0".to_owned()]);
    assert!(list(&mut index, true, 31).is_empty());

    // Together again: off the one list before it is on the other.
    index.apply(Change::Policy(applied(policy("PerService", 40))), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(recorded(&patch), (json!("web.shop"), Value::Null));
    let together = patched(stored.clone(), &patch, 41);
    index.apply(Change::Service(applied(together.clone())), START);
    let withdrawn = format!("{six}, withdrawn 2001:db8::");
    assert_eq!(list(&mut index, true, 42), [withdrawn], "the claim is valid");
    assert!(list(&mut index, true, 42).is_empty(), "its owner takes it off");
    claim(&mut index, SIX, "2001:db8::", false, 43);
    assert_eq!(list(&mut index, false, 44), [format!("{SIX}: ")]);
    assert_eq!(list(&mut index, true, 45), ["web.shop: 10.0.0.0 2001:db8::"]);
    let gone = all_jobs(&index)
        .into_iter()
        .any(|job| matches!(job, Job::DeleteClaim(name, _) if name.as_str() == SIX));
    assert!(gone, "the claim has had its day");

    // And apart: the owner takes it off its list.
    index.apply(Change::Claim(deleted(lease(SIX, 46, None, 1, &json!({})))), START);
    index.apply(Change::Policy(applied(policy("PerAddress", 50))), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    index.apply(Change::Service(applied(patched(together, &patch, 51))), START);
    let withdrawn = "web.shop: 10.0.0.0 2001:db8::, withdrawn 2001:db8::";
    assert_eq!(list(&mut index, true, 52), [withdrawn], "the claim is valid");
    assert!(list(&mut index, true, 52).is_empty(), "its owner takes it off");
    claim(&mut index, "web.shop", "10.0.0.0", true, 53);
    assert_eq!(list(&mut index, true, 54), [six]);
}

#[test]
fn services_that_share_stay_under_one_claim() {
    let mut index = world(&json!({"leasehold.dev/shared-address": "k"}));
    index.apply(Change::Policy(applied(policy("PerAddress", 20))), START);
    let (_, patch, _) = service_jobs(&index).remove(0);
    assert_eq!(recorded(&patch), (json!("web.shop"), Value::Null));
}
