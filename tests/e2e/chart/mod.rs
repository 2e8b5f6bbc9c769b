//! The Helm chart: what it makes, and what a cluster makes of it.

mod objects;
pub mod release;
pub mod schema;
pub mod trial;
pub mod values;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use leasehold_lab::helm::{self, Helm};
use leasehold_lab::{Lab, SYSTEM_NAMESPACE, repository};

/// All that is off by default and made by a folder of `deploy`. Given as JSON, other values can undo it.
const OPTIONS: [&str; 6] = [
    "--set-json",
    "monitoring.podMonitors.enabled=true",
    "--set-json",
    "monitoring.prometheusRule.enabled=true",
    "--set-json",
    "networkPolicy.enabled=true",
];

/// What kustomize builds of a folder.
fn kustomized(lab: &Lab, folder: &Path) -> Result<String> {
    lab.plane().kubectl(&["kustomize", folder.to_str().context("a path of text")?])
}

/// A kustomization as users write it: all of `deploy`, and what is optional.
fn overlay(lab: &Lab) -> Result<PathBuf> {
    let folder = lab.folder().join("overlay");
    fs::create_dir_all(&folder)?;
    // A path from the root of the file system is not allowed.
    let up: PathBuf = fs::canonicalize(&folder)?.components().skip(1).map(|_| "..").collect();
    let deploy = fs::canonicalize(repository())?.join("deploy");
    let deploy = up.join(deploy.strip_prefix("/")?).display().to_string();
    let text = format!(
        "resources: [{deploy}, {deploy}/monitoring]\ncomponents: [{deploy}/components/network-policy]\n"
    );
    fs::write(folder.join("kustomization.yaml"), text)?;
    Ok(folder)
}

pub async fn the_chart_makes_what_kustomize_builds() -> Result<()> {
    let lab = Lab::shared().await?;
    let helm = Helm::of(&lab)?;
    let made = |arguments: &[&str]| -> Result<objects::Objects> {
        let yaml = helm.template(&[&["--skip-tests"], arguments].concat())?;
        objects::without_helm(objects::read(&yaml)?)
    };
    let plain = objects::read(&kustomized(&lab, &repository().join("deploy"))?)?;
    objects::same(&plain, &made(&[])?).context("by default")?;
    let other = objects::same(&plain, &made(&["--set", "operator.replicas=3"])?);
    let told = other.err().map(|error| error.to_string());
    let expected = "Deployment leasehold-system/leasehold-operator.spec.replicas: 3 instead of 2";
    ensure!(told.as_deref() == Some(expected), "{told:?}");

    let full = objects::read(&kustomized(&lab, &overlay(&lab)?)?)?;
    ensure!(full.len() == plain.len() + 4, "{:?}", full.keys());
    objects::same(&full, &made(&OPTIONS)?).context("with all that is off by default")?;

    // The release's own namespace is Helm's, or the user's.
    let mut rest = plain;
    rest.remove(&format!("Namespace {SYSTEM_NAMESPACE}")).context("no namespace")?;
    objects::same(&rest, &made(&["--namespace", SYSTEM_NAMESPACE])?).context("in its namespace")
}

pub async fn what_make_alerts_writes_is_up_to_date() -> Result<()> {
    let deploy = repository().join("deploy");
    let alerts = fs::read_to_string(deploy.join("monitoring/alerts.yaml"))?;
    let stale = "is stale: run `make alerts`";
    let copy = helm::chart().join("files/alerts.yaml");
    ensure!(fs::read_to_string(&copy)? == alerts, "{} {stale}", copy.display());
    let rule = objects::read(&fs::read_to_string(deploy.join("monitoring/prometheus-rule.yaml"))?)?;
    let rule = rule.values().next().and_then(|rule| rule.get("spec")).context("no rule")?;
    let alerts = leasehold_lab::controlplane::documents(&alerts)?;
    ensure!(alerts.first() == Some(rule), "deploy/monitoring/prometheus-rule.yaml {stale}");
    Ok(())
}
