//! Preferred nodes, and what goes to a better node while its owner lives.

use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_lab::Node;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{Scene, annotation, cordon};
use crate::spread::{crowd, shares};

const AFTERWARDS: Duration = Duration::from_secs(1);

/// Fields of a policy that prefers one node, and gives it back what it could have after two seconds.
fn prefers(node: &Node, failback: &str) -> Value {
    json!({
        "preferredNodes": [{
            "weight": 50,
            "nodeSelector": { "matchLabels": { "kubernetes.io/hostname": node.name() } },
        }],
        "failback": failback,
        "failbackDelay": "2s",
    })
}

pub async fn what_a_preferred_node_had_before_it_died_goes_back_to_it_and_nobody_notices()
-> Result<()> {
    let scene = Scene::open("prefer").await?;
    // What was given out a moment ago goes to preferred nodes that join, whatever the policy says.
    let first = scene.owner().await?;
    cordon(first, true).await?;
    let old = scene.moved_from(first).await?;
    cordon(first, false).await?;
    let others = || scene.cluster.nodes().iter().filter(|node| node.name() != old.name());
    let Some(preferred) = others().next() else { anyhow::bail!("one node") };

    // Nothing but what is new or lost, unless the policy says so.
    let claim = scene.claim().await?;
    scene.cluster.policy_with(prefers(preferred, "Never")).await?;
    sleep(Duration::from_secs(4)).await;
    scene.not_moved(&claim).await?;

    let probe = scene.watch().await?;
    scene.cluster.policy_with(prefers(preferred, "Preferred")).await?;
    let new = scene.moved_from(old).await?;
    ensure!(new.name() == preferred.name(), "{} is not preferred", new.name());
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("a preferred node is named", probe).await?;
    let claim = scene.claim().await?;
    let cause = annotation(&claim, "leasehold.dev/cause").unwrap_or_default();
    ensure!(cause == format!("moved from {}: another node is preferred", old.name()), "{cause}");

    preferred.dies()?;
    preferred.speaker()?.kill().await?;
    scene.moved_from(preferred).await?;
    preferred.heal()?;
    preferred.start_speaker()?;
    let probe = scene.watch().await?;
    scene
        .until("the preferred node owns it again", async || {
            Ok(scene.owner().await?.name() == preferred.name()
                && scene.holders()? == [preferred.name()])
        })
        .await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("the preferred node is back", probe).await
}

pub async fn a_node_that_is_back_gets_its_share_where_the_policy_balances() -> Result<()> {
    let (scene, services) = crowd("balance", 8).await?;
    let node = scene.cluster.node(0);
    let elsewhere = async |what: &str| {
        scene
            .until(what, async || {
                let shares = shares(&scene, &services, 3).await?;
                Ok(!shares.contains_key(node.name()) && scene.owner().await?.name() != node.name())
            })
            .await
    };
    cordon(node, true).await?;
    elsewhere("nothing is left on the node").await?;
    cordon(node, false).await?;
    sleep(Duration::from_secs(3)).await;
    elsewhere("nothing moves by itself").await?;

    let probe = scene.watch().await?;
    let fields = json!({ "failback": "Balance", "failbackDelay": "1s", "maxMovesPerMinute": 600 });
    scene.cluster.policy_with(fields).await?;
    let mut found = Vec::new();
    scene
        .until("nine services on three nodes, three on each", async || {
            let mut now = shares(&scene, &services, 3).await?;
            *now.entry(scene.owner().await?.name().to_owned()).or_default() += 1;
            found = now.into_values().collect();
            Ok(found == [3, 3, 3])
        })
        .await?;
    println!("    9 services on 3 nodes: {found:?}");
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("addresses are moved to a node that is back", probe).await
}
