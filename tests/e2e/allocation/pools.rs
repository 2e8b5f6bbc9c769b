//! Pools: what is refused, what is told, what is counted.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{ADDRESSES, SOON, Turn};

fn pool_condition(status: &Value, name: &str) -> Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == name).cloned().unwrap_or_default()
}

pub async fn malformed_pools_are_refused_with_the_entry_and_how_to_write_it() -> Result<()> {
    let turn = Turn::take("malformed").await?;
    for (entry, says) in [
        (
            "192.0.2.7",
            "'192.0.2.7' is a single address and needs a prefix length: write 192.0.2.7/32",
        ),
        ("192.0.2.7/24", "'192.0.2.7/24' has bits set behind its prefix"),
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
    turn.lab
        .eventually("the pool is not ready", SOON, async || {
            let ready = pool_condition(&turn.pool_status("bad")?, "Ready");
            let message = ready["message"].as_str().unwrap_or_default().to_owned();
            Ok(ready["status"] == "False" && message.contains(says))
        })
        .await?;
    turn.event("bad", "Warning", "InvalidAddresses", says).await?;
    turn.service("web", json!({}), json!({"ipFamilies": ["IPv6"]})).await?;
    turn.has("web", &["2001:db8::20"]).await?;
    turn.pool("bad", &["2001:db8::1-2001:db8::9"]).await?;
    turn.lab
        .eventually("the pool is ready", SOON, async || {
            Ok(pool_condition(&turn.pool_status("bad")?, "Ready")["status"] == "True")
        })
        .await
}

pub async fn of_two_pools_that_overlap_the_earlier_wins_and_the_later_says_so() -> Result<()> {
    let turn = Turn::take("overlap").await?;
    turn.pool("zebra", &["192.0.2.4-192.0.2.5"]).await?;
    // Creation times have whole seconds; among equals the name would decide.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    turn.pool("ant", &["192.0.2.4/30"]).await?;
    let says = "192.0.2.4-192.0.2.5 belongs to the earlier pool zebra";
    turn.event("ant", "Warning", "Overlapping", says).await?;
    turn.lab
        .eventually("the pools say who owns what", SOON, async || {
            let (ant, zebra) = (turn.pool_status("ant")?, turn.pool_status("zebra")?);
            let overlaps = |status| pool_condition(status, "Overlapping")["status"].clone();
            let ready = |status| pool_condition(status, "Ready")["status"].clone();
            Ok(overlaps(&ant) == "True"
                && overlaps(&zebra) == "False"
                && ready(&ant) == "True"
                && ant["availableIPv4"] == 2
                && zebra["availableIPv4"] == 2)
        })
        .await?;
    turn.service("shared", json!({ADDRESSES: "192.0.2.4"}), json!({})).await?;
    turn.has("shared", &["192.0.2.4"]).await?;
    turn.event("shared", "Normal", "AddressAssigned", "from pool zebra").await?;
    turn.plain("any").await?;
    turn.has("any", &["192.0.2.6"]).await?;
    turn.event("any", "Normal", "AddressAssigned", "from pool ant").await
}

pub async fn the_status_of_a_pool_counts_what_is_in_use() -> Result<()> {
    let turn = Turn::take("counts").await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "counted"}});
    turn.lab.apply(node.clone()).await?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.0"}]}});
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(turn.lab.admin());
    let merge = kube::api::Patch::Merge(status);
    nodes.patch_status("counted", &kube::api::PatchParams::default(), &merge).await?;
    turn.pool("lan", &["192.0.2.0/29", "2001:db8::/64"]).await?;
    turn.service("both", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    // The address of a node is never given out.
    turn.has("both", &["192.0.2.1", "2001:db8::"]).await?;
    let counted = async |v4: [i64; 2], v6: [i64; 2]| {
        let what = format!("the pool counts {v4:?} and {v6:?}");
        turn.lab
            .eventually(&what, SOON, async || {
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
    turn.lab.apply(policy("good", "In")).await?;
    turn.lab.apply(policy("typo", "Inside")).await?;
    turn.plain("web").await?;
    turn.merge("web", json!({"metadata": {"labels": {"app": "web"}}})).await?;
    turn.plain("other").await?;
    let status = |name: &str| -> Result<Value> {
        let json = turn.lab.plane().kubectl(&["get", "announcementpolicy", name, "-o", "json"])?;
        Ok(serde_json::from_str::<Value>(&json)?["status"].clone())
    };
    turn.lab
        .eventually("the policies say what they do", SOON, async || {
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
