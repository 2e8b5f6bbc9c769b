//! Services with an address of each family, and what nodes can carry.

use super::*;

const SIX: &str = "2001-db8-0-0-0-0-0-1.address.leasehold";

/// The session of a node whose links have these addresses.
fn session(node: &str, links: &[&[&str]], version: u64) -> Value {
    let link = |(number, addresses): (usize, &&[&str])| {
        json!({
            "name": format!("eth{number}"), "mac": format!("02:00:00:00:00:0{number}"),
            "addresses": addresses,
        })
    };
    let links: Vec<Value> = links.iter().enumerate().map(link).collect();
    let says = json!({ "leasehold.dev/interfaces": json!(links).to_string() });
    lease(node, version, Some(node), 3, &says)
}

fn dual_stack() -> Value {
    let mut service = service("shop", 7);
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    service["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    service
}

fn world(services: Vec<Value>, sessions: Vec<Value>) -> Index {
    let pools = vec![pool("lan", &["10.0.0.1-10.0.0.3", "2001:db8::1-2001:db8::3"])];
    let node = |name| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "resourceVersion": "3"}})
    };
    let nodes = vec![node("n1"), node("n2")];
    let mut index = World { services, pools, nodes, sessions, ..World::default() }.index();
    index.weigh_families(START);
    index
}

/// The claim of the second address that the next write records, if any write is due.
fn written(index: &Index) -> Option<Value> {
    let (_, patch, _) = service_jobs(index).into_iter().next()?;
    Some(patch["metadata"]["annotations"]["leasehold.dev/address-claims"].clone())
}

const BOTH: &[&str] = &["10.0.0.9/24", "2001:db8::9/64"];
const FOUR: &[&str] = &["10.0.0.9/24"];
const SIX_ALONE: &[&str] = &["2001:db8::9/64"];

#[test]
fn each_family_has_a_claim_of_its_own_where_no_link_of_a_node_carries_both() {
    for (links, apart) in [
        (&[&[BOTH][..], &[FOUR]][..], false),
        (&[&[FOUR][..], &[BOTH]], false),
        (&[&[FOUR][..], &[FOUR]], true),
        (&[&[FOUR][..], &[SIX_ALONE]], true),
        (&[&[FOUR, SIX_ALONE][..]], true),
        (&[&[SIX_ALONE][..]], true),
        // Then nothing is known.
        (&[&[&["203.0.113.9/24"][..]][..]], false),
        (&[], false),
    ] {
        let sessions = links.iter().zip(["n1", "n2"]);
        let sessions = sessions.map(|(links, node)| session(node, links, 5)).collect();
        let index = world(vec![dual_stack()], sessions);
        let expected = if apart { json!(SIX) } else { Value::Null };
        assert_eq!(written(&index), Some(expected), "{links:?}");
    }
}

#[test]
fn families_are_put_apart_and_joined_once_what_nodes_carry_has_lasted() {
    let mut index = world(vec![dual_stack()], vec![session("n1", &[BOTH], 5)]);
    let (_, patch, _) = service_jobs(&index).remove(0);
    let together = patched(dual_stack(), &patch, 8);
    index.apply(Change::Service(applied(together.clone())), START);
    let mut at = START;
    let mut after = |index: &mut Index, seconds| {
        at += Duration::from_secs(seconds);
        index.weigh_families(at);
        written(index)
    };
    assert_eq!(after(&mut index, 1), None);

    // A link that is gone for a moment changes nothing.
    for (links, version) in [(FOUR, 10), (BOTH, 11), (FOUR, 12)] {
        index.apply(Change::Session(applied(session("n1", &[links], version))), START);
        assert_eq!(after(&mut index, 4), None, "{version}");
    }
    assert_eq!(after(&mut index, 5), Some(json!(SIX)));
    let (_, patch, _) = service_jobs(&index).remove(0);
    index.apply(Change::Service(applied(patched(together, &patch, 13))), START);
    assert_eq!(after(&mut index, 100), None);

    index.apply(Change::Session(applied(session("n1", &[BOTH], 14))), START);
    assert_eq!(after(&mut index, 0), None);
    assert_eq!(after(&mut index, 59), None);
    assert_eq!(after(&mut index, 1), Some(Value::Null));
}

#[test]
fn another_operator_begins_with_what_is_on_record() {
    let apart = vec![session("n1", &[FOUR], 5)];
    let index = world(vec![dual_stack()], apart);
    let (_, patch, _) = service_jobs(&index).remove(0);
    let recorded = patched(dual_stack(), &patch, 8);
    let index = world(vec![recorded], vec![session("n1", &[BOTH], 5)]);
    assert_eq!(written(&index), None);
}
