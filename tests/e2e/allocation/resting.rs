//! Addresses that were freed a moment ago.

use anyhow::Result;

use super::Turn;

async fn gets(turn: &Turn, name: &str, address: &str) -> Result<()> {
    turn.plain(name).await?;
    turn.has(name, &[address]).await
}

pub async fn a_freed_address_is_given_out_last_and_at_once_when_nothing_else_is_free() -> Result<()>
{
    let turn = Turn::take("resting").await?;
    turn.pool("lan", &["192.0.2.0/30"]).await?;
    for (name, address) in [("a", "192.0.2.0"), ("b", "192.0.2.1"), ("c", "192.0.2.2")] {
        gets(&turn, name, address).await?;
    }
    turn.delete("a").await?;
    gets(&turn, "d", "192.0.2.3").await?;
    gets(&turn, "e", "192.0.2.0").await?;
    // Of several, the one that was freed first.
    turn.delete("d").await?;
    turn.delete("b").await?;
    turn.delete("c").await?;
    gets(&turn, "f", "192.0.2.3").await?;
    gets(&turn, "g", "192.0.2.1").await?;
    gets(&turn, "h", "192.0.2.2").await
}

pub async fn a_service_of_the_same_name_gets_its_address_back() -> Result<()> {
    let turn = Turn::take("same-name").await?;
    turn.pool("lan", &["192.0.2.0/29"]).await?;
    for (name, address) in [("a", "192.0.2.0"), ("b", "192.0.2.1"), ("c", "192.0.2.2")] {
        gets(&turn, name, address).await?;
    }
    for name in ["a", "b", "c"] {
        turn.delete(name).await?;
    }
    turn.namespace("same-name-elsewhere", serde_json::json!({})).await?;
    gets(&turn, "same-name-elsewhere/a", "192.0.2.3").await?;
    gets(&turn, "b", "192.0.2.1").await?;
    gets(&turn, "d", "192.0.2.4").await?;
    gets(&turn, "c", "192.0.2.2").await?;
    gets(&turn, "a", "192.0.2.0").await
}
