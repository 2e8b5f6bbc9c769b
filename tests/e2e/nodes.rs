//! What the state of a node, and the endpoints of a service, do to its addresses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_lab::Node;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{Scene, UDP, annotation, cordon, say, silence};

const AFTERWARDS: Duration = Duration::from_secs(1);

async fn taint(node: &Node, keys: &[&str]) -> Result<()> {
    let taints: Vec<Value> =
        keys.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
    node.patch(json!({ "spec": { "taints": taints } })).await
}

/// Says that the network of a node is unavailable, or that it is there.
async fn network(scene: &Scene, node: &Node, unavailable: bool) -> Result<()> {
    let api: Api<NodeObject> = Api::all(scene.lab().admin());
    let status = if unavailable { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{
        "type": "NetworkUnavailable", "status": status, "reason": "Test", "message": "",
    }] } });
    api.patch_status(node.name(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Something happens to the owner, and the address moves from it smoothly; returns who owned it.
async fn moves<'a>(
    scene: &'a Scene,
    what: &str,
    happen: impl AsyncFnOnce(&'a Node) -> Result<()>,
) -> Result<&'a Node> {
    let owner = scene.owner().await?;
    let probe = scene.watch().await?;
    happen(owner).await?;
    scene.moved_from(owner).await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly(what, probe).await?;
    Ok(owner)
}

pub async fn a_cordoned_node_keeps_its_addresses_until_pods_leave_it() -> Result<()> {
    let scene = Scene::open("keep").await?;
    scene.cluster.policy_with(json!({ "drainOnCordon": false })).await?;
    let owner = scene.owner().await?;
    let near = scene.cluster.service("near").vip(1).pods_on(&[owner]).create().await?;
    scene.cluster.ready(&near).await?;
    let claim = scene.claim().await?;

    let probe = scene.watch().await?;
    cordon(owner, true).await?;
    sleep(Duration::from_secs(3)).await;
    scene.nothing_was_felt("cordon", probe).await?;
    scene.not_moved(&claim).await?;
    // It has the fewest addresses or not: it gets no more.
    for number in 2..8 {
        let name = format!("new-{number}");
        let service = scene.cluster.service(&name).vip(number).pods_of(&near).create().await?;
        let (vip, node) = scene.cluster.ready(&service).await?;
        ensure!(node.name() != owner.name(), "{vip} went to the cordoned {}", owner.name());
    }

    let probe = scene.watch().await?;
    let [pod] = near.pods() else { anyhow::bail!("one pod") };
    pod.set_ready(false).await?;
    let new = scene.moved_from(owner).await?;
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("the first pod leaves", probe).await?;
    let cause = annotation(&scene.claim().await?, "leasehold.dev/cause").map(str::to_owned);
    ensure!(cause == Some(format!("moved from {}: node is drained", owner.name())), "{cause:?}");
    ensure!(new.name() != owner.name());
    Ok(())
}

pub async fn a_node_that_is_not_ready_out_of_service_or_without_a_network_gives_its_addresses_away()
-> Result<()> {
    let scene = Scene::open("unfit").await?;

    for (what, key) in [
        ("the owner is not ready", "node.kubernetes.io/not-ready"),
        ("the owner is out of service", "node.kubernetes.io/out-of-service"),
    ] {
        let owner = moves(&scene, what, async |owner| taint(owner, &[key]).await).await?;
        taint(owner, &[]).await?;
    }
    let what = "the owner's network is unavailable";
    let owner = moves(&scene, what, async |owner| network(&scene, owner, true).await).await?;
    network(&scene, owner, false).await?;

    // All of them at once: somebody has to.
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    for node in scene.cluster.nodes() {
        taint(node, &["node.kubernetes.io/unreachable"]).await?;
    }
    sleep(Duration::from_secs(13)).await;
    scene.nothing_was_felt("no node is ready", probe).await?;
    scene.not_moved(&claim).await?;
    let owner = scene.owner().await?;
    let probe = scene.watch().await?;
    owner.dies()?;
    owner.speaker()?.kill().await?;
    scene.moved_from(owner).await?;
    sleep(AFTERWARDS).await;
    let report = probe.stop().await?;
    say("the owner dies, and no node is ready", &report)?;
    ensure!(report.udp()?.longest_outage() < Duration::from_secs(3), "{}", report.udp()?);
    Ok(())
}

pub async fn a_service_without_an_endpoint_is_announced_by_nobody_and_says_so() -> Result<()> {
    let scene = Scene::open("empty").await?;
    let cluster = &scene.cluster;
    let service = cluster.service("both").dual_stack().vip(1).create().await?;
    cluster.ready(&service).await?;
    let addresses = service.addresses().await?;
    let [first, _] = addresses[..] else { anyhow::bail!("{addresses:?}") };
    let [pod] = service.pods() else { anyhow::bail!("one pod") };
    let nobody = async || {
        let held = addresses.iter().map(|ip| Ok(cluster.holders(*ip)?.len()));
        Ok(held.sum::<Result<usize>>()? == 0)
    };
    let answered = async || {
        let answers = addresses.iter().map(|ip| service.answers(cluster, *ip));
        Ok(answers.collect::<Result<Vec<bool>>>()?.into_iter().all(|answers| answers))
    };

    pod.set_ready(false).await?;
    scene.until("nobody has its addresses", nobody).await?;
    scene.until("a condition", async || Ok(silence(&service).await?.is_some())).await?;
    let condition = silence(&service).await?.context("no condition")?;
    ensure!(condition.status == "False" && condition.reason == "NoEndpoint", "{condition:?}");
    let claim = cluster.claim(&service).await?.context("no claim")?;
    let cause = annotation(&claim, "leasehold.dev/cause").unwrap_or_default();
    ensure!(cause.ends_with(": its Services have no endpoint"), "{cause}");
    let owners = cluster.client().owners(first, Duration::from_secs(1)).await?;
    ensure!(owners.macs().is_empty(), "{:?}", owners.macs());
    ensure!(scene.service.answers(cluster, scene.vip)?, "the other service is served");

    pod.set_ready(true).await?;
    scene.until("it is announced again", answered).await?;
    scene.until("no condition", async || Ok(silence(&service).await?.is_none())).await?;

    let fields = json!({ "announceWithoutEndpoints": true });
    cluster.policy_with(fields).await?;
    // Seen by all: another field of the same policy is followed.
    sleep(Duration::from_secs(2)).await;
    let probe = cluster.client().probe(first).udp(UDP).owners().start()?;
    pod.set_ready(false).await?;
    sleep(Duration::from_secs(4)).await;
    let report = probe.stop().await?;
    say("without an endpoint, announced all the same", &report)?;
    ensure!(report.owners()?.no_owner() < Duration::from_millis(300));
    ensure!(silence(&service).await?.is_none(), "{:?}", silence(&service).await?);
    cluster.policy_with(json!({})).await?;
    scene.until("nobody has its addresses", nobody).await
}
