//! Planned moves: the successor answers before the old owner stops.

use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_lab::Lab;
use serde_json::json;
use tokio::time::sleep;

use crate::scene::{Scene, cordon, say};

const AFTERWARDS: Duration = Duration::from_secs(1);

pub async fn a_cordoned_node_hands_its_addresses_over_and_keeps_none() -> Result<()> {
    let scene = Scene::open("cordon").await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    cordon(old, true).await?;
    let new = scene.moved_from(old).await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("cordon", probe).await?;

    // Schedulable again, it takes nothing back.
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    cordon(old, false).await?;
    sleep(Duration::from_secs(3)).await;
    scene.nothing_was_felt("uncordon", probe).await?;
    scene.not_moved(&claim).await?;

    // A speaker that ends on a cordoned node is not expected back: its session ends with it.
    cordon(new, true).await?;
    scene.moved_from(new).await?;
    let probe = scene.watch().await?;
    let status = new.speaker()?.terminate().await?;
    ensure!(status.success(), "the speaker ended with {status}");
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("SIGTERM on a drained node", probe).await?;
    let session = scene.session(new).await?;
    let holder = session.spec.and_then(|spec| spec.holder_identity);
    ensure!(holder.as_deref().unwrap_or_default().is_empty(), "still held by {holder:?}");
    Ok(())
}

pub async fn a_policy_or_a_label_that_excludes_the_owner_moves_its_addresses() -> Result<()> {
    let scene = Scene::open("exclude").await?;
    let first = scene.owner().await?;
    let others: Vec<_> =
        scene.cluster.nodes().iter().filter(|node| node.name() != first.name()).collect();
    let probe = scene.watch().await?;
    scene.policy_for(&others).await?;
    let second = scene.moved_from(first).await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("policy without the owner", probe).await?;

    let probe = scene.watch().await?;
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    second.patch(json!({ "metadata": { "labels": { label: "" } } })).await?;
    let third = scene.moved_from(second).await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("label that excludes the owner", probe).await?;
    ensure!(third.name() != first.name(), "the policy does not select {}", first.name());
    Ok(())
}

pub async fn nodes_that_a_label_excludes_announce_where_their_speakers_pass_over_it() -> Result<()>
{
    let plan = Lab::shared().await?.cluster("passed-over");
    let scene = Scene::before(plan, |cluster| {
        for node in cluster.nodes() {
            let flag = "--ignore-exclude-label".to_owned();
            node.speaker()?.reconfigure(|options| options.arguments.push(flag));
        }
        Ok(())
    })
    .await?;
    let before = scene.claim().await?;
    let probe = scene.watch().await?;
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    for node in scene.cluster.nodes() {
        node.patch(json!({ "metadata": { "labels": { label: "" } } })).await?;
    }
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("labels that exclude all nodes", probe).await?;
    scene.not_moved(&before).await?;
    // They also take what others give away.
    let first = scene.owner().await?;
    cordon(first, true).await?;
    scene.moved_from(first).await?;
    Ok(())
}

pub async fn a_service_with_the_local_policy_is_owned_where_its_pods_are() -> Result<()> {
    let scene = Scene::open("local").await?;
    let cluster = &scene.cluster;
    let (first, second) = (cluster.node(0), cluster.node(1));
    let service = cluster.service("near").vip(1).local().pods_on(&[first, second]).create().await?;
    let (vip, owner) = cluster.ready(&service).await?;
    ensure!(owner.name() != cluster.node(2).name(), "{} has no pod of it", owner.name());
    let other = if owner.name() == first.name() { second } else { first };

    // Its pod is not ready any more: kube-proxy there drops what still comes.
    let leaving = service.pods().iter().find(|pod| pod.node() == owner.name());
    let leaving = leaving.ok_or_else(|| anyhow::anyhow!("no pod on {}", owner.name()))?;
    let probe = cluster.client().probe(vip).udp(crate::scene::UDP).owners().start()?;
    sleep(Duration::from_millis(500)).await;
    leaving.set_ready(false).await?;
    scene
        .until("the node with the last ready pod owns it and answers", async || {
            let now = cluster.owner(&service).await?;
            Ok(now.as_deref() == Some(other.name())
                && owner.has_address(vip)?.is_none()
                && service.answers(cluster, vip)?)
        })
        .await?;
    sleep(AFTERWARDS).await;
    let report = probe.stop().await?;
    say("the owner's last pod becomes unready", &report)?;
    ensure!(report.udp()?.longest_outage() < Duration::from_secs(3), "{}", report.udp()?);

    // Nobody is left to serve it: nobody claims to.
    for pod in service.pods() {
        pod.set_ready(false).await?;
    }
    scene.until("nobody has the address", async || Ok(cluster.holders(vip)?.is_empty())).await?;
    leaving.set_ready(true).await?;
    scene
        .until("the node whose pod is ready again owns it", async || {
            let now = cluster.owner(&service).await?;
            Ok(now.as_deref() == Some(owner.name()) && service.answers(cluster, vip)?)
        })
        .await
}
