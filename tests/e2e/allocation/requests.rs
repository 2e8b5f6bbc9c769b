//! What a Service may ask for, and what it is told when that cannot be.

use anyhow::Result;
use serde_json::json;

use super::{ADDRESSES, Turn};

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
            "no IPAddressPool holds the requested address 203.0.113.9",
        ),
        (
            "taken",
            "192.0.2.0",
            "AddressInUse",
            "192.0.2.0 belongs to service refused/owner: ask for another",
        ),
        (
            "family",
            "2001:db8::1",
            "ContradictoryRequest",
            "ipFamilies of the service do not include IPv6",
        ),
        ("twice", "192.0.2.4,192.0.2.5", "ContradictoryRequest", "one address per family"),
        (
            "garbled",
            "192.0.2",
            "MalformedRequest",
            "`192.0.2` is not an IP address: write 192.0.2.10",
        ),
    ] {
        turn.service(name, json!({ADDRESSES: asks}), json!({})).await?;
        turn.fails(name, reason, says).await?;
    }
    let field = json!({"loadBalancerIP": "192.0.2.7"});
    turn.service("both", json!({ADDRESSES: "192.0.2.6"}), field).await?;
    turn.fails("both", "ContradictoryRequest", "remove one of them").await?;

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

pub async fn families_are_served_as_the_policy_of_the_service_says() -> Result<()> {
    let turn = Turn::take("families").await?;
    turn.pool("four", &["192.0.2.0/28"]).await?;
    // Creation times have whole seconds; within one, names decide who is served first.
    turn.service("a-requires", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    turn.fails("a-requires", "NoPool", "IPv6").await?;
    turn.service("b-prefers", json!({}), json!({"ipFamilyPolicy": "PreferDualStack"})).await?;
    turn.has("b-prefers", &["192.0.2.0"]).await?;
    turn.service("c-six", json!({}), json!({"ipFamilies": ["IPv6"]})).await?;
    turn.fails("c-six", "NoPool", "IPv6").await?;

    turn.pool("four", &["192.0.2.0/28", "2001:db8::/64"]).await?;
    turn.has("a-requires", &["192.0.2.1", "2001:db8::"]).await?;
    turn.has("b-prefers", &["192.0.2.0", "2001:db8::1"]).await?;
    turn.has("c-six", &["2001:db8::2"]).await?;
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}});
    turn.merge("b-prefers", single).await?;
    turn.has("b-prefers", &["192.0.2.0"]).await
}
