//! Layer 2 settings of a policy in `layer2`, and in the deprecated fields that it replaces.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::node::CLUSTER_LABEL;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::policies::{condition, link_of};
use crate::scene::{Scene, annotation};

const AFTERWARDS: Duration = Duration::from_secs(1);

/// The fields that the API server of a version without `layer2` writes into each policy.
fn former_defaults() -> Value {
    json!({ "spec": {
        "announcements": { "burst": 5, "refreshInterval": "60s" },
        "detection": { "interval": "100ms", "retryInterval": "20ms", "misses": 3, "mode": "Wire" },
    } })
}

/// A policy of the scene's cluster that precedes that of the lab, written as users do.
struct Written<'a> {
    scene: &'a Scene,
    name: String,
}

impl Written<'_> {
    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.scene.lab().plane().kubectl(arguments)
    }

    /// Applies the policy with these fields, and no others.
    fn apply(&self, fields: Value) -> Result<()> {
        let own = json!([{ "matchLabels": { CLUSTER_LABEL: self.scene.cluster.name() } }]);
        let mut spec = json!({ "priority": 1, "serviceSelectors": own, "nodeSelectors": own });
        if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
            spec.extend(fields);
        }
        let object = json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "AnnouncementPolicy",
            "metadata": { "name": self.name },
            "spec": spec,
        });
        let file = self.scene.lab().folder().join(format!("{}.json", self.name));
        fs::write(&file, object.to_string())?;
        let file = file.to_str().context("a path that is text")?;
        self.kubectl(&["apply", "--validate=strict", "-f", file])?;
        Ok(())
    }

    fn patch(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.kubectl(&["patch", "annpol", &self.name, "--type=merge", "--patch", &patch])?;
        Ok(())
    }

    fn get(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", "annpol", &self.name, "-o", "json"])?)?)
    }

    fn field(&self, path: &str) -> Result<Option<Value>> {
        Ok(self.get()?.pointer(&format!("/spec/{path}")).cloned())
    }

    /// The column of `kubectl get`.
    fn column(&self) -> Result<String> {
        let table = self.kubectl(&["get", "annpol", &self.name])?;
        let (heading, row) = table.split_once('\n').context("no row")?;
        let start = heading.find("INTERFACES").context("no such column")?;
        let end = heading.find("SERVICES").context("no such column")?;
        Ok(row.get(start..end).context("too short")?.trim().to_owned())
    }

    /// Whether the operator has judged the policy as it is now, and says this.
    async fn effective(&self, status: &str, message: &str) -> Result<bool> {
        let generation = self.get()?.pointer("/metadata/generation").and_then(Value::as_i64);
        let found = condition(self.scene, &self.name, "Effective").await?;
        Ok(found.is_some_and(|it| {
            it.observed_generation == generation
                && it.status == status
                && it.message.contains(message)
        }))
    }

    async fn is_effective(&self) -> Result<()> {
        self.scene
            .until("all of the policy is effective", async || self.effective("True", "").await)
            .await
    }
}

pub async fn a_policy_of_before_layer2_keeps_its_effect_and_moves_nothing_when_it_is_rewritten()
-> Result<()> {
    let scene = Scene::open("rewritten").await?;
    // By another link it may be another node that hears others first.
    let on = async |interface: &str| {
        let (says, owner) = (scene.claim().await?, scene.owner().await?);
        let says = annotation(&says, "leasehold.dev/interface").map(str::to_owned);
        Ok(says.as_deref() == Some(interface) && link_of(owner, scene.vip)? == [interface])
    };
    let policy = Written { scene: &scene, name: "rewritten-first".to_owned() };

    // The deprecated fields alone, and what the API server added to them.
    let detection = json!({ "misses": 4 });
    policy.apply(json!({ "interfaces": ["mgmt?"], "detection": detection }))?;
    scene.until("it is on mgmt0", async || on("mgmt0").await).await?;
    ensure!(policy.column()? == r#"["mgmt?"]"#, "{}", policy.column()?);
    policy.apply(json!({ "interfaces": ["eth*"], "detection": detection }))?;
    let mut stored = former_defaults();
    if let Some(misses) = stored.pointer_mut("/spec/detection/misses") {
        *misses = json!(4);
    }
    policy.patch(&stored)?;
    scene.until("it is on eth0 again", async || on("eth0").await).await?;
    scene.until("it answers", async || scene.service.answers(&scene.cluster, scene.vip)).await?;
    policy.is_effective().await?;
    let claim = scene.claim().await?;

    // The same in `layer2`, and another retry interval. The API server's defaults stay.
    let probe = scene.watch().await?;
    let detection = json!({ "retryInterval": "25ms", "misses": 4 });
    policy.apply(json!({ "layer2": { "interfaces": ["eth*"], "detection": detection } }))?;
    ensure!(policy.field("interfaces")?.is_none(), "{}", policy.get()?);
    policy.patch(&former_defaults())?;
    policy.is_effective().await?;
    ensure!(policy.field("layer2/detection")? == Some(detection), "{}", policy.get()?);
    ensure!(policy.column()? == r#"["eth*"]"#, "{}", policy.column()?);
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the policy is rewritten", probe).await?;
    scene.not_moved(&claim).await?;
    scene.until("it is on eth0", async || on("eth0").await).await?;

    // What is left of the former shape is ignored, and said if somebody may have meant it.
    let probe = scene.watch().await?;
    policy.patch(&json!({ "spec": { "interfaces": ["mgmt?"] } }))?;
    let ignored = "spec.interfaces '[mgmt?]' is ignored because spec.layer2.interfaces is '[eth*]': \
                   remove spec.interfaces";
    scene.until("the policy says so", async || policy.effective("False", ignored).await).await?;
    ensure!(policy.column()? == r#"["eth*"]"#, "{}", policy.column()?);
    // As the documentation says.
    let none = json!({ "interfaces": null, "announcements": null, "detection": null });
    policy.patch(&json!({ "spec": none }))?;
    policy.is_effective().await?;
    for field in ["interfaces", "announcements", "detection"] {
        ensure!(policy.field(field)?.is_none(), "{}", policy.get()?);
    }
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the former fields are removed", probe).await?;
    scene.not_moved(&claim).await?;

    // The same effect as at the beginning.
    policy.apply(json!({ "layer2": { "interfaces": ["mgmt?"] } }))?;
    scene.until("it is on mgmt0", async || on("mgmt0").await).await?;
    policy.kubectl(&["delete", "annpol", &policy.name])?;
    scene.until("it is on eth0 again", async || on("eth0").await).await
}
