//! The annotations that people bring along from MetalLB.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{ADDRESS_POOL, ADDRESSES, SHARED_ADDRESS, Turn};

/// The prefixes, those that win first; and what follows in the names of the three annotations.
const PREFIXES: [(&str, [&str; 3]); 3] = [
    ("leasehold.dev", ["address-pool", "addresses", "shared-address"]),
    ("metallb.io", ["address-pool", "loadBalancerIPs", "allow-shared-ip"]),
    ("metallb.universe.tf", ["address-pool", "loadBalancerIPs", "allow-shared-ip"]),
];

/// The annotations for a pool, addresses and a key, with these values where there are any.
fn annotations(kind: usize, values: [Option<&str>; 3]) -> Value {
    let mut annotations = Map::new();
    for ((prefix, names), value) in PREFIXES.iter().zip(values) {
        if let Some(value) = value {
            annotations.insert(format!("{prefix}/{}", names[kind]), json!(value));
        }
    }
    annotations.into()
}

pub async fn the_annotations_of_metallb_ask_for_the_same_and_ours_win() -> Result<()> {
    const POOL: usize = 0;
    const IPS: usize = 1;
    let turn = Turn::take("metallb").await?;
    assert_eq!(annotations(POOL, [Some("a"), None, None]), json!({ADDRESS_POOL: "a"}));
    assert_eq!(annotations(IPS, [Some("a"), None, None]), json!({ADDRESSES: "a"}));
    assert_eq!(annotations(2, [Some("a"), None, None]), json!({SHARED_ADDRESS: "a"}));
    for (pool, addresses) in
        [("one", "192.0.2.0/28"), ("two", "198.51.100.0/28"), ("three", "203.0.113.0/28")]
    {
        let both = [addresses, &format!("2001:db8:{}::/64", pool.len())];
        let spec = json!({"addresses": both, "autoAssign": false});
        turn.pool_with(pool, spec).await?;
    }
    for (name, values, pool) in [
        ("pool-new", [None, Some("two"), None], "two"),
        ("pool-old", [None, None, Some("three")], "three"),
        ("pool-all", [Some("one"), Some("two"), Some("three")], "one"),
        ("pool-theirs", [None, Some("two"), Some("three")], "two"),
        ("pool-ends", [Some("one"), None, Some("three")], "one"),
    ] {
        turn.service(name, annotations(POOL, values), json!({})).await?;
        turn.is_from(name, pool).await?;
    }
    let (one, two, three) = ("192.0.2.9", "198.51.100.9", "203.0.113.9");
    for (name, values, address) in [
        ("ips-new", [None, Some(two), None], two),
        ("ips-old", [None, None, Some(three)], three),
        ("ips-all", [Some(one), Some("198.51.100.10"), Some("203.0.113.10")], one),
        ("ips-theirs", [None, Some("198.51.100.11"), Some("203.0.113.11")], "198.51.100.11"),
    ] {
        turn.service(name, annotations(IPS, values), json!({})).await?;
        turn.has(name, &[address]).await?;
    }
    let dual = json!({"ipFamilyPolicy": "RequireDualStack"});
    let both = annotations(IPS, [None, Some("192.0.2.12, 2001:db8:3::12"), None]);
    turn.service("ips-dual", both, dual).await?;
    turn.has("ips-dual", &["192.0.2.12", "2001:db8:3::12"]).await?;

    // Keys are one name space, whichever annotation names them.
    turn.pool("for-all", &["192.0.2.32/28"]).await?;
    for (name, port, values, address) in [
        ("key-ours", 1, [Some("key"), None, None], "192.0.2.32"),
        ("key-new", 2, [None, Some("key"), None], "192.0.2.32"),
        ("key-old", 3, [None, None, Some("key")], "192.0.2.32"),
        ("key-all", 4, [Some("key"), Some("new"), Some("old")], "192.0.2.32"),
        ("key-other", 5, [Some("other"), Some("key"), Some("key")], "192.0.2.33"),
        ("key-theirs", 6, [None, Some("key"), Some("other")], "192.0.2.32"),
    ] {
        let ports = json!({"ports": [{ "port": port }]});
        turn.service(name, annotations(2, values), ports).await?;
        turn.has(name, &[address]).await?;
    }
    Ok(())
}

pub async fn what_is_wrong_with_an_annotation_is_told_under_its_own_name() -> Result<()> {
    let turn = Turn::take("own-names").await?;
    turn.pool("lan", &["192.0.2.0/28"]).await?;
    for (number, (prefix, names)) in PREFIXES.iter().enumerate() {
        let field = json!({"loadBalancerIP": "192.0.2.7"});
        for (name, kind, value, spec, reason, says) in [
            ("unknown", 0, "nowhere", json!({}), "UnknownPool", "nowhere"),
            ("malformed", 1, "192.0.2", json!({}), "MalformedRequest", "`192.0.2`"),
            ("contradicts", 1, "192.0.2.6", field, "ContradictoryRequest", "192.0.2.7"),
        ] {
            let name = format!("{name}-{number}");
            let annotation = format!("{prefix}/{}", names[kind]);
            turn.service(&name, json!({ &annotation: value }), spec).await?;
            turn.fails(&name, reason, &annotation).await?;
            turn.fails(&name, reason, says).await?;
            turn.merge(
                &name,
                json!({
                    "metadata": {"annotations": { annotation: null }},
                    "spec": {"loadBalancerIP": null},
                }),
            )
            .await?;
            turn.is_from(&name, "lan").await?;
        }
    }
    Ok(())
}
