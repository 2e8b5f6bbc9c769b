//! Statuses that somebody else wrote.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{ADDRESSES, Turn};

pub async fn a_status_written_by_hand_takes_nothing_from_anybody() -> Result<()> {
    let turn = Turn::take("forged").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    turn.plain("older").await?;
    turn.has("older", &["192.0.2.0"]).await?;
    turn.plain("younger").await?;
    turn.has("younger", &["192.0.2.1"]).await?;

    // Neither what another has, nor what nobody has, nor what no pool has: the claim lists what it lists.
    for (name, forged, address) in [
        ("older", "192.0.2.1", "192.0.2.0"),
        ("older", "192.0.2.5", "192.0.2.0"),
        ("younger", "172.16.0.1", "192.0.2.1"),
    ] {
        turn.forge(name, forged).await?;
        turn.has(name, &[address]).await?;
        turn.says(name, "True", "AddressAssigned", &format!("{address} from pool lan")).await?;
        let told = turn.events(name, "Normal", "AddressAssigned", "instead of").await?;
        ensure!(told == 0, "{name} was told {told} times that it has another address");
    }
    // A replica that has not seen what it was before reads it from the claim.
    turn.stop_operator().await?;
    turn.forge("older", "192.0.2.5").await?;
    turn.lab.start_operator(&["--default-class"])?;
    turn.has("older", &["192.0.2.0"]).await
}

pub async fn addresses_of_others_are_adopted_where_a_pool_gives_them_and_replaced_elsewhere()
-> Result<()> {
    let turn = Turn::take("foreign").await?;
    turn.pool("lan", &["192.0.2.0/28"]).await?;
    let pinned = json!({"namespaces": ["elsewhere"]});
    let pinned = json!({"addresses": ["198.51.100.0/29"], "serviceAllocation": pinned});
    turn.pool_with("pinned", pinned).await?;
    // Nobody of ours is there to see what another controller does.
    turn.stop_operator().await?;
    let asks = |address: &str| json!({ADDRESSES: address});
    let metallb = json!({"metallb.io/loadBalancerIPs": "192.0.2.6"});
    let rows: &[(&str, Value, &str, Option<&str>)] = &[
        ("adopted", json!({}), "192.0.2.5", Some("192.0.2.5")),
        ("adopted-as-asked", metallb, "192.0.2.6", Some("192.0.2.6")),
        ("asks-for-another", asks("192.0.2.4"), "192.0.2.3", Some("192.0.2.4")),
        ("in-no-pool", json!({}), "172.16.0.1", None),
        ("not-admitted", json!({}), "198.51.100.1", None),
        ("twin-a", json!({}), "192.0.2.2", Some("192.0.2.2")),
        ("twin-b", json!({}), "192.0.2.2", None),
    ];
    for (name, annotations, had, _) in rows {
        turn.service(name, annotations.clone(), json!({})).await?;
        turn.forge(name, had).await?;
    }
    turn.plain("by-name").await?;
    let hostname = json!([{"hostname": "web.example.com"}]);
    turn.forge_ingress("by-name", hostname).await?;
    turn.lab.start_operator(&["--default-class"])?;

    let mut all = Vec::new();
    for (name, _, had, expected) in rows {
        let address = turn.is_from(name, "lan").await?;
        if let Some(expected) = expected {
            turn.has(name, &[*expected]).await?;
        } else {
            ensure!(address != *had, "{name} still has {had}");
            turn.event(name, "Normal", "AddressAssigned", &format!("instead of {had}")).await?;
        }
        turn.says(name, "True", "AddressAssigned", "from pool lan").await?;
        all.extend(turn.addresses(name).await?);
    }
    all.push(turn.is_from("by-name", "lan").await?);
    let count = all.len();
    all.sort();
    all.dedup();
    ensure!(all.len() == count && count == rows.len() + 1, "an address twice: {all:?}");
    Ok(())
}
