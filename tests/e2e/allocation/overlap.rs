//! Pools that list the same addresses.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{ADDRESSES, CLAIM, Turn, annotation, pool_condition};

/// Pool `zebra`, and a second later pool `ant` with the same addresses and two more.
async fn two_pools(turn: &Turn) -> Result<()> {
    turn.pool("zebra", &["192.0.2.4-192.0.2.5"]).await?;
    // Creation times have whole seconds; among equals the name would decide.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    turn.pool("ant", &["192.0.2.4/30"]).await
}

pub async fn of_two_pools_that_overlap_the_earlier_wins_and_the_later_says_so() -> Result<()> {
    let turn = Turn::take("overlap").await?;
    two_pools(&turn).await?;
    let says = "192.0.2.4-192.0.2.5 belongs to the older pool zebra";
    turn.event("ant", "Warning", "Overlapping", says).await?;
    turn.until("the pools say who owns what", async || {
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

pub async fn the_earlier_pool_wins_after_a_restart_too_and_its_end_takes_nothing_away() -> Result<()>
{
    let turn = Turn::take("overlap-restart").await?;
    two_pools(&turn).await?;
    turn.service("one", json!({ADDRESSES: "192.0.2.5"}), json!({})).await?;
    turn.is_from("one", "zebra").await?;
    turn.plain("two").await?;
    turn.has("two", &["192.0.2.6"]).await?;

    turn.restart_operator().await?;
    turn.service("three", json!({ADDRESSES: "192.0.2.4"}), json!({})).await?;
    turn.is_from("three", "zebra").await?;
    turn.plain("four").await?;
    turn.has("four", &["192.0.2.7"]).await?;
    turn.pool_says("ant", "Overlapping", "True", "the older pool zebra").await?;
    turn.pool_says("zebra", "Overlapping", "False", "").await?;

    let claim = |service| annotation(&service, CLAIM).map(str::to_owned);
    let before = claim(turn.get("one").await?);
    turn.delete_pool("zebra")?;
    turn.pool_says("ant", "Overlapping", "False", "").await?;
    turn.is_from("one", "ant").await?;
    turn.has("one", &["192.0.2.5"]).await?;
    ensure!(claim(turn.get("one").await?) == before, "its claim has changed");
    turn.says("one", "True", "AddressAssigned", "192.0.2.5 from pool ant").await
}
