//! What is shipped, as people apply it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Lab, repository};
use serde_json::Value;

use crate::scene::Scene;

/// `kind/name` of all objects in YAML documents.
fn objects(yaml: &str) -> Result<BTreeSet<String>> {
    let objects = leasehold_lab::controlplane::documents(yaml)?;
    let name = |object: &Value| {
        let kind = object.get("kind").and_then(Value::as_str)?.to_lowercase();
        Some(format!("{kind}/{}", object.pointer("/metadata/name")?.as_str()?))
    };
    objects.iter().map(|object| name(object).context("an object without a name")).collect()
}

pub async fn one_command_installs_everything_and_another_takes_it_away() -> Result<()> {
    let lab = Lab::start().await?;
    let deploy = repository().join("deploy").display().to_string();
    let kubectl = |arguments: &[&str]| lab.plane().kubectl(arguments);
    let built = objects(&kubectl(&["kustomize", &deploy])?)?;
    for expected in [
        "customresourcedefinition/ipaddresspools.leasehold.dev",
        "daemonset/leasehold-speaker",
        "deployment/leasehold-operator",
        "poddisruptionbudget/leasehold-operator",
        "flowschema/leasehold-leases",
    ] {
        ensure!(built.contains(expected), "{expected} is not in {built:?}");
    }
    // What the API server prunes or defaults away silently would be a warning, what it refuses an error.
    for mode in [&["--dry-run=server"][..], &[], &["--dry-run=server"]] {
        let mut arguments = vec!["apply", "-k", &deploy, "--validate=strict", "-o", "name"];
        arguments.extend(mode);
        let applied: BTreeSet<String> = kubectl(&arguments)?.lines().map(plain).collect();
        ensure!(applied == built, "{mode:?}: {applied:?} instead of {built:?}");
    }
    // It fails where a second time would change something.
    kubectl(&["diff", "-k", &deploy])?;
    kubectl(&["delete", "-k", &deploy, "--wait=false"])?;
    let left = kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"])?;
    ensure!(!left.contains("leasehold"), "{left}");
    Ok(())
}

/// `kind.group/name` without the group.
fn plain(line: &str) -> String {
    let (kind, name) = line.split_once('/').unwrap_or((line, ""));
    format!("{}/{name}", kind.split('.').next().unwrap_or(kind))
}

pub async fn requests_on_leases_have_a_priority_level_of_their_own() -> Result<()> {
    let scene = Scene::alone("flow").await?;
    let metrics = scene.lab().plane().kubectl(&["get", "--raw", "/metrics"])?;
    let dispatched = |schema: &str| -> u64 {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(&format!("flow_schema=\"{schema}\""))
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let ours = dispatched("leasehold-leases");
    ensure!(ours > 10, "{ours} requests by the flow schema of leases");
    println!(
        "    {ours} requests on leases, {} others of service accounts",
        dispatched("service-accounts")
    );
    Ok(())
}
