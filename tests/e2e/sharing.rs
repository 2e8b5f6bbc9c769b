//! Services that share an address: one claim, so one owner.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::Node;
use serde_json::json;
use tokio::time::sleep;

use crate::scene::{Scene, annotation, cordon, holder_and_transitions, none_lost, say};

const SHARED_ADDRESS: &str = "leasehold.dev/shared-address";
/// The ports of the service that joins.
const TCP: u16 = 8080;
const UDP: u16 = 5006;

pub async fn services_that_share_an_address_have_one_owner_and_move_together() -> Result<()> {
    let scene = Scene::open("together").await?;
    let cluster = &scene.cluster;
    let claim = scene.claim().await?;

    // The first begins to share, and another joins: nobody notices.
    let probe = scene.watch().await?;
    scene.service.patch(json!({"metadata": {"annotations": {SHARED_ADDRESS: "key"}}})).await?;
    let other = cluster.service("other").tcp(TCP).udp(UDP).annotation(SHARED_ADDRESS, "key");
    let other = other.vip(0).pods_of(&scene.service).create().await?;
    let (vip, owner) = cluster.ready(&other).await?;
    ensure!(vip == scene.vip, "{} has {vip}", other.name());
    ensure!(owner.name() == scene.owner().await?.name(), "two owners");
    scene
        .until("the claim names both services", async || {
            let claim = scene.claim().await?;
            let services = annotation(&claim, "leasehold.dev/services").unwrap_or_default();
            Ok(services.contains("together/web") && services.contains("together/other"))
        })
        .await?;
    sleep(Duration::from_secs(1)).await;
    scene.nothing_was_felt("another service joins", probe).await?;
    scene.not_moved(&claim).await?;

    // They move together.
    let first = scene.watch().await?;
    let second = cluster.client().probe(scene.vip).udp(UDP).start()?;
    cordon(owner, true).await?;
    scene.moved_from(owner).await?;
    sleep(Duration::from_secs(1)).await;
    scene.moved_smoothly("two services of one address", first).await?;
    let report = second.stop().await?;
    println!("    the other service: {}", report.udp()?);
    ensure!(report.udp()?.lost() <= 1, "the other service: {}", report.udp()?);

    // The one after which the claim is named goes; the other goes on.
    let claim = cluster.claim(&other).await?.context("no claim")?;
    let probe = cluster.client().probe(scene.vip).udp(UDP).owners().start()?;
    scene.service.delete().await?;
    scene
        .until("the claim names the other alone", async || {
            let claim = cluster.claim(&other).await?.context("no claim")?;
            Ok(annotation(&claim, "leasehold.dev/services") == Some("together/other"))
        })
        .await?;
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    say("the first service is deleted", &report)?;
    none_lost("the first service is deleted", report.udp()?)?;
    ensure!(report.owners()?.macs().len() == 1, "{:?}", report.owners()?.macs());
    let now = cluster.claim(&other).await?.context("no claim")?;
    ensure!(holder_and_transitions(&now) == holder_and_transitions(&claim), "it moved");

    other.delete().await?;
    scene.until("nobody has the address", async || Ok(scene.holders()?.is_empty())).await
}

pub async fn a_local_service_that_joins_an_address_interrupts_nothing() -> Result<()> {
    let scene = Scene::open("joins").await?;
    let cluster = &scene.cluster;
    let local = |name: &str| cluster.service(name).local().annotation(SHARED_ADDRESS, "key").vip(1);
    let first = local("first").pods_on(&[cluster.node(0)]).create().await?;
    let (vip, owner) = cluster.ready(&first).await?;
    let here = |owner: &Node| owner.name() == cluster.node(0).name();
    ensure!(here(owner), "{} has no pod", owner.name());

    let probe = cluster.client().probe(vip).udp(crate::scene::UDP).owners().start()?;
    for (name, number) in [("second", 1), ("third", 2), ("fourth", 3)] {
        let joins = local(name).tcp(TCP + number).udp(UDP + number).pods_of(&first);
        let joins = joins.create().await?;
        let (shared, owner) = cluster.ready(&joins).await?;
        ensure!(shared == vip && here(owner), "{name} has {shared} at {}", owner.name());
    }
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    say("three local services join", &report)?;
    none_lost("three local services join", report.udp()?)?;
    ensure!(report.owners()?.macs().len() == 1, "{:?}", report.owners()?.macs());
    Ok(())
}
