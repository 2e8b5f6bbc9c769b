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

pub async fn settings_of_layer_2_are_refused_with_what_to_write_in_both_shapes() -> Result<()> {
    let lab = Lab::shared().await?;
    refused_in_both_shapes(&lab).await?;
    refused(&lab).await?;
    stored_as_written(&lab).await
}

async fn refused_in_both_shapes(lab: &Lab) -> Result<()> {
    let shape = "is not a duration: write whole milliseconds, seconds or minutes, such as";
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
            "detection.mode: Unsupported value: \"Ping\": supported values: \"Wire\", \"LeaseOnly\""
                .to_owned(),
        ),
    ] {
        for (spec, path) in [
            (json!({"layer2": {"detection": detection}}), "spec.layer2.detection"),
            (json!({"detection": detection}), "spec.detection"),
        ] {
            let Err(refused) = policy(lab, &spec).await else { bail!("{spec} was accepted") };
            ensure!(refused.contains(&says) && refused.contains(path), "{spec}: {refused}");
        }
    }
    Ok(())
}

async fn refused(lab: &Lab) -> Result<()> {
    for (spec, says) in [
        (
            json!({"layer2": {"interfaces": ["a/b"]}}),
            "spec.layer2.interfaces[0]: Invalid value: \"a/b\": 'a/b' is not a valid interface name",
        ),
        (
            json!({"layer2": {"interfaces": ["a"], "carrier": "a"}}),
            ".spec.layer2.carrier: field not declared in schema",
        ),
        (
            json!({"layer2": {"detection": {"missed": 3}}}),
            ".spec.layer2.detection.missed: field not declared in schema",
        ),
        (
            json!({"layer2": {"announcements": {"burst": 21}}}),
            "spec.layer2.announcements.burst in body should be less than or equal to 20",
        ),
        (
            json!({"layer2": {"announcements": {"refreshInterval": "soon"}}}),
            "spec.layer2.announcements.refreshInterval: Invalid value: \"soon\": refreshInterval 'soon' \
             is not a duration",
        ),
        // One in each shape.
        (
            json!({"layer2": {"detection": {"interval": "200ms"}}, "detection": {"retryInterval": "1s"}}),
            "spec.layer2.detection: Invalid value: retryInterval '1s' is longer than interval '200ms': \
             write at most 200ms",
        ),
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
        let Err(refused) = policy(lab, &spec).await else { bail!("{spec} was accepted") };
        ensure!(refused.contains(says), "{spec}: {refused}");
    }
    Ok(())
}

/// The API server writes no defaults of Layer 2: they would take precedence over deprecated fields.
async fn stored_as_written(lab: &Lab) -> Result<()> {
    for layer2 in [
        json!({}),
        json!({"detection": {"mode": "LeaseOnly"}}),
        json!({"detection": {"interval": "10s", "retryInterval": "1s", "misses": 10}}),
        json!({"detection": {"interval": "20ms", "retryInterval": "5ms", "misses": 2}}),
        json!({"interfaces": ["eth*", "bond0"], "announcements": {"burst": 20}}),
        json!({"interfaces": []}),
        // An empty key in YAML.
        json!({"interfaces": null, "detection": null, "announcements": null}),
        json!({"detection": {"interval": null, "retryInterval": null, "misses": null}}),
        json!({"announcements": {"burst": null, "refreshInterval": null}}),
    ] {
        let spec = json!({"layer2": layer2});
        let stored = policy(lab, &spec).await.map_err(anyhow::Error::msg)?;
        ensure!(stored.get("layer2") == Some(&layer2), "{spec}: {stored}");
        for (field, value) in
            [("mode", "Layer2"), ("onApiOutage", "Hold"), ("hostProtection", "Enabled")]
        {
            ensure!(stored.get(field) == Some(&value.into()), "{spec}: {stored}");
        }
        for field in ["interfaces", "announcements", "detection"] {
            ensure!(stored.get(field).is_none(), "{spec}: {stored}");
            let Some(settings) = layer2.get(field) else { continue };
            let spec = json!({field: settings, "onApiOutage": "Drop"});
            let stored = policy(lab, &spec).await.map_err(anyhow::Error::msg)?;
            ensure!(stored.get(field) == Some(settings), "{spec}: {stored}");
            ensure!(stored.get("layer2").is_none(), "{spec}: {stored}");
            ensure!(stored.get("onApiOutage") == Some(&"Drop".into()), "{spec}: {stored}");
        }
    }
    let nothing = policy(lab, &json!({"layer2": null})).await.map_err(anyhow::Error::msg)?;
    ensure!(nothing.get("layer2").is_none_or(Value::is_null), "{nothing}");
    Ok(())
}
