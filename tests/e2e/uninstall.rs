//! Leasehold goes: what it changed on a node goes with it.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use leasehold_lab::{Lab, Node, SYSTEM_NAMESPACE};
use serde_json::json;
use tokio::time::sleep;

use crate::scene::Scene;

const NAME: &str = "leasehold-speaker";

fn arp(node: &Node) -> Result<[String; 2]> {
    let read = |setting: &str| -> Result<String> {
        let path = format!("/proc/sys/net/ipv4/conf/eth0/{setting}");
        let output = node.namespace().command("cat").arg(path).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    Ok([read("arp_ignore")?, read("arp_announce")?])
}

fn has_table(node: &Node) -> Result<bool> {
    let output = node.namespace().command("nft").args(["list", "tables"]).output()?;
    Ok(String::from_utf8(output.stdout)?.contains("inet leasehold"))
}

/// A `DaemonSet` as `deploy/base` has it; nothing in the lab makes pods of it.
pub async fn daemon_sets(scene: &Scene) -> Result<Api<DaemonSet>> {
    let daemon_sets: Api<DaemonSet> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    let labels = json!({ "app": NAME });
    let object = serde_json::from_value(json!({
        "metadata": { "name": NAME },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "speaker", "image": "speaker" }] },
            },
        },
    }))?;
    daemon_sets.create(&PostParams::default(), &object).await?;
    Ok(daemon_sets)
}

pub async fn what_was_changed_on_a_node_is_undone_when_leasehold_goes_and_not_in_an_upgrade()
-> Result<()> {
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let scene = Scene::before(lab.cluster("gone"), |cluster| {
        for node in cluster.nodes() {
            node.namespace().sysctl(&[("net.ipv4.conf.eth0.arp_announce", "1")])?;
            node.speaker()?.reconfigure(|options| {
                options.arguments.extend(["--daemon-set".to_owned(), NAME.to_owned()]);
            });
        }
        Ok(())
    })
    .await?;
    let daemon_sets = daemon_sets(&scene).await?;
    let owner = scene.owner().await?;
    let confined = ["1".to_owned(), "2".to_owned()];
    ensure!(arp(owner)? == confined && has_table(owner)?, "{:?}", arp(owner)?);

    // An upgrade: another process follows.
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    ensure!(owner.speaker()?.terminate().await?.success());
    ensure!(arp(owner)? == confined && has_table(owner)?, "{:?}", arp(owner)?);
    owner.start_speaker()?;
    sleep(Duration::from_secs(3)).await;
    scene.nothing_was_felt("an upgrade", probe).await?;
    scene.not_moved(&claim).await?;

    // `kubectl delete`: all are asked to end at once.
    daemon_sets.delete(NAME, &DeleteParams::default()).await?;
    let mut ends = Vec::new();
    for node in scene.cluster.nodes() {
        ends.push(async move { node.speaker()?.terminate().await });
    }
    for status in futures::future::join_all(ends).await {
        ensure!(status?.success());
    }
    ensure!(scene.holders()?.is_empty(), "{:?}", scene.holders()?);
    for node in scene.cluster.nodes() {
        let settings = arp(node)?;
        ensure!(settings == ["0", "1"], "{}: {settings:?}", node.name());
        ensure!(!has_table(node)?, "{} still has the table", node.name());
        let holder = scene.session(node).await?.spec.and_then(|spec| spec.holder_identity);
        ensure!(holder.unwrap_or_default().is_empty(), "{} has a session", node.name());
    }
    Ok(())
}
