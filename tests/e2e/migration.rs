//! A move from MetalLB, by the steps of the README: every address stays.

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::service::Service;
use leasehold_lab::{Cluster, Lab, binaries, repository};
use serde_json::{Value, json};
use tokio::time::sleep;

const POOL: &str = "production";
/// VIPs that MetalLB gave out: not those that Leasehold would have chosen.
const GIVEN: [u8; 2] = [7, 4];
const SOON: Duration = Duration::from_secs(20);

pub async fn a_move_from_metallb_keeps_every_address() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("moving").start().await?;
    let services = leave_behind(&lab, &cluster).await?;

    // Step 1: what MetalLB has, and a policy by which nobody announces anything.
    let hold = std::fs::read_to_string(repository().join("examples/policy-hold.yaml"))?;
    lab.apply_yaml(&hold).await?;
    let (ours, notes) = migrate(&lab)?;
    ensure!(ours.contains("kind: IPAddressPool") && ours.contains(POOL), "{ours}\n{notes}");
    lab.apply_yaml(&ours).await.with_context(|| ours.clone())?;

    // Step 3: Leasehold takes over what stands in the statuses, and announces nothing.
    lab.start_operator(&["--default-class"])?;
    for (service, vip) in &services {
        cluster
            .eventually(&format!("{} is Leasehold's", service.name()), SOON, async || {
                Ok(service.recorded_claim().await?.is_some())
            })
            .await?;
        ensure!(service.addresses().await? == [*vip], "{} lost {vip}", service.name());
    }
    let new = cluster.service("new").class(None).create().await?;
    cluster
        .eventually("a new service has an address", SOON, async || {
            Ok(!new.addresses().await?.is_empty())
        })
        .await?;
    sleep(Duration::from_secs(2)).await;
    for (_, vip) in &services {
        ensure!(cluster.holders(*vip)?.is_empty(), "{vip} is announced before the switch");
    }

    // Step 4: the switch.
    lab.plane().kubectl(&["delete", "announcementpolicy", "hold"])?;
    for (service, vip) in &services {
        let (served, _) = cluster.ready(service).await?;
        ensure!(served == *vip, "{} has {served} instead of {vip}", service.name());
    }
    cluster.ready(&new).await?;
    Ok(())
}

/// What MetalLB leaves behind: its objects, and Services with addresses in their statuses.
async fn leave_behind(lab: &Arc<Lab>, cluster: &Cluster) -> Result<Vec<(Service, IpAddr)>> {
    let plan = cluster.addresses();
    what_metallb_leaves(lab, &format!("{}-{}", plan.vip(0).0, plan.vip(20).0)).await?;
    let mut services = Vec::new();
    for number in GIVEN {
        let vip = IpAddr::from(plan.vip(number).0);
        let service = cluster.service(&format!("web-{number}")).class(None);
        let service =
            service.annotation("metallb.io/ip-allocated-from-pool", POOL).create().await?;
        service.set_addresses(&[vip]).await?;
        services.push((service, vip));
    }
    Ok(services)
}

/// Its objects alone, with these addresses.
pub async fn what_metallb_leaves(lab: &Arc<Lab>, addresses: &str) -> Result<()> {
    lab.apply(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "metallb-system" },
    }))
    .await?;
    for (kind, plural) in
        [("IPAddressPool", "ipaddresspools"), ("L2Advertisement", "l2advertisements")]
    {
        lab.apply(definition(kind, plural)).await?;
    }
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "metallb.io/v1beta1", "kind": kind,
            "metadata": { "name": name, "namespace": "metallb-system" }, "spec": spec,
        })
    };
    let pool = object("IPAddressPool", POOL, json!({ "addresses": [addresses] }));
    let advertisement = object(
        "L2Advertisement",
        "l2",
        json!({ "ipAddressPools": [POOL], "interfaces": ["eth0"] }),
    );
    for object in [pool, advertisement] {
        lab.eventually("MetalLB's kinds are served", SOON, async || {
            Ok(lab.apply(object.clone()).await.is_ok())
        })
        .await?;
    }
    for (kind, name) in [("Deployment", "controller"), ("DaemonSet", "speaker")] {
        let labels = json!({ "component": name });
        lab.apply(json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": { "name": name, "namespace": "metallb-system" },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": name, "image": name }] },
            } },
        }))
        .await?;
    }
    Ok(())
}

/// A kind of MetalLB's, with whatever fields.
fn definition(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.metallb.io") },
        "spec": {
            "group": "metallb.io", "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// What `migrate-from-metallb` writes, and its notes.
fn migrate(lab: &Arc<Lab>) -> Result<(String, String)> {
    let output = Command::new(binaries::operator()?)
        .arg("migrate-from-metallb")
        .arg("--kubeconfig")
        .arg(lab.plane().kubeconfig("admin"))
        .output()?;
    let (ours, notes) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "{}: {notes}", output.status);
    Ok((ours, notes))
}
