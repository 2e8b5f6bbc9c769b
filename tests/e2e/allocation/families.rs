//! One address, or one of each family.

use anyhow::Result;
use serde_json::json;

use super::Turn;

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

pub async fn a_second_family_is_topped_up_from_the_same_pool_only() -> Result<()> {
    let turn = Turn::take("top-up").await?;
    let policy = |policy: &str| json!({"ipFamilyPolicy": policy});
    let patch = |policy: &str, families: &[&str]| json!({"spec": {"ipFamilyPolicy": policy, "ipFamilies": families}});
    turn.pool("a-four", &["192.0.2.0/29"]).await?;
    turn.service("first", json!({}), policy("PreferDualStack")).await?;
    turn.has("first", &["192.0.2.0"]).await?;
    turn.service("second", json!({}), policy("SingleStack")).await?;
    turn.has("second", &["192.0.2.1"]).await?;

    // Another pool has room for both families: for those who have nothing yet.
    turn.pool("b-both", &["198.51.100.0/29", "2001:db8:b::/64"]).await?;
    turn.service("third", json!({}), policy("PreferDualStack")).await?;
    turn.has("third", &["198.51.100.0", "2001:db8:b::"]).await?;
    turn.says("first", "True", "AddressAssigned", "pool a-four has no free IPv6 address").await?;
    // What it has is not taken away for what it lacks.
    turn.merge("second", patch("RequireDualStack", &["IPv4", "IPv6"])).await?;
    turn.says("second", "False", "PoolExhausted", "pool a-four has no free IPv6 address").await?;
    turn.has("first", &["192.0.2.0"]).await?;
    turn.has("second", &["192.0.2.1"]).await?;

    turn.pool("a-four", &["192.0.2.0/29", "2001:db8:a::/64"]).await?;
    turn.has("first", &["192.0.2.0", "2001:db8:a::"]).await?;
    turn.has("second", &["192.0.2.1", "2001:db8:a::1"]).await?;
    turn.says("second", "True", "AddressAssigned", "from pool a-four").await?;

    // The primary family cannot change; the other comes and goes.
    turn.merge("second", patch("SingleStack", &["IPv4"])).await?;
    turn.has("second", &["192.0.2.1"]).await?;
    turn.merge("second", patch("PreferDualStack", &["IPv4", "IPv6"])).await?;
    turn.has("second", &["192.0.2.1", "2001:db8:a::1"]).await
}
