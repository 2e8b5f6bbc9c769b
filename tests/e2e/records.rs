//! What tools take off Services: annotations and a status of which their manifests know nothing.
//!
//! That is no wish. The claim lists the same, so its owner goes on, and the operator writes it again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::Lab;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{Scene, annotation, none_lost, say};

const CLAIM: &str = "leasehold.dev/claim";
const POOL: &str = "leasehold.dev/allocated-from";
/// How soon what was removed is to be there again.
const SOON: Duration = Duration::from_secs(1);

/// What a tool takes off.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Annotations,
    Addresses,
    Conditions,
    /// All that the manifest does not say.
    Replaced,
    /// The status, too.
    Everything,
}

impl Edit {
    const ALL: [Self; 5] =
        [Self::Replaced, Self::Annotations, Self::Addresses, Self::Conditions, Self::Everything];
}

impl Scene {
    /// Whether the Service says which address it has, from which pool and under which claim.
    async fn is_recorded(&self) -> Result<bool> {
        let service = self.service.get().await?;
        let annotations = service.metadata.annotations.unwrap_or_default();
        let noted = |name: &str| annotations.get(name).is_some_and(|text| !text.is_empty());
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(noted(CLAIM)
            && noted(POOL)
            && conditions.iter().any(|it| it.type_ == "leasehold.dev/Allocated")
            && self.service.addresses().await? == [self.vip])
    }

    /// The Service as a user's manifest has it.
    async fn manifest(&self) -> Result<Value> {
        let mut manifest = serde_json::to_value(self.service.get().await?)?;
        let object = manifest.as_object_mut().context("an object")?;
        object.insert("apiVersion".to_owned(), json!("v1"));
        object.insert("kind".to_owned(), json!("Service"));
        object.remove("status");
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.context("metadata")?;
        metadata.retain(|field, _| ["name", "namespace", "labels"].contains(&field.as_str()));
        Ok(manifest)
    }

    fn replace(&self, manifest: &Value) -> Result<()> {
        let path = self.lab().folder().join(format!("{}.json", self.service.name()));
        std::fs::write(&path, manifest.to_string())?;
        let path = path.to_str().context("a path that is text")?;
        self.lab().plane().kubectl(&["replace", "-f", path]).map(drop)
    }

    fn edit_status(&self, status: &Value) -> Result<()> {
        let patch = json!({ "status": status }).to_string();
        let (name, namespace) = (self.service.name(), self.cluster.namespace());
        let what = ["-n", namespace, "svc", name, "--subresource=status", "--type=merge"];
        let command = [&["patch"][..], &what, &["-p", &patch]].concat();
        self.lab().plane().kubectl(&command).map(drop)
    }

    async fn edit(&self, edit: Edit, manifest: &Value) -> Result<()> {
        let gone = json!({ "ingress": null });
        match edit {
            Edit::Annotations => {
                let nothing: Option<&str> = None;
                let annotations = json!({ CLAIM: nothing, POOL: nothing });
                self.service.patch(json!({ "metadata": { "annotations": annotations } })).await
            }
            Edit::Addresses => self.edit_status(&json!({ "loadBalancer": gone })),
            Edit::Conditions => self.edit_status(&json!({ "conditions": null })),
            Edit::Replaced => self.replace(manifest),
            Edit::Everything => {
                self.edit_status(&json!({ "loadBalancer": gone, "conditions": null }))?;
                self.replace(manifest)
            }
        }
    }

    /// Waits until every kube-proxy on the way knows the address from the status, where it may have been missing.
    async fn is_proxied(&self) -> Result<()> {
        let answers = async || self.service.answers(&self.cluster, self.vip);
        self.until("clients are answered", answers).await
    }

    /// Takes off what the operator wrote, and asserts that nobody noticed and that it is soon there again.
    async fn is_restored(&self, what: &str, edit: Edit, manifest: &Value) -> Result<()> {
        let what = format!("{what}: {edit:?}");
        let before = self.claim().await?;
        self.is_proxied().await?;
        let probe = self.watch_with_connection().await?;
        self.edit(edit, manifest).await?;
        let edited = Instant::now();
        self.until(&format!("{what}, recorded again"), async || self.is_recorded().await).await?;
        let took = edited.elapsed();
        println!("    {what}, recorded again after {} ms", took.as_millis());
        sleep(Duration::from_millis(700)).await;
        let report = self.nothing_was_felt(&what, probe).await?;
        none_lost(&what, report.connection()?)?;
        ensure!(took < SOON, "{what}, recorded again after {took:?} only");
        self.not_moved(&before).await
    }

    /// Asserts that nothing is lost and nothing moves meanwhile.
    async fn stays(&self, what: &str, during: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let before = self.claim().await?;
        let probe = self.watch().await?;
        during().await?;
        let report = self.nothing_was_felt(what, probe).await?;
        ensure!(report.owners()?.macs().len() == 1, "{what}: two nodes answered");
        self.not_moved(&before).await
    }
}

fn pool(scene: &Scene) -> Value {
    let ((first, _), (last, _)) =
        (scene.cluster.addresses().vip(40), scene.cluster.addresses().vip(49));
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": { "name": "plain" }, "spec": { "addresses": [format!("{first}-{last}")] },
    })
}

/// A Service whose manifest has no annotation, in a lab with an operator of its own.
async fn open(name: &str) -> Result<Scene> {
    let mut scene = Scene::alone(name).await?;
    scene.lab().apply(pool(&scene)).await?;
    let service = scene.cluster.service("plain").create().await?;
    let (vip, _) = scene.cluster.ready(&service).await?;
    (scene.service, scene.vip) = (service, vip);
    Ok(scene)
}

pub async fn what_tools_take_off_a_service_is_written_again_and_nobody_notices() -> Result<()> {
    let scene = open("records").await?;
    let manifest = scene.manifest().await?;
    for edit in Edit::ALL {
        scene.is_restored("taken off", edit, &manifest).await?;
    }
    // Its pool is gone, and it keeps the address.
    scene.lab().delete(&pool(&scene)).await?;
    for edit in Edit::ALL {
        scene.is_restored("kept, and taken off", edit, &manifest).await?;
    }
    Ok(())
}

pub async fn what_tools_take_off_a_service_while_no_operator_works_is_not_missed() -> Result<()> {
    let scene = open("unattended").await?;
    let manifest = scene.manifest().await?;
    let lab: &Lab = scene.lab();
    lab.operator()?.process().signal(Signal::STOP)?;
    scene
        .stays("replaced while the operator is stopped", async || {
            scene.replace(&manifest)?;
            sleep(Duration::from_secs(3)).await;
            let owner = scene.owner().await?;
            owner.speaker()?.terminate().await?;
            owner.start_speaker()?;
            sleep(Duration::from_secs(2)).await;
            owner.speaker()?.kill().await?;
            owner.start_speaker()?;
            sleep(Duration::from_secs(2)).await;
            ensure!(!scene.is_recorded().await?, "somebody has written it again");
            Ok(())
        })
        .await?;

    // kube-proxy knows nothing of an address that is not in the status: what remains is the owner.
    let (before, owner) = (scene.claim().await?, scene.owner().await?);
    let watched = scene.watch().await?;
    scene.edit(Edit::Addresses, &manifest).await?;
    sleep(Duration::from_secs(2)).await;
    ensure!(scene.holders()? == [owner.name()], "held by {:?}", scene.holders()?);
    let report = watched.stop().await?;
    say("status removed while the operator is stopped", &report)?;
    let silent = report.owners()?.no_owner();
    ensure!(silent < Duration::from_millis(100), "nobody answered ARP for {silent:?}");

    // Another operator finds all of it as it is.
    lab.operator()?.process().kill().await?;
    lab.start_operator(&[])?;
    scene.until("recorded again", async || scene.is_recorded().await).await?;
    scene.not_moved(&before).await?;
    scene.is_proxied().await?;
    ensure!(annotation(&scene.claim().await?, POOL).is_some(), "the claim names no pool");
    scene
        .stays("after the operator is back", async || {
            sleep(Duration::from_secs(1)).await;
            Ok(())
        })
        .await
}
