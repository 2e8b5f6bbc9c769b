//! Releases of the chart, on an API server that has never heard of Leasehold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use leasehold_lab::helm::{self, Helm, RELEASE};
use leasehold_lab::{Lab, SYSTEM_NAMESPACE, repository};
use serde_json::Value;

use super::{OPTIONS, objects};
use crate::scene::PATIENCE;

/// The kinds of what the chart makes, but those of monitoring.
const KINDS: &str = "namespaces,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,\
    daemonsets,deployments,poddisruptionbudgets,flowschemas,prioritylevelconfigurations,networkpolicies,\
    customresourcedefinitions";
const INSTALL: [&str; 2] = ["install", RELEASE];
const IN_ITS_NAMESPACE: [&str; 2] = ["--namespace", SYSTEM_NAMESPACE];
const LABEL: &str = "pod-security.kubernetes.io/enforce=privileged";

/// The objects of Leasehold that there are, and their resource versions.
fn there(lab: &Lab) -> Result<BTreeMap<String, String>> {
    let columns = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}\
        {\"\\t\"}{.metadata.resourceVersion}{\"\\n\"}{end}";
    let text = lab.plane().kubectl(&["get", KINDS, "--all-namespaces", "-o", columns])?;
    let ours = text.lines().filter(|line| line.contains("leasehold"));
    // What controllers put into each namespace.
    let ours = ours.filter(|line| !line.contains("/default\t"));
    Ok(ours.filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.into(), b.into())).collect())
}

/// Waits until nothing is left but some objects.
pub async fn nothing_but(lab: &Lab, rest: &[&str]) -> Result<()> {
    let mut left = Vec::new();
    let gone = lab.eventually("all objects are gone", PATIENCE, async || {
        left = there(lab)?.into_keys().filter(|it| !rest.contains(&it.as_str())).collect();
        Ok(left.is_empty())
    });
    gone.await.with_context(|| format!("left: {left:?}"))?;
    for object in rest {
        ensure!(there(lab)?.contains_key(*object), "{object} is gone, too");
    }
    Ok(())
}

const DEFINITIONS: [&str; 2] = [
    "CustomResourceDefinition /announcementpolicies.leasehold.dev",
    "CustomResourceDefinition /ipaddresspools.leasehold.dev",
];

pub async fn a_release_is_installed_upgraded_and_uninstalled_and_pools_stay() -> Result<()> {
    let lab = Lab::bare().await?;
    let helm = Helm::of(&lab)?;
    let chart = |arguments: &[&str]| helm.with_chart(arguments, &helm::chart());
    chart(&["lint", "--strict"])?;
    chart(&[&INSTALL[..], &["--dry-run=server"]].concat())?;
    ensure!(there(&lab)?.is_empty(), "{:?}", there(&lab)?);

    let notes = chart(&INSTALL)?;
    ensure!(notes.contains("kind: IPAddressPool") && !notes.contains(LABEL), "{notes}");
    let before = there(&lab)?;
    let made = objects::read(&helm.template(&["--skip-tests"])?)?;
    ensure!(before.len() == made.len(), "{before:?} instead of {:?}", made.keys());
    let namespace =
        lab.plane().kubectl(&["get", "namespace", SYSTEM_NAMESPACE, "--show-labels"])?;
    ensure!(namespace.contains(LABEL), "{namespace}");
    chart(&["upgrade", RELEASE])?;
    let after = there(&lab)?;
    ensure!(after == before, "an upgrade to the same changes {before:?} to {after:?}");

    let pool = fs::read_to_string(repository().join("examples/pool.yaml"))?;
    lab.eventually("a pool is there", PATIENCE, async || Ok(lab.apply_yaml(&pool).await.is_ok()))
        .await?;
    helm.run(&["uninstall", RELEASE])?;
    nothing_but(&lab, &DEFINITIONS).await?;
    let pools = lab.plane().kubectl(&["get", "ipaddresspools.leasehold.dev", "-o", "name"])?;
    ensure!(!pools.is_empty(), "the pool is gone");

    // Those that stayed are the new release's, which takes them with it if it is told to.
    chart(&[&INSTALL[..], &["--set", "crds.keep=false"]].concat())?;
    ensure!(there(&lab)?.len() == made.len());
    helm.run(&["uninstall", RELEASE])?;
    nothing_but(&lab, &[]).await
}

pub async fn a_release_in_the_namespace_of_leasehold_says_how_to_label_it() -> Result<()> {
    let lab = Lab::bare().await?;
    let helm = Helm::of(&lab)?;
    lab.plane().kubectl(&[
        "apply",
        "-f",
        helm::monitoring_definitions()?.to_str().context("text")?,
    ])?;
    let own = |command: &[&str]| {
        helm.with_chart(&[command, &IN_ITS_NAMESPACE, &OPTIONS].concat(), &helm::chart())
    };
    let notes = own(&["install", RELEASE, "--create-namespace"])?;
    ensure!(notes.contains(LABEL), "{notes}");
    let before = there(&lab)?;
    let made = objects::read(&helm.template(&["--skip-tests"])?)?;
    // Besides there is a NetworkPolicy; the namespace is Helm's now.
    ensure!(before.len() == made.len() + 1, "{before:?} instead of {:?}", made.keys());
    let monitors = lab.plane().kubectl(&[
        "get",
        "podmonitors,prometheusrules",
        "--namespace",
        SYSTEM_NAMESPACE,
        "-o",
        "name",
    ])?;
    ensure!(monitors.lines().count() == 3, "{monitors}");

    let notes = own(&["upgrade", RELEASE])?;
    ensure!(notes.contains(LABEL), "{notes}");
    ensure!(there(&lab)? == before, "an upgrade to the same changes objects");
    lab.plane().kubectl(&["label", "namespace", SYSTEM_NAMESPACE, LABEL])?;
    let notes = own(&["upgrade", RELEASE])?;
    ensure!(!notes.contains("kubectl label"), "{notes}");

    helm.run(&[&["uninstall", RELEASE], &IN_ITS_NAMESPACE[..]].concat())?;
    let namespace = format!("Namespace /{SYSTEM_NAMESPACE}");
    nothing_but(&lab, &[&DEFINITIONS[..], &[&namespace]].concat()).await
}

/// The chart as an older version of it might have been: without a field of pools.
fn older(lab: &Lab) -> Result<std::path::PathBuf> {
    let older = lab.folder().join("older");
    copy(&helm::chart(), &older)?;
    let file = older.join("files/crds/ipaddresspools.yaml");
    let mut definition: Value = serde_yaml_ng::from_str(&fs::read_to_string(&file)?)?;
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition.pointer_mut(fields).and_then(Value::as_object_mut);
    fields.and_then(|fields| fields.remove("disabled")).context("no field `disabled`")?;
    fs::write(&file, serde_yaml_ng::to_string(&definition)?)?;
    Ok(older)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

pub async fn an_upgrade_brings_the_new_fields_of_the_definitions() -> Result<()> {
    let lab = Lab::bare().await?;
    let helm = Helm::of(&lab)?;
    let known = |lab: &Arc<Lab>| -> Result<bool> {
        let path = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.disabled}";
        let definition = ["get", "crd", "ipaddresspools.leasehold.dev", "-o", path];
        Ok(!lab.plane().kubectl(&definition)?.trim().is_empty())
    };
    helm.with_chart(&INSTALL, &older(&lab)?)?;
    ensure!(!known(&lab)?, "the older definition has the field");
    helm.with_chart(&["upgrade", RELEASE], &helm::chart())?;
    ensure!(known(&lab)?, "the upgrade left the older definition");
    Ok(())
}

pub async fn what_kubectl_applied_becomes_a_release_and_no_pod_changes() -> Result<()> {
    let lab = Lab::bare().await?;
    let helm = Helm::of(&lab)?;
    let deploy = repository().join("deploy").display().to_string();
    lab.plane().kubectl(&["apply", "-k", &deploy])?;
    let templates = || {
        let path = "jsonpath={range .items[*]}{.spec.template}{end}";
        lab.plane().kubectl(&["get", "ds,deploy", "-n", SYSTEM_NAMESPACE, "-o", path])
    };
    let before = templates()?;
    let names: Vec<String> = there(&lab)?.into_keys().collect();
    let refused = helm.with_chart(&INSTALL, &helm::chart());
    ensure!(refused.is_err(), "taken without being asked to");
    let take = ["--take-ownership", "--force-conflicts"];
    helm.with_chart(&[&INSTALL[..], &take].concat(), &helm::chart())?;
    ensure!(templates()? == before, "{before}\nbecame\n{}", templates()?);
    let after: Vec<String> = there(&lab)?.into_keys().collect();
    ensure!(after == names, "{names:?} became {after:?}");
    Ok(())
}
