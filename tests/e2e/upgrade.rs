//! From the previous version to this one, as a user does it: definitions and roles, operator, then one
//! speaker after the other.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_lab::previous::Previous;
use leasehold_lab::{Lab, OperatorOptions, repository};
use tokio::time::sleep;

use crate::scene::{self, Scene, none_lost};

/// Longer than a lease and its kernel lifetime: what was not continued would be gone by then.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// Replaces one speaker after the other, and waits for each as a rolling update does.
async fn roll(scene: &Scene, binary: Option<PathBuf>) -> Result<()> {
    for node in scene.cluster.nodes() {
        let speaker = node.speaker()?;
        ensure!(speaker.terminate().await?.success(), "{}", speaker.tail(20));
        speaker.reconfigure(|options| options.binary.clone_from(&binary));
        node.start_speaker()?;
        let what = format!("the new speaker of {} is ready", node.name());
        scene.until(&what, async || Ok(node.speaker_http("/readyz").is_ok())).await?;
    }
    Ok(())
}

pub async fn an_upgrade_from_the_previous_version_and_the_way_back_are_felt_by_nobody() -> Result<()>
{
    let previous = Previous::locate()?;
    let binary = previous.operator();
    let old = OperatorOptions {
        arguments: &["--default-class"],
        binary: Some(&binary),
        ..OperatorOptions::default()
    };
    let lab = Lab::installed_from(&previous.source()).await?;
    lab.start_operator_with(old)?;
    let cluster = lab.cluster("previous").without_speakers().start().await?;
    for node in cluster.nodes() {
        node.speaker()?.reconfigure(|options| options.binary = Some(previous.speaker()));
    }
    cluster.pool(0, 29).await?;
    let scene = Scene::served(cluster).await?;
    let claim = scene.claim().await?;
    let addresses = scene.service.addresses().await?;
    let probe = scene.watch_with_connection().await?;

    lab.install(&repository()).await?;
    lab.operator()?.terminate().await?;
    lab.start_operator(&["--default-class"])?;
    roll(&scene, None).await?;
    sleep(AFTERWARDS).await;
    let report = scene.nothing_was_felt("upgrade from the previous version", probe).await?;
    none_lost("... on one connection", report.connection()?)?;
    scene.not_moved(&claim).await?;
    ensure!(scene.service.addresses().await? == addresses, "other addresses than {addresses:?}");
    // It is this version: it says who announces.
    let told = async || Ok(scene::announced(&scene.service).await?.is_some());
    scene.until("the Service tells who announces it", told).await?;

    // The definitions stay: nobody takes fields away from objects that use them.
    let probe = scene.watch_with_connection().await?;
    lab.operator()?.terminate().await?;
    lab.start_operator_with(old)?;
    roll(&scene, Some(previous.speaker())).await?;
    sleep(AFTERWARDS).await;
    let report = scene.nothing_was_felt("back to the previous version", probe).await?;
    none_lost("... on one connection", report.connection()?)?;
    scene.not_moved(&claim).await?;
    ensure!(scene.service.addresses().await? == addresses, "other addresses than {addresses:?}");
    Ok(())
}
