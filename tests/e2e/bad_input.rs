//! Speakers that are started wrongly, and policies that are written wrongly, lead to a message that
//! says what is wrong; and nothing that works is disturbed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use leasehold_lab::{Lab, Node, SpeakerOptions};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{PATIENCE, Scene};

/// Waits until `/readyz` says 503 and this.
async fn is_not_ready_because(scene: &Scene, node: &Node, why: &str) -> Result<()> {
    let what = format!("/readyz of {} says 503 and `{why}`", node.name());
    let mut said = String::new();
    let told = scene
        .until(&what, async || {
            said = match node.speaker_http("/readyz") {
                Ok(body) => format!("200 {body}"),
                Err(error) => format!("{error:#}"),
            };
            Ok(said.contains("503") && said.contains(why))
        })
        .await;
    told.with_context(|| format!("it says: {said}"))
}

async fn is_ready(scene: &Scene, node: &Node) -> Result<()> {
    let what = format!("{} is ready", node.name());
    scene.until(&what, async || Ok(node.speaker_http("/readyz").is_ok())).await
}

/// Restarts the speaker with other options, and asserts that it ends with a failure that says all
/// of `words`.
async fn fails(
    node: &Node,
    words: &[&str],
    change: impl FnOnce(&mut SpeakerOptions),
) -> Result<()> {
    let speaker = node.speaker()?;
    let before = speaker.log().len();
    speaker.reconfigure(change);
    node.start_speaker()?;
    let status = speaker.process()?.wait(PATIENCE).await?;
    let said = speaker.log().split_off(before);
    println!("    {status}: {}", said.trim());
    ensure!(!status.success(), "it succeeded: {said}");
    ensure!(words.iter().all(|word| said.contains(word)), "{words:?} are not in: {said}");
    ensure!(!said.contains("panicked"), "{said}");
    speaker.reconfigure(|options| *options = SpeakerOptions::default());
    Ok(())
}

pub async fn a_speaker_that_cannot_work_ends_and_says_why_and_no_address_is_lost() -> Result<()> {
    let scene = Scene::open("wrong").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    // Nobody misses it for 30 s.
    ensure!(owner.speaker()?.terminate().await?.success());
    fails(owner, &["CAP_NET_ADMIN", "CAP_NET_RAW"], |options| options.capabilities = false).await?;
    fails(owner, &["/nowhere/kubeconfig"], |options| {
        options.kubeconfig = Some(PathBuf::from("/nowhere/kubeconfig"));
    })
    .await?;
    for duration in ["0s", "3s", "5", "1500ms", "61s", "-5s", "soon"] {
        let argument = format!("--lease-duration={duration}");
        let words = ["--lease-duration", "whole seconds", duration];
        fails(owner, &words, |options| options.arguments = vec![argument]).await?;
    }
    fails(owner, &["--node-name", "Not_A_Node"], |options| {
        options.node_name = Some("Not_A_Node".to_owned());
    })
    .await?;
    // All of that within its grace: the right one continues.
    owner.start_speaker()?;
    is_ready(&scene, owner).await?;
    sleep(Duration::from_secs(7)).await;
    scene.nothing_was_felt("ten wrong starts of the owner's speaker", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn a_speaker_under_the_name_of_no_node_waits_and_says_so() -> Result<()> {
    let scene = Scene::open("nobody").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    let mut others = scene.cluster.nodes().iter().filter(|node| node.name() != owner.name());
    let (first, second) = (others.next(), others.next());
    let (first, second) = (first.context("no other node")?, second.context("no third node")?);

    let speaker = first.speaker()?;
    speaker.terminate().await?;
    speaker.reconfigure(|options| options.node_name = Some("nowhere".to_owned()));
    first.start_speaker()?;
    is_not_ready_because(
        &scene,
        first,
        "Node `nowhere` does not exist in the cluster: check --node-name",
    )
    .await?;

    // A namespace that is not there, or in which it has no rights: the API server says the same.
    let speaker = second.speaker()?;
    speaker.terminate().await?;
    speaker.reconfigure(|options| {
        options.arguments = vec!["--session-namespace=missing".to_owned()];
    });
    second.start_speaker()?;
    is_not_ready_because(&scene, second, "namespace \"missing\"").await?;

    sleep(Duration::from_secs(3)).await;
    ensure!(scene.cluster.session("nowhere").await?.is_none(), "it has acquired a session");
    ensure!(first.speaker()?.alive() && speaker.alive(), "a speaker has ended");
    scene.nothing_was_felt("speaker of no node", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn a_speaker_without_an_api_server_waits_says_so_and_works_when_it_comes() -> Result<()> {
    let scene = Scene::open("unreachable").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let other = scene.cluster.nodes().iter().find(|node| node.name() != owner.name());
    let other = other.context("no other node")?;
    let probe = scene.watch().await?;
    other.speaker()?.terminate().await?;
    other.cut_management()?;
    other.start_speaker()?;
    is_not_ready_because(&scene, other, "cannot list session Leases").await?;
    ensure!(other.speaker_http("/livez").is_ok(), "waiting is no reason to be restarted");
    other.heal_management()?;
    is_ready(&scene, other).await?;
    scene.nothing_was_felt("started without an API server", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn a_second_speaker_on_a_host_waits_and_takes_over_when_the_first_ends() -> Result<()> {
    let scene = Scene::open("twice").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    let second = owner.start_second_speaker()?;
    scene
        .until("the second speaker says that it waits", async || {
            let said = owner.second_speaker_http("/readyz").err().map(|e| format!("{e:#}"));
            Ok(said.is_some_and(|said| said.contains("another speaker runs on this host")))
        })
        .await?;
    sleep(Duration::from_secs(2)).await;
    ensure!(second.alive(), "it has ended\n{}", second.tail(10));
    ensure!(owner.speaker_http("/readyz").is_ok(), "the first is disturbed");

    owner.speaker()?.terminate().await?;
    scene
        .until("the second is ready", async || Ok(owner.second_speaker_http("/readyz").is_ok()))
        .await?;
    sleep(Duration::from_secs(7)).await;
    scene.nothing_was_felt("two speakers on one host", probe).await?;
    scene.not_moved(&claim).await
}

/// What the API server makes of a policy with this `spec`, which it does not store.
async fn policy(lab: &Lab, spec: &Value) -> Result<Value, String> {
    let kind = GroupVersionKind::gvk("leasehold.dev", "v1alpha1", "AnnouncementPolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "announcementpolicies");
    let policies: Api<DynamicObject> = Api::all_with(lab.admin(), &resource);
    let object = json!({
        "apiVersion": "leasehold.dev/v1alpha1",
        "kind": "AnnouncementPolicy",
        "metadata": {"name": "input"},
        "spec": spec,
    });
    let parameters = PatchParams::apply("leasehold-lab").dry_run();
    let stored = policies.patch("input", &parameters, &Patch::Apply(&object)).await;
    stored
        .map(|policy| policy.data.get("spec").cloned().unwrap_or_default())
        .map_err(|error| error.to_string())
}

pub async fn detection_settings_are_refused_with_what_to_write_and_have_defaults() -> Result<()> {
    let lab = Lab::shared().await?;
    let shape = "is not a duration: write whole milliseconds or seconds, such as";
    for (detection, says) in [
        (json!({"interval": "soon"}), format!("interval 'soon' {shape} 100ms")),
        (json!({"interval": "100"}), format!("interval '100' {shape} 100ms")),
        (json!({"interval": ""}), format!("interval '' {shape} 100ms")),
        (json!({"interval": "0.1s"}), format!("interval '0.1s' {shape} 100ms")),
        (json!({"interval": "-1s"}), format!("interval '-1s' {shape} 100ms")),
        (json!({"retryInterval": "20us"}), format!("retryInterval '20us' {shape} 20ms")),
        (
            json!({"interval": "19ms", "retryInterval": "5ms"}),
            "interval '19ms' is out of bounds: write 20ms to 10s".to_owned(),
        ),
        (
            json!({"interval": "11s"}),
            "interval '11s' is out of bounds: write 20ms to 10s".to_owned(),
        ),
        (
            json!({"retryInterval": "4ms"}),
            "retryInterval '4ms' is out of bounds: write 5ms to 1s".to_owned(),
        ),
        (
            json!({"interval": "50ms", "retryInterval": "51ms"}),
            "retryInterval '51ms' is longer than interval '50ms': write at most 50ms".to_owned(),
        ),
        (json!({"misses": 1}), "misses is out of bounds: write 2 to 10".to_owned()),
        (json!({"misses": 11}), "misses is out of bounds: write 2 to 10".to_owned()),
        (
            json!({"mode": "Ping"}),
            "spec.detection.mode: Unsupported value: \"Ping\": supported values: \"Wire\", \
             \"LeaseOnly\""
                .to_owned(),
        ),
    ] {
        let Err(refused) = policy(&lab, &json!({"detection": detection})).await else {
            bail!("{detection} was accepted");
        };
        ensure!(refused.contains(&says), "{detection}: {refused}");
    }
    for (spec, says) in [
        (
            json!({"onApiOutage": "Keep"}),
            "spec.onApiOutage: Unsupported value: \"Keep\": supported values: \"Hold\", \"Drop\"",
        ),
        (
            json!({"hostProtection": "Off"}),
            "spec.hostProtection: Unsupported value: \"Off\": supported values: \"Enabled\", \
             \"Disabled\"",
        ),
        (
            json!({"mode": "BGP"}),
            "spec.mode: Unsupported value: \"BGP\": supported values: \"Layer2\", \"None\"",
        ),
    ] {
        let Err(refused) = policy(&lab, &spec).await else { bail!("{spec} was accepted") };
        ensure!(refused.contains(says), "{spec}: {refused}");
    }

    let full = |interval: &str, retry: &str, misses: i32, mode: &str| {
        let (interval, misses) = (json!(interval), json!(misses));
        json!({"interval": interval, "retryInterval": retry, "misses": misses, "mode": mode})
    };
    for (spec, detection, outage) in [
        (json!({}), full("100ms", "20ms", 3, "Wire"), "Hold"),
        (
            json!({"detection": {"mode": "LeaseOnly"}, "onApiOutage": "Drop"}),
            full("100ms", "20ms", 3, "LeaseOnly"),
            "Drop",
        ),
        (
            json!({"detection": {"interval": "10s", "retryInterval": "1s", "misses": 10}}),
            full("10s", "1s", 10, "Wire"),
            "Hold",
        ),
        (
            json!({"detection": {"interval": "20ms", "retryInterval": "5ms", "misses": 2}}),
            full("20ms", "5ms", 2, "Wire"),
            "Hold",
        ),
    ] {
        let stored = policy(&lab, &spec).await.map_err(anyhow::Error::msg)?;
        ensure!(stored.get("detection") == Some(&detection), "{spec}: {stored}");
        ensure!(stored.get("onApiOutage") == Some(&outage.into()), "{spec}: {stored}");
        ensure!(stored.get("mode") == Some(&"Layer2".into()), "{spec}: {stored}");
        ensure!(stored.get("hostProtection") == Some(&"Enabled".into()), "{spec}: {stored}");
    }
    Ok(())
}
