//! The YAML that people copy.

use std::fs;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Lab, repository};

pub async fn every_example_is_accepted_by_the_api_server() -> Result<()> {
    let lab = Lab::start().await?;
    let mut count = 0;
    for entry in fs::read_dir(repository().join("examples"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        lab.apply_yaml(&text).await.with_context(|| path.display().to_string())?;
        count += 1;
    }
    ensure!(count >= 3, "only {count} examples");
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
