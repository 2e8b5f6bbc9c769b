//! The YAML that people copy.

use std::fs;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Lab, repository};
use serde_json::Value;

pub async fn every_example_is_accepted_by_the_api_server() -> Result<()> {
    let lab = Lab::start().await?;
    let mut count = 0;
    for entry in fs::read_dir(repository().join("examples"))? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        lab.apply_yaml(&text).await.with_context(|| path.display().to_string())?;
        count += 1;
    }
    ensure!(count >= 3, "only {count} examples");
    Ok(())
}

pub async fn the_gitops_example_installs_and_configures_in_two_steps() -> Result<()> {
    let lab = Lab::start().await?;
    let gitops = repository().join("examples/gitops");
    let apply = |folder: &str| {
        let folder = gitops.join(folder);
        let folder = folder.to_str().context("a path that is text")?;
        lab.plane().kubectl(&["apply", "--validate=strict", "-k", folder])
    };
    apply("leasehold")?;
    let applied = apply("clusters/north")?;
    ensure!(applied.contains("ipaddresspool.leasehold.dev/north created"), "{applied}");
    // Its patches are in place.
    let read = |kind: &str, name: &str| -> Result<Value> {
        let get = ["get", "-n", "leasehold-system", kind, name, "-o", "json"];
        Ok(serde_json::from_str(&lab.plane().kubectl(&get)?)?)
    };
    let (operator, speaker) =
        (read("deployment", "leasehold-operator")?, read("daemonset", "leasehold-speaker")?);
    ensure!(operator.pointer("/spec/template/spec/containers/0/args").is_none(), "{operator}");
    let selector = speaker.pointer("/spec/template/spec/nodeSelector/network.example.com~1edge");
    ensure!(selector == Some(&Value::from("true")), "{speaker}");
    Ok(())
}

pub async fn every_manifest_is_accepted_by_the_api_server() -> Result<()> {
    let lab = Lab::shared().await?;
    let base = repository().join("deploy/base");
    let base = base.to_str().context("a path that is text")?;
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", base];
    let accepted = lab.plane().kubectl(&apply)?;
    for object in ["daemonset.apps/leasehold-speaker", "deployment.apps/leasehold-operator"] {
        ensure!(accepted.contains(object), "{object} is not among: {accepted}");
    }
    Ok(())
}
