//! The YAML that people copy.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use leasehold_lab::{Lab, repository};
use serde_json::Value;

/// What the operator wrote to each Service: the address, the pool and the claim.
async fn records(lab: &Lab) -> Result<BTreeMap<String, [Option<String>; 3]>> {
    let services = Api::<Service>::namespaced(lab.admin(), "default");
    let mut records = BTreeMap::new();
    for service in services.list(&ListParams::default()).await? {
        let object = serde_json::to_value(&service)?;
        let text = |path| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let record = [
            "/status/loadBalancer/ingress/0/ip",
            "/metadata/annotations/leasehold.dev~1allocated-from",
            "/metadata/annotations/leasehold.dev~1claim",
        ];
        records.insert(service.name_any(), record.map(text));
    }
    records.remove("kubernetes");
    Ok(records)
}

pub async fn every_example_is_accepted_by_the_api_server_and_may_be_applied_again() -> Result<()> {
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

    lab.start_operator(&[])?;
    let patience = Duration::from_secs(20);
    let mut before = BTreeMap::new();
    lab.eventually("every Service of the examples has an address", patience, async || {
        before = records(&lab).await?;
        let has_all = |record: &[Option<String>; 3]| record.iter().all(Option::is_some);
        Ok(!before.is_empty() && before.values().all(has_all))
    })
    .await?;
    // As people and tools do it: the manifests know nothing of what the operator wrote.
    let examples = repository().join("examples");
    let examples = examples.to_str().context("a path that is text")?;
    for way in
        [&["apply"][..], &["apply", "--server-side", "--force-conflicts"], &["replace"], &["apply"]]
    {
        lab.plane().kubectl(&[way, &["-f", examples]].concat())?;
        let what = format!("after kubectl {} all is as it was", way.join(" "));
        lab.eventually(&what, patience, async || Ok(records(&lab).await? == before)).await?;
    }
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
