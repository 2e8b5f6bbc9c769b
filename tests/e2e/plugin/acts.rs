//! What people ask of the speakers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use leasehold_lab::SYSTEM_NAMESPACE;
use serde_json::json;
use tokio::time::sleep;

use super::named;
use crate::scene::{Scene, annotation, cordon};
use crate::spread::crowd;

const AFTERWARDS: Duration = Duration::from_secs(1);

pub async fn a_service_moves_to_the_node_that_it_is_told_to() -> Result<()> {
    let scene = Scene::open("plugmove").await?;
    let lab = scene.lab();
    let web = named(&scene, "web");
    let old = scene.owner().await?;
    let mut others = scene.cluster.nodes().iter().filter(|node| node.name() != old.name());
    let (to, third) = (others.next().context("another")?, others.next().context("a third")?);

    let probe = scene.watch().await?;
    let moved = lab.plugin(&["move", &web, "--to", to.name()])?.with_code(0)?;
    print!("    {}", moved.text);
    for part in [&web, old.name(), to.name(), "ms"] {
        ensure!(moved.text.contains(part), "no {part} in {moved:?}");
    }
    ensure!(scene.owner().await?.name() == to.name());
    ensure!(scene.moved_from(old).await?.name() == to.name());
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("moved by hand", probe).await?;
    let asked = annotation(&scene.claim().await?, "leasehold.dev/move-to").map(str::to_owned);
    ensure!(asked.is_none(), "still asked to move to {asked:?}");

    // By these fields the plugin asks why an owner refuses.
    let worker = scene.cluster.workers().first().context("no worker")?;
    let leases: Api<Lease> = Api::namespaced(lab.admin(), SYSTEM_NAMESPACE);
    let asked =
        json!({ "metadata": { "annotations": { "leasehold.dev/move-to": worker.name() } } });
    let (claim, params) = (scene.service.claim(), PatchParams::default());
    leases.patch(&claim, &params, &Patch::Merge(asked)).await?;
    let events: Api<Event> = Api::namespaced(lab.admin(), scene.cluster.namespace());
    let refused = ListParams::default().fields("reason=MoveRefused,regarding.kind=Service");
    let told = async || Ok(!events.list(&refused).await?.items.is_empty());
    scene.until("the owner says why it does not move it", told).await?;

    // There is nothing to do, or nothing that could be done.
    let already = lab.plugin(&["move", &web, "--to", to.name()])?.with_code(0)?;
    ensure!(already.text.contains("already"), "{already:?}");
    let claim = scene.claim().await?;
    cordon(third, true).await?;
    let refused = lab.plugin(&["move", &web, "--to", third.name()])?.with_code(1)?;
    ensure!(refused.notes.contains("cordoned"), "{refused:?}");
    let refused = lab.plugin(&["move", &web, "--to", worker.name()])?.with_code(1)?;
    ensure!(refused.notes.contains("no speaker has run on the node"), "{refused:?}");
    lab.plugin(&["move", &web, "--to", "plugmove-nodd-1"])?.with_code(2)?;
    scene.not_moved(&claim).await
}

pub async fn a_drained_node_owns_nothing_until_it_is_told_otherwise() -> Result<()> {
    let (scene, services) = crowd("plugdrain", 5).await?;
    let lab = scene.lab();
    let drained = scene.owner().await?;
    let probe = scene.watch().await?;
    let answer = lab.plugin(&["drain", drained.name()])?.with_code(0)?;
    print!("    {}", answer.text);
    ensure!(answer.text.contains(&format!("drained {}", drained.name())), "{answer:?}");
    sleep(AFTERWARDS).await;
    scene.moved_smoothly("drained by hand", probe).await?;
    for service in &services {
        let owner = scene.cluster.owner(service).await?;
        ensure!(owner.as_deref() != Some(drained.name()), "{} is still there", service.name());
    }
    ensure!(drained.has_address(scene.vip)?.is_none(), "the address is still there");

    // It takes nothing that is new.
    let new = scene.cluster.service("new").vip(20).pods_of(&scene.service).create().await?;
    let (_, owner) = scene.cluster.ready(&new).await?;
    ensure!(owner.name() != drained.name(), "{} took a new one", drained.name());
    let web = named(&scene, "web");
    let refused = lab.plugin(&["move", &web, "--to", drained.name()])?.with_code(1)?;
    ensure!(refused.notes.contains("drained"), "{refused:?}");

    // What nobody else can take stays, and that is said.
    let last = scene.owner().await?;
    for node in scene.cluster.nodes() {
        if node.name() != last.name() && node.name() != drained.name() {
            lab.plugin(&["drain", node.name()])?.with_code(0)?;
        }
    }
    let stays = lab.plugin(&["drain", last.name()])?.with_code(1)?;
    ensure!(stays.text.contains("no other node can take"), "{stays:?}");
    ensure!(scene.service.answers(&scene.cluster, scene.vip)?, "it does not answer");

    for node in scene.cluster.nodes() {
        lab.plugin(&["undrain", node.name()])?.with_code(0)?;
    }
    let moved = lab.plugin(&["move", &web, "--to", drained.name()])?.with_code(0)?;
    ensure!(moved.text.contains(drained.name()), "{moved:?}");
    Ok(())
}
