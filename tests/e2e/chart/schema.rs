//! All YAML that is shipped, against the schemas of the API server.

use std::fs;

use anyhow::{Result, ensure};
use leasehold_lab::helm::{self, Helm};
use leasehold_lab::schemas::Schemas;
use leasehold_lab::{Lab, repository};

use super::{OPTIONS, kustomized, overlay};
use crate::scene::PATIENCE;

/// What is wrong in a way of its own, as words that are to be replaced in what the chart makes.
const ERRORS: [(&str, &str, &str); 4] = [
    ("hostNetwork: true", "hostNetwrok: true", "hostNetwrok"),
    ("replicas: 2", "replicas: two", "replicas"),
    ("kind: PodMonitor", "kind: PodMonitr", "PodMonitr"),
    ("podMetricsEndpoints:", "podMetricEndpoints:", "podMetricEndpoints"),
];

pub async fn all_manifests_are_what_the_api_server_knows() -> Result<()> {
    let lab = Lab::start().await?;
    let definitions = helm::monitoring_definitions()?.display().to_string();
    lab.plane().kubectl(&["apply", "-f", &definitions])?;
    let mut made = String::new();
    let described = lab.eventually("custom resources are described", PATIENCE, async || {
        made = lab.plane().kubectl(&["get", "--raw", "/openapi/v2"])?;
        let ours = ["IPAddressPool", "AnnouncementPolicy", "PodMonitor", "PrometheusRule"];
        Ok(ours.iter().all(|kind| made.contains(&format!("\"kind\":\"{kind}\""))))
    });
    described.await?;
    let schemas = Schemas::of(&lab)?;
    let chart = Helm::of(&lab)?.template(&OPTIONS)?;
    let mut count = schemas.check("chart", &chart)?;
    count += schemas.check("kustomize", &kustomized(&lab, &overlay(&lab)?)?)?;
    for entry in fs::read_dir(repository().join("examples"))? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        count += schemas.check(&name, &fs::read_to_string(&path)?)?;
    }
    for folder in ["leasehold", "clusters/north"] {
        let path = repository().join("examples/gitops").join(folder);
        count += schemas.check("gitops", &kustomized(&lab, &path)?)?;
    }
    println!("    {count} objects are valid");
    ensure!(count > 60, "only {count} objects");
    for (right, wrong, word) in ERRORS {
        ensure!(chart.contains(right), "no {right} in {chart}");
        let found = schemas.check("planted", &chart.replacen(right, wrong, 1));
        let text = found.map_or_else(|error| format!("{error:#}"), |_| "nothing".to_owned());
        ensure!(text.contains(word), "{wrong}: {text}");
    }
    Ok(())
}
