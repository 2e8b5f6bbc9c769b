//! From the previous version to this one, as a user does it: definitions and roles, operator, then one
//! speaker after the other.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::node::CLUSTER_LABEL;
use leasehold_lab::previous::Previous;
use leasehold_lab::{Lab, OperatorOptions, repository};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::policies::condition;
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
    let policy = async |settings: Value| {
        let own = json!([{ "matchLabels": { CLUSTER_LABEL: "previous" } }]);
        let mut spec = json!({ "serviceSelectors": own, "nodeSelectors": own });
        if let (Some(spec), Value::Object(settings)) = (spec.as_object_mut(), settings) {
            spec.extend(settings);
        }
        let policy = json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "AnnouncementPolicy",
            "metadata": { "name": "previous" }, "spec": spec,
        });
        lab.apply(policy).await?;
        let stored = lab.plane().kubectl(&["get", "annpol", "previous", "-o", "json"])?;
        let stored: Value = serde_json::from_str(&stored)?;
        stored.get("spec").cloned().context("no spec")
    };
    let stored = policy(json!({ "interfaces": ["eth0"], "detection": { "misses": 4 } })).await?;
    let interval = stored.pointer("/detection/interval");
    ensure!(interval == Some(&"100ms".into()), "the previous version has no default: {stored}");
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

    // The policy in the new shape: the defaults that the previous definition added go with their field.
    let probe = scene.watch().await?;
    let settings =
        json!({ "interfaces": ["eth0"], "detection": { "interval": "50ms", "misses": 4 } });
    let stored = policy(json!({ "layer2": settings })).await?;
    ensure!(stored.get("layer2") == Some(&settings), "{stored}");
    for deprecated in ["interfaces", "detection"] {
        ensure!(stored.get(deprecated).is_none(), "{stored}");
    }
    let effective = async || {
        let found = condition(&scene, "previous", "Effective").await?;
        Ok(found.is_some_and(|it| it.status == "True" && it.observed_generation == Some(2)))
    };
    scene.until("the policy is effective", effective).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the policy is rewritten", probe).await?;
    scene.not_moved(&claim).await?;

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
