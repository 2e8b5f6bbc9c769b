//! What a Service may ask for, and what it is told when that cannot be.

use anyhow::Result;
use serde_json::{Value, json};

use super::{ADDRESS_POOL, ADDRESSES, Turn};

pub async fn services_get_the_addresses_that_they_ask_for() -> Result<()> {
    let turn = Turn::take("asks").await?;
    turn.pool("lan", &["192.0.2.0/28", "2001:db8::/120"]).await?;
    let closed = json!({"addresses": ["198.51.100.0/28"], "autoAssign": false});
    turn.pool_with("reserved", closed).await?;
    let dual = json!({"ipFamilyPolicy": "RequireDualStack"});

    turn.service("field", json!({}), json!({"loadBalancerIP": "192.0.2.9"})).await?;
    turn.has("field", &["192.0.2.9"]).await?;
    turn.service("one", json!({ADDRESSES: "198.51.100.3"}), json!({})).await?;
    turn.has("one", &["198.51.100.3"]).await?;
    turn.service("two", json!({ADDRESSES: "192.0.2.5, 2001:db8::5"}), dual).await?;
    turn.has("two", &["192.0.2.5", "2001:db8::5"]).await?;

    // It moves when it asks for another, and stays when it asks for nothing any more.
    turn.merge("one", json!({"metadata": {"annotations": {ADDRESSES: "198.51.100.4"}}})).await?;
    turn.has("one", &["198.51.100.4"]).await?;
    turn.merge("one", json!({"metadata": {"annotations": {ADDRESSES: null}}})).await?;
    turn.plain("next").await?;
    turn.has("next", &["192.0.2.0"]).await?;
    turn.has("one", &["198.51.100.4"]).await
}

pub async fn requests_that_cannot_be_met_say_what_to_change_and_recover() -> Result<()> {
    let turn = Turn::take("refused").await?;
    turn.pool("lan", &["192.0.2.0/28"]).await?;
    turn.plain("owner").await?;
    turn.has("owner", &["192.0.2.0"]).await?;
    for (name, asks, reason, says) in [
        (
            "outside",
            "203.0.113.9",
            "AddressNotInPool",
            "no IPAddressPool contains the requested address 203.0.113.9",
        ),
        (
            "taken",
            "192.0.2.0",
            "AddressInUse",
            "192.0.2.0 belongs to Service refused/owner: request another one",
        ),
        (
            "family",
            "2001:db8::1",
            "ContradictoryRequest",
            "ipFamilies of the Service do not include IPv6",
        ),
        ("twice", "192.0.2.4,192.0.2.5", "ContradictoryRequest", "one address per family"),
        (
            "garbled",
            "192.0.2",
            "MalformedRequest",
            "`192.0.2` is not a valid IP address: write 192.0.2.10",
        ),
    ] {
        turn.service(name, json!({ADDRESSES: asks}), json!({})).await?;
        turn.fails(name, reason, says).await?;
    }
    let field = json!({"loadBalancerIP": "192.0.2.7"});
    turn.service("both", json!({ADDRESSES: "192.0.2.6"}), field).await?;
    turn.fails("both", "ContradictoryRequest", "remove one of the two").await?;

    turn.pool("more", &["203.0.113.0/28"]).await?;
    turn.has("outside", &["203.0.113.9"]).await?;
    turn.delete("owner").await?;
    turn.has("taken", &["192.0.2.0"]).await?;
    turn.merge("garbled", json!({"metadata": {"annotations": {ADDRESSES: "192.0.2.3"}}})).await?;
    turn.has("garbled", &["192.0.2.3"]).await?;
    // Each was told once.
    for name in ["outside", "taken", "garbled"] {
        let told = turn.events(name, "Warning", "AllocationFailed", "").await?;
        anyhow::ensure!(told == 1, "{name} was told {told} times");
    }
    Ok(())
}

pub async fn a_service_gets_its_addresses_from_the_pool_that_it_names() -> Result<()> {
    let turn = Turn::take("named").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    let reserved = json!({"addresses": ["198.51.100.0/29", "2001:db8::/64"], "autoAssign": false});
    turn.pool_with("reserved", reserved).await?;
    turn.plain("any").await?;
    turn.has("any", &["192.0.2.0"]).await?;
    turn.service("one", json!({ADDRESS_POOL: "reserved"}), json!({})).await?;
    turn.has("one", &["198.51.100.0"]).await?;
    let dual = json!({"ipFamilyPolicy": "RequireDualStack"});
    turn.service("both", json!({ADDRESS_POOL: "reserved"}), dual).await?;
    turn.has("both", &["198.51.100.1", "2001:db8::"]).await?;
    let address_too = json!({ADDRESS_POOL: "reserved", ADDRESSES: "198.51.100.5"});
    turn.service("exact", address_too, json!({})).await?;
    turn.has("exact", &["198.51.100.5"]).await?;

    // It moves when it names another pool, and stays when it names none any more.
    turn.annotate("one", ADDRESS_POOL, json!("lan")).await?;
    turn.has("one", &["192.0.2.1"]).await?;
    turn.is_from("one", "lan").await?;
    turn.event("one", "Normal", "AddressAssigned", "instead of 198.51.100.0").await?;
    turn.annotate("any", ADDRESS_POOL, json!("reserved")).await?;
    turn.is_from("any", "reserved").await?;
    turn.annotate("any", ADDRESS_POOL, Value::Null).await?;
    turn.plain("next").await?;
    turn.is_from("next", "lan").await?;
    turn.is_from("any", "reserved").await.map(drop)
}

pub async fn an_address_that_has_become_wrong_is_taken_back_and_comes_back_with_the_request()
-> Result<()> {
    let turn = Turn::take("restored").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.pool("other", &["198.51.100.0/29"]).await?;
    for (name, address) in [("a", "192.0.2.0"), ("b", "192.0.2.1"), ("c", "192.0.2.2")] {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    // A lower address is free, too.
    turn.delete("a").await?;
    for (annotation, value, reason, says) in [
        (ADDRESSES, "203.0.113.9", "AddressNotInPool", "203.0.113.9"),
        (ADDRESSES, "192.0.2.2", "AddressInUse", "restored/c"),
    ] {
        turn.annotate("b", annotation, json!(value)).await?;
        turn.fails("b", reason, says).await?;
        turn.event("b", "Normal", "AddressReleased", "192.0.2.1").await?;
        turn.annotate("b", annotation, Value::Null).await?;
        turn.has("b", &["192.0.2.1"]).await?;
    }
    // A typing error is no wish for another address: that would be an outage by one letter.
    let released = turn.events("b", "Normal", "AddressReleased", "").await?;
    for (annotation, value, reason, says) in [
        (ADDRESSES, "192.0.2", "MalformedRequest", "`192.0.2` is not a valid IP address"),
        (ADDRESSES, "192.0.2.4,192.0.2.5", "ContradictoryRequest", "one address per family"),
        (ADDRESS_POOL, "nowhere", "UnknownPool", "nowhere"),
    ] {
        turn.annotate("b", annotation, json!(value)).await?;
        turn.says("b", "False", reason, "restored/b keeps 192.0.2.1, because its request").await?;
        turn.event("b", "Warning", "AllocationFailed", says).await?;
        turn.has("b", &["192.0.2.1"]).await?;
        turn.annotate("b", annotation, Value::Null).await?;
        turn.says("b", "True", "AddressAssigned", "192.0.2.1 from pool lan").await?;
    }
    let kept = turn.events("b", "Normal", "AddressReleased", "").await?;
    anyhow::ensure!(kept == released, "it was given up {} times", kept - released);
    turn.annotate("b", ADDRESS_POOL, json!("other")).await?;
    turn.has("b", &["198.51.100.0"]).await?;
    turn.annotate("b", ADDRESS_POOL, json!("lan")).await?;
    turn.has("b", &["192.0.2.1"]).await
}

pub async fn requests_for_pools_that_cannot_be_met_say_what_to_change() -> Result<()> {
    let turn = Turn::take("bad-pools").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.pool("single", &["198.51.100.7/32"]).await?;
    turn.service("holder", json!({ADDRESS_POOL: "single"}), json!({})).await?;
    turn.has("holder", &["198.51.100.7"]).await?;
    let six = json!({"ipFamilies": ["IPv6"]});
    let field = json!({"loadBalancerIP": "192.0.2.3"});
    let rows: &[(&str, Value, Value, &str, &[&str])] = &[
        (
            "unknown",
            json!({ADDRESS_POOL: "nowhere"}),
            json!({}),
            "UnknownPool",
            &["nowhere", "lan", "single"],
        ),
        (
            "elsewhere",
            json!({ADDRESS_POOL: "single", ADDRESSES: "192.0.2.3"}),
            json!({}),
            "ContradictoryRequest",
            &["192.0.2.3", "single", "lan"],
        ),
        (
            "by-field",
            json!({ADDRESS_POOL: "single"}),
            field,
            "ContradictoryRequest",
            &["192.0.2.3", "single", "lan"],
        ),
        ("full", json!({ADDRESS_POOL: "single"}), json!({}), "PoolExhausted", &["IPv4", "single"]),
        ("family", json!({ADDRESS_POOL: "single"}), six, "PoolExhausted", &["IPv6", "single"]),
    ];
    for (name, annotations, spec, reason, says) in rows {
        turn.service(name, annotations.clone(), spec.clone()).await?;
        for text in *says {
            turn.fails(name, reason, text).await?;
        }
    }
    turn.delete("holder").await?;
    turn.has("full", &["198.51.100.7"]).await?;
    turn.pool("nowhere", &["203.0.113.0/30"]).await?;
    turn.has("unknown", &["203.0.113.0"]).await?;
    for (name, annotation, address) in
        [("elsewhere", ADDRESS_POOL, "192.0.2.3"), ("by-field", ADDRESS_POOL, "192.0.2.3")]
    {
        turn.annotate(name, annotation, Value::Null).await?;
        turn.has(name, &[address]).await?;
        turn.delete(name).await?;
    }
    // Each was told once.
    for (name, ..) in rows {
        let told = turn.events(name, "Warning", "AllocationFailed", "").await?;
        anyhow::ensure!(told == 1, "{name} was told {told} times");
    }
    Ok(())
}
