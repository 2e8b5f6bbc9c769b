//! The bundle for the Operator Lifecycle Manager: valid, and what becomes of it in a cluster.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold_lab::olm::{Bundle, Programs, folder};
use leasehold_lab::{
    Lab, OPERATOR_ACCOUNT, OperatorOptions, SESSION_NAMESPACE, SPEAKER_ACCOUNT, SYSTEM_NAMESPACE,
    controlplane,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{PATIENCE, Scene};

/// For how long an edit of what the operator deploys may last.
const MENDED: Duration = Duration::from_secs(15);

pub async fn the_bundle_and_the_catalog_are_valid_and_what_is_planted_is_found() -> Result<()> {
    let (programs, folder) = (Programs::locate()?, folder());
    let (bundle, catalog) = (folder.join("bundle"), folder.join("catalog"));
    print!("    {}", programs.validate_bundle(&bundle)?);
    programs.validate_catalog(&catalog)?;

    // What the catalog says of the bundle is what opm makes of it.
    let blobs = fs::read_to_string(catalog.join("leasehold/catalog.yaml"))?;
    let blobs = controlplane::documents(&blobs)?;
    let listed = blobs.iter().find(|blob| blob.get("schema") == Some(&json!("olm.bundle")));
    let listed = listed.context("the catalog has no bundle")?;
    let image = listed.get("image").and_then(Value::as_str).context("no image")?;
    let rendered = programs.render(&bundle, image)?;
    ensure!(rendered == *listed, "opm render: {rendered:#}\ninstead of {listed:#}");

    let scratch = leasehold_lab::sandbox::scratch()?.join("olm-planted");
    for (number, (file, from, to, said)) in [
        (
            "leasehold.clusterserviceversion.yaml",
            "kind: IPAddressPool",
            "kind: Pool",
            "IPAddressPool",
        ),
        (
            "leasehold.clusterserviceversion.yaml",
            "minKubeVersion: 1.33.0",
            "minKubeVersion: new",
            "new",
        ),
        ("leasehold.clusterserviceversion.yaml", "image/svg+xml", "image/tiff", "image/tiff"),
        (
            "leasehold.clusterserviceversion.yaml",
            "categories: Networking",
            "categories: Nets",
            "Nets",
        ),
        (
            "leasehold-operator_policy_v1_poddisruptionbudget.yaml",
            "maxUnavailable: 1",
            "maxUnavailable: 0",
            "maxUnavailable",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let planted = scratch.join(number.to_string());
        copy(&bundle, &planted)?;
        edit(&planted.join("manifests").join(file), from, to)?;
        let error = programs.validate_bundle(&planted).err().context(to)?.to_string();
        ensure!(error.contains(said), "{from} → {to}: {error}");
    }
    let planted = scratch.join("catalog");
    copy(&catalog, &planted)?;
    edit(
        &planted.join("leasehold/catalog.yaml"),
        "defaultChannel: stable",
        "defaultChannel: beta",
    )?;
    let error = programs.validate_catalog(&planted).err().context("it is valid")?.to_string();
    ensure!(error.contains("beta"), "{error}");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn edit(path: &Path, from: &str, to: &str) -> Result<()> {
    let text = fs::read_to_string(path)?;
    ensure!(text.contains(from), "{} has no {from}", path.display());
    Ok(fs::write(path, text.replace(from, to))?)
}

/// Starts the operator as the bundle says, with another image of the speakers if one is given.
pub fn start_operator(lab: &Lab, image: Option<&str>) -> Result<()> {
    let bundle = Bundle::read()?;
    let container = bundle.operator()?;
    let list = |field: &str| container.get(field).and_then(Value::as_array).into_iter().flatten();
    let arguments: Vec<_> = list("args").filter_map(Value::as_str).collect();
    let text = |item: &Value, field: &str| Some(item.get(field)?.as_str()?.to_owned());
    let mut environment = Vec::new();
    for variable in list("env") {
        let name = text(variable, "name").context("no name")?;
        let value = match (name.as_str(), image) {
            ("RELATED_IMAGE_SPEAKER", Some(image)) => image.to_owned(),
            // By the downward API.
            ("LEASEHOLD_POD_NAMESPACE", _) => SYSTEM_NAMESPACE.to_owned(),
            ("LEASEHOLD_POD_NAME", _) => "leasehold-operator-1".to_owned(),
            _ => text(variable, "value").with_context(|| format!("{name} has no value"))?,
        };
        environment.push((name, value));
    }
    let environment: Vec<_> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (arguments, environment) = (&arguments[..], &environment[..]);
    lab.start_operator_with(OperatorOptions { arguments, environment, binary: None })
}

/// A cluster whose speakers run as those that the operator deploys.
pub async fn scene(lab: &Arc<Lab>, name: &str) -> Result<Scene> {
    Scene::before(lab.cluster(name), |cluster| {
        for node in cluster.nodes() {
            node.speaker()?.reconfigure(|options| {
                options.arguments.extend(["--daemon-set", SPEAKER_ACCOUNT].map(str::to_owned));
                options.arguments.extend(["--pod-name", node.name()].map(str::to_owned));
            });
        }
        Ok(())
    })
    .await
}

/// What the operator has deployed.
struct Deployed {
    daemon_sets: Api<DaemonSet>,
    bindings: Api<RoleBinding>,
}

impl Deployed {
    fn of(lab: &Lab) -> Self {
        Self {
            daemon_sets: Api::namespaced(lab.admin(), SYSTEM_NAMESPACE),
            bindings: Api::namespaced(lab.admin(), SESSION_NAMESPACE),
        }
    }

    /// The uid of the `DaemonSet`, and to whom it belongs.
    async fn owners(&self) -> Result<(Option<String>, Vec<Value>)> {
        let mut found = self.daemon_sets.get_metadata(SPEAKER_ACCOUNT).await?;
        let owners = found.metadata.owner_references.take().unwrap_or_default();
        let owners: Result<Vec<_>, _> = owners.into_iter().map(serde_json::to_value).collect();
        Ok((found.uid(), owners?))
    }

    async fn image(&self) -> Result<Option<String>> {
        let found = self.daemon_sets.get_opt(SPEAKER_ACCOUNT).await?;
        let pod = found.and_then(|it| it.spec?.template.spec);
        Ok(pod.and_then(|it| it.containers.into_iter().next()?.image))
    }

    async fn has_image(&self, lab: &Lab, what: &str, image: &str) -> Result<()> {
        let has = async || Ok(self.image().await?.as_deref() == Some(image));
        lab.eventually(what, MENDED, has).await
    }
}

pub async fn the_operator_of_the_bundle_deploys_the_speakers_and_takes_them_along() -> Result<()> {
    let lab = Lab::start_by_bundle().await?;
    start_operator(&lab, None)?;
    let (deployed, image) = (Deployed::of(&lab), Bundle::read()?.image("speaker")?);
    deployed.has_image(&lab, "the speakers are deployed", &image).await?;

    let scene = scene(&lab, "bundle").await?;
    ensure!(scene.service.answers(&scene.cluster, scene.vip)?);
    let claim = scene.claim().await?;
    what_is_edited_is_mended(&lab, &deployed, &image).await?;

    // An upgrade, as far as the operator sees it.
    start_operator(&lab, Some("leasehold/speaker:next"))?;
    deployed.has_image(&lab, "the next image is deployed", "leasehold/speaker:next").await?;
    scene.not_moved(&claim).await?;

    the_deployment_is_deleted_by_mistake(&lab, &deployed).await?;
    scene.not_moved(&claim).await?;

    // Somebody deletes the ClusterServiceVersion, and the rest goes with it.
    Bundle::read()?.uninstall(&lab).await?;
    let gone = async || Ok(deployed.image().await?.is_none());
    lab.eventually("the speakers are collected as garbage", PATIENCE, gone).await?;
    scene.all_leave().await?;
    // An operator that still runs does not deploy them again.
    sleep(MENDED).await;
    ensure!(deployed.image().await?.is_none(), "the speakers are there again");
    let namespaces: Api<Namespace> = Api::all(lab.admin());
    namespaces.get(SESSION_NAMESPACE).await.context("the namespace of the sessions stays")?;
    Ok(())
}

/// The manager makes it again; the speakers, which belong to the `ClusterServiceVersion` as well, go on.
async fn the_deployment_is_deleted_by_mistake(lab: &Lab, deployed: &Deployed) -> Result<()> {
    let bundle = Bundle::read()?;
    let (before, lasting) = (deployed.owners().await?, bundle.owner(lab)?);
    let deployments: Api<Deployment> = Api::namespaced(lab.admin(), SYSTEM_NAMESPACE);
    deployments.delete(OPERATOR_ACCOUNT, &DeleteParams::background()).await?;
    lab.eventually("the garbage collector has been there", PATIENCE, async || {
        Ok(deployed.owners().await?.1 == [lasting.clone()])
    })
    .await?;
    bundle.deploy(lab).await?;
    lab.eventually("the speakers belong to both again", MENDED, async || {
        Ok(deployed.owners().await?.1.len() == 2)
    })
    .await?;
    let after = deployed.owners().await?;
    ensure!(after.0 == before.0 && after.1 != before.1, "{before:?} became {after:?}");
    Ok(())
}

async fn what_is_edited_is_mended(lab: &Lab, deployed: &Deployed, image: &str) -> Result<()> {
    let edit = Patch::Strategic(json!({ "spec": { "template": { "spec": {
        "nodeSelector": { "leasehold": "yes" },
        "containers": [{ "name": "speaker", "image": "elsewhere/speaker:1" }],
    } } } }));
    let params = PatchParams::default();
    let edited = deployed.daemon_sets.patch(SPEAKER_ACCOUNT, &params, &edit);
    let uid = edited.await?.uid();
    deployed.has_image(lab, "an edited image is mended", image).await?;
    let mended = deployed.daemon_sets.get(SPEAKER_ACCOUNT).await?;
    let pod = mended.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    ensure!(pod.node_selector.is_some_and(|it| it.contains_key("leasehold")), "it is replaced");

    // While the speakers go on.
    deployed.daemon_sets.delete(SPEAKER_ACCOUNT, &DeleteParams::background()).await?;
    for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
        deployed.bindings.delete(account, &DeleteParams::default()).await?;
    }
    lab.eventually("what is deleted is there again", MENDED, async || {
        let found = deployed.daemon_sets.get_opt(SPEAKER_ACCOUNT).await?;
        let bindings = deployed.bindings.list(&ListParams::default()).await?;
        Ok(found.is_some_and(|it| it.uid() != uid) && bindings.items.len() == 2)
    })
    .await
}

pub async fn an_operator_that_cannot_deploy_the_speakers_says_so_and_allocates() -> Result<()> {
    let lab = Lab::start_by_bundle().await?;
    // In the wrong namespace it does not start.
    let elsewhere = ["--deploy-speakers", "--pod-namespace=operators"];
    lab.start_operator(&elsewhere)?;
    let operator = lab.operator()?;
    ensure!(!operator.process().wait(PATIENCE).await?.success());
    let log = operator.process().output();
    ensure!(log.contains("must be installed in the namespace leasehold-system"), "{log}");

    // Somebody took the Deployment's name away.
    let deployments: Api<Deployment> = Api::namespaced(lab.admin(), SYSTEM_NAMESPACE);
    deployments.delete(OPERATOR_ACCOUNT, &DeleteParams::background()).await?;
    start_operator(&lab, None)?;
    let events: Api<Event> = Api::namespaced(lab.admin(), SYSTEM_NAMESPACE);
    lab.eventually("an event says that there are no speakers", PATIENCE, async || {
        let events = events.list(&ListParams::default()).await?;
        Ok(events.iter().any(|it| it.reason.as_deref() == Some("SpeakersNotDeployed")))
    })
    .await?;
    let cluster = lab.cluster("refused").without_speakers().start().await?;
    cluster.pool(0, 9).await?;
    let service = cluster.service("web").vip(0).create().await?;
    lab.eventually("a Service has an address all the same", PATIENCE, async || {
        Ok(!service.addresses().await?.is_empty())
    })
    .await
}
