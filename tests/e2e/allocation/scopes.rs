//! Which services a pool is for, and which pool comes first.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{ADDRESS_POOL, ADDRESSES, Turn, pool};

/// A pool with this `serviceAllocation`.
async fn pinned(turn: &Turn, name: &str, addresses: &str, scope: Value) -> Result<()> {
    turn.pool_with(name, json!({"addresses": [addresses], "serviceAllocation": scope})).await
}

fn labelled(label: &str, value: &str) -> Value {
    json!([{"matchLabels": { label: value }}])
}

async fn with_labels(turn: &Turn, name: &str, labels: Value) -> Result<()> {
    turn.create(name, json!({ "labels": labels }), json!({})).await
}

pub async fn pinned_pools_serve_those_whom_they_admit_before_general_pools_do() -> Result<()> {
    let turn = Turn::take("pinned").await?;
    turn.namespace("pinned-blue", json!({"team": "blue"})).await?;
    turn.namespace("pinned-red", json!({"team": "red"})).await?;
    turn.pool("a-general", &["192.0.2.0/27"]).await?;
    let blue = labelled("team", "blue");
    let gold = json!([
        {"matchLabels": {"tier": "gold"}},
        {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["silver"]}]},
    ]);
    for (name, addresses, scope) in [
        ("by-name", "192.0.2.32/27", json!({"namespaces": ["pinned-red"]})),
        ("by-label", "192.0.2.64/27", json!({"namespaceSelectors": blue})),
        ("by-service", "192.0.2.96/27", json!({"serviceSelectors": labelled("tier", "edge")})),
        (
            "narrow",
            "192.0.2.128/27",
            json!({
                "namespaces": ["pinned-red"], "namespaceSelectors": blue, "serviceSelectors": gold,
                "priority": 1,
            }),
        ),
    ] {
        pinned(&turn, name, addresses, scope).await?;
    }
    for (name, tier, pool) in [
        ("any", "", "a-general"),
        ("pinned-red/any", "", "by-name"),
        ("pinned-blue/any", "", "by-label"),
        ("edge", "edge", "by-service"),
        // Two pools admit it; they are tried by name.
        ("pinned-red/edge", "edge", "by-name"),
        ("pinned-blue/edge", "edge", "by-label"),
        ("pinned-red/gold", "gold", "narrow"),
        ("pinned-blue/gold", "gold", "narrow"),
        ("pinned-blue/silver", "silver", "narrow"),
        ("gold", "gold", "a-general"),
    ] {
        with_labels(&turn, name, json!({ "tier": tier })).await?;
        turn.is_from(name, pool).await?;
    }
    // Where the pools that are pinned to it are full, the general ones serve it.
    pinned(&turn, "narrow", "192.0.2.128/31", json!({"namespaces": ["pinned-red"], "priority": 1}))
        .await?;
    pinned(&turn, "by-name", "192.0.2.32/31", json!({"namespaces": ["pinned-red"]})).await?;
    with_labels(&turn, "pinned-red/more", json!({})).await?;
    turn.is_from("pinned-red/more", "a-general").await.map(drop)
}

pub async fn the_smaller_priority_comes_first_and_zero_last() -> Result<()> {
    let turn = Turn::take("priority").await?;
    for (number, (name, scope)) in [
        ("a", json!({})),
        ("b", json!({"priority": 20})),
        ("c", json!({"priority": 10})),
        ("d", json!({"priority": 10})),
        ("e", json!({"namespaces": ["priority"]})),
        ("f", json!({"namespaces": ["priority"], "priority": 30})),
    ]
    .into_iter()
    .enumerate()
    {
        pinned(&turn, name, &format!("192.0.2.{}/32", number + 10), scope).await?;
    }
    for (name, pool) in
        [("one", "f"), ("two", "e"), ("three", "c"), ("four", "d"), ("five", "b"), ("six", "a")]
    {
        turn.plain(name).await?;
        turn.is_from(name, pool).await?;
    }
    turn.plain("seven").await?;
    turn.fails("seven", "PoolExhausted", "pool a, pool b, pool c, pool d, pool e, pool f").await
}

pub async fn a_pool_that_does_not_admit_a_service_is_closed_to_its_requests_too() -> Result<()> {
    let turn = Turn::take("closed").await?;
    turn.pool("lan", &["192.0.2.0/28"]).await?;
    let nobody = labelled("team", "nobody");
    for (name, addresses, scope) in [
        ("no-namespace", "198.51.100.0/29", json!({"namespaceSelectors": nobody})),
        ("no-service", "198.51.100.8/29", json!({"serviceSelectors": nobody})),
        ("other-namespace", "198.51.100.16/29", json!({"namespaces": ["elsewhere"]})),
    ] {
        pinned(&turn, name, addresses, scope).await?;
    }
    for (pool, address, admits) in [
        ("no-namespace", "198.51.100.3", "team=nobody"),
        ("no-service", "198.51.100.11", "team=nobody"),
        ("other-namespace", "198.51.100.19", "elsewhere"),
    ] {
        for (name, annotation, value) in [
            (format!("{pool}-pool"), ADDRESS_POOL, pool),
            (format!("{pool}-address"), ADDRESSES, address),
        ] {
            turn.service(&name, json!({ annotation: value }), json!({})).await?;
            turn.fails(&name, "NotAdmitted", &format!("pool {pool}")).await?;
            turn.fails(&name, "NotAdmitted", admits).await?;
            ensure!(turn.events(&name, "Warning", "AllocationFailed", "").await? == 1, "{name}");
            turn.annotate(&name, annotation, Value::Null).await?;
            turn.is_from(&name, "lan").await?;
        }
    }
    Ok(())
}

pub async fn labels_of_namespaces_and_services_open_pools_and_take_nothing_away() -> Result<()> {
    let turn = Turn::take("labels").await?;
    pinned(
        &turn,
        "green",
        "192.0.2.0/29",
        json!({"namespaceSelectors": labelled("team", "green")}),
    )
    .await?;
    pinned(&turn, "edge", "198.51.100.0/29", json!({"serviceSelectors": labelled("tier", "edge")}))
        .await?;
    turn.plain("by-namespace").await?;
    turn.fails("by-namespace", "NoPool", "IPAddressPool").await?;
    turn.plain("by-service").await?;
    turn.fails("by-service", "NoPool", "IPAddressPool").await?;

    turn.merge("by-service", json!({"metadata": {"labels": {"tier": "edge"}}})).await?;
    turn.has("by-service", &["198.51.100.0"]).await?;
    turn.namespace("labels", json!({"team": "green"})).await?;
    turn.has("by-namespace", &["192.0.2.0"]).await?;

    turn.namespace("labels", json!({})).await?;
    turn.merge("by-service", json!({"metadata": {"labels": {"tier": null}}})).await?;
    for (name, address, pool) in
        [("by-namespace", "192.0.2.0", "green"), ("by-service", "198.51.100.0", "edge")]
    {
        turn.says(name, "True", "AddressKept", &format!("pool {pool}")).await?;
        turn.says(name, "True", "AddressKept", "leasehold.dev/reassign=true").await?;
        turn.has(name, &[address]).await?;
    }
    turn.namespace("labels", json!({"team": "green"})).await?;
    turn.says("by-namespace", "True", "AddressAssigned", "192.0.2.0 from pool green").await
}

pub async fn a_pool_that_is_disabled_or_not_for_all_says_so_to_those_who_ask() -> Result<()> {
    let turn = Turn::take("disabled").await?;
    let off = |disabled: bool| json!({"addresses": ["192.0.2.0/29"], "disabled": disabled});
    turn.pool_with("off", off(false)).await?;
    turn.plain("early").await?;
    turn.has("early", &["192.0.2.0"]).await?;
    let reserved = json!({"addresses": ["198.51.100.0/29"], "autoAssign": false});
    turn.pool_with("reserved", reserved).await?;
    turn.pool_with("off", off(true)).await?;

    turn.plain("late").await?;
    turn.fails("late", "NoPool", "autoAssign").await?;
    for (name, annotation, value) in
        [("by-pool", ADDRESS_POOL, "off"), ("by-address", ADDRESSES, "192.0.2.5")]
    {
        turn.service(name, json!({ annotation: value }), json!({})).await?;
        turn.fails(name, "PoolDisabled", "pool off").await?;
        turn.fails(name, "PoolDisabled", "disabled").await?;
    }
    turn.service("reserved-pool", json!({ADDRESS_POOL: "reserved"}), json!({})).await?;
    turn.has("reserved-pool", &["198.51.100.0"]).await?;
    turn.service("reserved-address", json!({ADDRESSES: "198.51.100.5"}), json!({})).await?;
    turn.has("reserved-address", &["198.51.100.5"]).await?;
    turn.has("early", &["192.0.2.0"]).await?;
    turn.says("early", "True", "AddressAssigned", "192.0.2.0 from pool off").await?;

    turn.pool_with("off", off(false)).await?;
    turn.has("by-address", &["192.0.2.5"]).await?;
    for name in ["late", "by-pool"] {
        turn.is_from(name, "off").await?;
    }
    Ok(())
}

pub async fn a_selector_that_cannot_be_read_closes_its_pool_and_no_other() -> Result<()> {
    let turn = Turn::take("unreadable").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    let typo = json!([{"matchExpressions": [{"key": "team", "operator": "Inn", "values": ["a"]}]}]);
    for field in ["namespaceSelectors", "serviceSelectors"] {
        let scope =
            json!({ "addresses": ["198.51.100.0/29"], "serviceAllocation": { field: typo } });
        let pool = pool("typo", &scope);
        turn.stored("ipaddresspools.leasehold.dev", &pool, "'Inn': use In, NotIn").await?;
        turn.pool_says("typo", "Ready", "False", &format!("{field}[0]")).await?;
        turn.event("typo", "Warning", "InvalidSelector", "Inn").await?;
        let name = field.to_lowercase();
        turn.service(&name, json!({ADDRESS_POOL: "typo"}), json!({})).await?;
        turn.fails(&name, "NotAdmitted", "pool typo").await?;
    }
    turn.pool_says("lan", "Ready", "True", "").await?;
    turn.plain("any").await?;
    turn.has("any", &["192.0.2.0"]).await?;
    pinned(&turn, "typo", "198.51.100.0/29", json!({"namespaces": ["unreadable"]})).await?;
    turn.pool_says("typo", "Ready", "True", "").await?;
    turn.is_from("serviceselectors", "typo").await.map(drop)
}
