//! What services keep although their pool would not give it out any more.

use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{CLAIM, REASSIGN, Turn, addresses, annotation, versions};

/// What a condition and an event say of each address that is kept.
const HOW: &str = "leasehold.dev/reassign=true";

pub async fn nobody_loses_an_address_by_an_edit_of_a_pool() -> Result<()> {
    let turn = Turn::take("kept").await?;
    let original = || json!({"addresses": ["192.0.2.0/29"]});
    let with = |field: &str, value: Value| {
        let mut spec = original();
        spec[field] = value;
        Some(spec)
    };
    turn.pool_with("lan", original()).await?;
    turn.plain("web").await?;
    turn.has("web", &["192.0.2.0"]).await?;
    let claim = turn.claim("web").await?;
    let elsewhere = json!({"namespaces": ["elsewhere"]});
    // The edit, whether a new service is still served, and whether this one could not get its address
    // again.
    for (edit, spec, serves, kept) in [
        ("deleted", None, false, true),
        ("shrunk", with("addresses", json!(["192.0.2.4/30"])), true, true),
        ("replaced", with("addresses", json!(["198.51.100.0/30"])), true, true),
        ("without-ends", with("avoidBuggyIPs", json!(true)), true, true),
        ("for-others", with("serviceAllocation", elsewhere), false, true),
        ("on-demand", with("autoAssign", json!(false)), false, false),
        ("disabled", with("disabled", json!(true)), false, false),
    ] {
        let told = turn.events("web", "Warning", "AddressKept", HOW).await?;
        match spec {
            Some(spec) => turn.pool_with("lan", spec).await?,
            None => turn.delete_pool("lan")?,
        }
        turn.plain(edit).await?;
        if serves {
            turn.is_from(edit, "lan").await?;
        } else {
            turn.fails(edit, "NoPool", "").await?;
        }
        if kept {
            turn.says("web", "True", "AddressKept", "192.0.2.0").await.context(edit)?;
            turn.says("web", "True", "AddressKept", HOW).await.context(edit)?;
            turn.until("one event says that it is kept", async || {
                Ok(turn.events("web", "Warning", "AddressKept", HOW).await? == told + 1)
            })
            .await
            .context(edit)?;
        } else {
            turn.says("web", "True", "AddressAssigned", "192.0.2.0 from pool lan").await?;
        }
        turn.has("web", &["192.0.2.0"]).await.context(edit)?;
        ensure!(turn.claim("web").await? == claim, "{edit}: its claim has changed");
        turn.delete(edit).await?;
        turn.pool_with("lan", original()).await?;
        turn.says("web", "True", "AddressAssigned", "192.0.2.0 from pool lan").await?;
    }
    Ok(())
}

pub async fn a_pool_that_is_created_again_changes_nothing() -> Result<()> {
    let turn = Turn::take("again").await?;
    let names = ["a", "b", "c"];
    let pool = ["192.0.2.0/29", "2001:db8::/120"];
    turn.pool("lan", &pool).await?;
    for name in names {
        turn.service(name, json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
        turn.is_from(name, "lan").await?;
    }
    let mut had = Vec::new();
    for name in names {
        let service = turn.get(name).await?;
        had.push((addresses(&service), annotation(&service, CLAIM).map(str::to_owned)));
    }
    let mut changes = pin!(turn.versions().await?);

    // At once; after everybody has been told; and under another name.
    turn.delete_pool("lan")?;
    turn.pool("lan", &pool).await?;
    turn.says("a", "True", "AddressAssigned", "from pool lan").await?;
    turn.delete_pool("lan")?;
    turn.says("a", "True", "AddressKept", HOW).await?;
    turn.pool("lan", &pool).await?;
    turn.says("a", "True", "AddressAssigned", "from pool lan").await?;
    turn.delete_pool("lan")?;
    turn.pool("other", &pool).await?;
    for name in names {
        turn.is_from(name, "other").await?;
        turn.says(name, "True", "AddressAssigned", "from pool other").await?;
    }
    let quiet = versions(&turn, &names).await?;

    turn.plain("z-last").await?;
    turn.has("z-last", &["192.0.2.3"]).await?;
    loop {
        let service = changes.try_next().await?.context("the watch ended")?;
        let Some(index) = names.iter().position(|name| *name == service.name_any()) else { break };
        let has = (addresses(&service), annotation(&service, CLAIM).map(str::to_owned));
        ensure!(has == had[index], "{} had {:?} for a while", names[index], has);
    }
    ensure!(versions(&turn, &names).await? == quiet, "written again");
    Ok(())
}

pub async fn a_kept_address_is_replaced_when_somebody_asks_for_it() -> Result<()> {
    let turn = Turn::take("reassign").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    for (name, address) in [("web", "192.0.2.0"), ("other", "192.0.2.1")] {
        turn.plain(name).await?;
        turn.has(name, &[address]).await?;
    }
    // Nothing is to be replaced yet.
    turn.annotate("web", REASSIGN, json!("true")).await?;
    turn.plain("later").await?;
    turn.has("later", &["192.0.2.2"]).await?;
    turn.has("web", &["192.0.2.0"]).await?;
    turn.annotate("web", REASSIGN, Value::Null).await?;

    turn.pool("lan", &["198.51.100.0/30"]).await?;
    turn.says("web", "True", "AddressKept", HOW).await?;
    turn.annotate("web", REASSIGN, json!("true")).await?;
    turn.has("web", &["198.51.100.0"]).await?;
    turn.says("web", "True", "AddressAssigned", "198.51.100.0 from pool lan").await?;
    turn.event("web", "Normal", "AddressAssigned", "instead of 192.0.2.0").await?;
    // As long as the annotation is there.
    turn.pool("lan", &["203.0.113.0/30"]).await?;
    turn.has("web", &["203.0.113.0"]).await?;
    turn.has("other", &["192.0.2.1"]).await
}

pub async fn without_a_free_address_a_kept_one_is_kept_on() -> Result<()> {
    let turn = Turn::take("stuck").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.plain("web").await?;
    turn.has("web", &["192.0.2.0"]).await?;
    turn.delete_pool("lan")?;
    turn.annotate("web", REASSIGN, json!("true")).await?;
    turn.says("web", "True", "AddressKept", "no IPAddressPool exists").await?;
    turn.pool("lan", &["192.0.2.4/32"]).await?;
    turn.has("web", &["192.0.2.4"]).await?;

    turn.pool("lan", &["198.51.100.4/32"]).await?;
    turn.has("web", &["198.51.100.4"]).await?;
    turn.plain("waits").await?;
    turn.fails("waits", "PoolExhausted", "pool lan").await?;
    turn.annotate("web", REASSIGN, Value::Null).await?;
    turn.pool("lan", &["203.0.113.4/32"]).await?;
    turn.has("waits", &["203.0.113.4"]).await?;
    turn.annotate("web", REASSIGN, json!("true")).await?;
    turn.says("web", "True", "AddressKept", "no free IPv4 address in pool lan").await?;
    turn.has("web", &["198.51.100.4"]).await?;
    turn.delete("waits").await?;
    turn.has("web", &["203.0.113.4"]).await
}
