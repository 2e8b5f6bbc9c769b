//! Services that have one address together.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{ADDRESSES, CLAIM, SHARED_ADDRESS, Turn, annotation, versions};

/// A port of TCP.
fn tcp(port: u16) -> Value {
    json!({"name": format!("tcp-{port}"), "port": port})
}

/// A port of UDP.
fn udp(port: u16) -> Value {
    json!({"name": format!("udp-{port}"), "port": port, "protocol": "UDP"})
}

/// Traffic only to the nodes with a pod of this application.
fn local(app: &str) -> Value {
    json!({"externalTrafficPolicy": "Local", "selector": { "app": app }})
}

/// A service that would share its address; `spec` is merged into its `spec`.
async fn sharer(turn: &Turn, name: &str, key: &str, ports: &[Value], spec: Value) -> Result<()> {
    let mut spec = spec;
    spec["ports"] = json!(ports);
    let annotations = if key.is_empty() { json!({}) } else { json!({ SHARED_ADDRESS: key }) };
    turn.service(name, annotations, spec).await
}

/// What the lease of a claim says of its services and of how many addresses it lists.
async fn listed(turn: &Turn, claim: &str) -> Result<Option<(String, usize)>> {
    let lease = turn.lease(claim).await?;
    Ok(lease.map(|lease| {
        let annotations = lease.metadata.annotations.unwrap_or_default();
        let says = |name: &str| annotations.get(name).cloned().unwrap_or_default();
        let addresses = says("leasehold.dev/addresses");
        let count = addresses.split(',').filter(|entry| !entry.trim().is_empty()).count();
        (says("leasehold.dev/services"), count)
    }))
}

/// Waits until the lease of a claim names these services, in any order, and lists one address.
async fn governs(turn: &Turn, claim: &str, services: &[&str]) -> Result<()> {
    turn.until(&format!("claim {claim} names {services:?}"), async || {
        let Some((names, addresses)) = listed(turn, claim).await? else { return Ok(false) };
        let mut names: Vec<&str> = names.split(',').map(str::trim).collect();
        names.sort_unstable();
        Ok(names == services && addresses == 1)
    })
    .await
}

pub async fn services_with_one_key_share_an_address_where_they_do_not_collide() -> Result<()> {
    let turn = Turn::take("sharing").await?;
    turn.pool("lan", &["192.0.2.0/28", "2001:db8::/120"]).await?;
    let rows: &[(&str, &str, &[Value], Value, &str)] = &[
        ("first", "key", &[tcp(80)], json!({}), "192.0.2.0"),
        ("other-port", "key", &[tcp(443)], json!({}), "192.0.2.0"),
        ("other-protocol", "key", &[udp(80)], json!({}), "192.0.2.0"),
        ("collides", "key", &[tcp(8080), tcp(80)], json!({}), "192.0.2.1"),
        ("collides-twice", "key", &[tcp(80), udp(9000)], json!({}), "192.0.2.2"),
        ("oldest-that-fits", "key", &[tcp(443), tcp(81)], json!({}), "192.0.2.1"),
        ("other-key", "other", &[tcp(82)], json!({}), "192.0.2.3"),
        ("no-key", "", &[tcp(83)], json!({}), "192.0.2.4"),
        ("local", "key", &[tcp(84)], local("web"), "192.0.2.5"),
        ("joins-the-other", "other", &[tcp(80)], json!({}), "192.0.2.3"),
    ];
    for (name, key, ports, spec, address) in rows {
        sharer(&turn, name, key, ports, spec.clone()).await?;
        turn.has(name, &[address]).await?;
    }
    let dual = json!({"ipFamilyPolicy": "RequireDualStack"});
    sharer(&turn, "dual-a", "both", &[tcp(80)], dual.clone()).await?;
    turn.has("dual-a", &["192.0.2.6", "2001:db8::"]).await?;
    sharer(&turn, "dual-b", "both", &[tcp(443)], dual).await?;
    turn.has("dual-b", &["192.0.2.6", "2001:db8::"]).await?;
    sharer(&turn, "dual-c", "both", &[tcp(444)], json!({"ipFamilies": ["IPv6"]})).await?;
    turn.has("dual-c", &["2001:db8::"]).await?;
    // What several have is one address.
    turn.until("the pool counts addresses", async || {
        let status = turn.pool_status("lan")?;
        Ok(status["assignedIPv4"] == 7
            && status["availableIPv4"] == 9
            && status["assignedIPv6"] == 1)
    })
    .await?;
    // The last one frees it.
    for name in ["dual-a", "dual-b", "dual-c"] {
        turn.delete(name).await?;
    }
    turn.until("the pool counts what is left", async || {
        let status = turn.pool_status("lan")?;
        Ok(status["assignedIPv4"] == 6 && status["assignedIPv6"] == 0)
    })
    .await
}

pub async fn services_that_want_traffic_only_where_their_pods_are_share_if_these_are_the_same()
-> Result<()> {
    let turn = Turn::take("sharing-local").await?;
    turn.pool_with("lan", json!({"addresses": ["192.0.2.0/28"], "sharing": "AnyNamespace"}))
        .await?;
    for (name, port, spec, address) in [
        ("first", 80, local("web"), "192.0.2.0"),
        ("same-pods", 443, local("web"), "192.0.2.0"),
        ("other-pods", 444, local("api"), "192.0.2.1"),
        ("everywhere", 445, json!({"selector": {"app": "web"}}), "192.0.2.2"),
        ("also-everywhere", 446, json!({"selector": {"app": "api"}}), "192.0.2.2"),
    ] {
        sharer(&turn, name, "key", &[tcp(port)], spec).await?;
        turn.has(name, &[address]).await?;
    }
    // The same selector in another namespace means other pods.
    turn.namespace("sharing-local-elsewhere", json!({})).await?;
    let elsewhere = "sharing-local-elsewhere/web";
    sharer(&turn, elsewhere, "key", &[tcp(447)], local("web")).await?;
    turn.has(elsewhere, &["192.0.2.3"]).await?;

    // It is looked at again when selectors and policies change: the elder keeps the address.
    turn.merge("same-pods", json!({"spec": {"selector": {"app": "api"}}})).await?;
    turn.has("same-pods", &["192.0.2.1"]).await?;
    // Of those that were created within one second the name says who is the elder.
    let apart =
        "Services that share an address must all have externalTrafficPolicy Cluster, or all Local";
    turn.says("same-pods", "True", "AddressAssigned", apart).await?;
    turn.merge("first", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;
    let asks = json!({ADDRESSES: "192.0.2.0", SHARED_ADDRESS: "key"});
    turn.service("wants", asks, json!({"ports": [tcp(448)]})).await?;
    turn.has("wants", &["192.0.2.0"]).await?;
    turn.merge("first", json!({"spec": local("web")})).await?;
    turn.fails("wants", "AddressInUse", "192.0.2.0 belongs to Service sharing-local/first").await?;
    turn.has("first", &["192.0.2.0"]).await
}

pub async fn requests_for_an_address_of_another_say_why_it_is_not_shared() -> Result<()> {
    let turn = Turn::take("sharing-asks").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.namespace("sharing-asks-elsewhere", json!({})).await?;
    sharer(&turn, "owner", "key", &[tcp(80), udp(53)], json!({})).await?;
    turn.has("owner", &["192.0.2.0"]).await?;
    let asks = async |name: &str, key: &str, port: Value, spec: Value| {
        let mut spec = spec;
        spec["ports"] = json!([port]);
        let key = if key.is_empty() { Value::Null } else { json!(key) };
        turn.service(name, json!({ADDRESSES: "192.0.2.0", SHARED_ADDRESS: key}), spec).await
    };
    for (name, key, port, spec, says) in [
        ("no-key", "", tcp(81), json!({}), "leasehold.dev/shared-address"),
        ("other-key", "other", tcp(81), json!({}), "`key`"),
        ("port", "key", tcp(80), json!({}), "80/TCP"),
        ("datagrams", "key", udp(53), json!({}), "53/UDP"),
        ("policy", "key", tcp(81), local("web"), "externalTrafficPolicy"),
        ("sharing-asks-elsewhere/far", "key", tcp(81), json!({}), "AnyNamespace"),
    ] {
        asks(name, key, port, spec).await?;
        turn.fails(name, "AddressInUse", "192.0.2.0 belongs to Service sharing-asks/owner").await?;
        turn.fails(name, "AddressInUse", says).await?;
    }
    asks("fits", "key", tcp(443), json!({})).await?;
    turn.has("fits", &["192.0.2.0"]).await?;

    // Each recovers by what it was told.
    turn.annotate("no-key", SHARED_ADDRESS, json!("key")).await?;
    turn.has("no-key", &["192.0.2.0"]).await?;
    turn.annotate("other-key", SHARED_ADDRESS, json!("key")).await?;
    turn.fails("other-key", "AddressInUse", "81/TCP").await?;
    turn.merge("other-key", json!({"spec": {"ports": [tcp(82)]}})).await?;
    turn.has("other-key", &["192.0.2.0"]).await?;
    turn.merge("port", json!({"spec": {"ports": [tcp(83)]}})).await?;
    turn.has("port", &["192.0.2.0"]).await?;
    let cluster = json!({"externalTrafficPolicy": "Cluster", "ports": [tcp(84)]});
    turn.merge("policy", json!({ "spec": cluster })).await?;
    turn.has("policy", &["192.0.2.0"]).await
}

pub async fn services_of_several_namespaces_share_where_the_pool_says_so() -> Result<()> {
    let turn = Turn::take("sharing-wide").await?;
    let pool = |sharing: &str| json!({"addresses": ["192.0.2.0/29"], "sharing": sharing});
    turn.namespace("sharing-wide-far", json!({})).await?;
    turn.pool_with("lan", pool("SameNamespace")).await?;
    sharer(&turn, "near", "key", &[tcp(80)], json!({})).await?;
    turn.has("near", &["192.0.2.0"]).await?;
    sharer(&turn, "sharing-wide-far/one", "key", &[tcp(81)], json!({})).await?;
    turn.has("sharing-wide-far/one", &["192.0.2.1"]).await?;
    // A namespace's own services share among themselves.
    sharer(&turn, "sharing-wide-far/two", "key", &[tcp(82)], json!({})).await?;
    turn.has("sharing-wide-far/two", &["192.0.2.1"]).await?;

    turn.pool_with("lan", pool("AnyNamespace")).await?;
    sharer(&turn, "sharing-wide-far/three", "key", &[tcp(83)], json!({})).await?;
    turn.has("sharing-wide-far/three", &["192.0.2.0"]).await?;
    let claim = turn.claim("near").await?;
    ensure!(turn.claim("sharing-wide-far/three").await? == claim, "two claims");
    ensure!(claim.as_deref() == Some("sharing-wide.near"), "{claim:?}");
    governs(&turn, "sharing-wide.near", &["sharing-wide-far/three", "sharing-wide/near"]).await?;

    // Who shares goes on sharing when the pool does not allow it any more.
    let names = ["near", "sharing-wide-far/one", "sharing-wide-far/two", "sharing-wide-far/three"];
    let before = versions(&turn, &names).await?;
    turn.pool_with("lan", pool("SameNamespace")).await?;
    sharer(&turn, "sharing-wide-far/four", "key", &[tcp(84)], json!({})).await?;
    turn.has("sharing-wide-far/four", &["192.0.2.1"]).await?;
    turn.restart_operator().await?;
    sharer(&turn, "sharing-wide-far/five", "key", &[tcp(85)], json!({})).await?;
    turn.has("sharing-wide-far/five", &["192.0.2.1"]).await?;
    turn.has("sharing-wide-far/three", &["192.0.2.0"]).await?;
    ensure!(versions(&turn, &names[..3]).await? == before[..3], "the edit of a pool writes");
    Ok(())
}

pub async fn all_sharers_record_one_claim_as_long_as_one_of_them_is_left() -> Result<()> {
    let turn = Turn::take("one-claim").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    for (name, port) in [("a", 80), ("b", 81), ("c", 82)] {
        sharer(&turn, name, "key", &[tcp(port)], json!({})).await?;
        turn.has(name, &["192.0.2.0"]).await?;
        ensure!(turn.claim(name).await?.as_deref() == Some("one-claim.a"), "{name}");
    }
    governs(&turn, "one-claim.a", &["one-claim/a", "one-claim/b", "one-claim/c"]).await?;

    // The one that the claim is named after goes.
    let before = versions(&turn, &["b", "c"]).await?;
    turn.delete("a").await?;
    governs(&turn, "one-claim.a", &["one-claim/b", "one-claim/c"]).await?;
    ensure!(versions(&turn, &["b", "c"]).await? == before, "wrote to those that stay");
    turn.restart_operator().await?;
    sharer(&turn, "d", "key", &[tcp(83)], json!({})).await?;
    turn.has("d", &["192.0.2.0"]).await?;
    ensure!(turn.claim("d").await?.as_deref() == Some("one-claim.a"));

    // And comes back on its own: that claim governs what others have.
    turn.plain("a").await?;
    turn.has("a", &["192.0.2.1"]).await?;
    let claim = turn.claim_of_address("192.0.2.1");
    ensure!(turn.claim("a").await?.as_deref() == Some(claim.as_str()));
    governs(&turn, &claim, &["one-claim/a"]).await?;
    governs(&turn, "one-claim.a", &["one-claim/b", "one-claim/c", "one-claim/d"]).await?;
    // One that joins it is under the same.
    turn.annotate("a", SHARED_ADDRESS, json!("own")).await?;
    sharer(&turn, "e", "own", &[tcp(8080)], json!({})).await?;
    turn.has("e", &["192.0.2.1"]).await?;
    ensure!(turn.claim("e").await?.as_deref() == Some(claim.as_str()));
    ensure!(turn.claim("a").await?.as_deref() == Some(claim.as_str()));

    for name in ["b", "c", "d"] {
        turn.delete(name).await?;
    }
    turn.until("the claim of nobody goes", async || Ok(turn.lease("one-claim.a").await?.is_none()))
        .await?;
    for name in ["a", "e"] {
        turn.delete(name).await?;
    }
    turn.until("the claim of an address goes", async || Ok(turn.lease(&claim).await?.is_none()))
        .await
}

pub async fn a_service_that_begins_or_ends_to_share_moves_alone() -> Result<()> {
    let turn = Turn::take("alone").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.plain("a").await?;
    turn.has("a", &["192.0.2.0"]).await?;
    let mark = async |name: &str| -> Result<_> {
        let service = turn.get(name).await?;
        Ok((turn.addresses(name).await?, annotation(&service, CLAIM).map(str::to_owned)))
    };
    let before = mark("a").await?;
    turn.annotate("a", SHARED_ADDRESS, json!("key")).await?;
    turn.plain("settled").await?;
    turn.has("settled", &["192.0.2.1"]).await?;
    ensure!(mark("a").await? == before, "it moved when it began to share");

    sharer(&turn, "b", "key", &[tcp(81)], json!({})).await?;
    turn.has("b", &["192.0.2.0"]).await?;
    turn.annotate("b", SHARED_ADDRESS, Value::Null).await?;
    turn.has("b", &["192.0.2.2"]).await?;
    ensure!(turn.claim("b").await?.as_deref() == Some("alone.b"));
    governs(&turn, "alone.a", &["alone/a"]).await?;
    governs(&turn, "alone.b", &["alone/b"]).await?;
    ensure!(mark("a").await? == before, "it moved with the other");

    // The elder stays where it is even if it is the one that ends the sharing.
    turn.annotate("b", SHARED_ADDRESS, json!("key")).await?;
    turn.plain("settled-too").await?;
    turn.has("settled-too", &["192.0.2.3"]).await?;
    turn.has("b", &["192.0.2.2"]).await?;
    sharer(&turn, "c", "key", &[tcp(82)], json!({})).await?;
    turn.has("c", &["192.0.2.0"]).await?;
    turn.annotate("a", SHARED_ADDRESS, Value::Null).await?;
    turn.has("c", &["192.0.2.2"]).await?;
    ensure!(turn.claim("c").await?.as_deref() == Some("alone.b"));
    ensure!(mark("a").await? == before, "the elder moved");
    governs(&turn, "alone.b", &["alone/b", "alone/c"]).await
}

pub async fn of_sharers_that_collide_the_younger_gets_another_address() -> Result<()> {
    let turn = Turn::take("collide").await?;
    turn.pool("lan", &["192.0.2.0/31"]).await?;
    for (name, port) in [("a", 80), ("b", 81), ("c", 82)] {
        sharer(&turn, name, "key", &[tcp(port)], json!({})).await?;
        turn.has(name, &["192.0.2.0"]).await?;
    }
    // The younger makes room, whoever was edited.
    turn.merge("b", json!({"spec": {"ports": [tcp(80)]}})).await?;
    turn.has("b", &["192.0.2.1"]).await?;
    turn.event("b", "Normal", "AddressAssigned", "instead of 192.0.2.0").await?;
    let apart = "192.0.2.0 is not shared with Service collide/a: both use port 80/TCP";
    turn.says("b", "True", "AddressAssigned", apart).await?;
    turn.merge("a", json!({"spec": {"ports": [tcp(80), tcp(82)]}})).await?;
    turn.has("c", &["192.0.2.1"]).await?;
    turn.has("a", &["192.0.2.0"]).await?;
    ensure!(turn.claim("a").await?.as_deref() == Some("collide.a"));
    ensure!(turn.claim("c").await? == turn.claim("b").await?);

    // Where there is no other, it waits, and is told why.
    turn.merge("c", json!({"spec": {"ports": [tcp(80)]}})).await?;
    turn.fails("c", "PoolExhausted", "pool lan").await?;
    turn.delete("b").await?;
    turn.has("c", &["192.0.2.1"]).await
}
