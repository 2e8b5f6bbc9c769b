//! Pools: what is refused, what is told, what is counted.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{ADDRESSES, Turn, pool_condition};

pub async fn malformed_pools_are_refused_with_the_entry_and_how_to_write_it() -> Result<()> {
    let turn = Turn::take("malformed").await?;
    for (entry, says) in [
        (
            "192.0.2.7",
            "'192.0.2.7' is a single address without a prefix length: write 192.0.2.7/32",
        ),
        ("192.0.2.7/24", "'192.0.2.7/24' has host bits set"),
        (
            "192.0.2.9-192.0.2.1",
            "'192.0.2.9-192.0.2.1' is in the wrong order: write 192.0.2.1-192.0.2.9",
        ),
        ("192.0.2.1-2001:db8::1", "mixes families"),
        ("web", "'web' is neither a CIDR nor a range"),
    ] {
        let Err(error) = turn.pool("bad", &["198.51.100.0/24", entry]).await else {
            anyhow::bail!("{entry} was accepted");
        };
        let error = format!("{error:#}");
        ensure!(error.contains(says), "{entry}: {error}");
    }
    // The order of IPv6 addresses is beyond the API server: the pool says so itself.
    turn.pool("bad", &["2001:db8::9-2001:db8::1", "2001:db8::20/128"]).await?;
    let says = "`2001:db8::9-2001:db8::1`: the first address comes after the last: write 2001:db8::1-2001:db8::9";
    turn.until("the pool is not ready", async || {
        let ready = pool_condition(&turn.pool_status("bad")?, "Ready");
        let message = ready["message"].as_str().unwrap_or_default().to_owned();
        Ok(ready["status"] == "False" && message.contains(says))
    })
    .await?;
    turn.event("bad", "Warning", "InvalidAddresses", says).await?;
    turn.service("web", json!({}), json!({"ipFamilies": ["IPv6"]})).await?;
    turn.has("web", &["2001:db8::20"]).await?;
    turn.pool("bad", &["2001:db8::1-2001:db8::9"]).await?;
    turn.until("the pool is ready", async || {
        Ok(pool_condition(&turn.pool_status("bad")?, "Ready")["status"] == "True")
    })
    .await
}

pub async fn the_status_of_a_pool_counts_what_is_in_use() -> Result<()> {
    let turn = Turn::take("counts").await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "counted"}});
    turn.apply(&node).await?;
    let status = json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.0"}]});
    turn.node_status("counted", status).await?;
    turn.pool("lan", &["192.0.2.0/29", "2001:db8::/64"]).await?;
    turn.service("both", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    // The address of a node is never given out.
    turn.has("both", &["192.0.2.1", "2001:db8::"]).await?;
    let counted = async |v4: [i64; 2], v6: [i64; 2]| {
        let what = format!("the pool counts {v4:?} and {v6:?}");
        turn.until(&what, async || {
            let status = turn.pool_status("lan")?;
            Ok(status["assignedIPv4"] == v4[0]
                && status["availableIPv4"] == v4[1]
                && status["assignedIPv6"] == v6[0]
                && status["availableIPv6"] == v6[1])
        })
        .await
    };
    counted([1, 6], [1, i64::MAX]).await?;
    turn.delete("both").await?;
    counted([0, 7], [0, i64::MAX]).await?;
    turn.service("asks", json!({ADDRESSES: "192.0.2.0"}), json!({})).await?;
    turn.fails("asks", "NodeAddress", "192.0.2.0 is an address of node counted").await?;
    // What is excluded is no part of the pool; a Service that has it keeps it.
    turn.plain("keeps").await?;
    // Addresses that were free a moment ago come last.
    turn.has("keeps", &["192.0.2.2"]).await?;
    let spec = json!({
        "addresses": ["192.0.2.0/29", "2001:db8::/64"],
        "excludedAddresses": ["192.0.2.1-192.0.2.3", "2001:db8::/65"],
    });
    turn.pool_with("lan", spec).await?;
    counted([0, 4], [0, i64::MAX]).await?;
    turn.service("next", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    turn.has("next", &["192.0.2.4", "2001:db8:0:0:8000::"]).await?;
    turn.has("keeps", &["192.0.2.2"]).await?;
    turn.service("wants", json!({ADDRESSES: "192.0.2.3"}), json!({})).await?;
    turn.fails("wants", "AddressNotInPool", "no IPAddressPool contains the requested address")
        .await?;
    let spec = json!({"addresses": ["192.0.2.0/29"], "excludedAddresses": ["192.0.2.9-192.0.2.1"]});
    let Err(error) = turn.pool_with("lan", spec).await else {
        anyhow::bail!("a range in the wrong order was accepted");
    };
    ensure!(format!("{error:#}").contains("write 192.0.2.1-192.0.2.9"), "{error:#}");
    turn.lab.delete(&node).await
}

pub async fn a_policy_says_whether_it_can_be_followed_and_how_many_services_it_governs()
-> Result<()> {
    let turn = Turn::take("policies").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    let policy = |name: &str, operator: &str| {
        json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "AnnouncementPolicy",
            "metadata": {"name": name},
            "spec": {"serviceSelectors": [
                {"matchExpressions": [{"key": "app", "operator": operator, "values": ["web"]}]},
            ]},
        })
    };
    turn.apply(&policy("good", "In")).await?;
    let typo = policy("typo", "Inside");
    turn.stored("announcementpolicies.leasehold.dev", &typo, "'Inside': use In, NotIn").await?;
    turn.plain("web").await?;
    turn.merge("web", json!({"metadata": {"labels": {"app": "web"}}})).await?;
    turn.plain("other").await?;
    let status = |name: &str| -> Result<Value> {
        let json = turn.kubectl(&["get", "announcementpolicy", name, "-o", "json"])?;
        Ok(serde_json::from_str::<Value>(&json)?["status"].clone())
    };
    turn.until("the policies say what they do", async || {
        let (good, typo) = (status("good")?, status("typo")?);
        let accepted = |status| pool_condition(status, "Accepted");
        let says = accepted(&typo)["message"].as_str().unwrap_or_default().to_owned();
        Ok(accepted(&good)["status"] == "True"
            && good["services"] == 1
            && accepted(&typo)["status"] == "False"
            && says.contains("serviceSelectors[0]"))
    })
    .await?;
    for name in ["good", "typo"] {
        turn.lab.delete(&policy(name, "In")).await?;
    }
    Ok(())
}

pub async fn addresses_that_old_equipment_drops_are_neither_given_out_nor_counted() -> Result<()> {
    let turn = Turn::take("buggy").await?;
    let ends = ["192.0.2.0-192.0.2.1", "192.0.2.254-192.0.2.255"];
    turn.pool_with("lan", json!({"addresses": ends, "avoidBuggyIPs": true})).await?;
    turn.until("the pool counts two", async || Ok(turn.pool_status("lan")?["availableIPv4"] == 2))
        .await?;
    turn.plain("a").await?;
    turn.has("a", &["192.0.2.1"]).await?;
    turn.plain("b").await?;
    turn.has("b", &["192.0.2.254"]).await?;
    turn.plain("c").await?;
    turn.fails("c", "PoolExhausted", "pool lan").await?;
    for (name, address) in [("zero", "192.0.2.0"), ("last", "192.0.2.255")] {
        turn.service(name, json!({ADDRESSES: address}), json!({})).await?;
        turn.fails(name, "AddressLeftOut", "avoidBuggyIPs").await?;
    }
    turn.delete("c").await?;
    turn.pool_with("lan", json!({"addresses": ends})).await?;
    turn.has("zero", &["192.0.2.0"]).await?;
    turn.has("last", &["192.0.2.255"]).await
}
