//! From the previous version to this one, as a user does it on real nodes.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use leasehold_lab::machines::{Ground, Machines, MachinesPlan, NAMESPACE, WEB};
use leasehold_lab::previous::Previous;
use leasehold_lab::{SYSTEM_NAMESPACE, repository};

pub async fn an_upgrade_from_the_previous_version_fails_no_connection() -> Result<()> {
    let machines = MachinesPlan::new("upgrade").images("previous").start().await?;
    install_previous(&machines)?;
    let ground = Ground::installed(machines).await?;
    let (owner, claim) = (ground.owner().await?, claim(&ground).await?);
    let addresses = ground.machines.service_addresses(NAMESPACE, WEB).await?;

    let probe = ground.watch().await?;
    let folder = repository().join("deploy");
    ground.machines.kubectl(&["apply", "-k", &folder.to_string_lossy()])?;
    ground.machines.installed().await?;
    for component in ["speaker", "operator"] {
        let label = format!("app.kubernetes.io/component={component}");
        for pod in ground.machines.pods(SYSTEM_NAMESPACE, &label).await? {
            let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
            let image = containers.into_iter().find_map(|container| container.image);
            let this = format!("leasehold/{component}:{}", env!("CARGO_PKG_VERSION"));
            ensure!(image.as_ref() == Some(&this), "a pod has the image {image:?}");
        }
    }
    let report = ground.nothing_failed("upgraded", probe).await?;
    ensure!(report.connection()?.broken().is_none(), "{}", report.connection()?);
    let now = ground.owner().await?;
    ensure!(now.name() == owner.name(), "moved from {} to {}", owner.name(), now.name());
    let kept = self::claim(&ground).await?;
    ensure!(kept == claim, "the claim was {claim:?}, and is {kept:?}");
    let after = ground.machines.service_addresses(NAMESPACE, WEB).await?;
    ensure!(after == addresses, "the addresses were {addresses:?}, and are {after:?}");
    Ok(())
}

/// Installs it from its own manifests, which are of the same version as these, with images of another tag.
fn install_previous(machines: &Machines) -> Result<()> {
    let source = Previous::locate()?.source();
    machines.kubectl(&["apply", "-f", &source.join("crds/generated").to_string_lossy()])?;
    let base = source.join("deploy/base");
    let manifests = machines.kubectl(&["kustomize", &base.to_string_lossy()])?;
    let version = env!("CARGO_PKG_VERSION");
    let mut renamed = manifests;
    for component in ["speaker", "operator"] {
        let image = format!("image: leasehold/{component}:");
        ensure!(renamed.contains(&image), "no {component} in {}", base.display());
        renamed = renamed.replace(&format!("{image}{version}"), &format!("{image}previous"));
    }
    let file = machines.lab().folder().join("previous.yaml");
    fs::write(&file, renamed)?;
    machines.kubectl(&["apply", "-f", &file.to_string_lossy()]).map(|_| ())
}

/// The holder of the Service's claim, and how often it has changed.
async fn claim(ground: &Ground) -> Result<(Option<String>, Option<i32>)> {
    let leases: Api<Lease> = Api::namespaced(ground.machines.lab().admin(), SYSTEM_NAMESPACE);
    let spec = leases.get(&format!("{NAMESPACE}.{WEB}")).await?.spec.unwrap_or_default();
    Ok((spec.holder_identity, spec.lease_transitions))
}
