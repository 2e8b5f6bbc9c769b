//! The memory limits of the manifests, at the sizes of which the documentation tells how much memory they take.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_lab::crowd::Crowd;
use leasehold_lab::fleet::Fleet;
use leasehold_lab::machines::Ground;
use leasehold_lab::{Memory, SYSTEM_NAMESPACE, eventually};
use serde_json::json;
use tokio::time::sleep;

use crate::trouble::restarts;

/// The Services that Leasehold serves.
const OURS: usize = 10_000;
/// Their namespace, and the beginning of their names.
const FLEET: &str = "fleet";
/// The label of Services for another proxy than kube-proxy.
const PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// The label of nodes that are machines.
const MACHINE: &str = "example.com/machine";
/// The timeout of what 10,000 Services take on two cores.
const PATIENCE: Duration = Duration::from_secs(600);
/// The time between two counts of addresses.
const PAUSE: Duration = Duration::from_secs(2);
/// What of their lists comes late, and is held at the same time.
const REST: Duration = Duration::from_secs(20);
/// The Deployment and the `DaemonSet`.
const LEASEHOLD: [&str; 2] = ["deployment/leasehold-operator", "daemonset/leasehold-speaker"];

pub async fn many_services_of_leasehold_fit_its_memory_limits() -> Result<()> {
    let ground = Ground::start("many").await?;
    let fleet = fleet(&ground).await?;
    let began = Instant::now();
    fleet.create_many(FLEET, 0..OURS, &json!({})).await?;
    all_owned(&ground, OURS).await?;
    println!("    {OURS} Services are served after {:.0} s", began.elapsed().as_secs_f64());
    fits(&ground, "while they came")?;
    starts(&ground, OURS).await
}

pub async fn a_large_cluster_around_leasehold_fits_its_memory_limits() -> Result<()> {
    let ground = Ground::start("large").await?;
    only_on_machines(&ground).await?;
    let began = Instant::now();
    let crowd = Crowd { headless: true, ..Crowd::default() };
    crowd.create(ground.machines.lab()).await?;
    println!("    {crowd:?} is there after {:.0} s", began.elapsed().as_secs_f64());
    fits(&ground, "while it came")?;
    starts(&ground, 0).await
}

/// Starts all of Leasehold anew, as an upgrade does: it lists all there is.
async fn starts(ground: &Ground, services: usize) -> Result<()> {
    let began = Instant::now();
    ground.machines.roll_out().await?;
    all_owned(ground, services).await?;
    ground.owner().await?;
    println!("    started anew within {:.0} s", began.elapsed().as_secs_f64());
    sleep(REST).await;
    fits(ground, "after a start")?;
    ensure!(restarts(ground).await? == 0, "a container was restarted");
    Ok(())
}

/// Keeps Leasehold off nodes without kubelet.
async fn only_on_machines(ground: &Ground) -> Result<()> {
    for machine in ground.machines.on() {
        ground.machines.kubectl(&["label", "node", machine.name(), &format!("{MACHINE}=")])?;
    }
    let selector =
        json!({ "spec": { "template": { "spec": { "nodeSelector": { MACHINE: "" } } } } });
    let selector = selector.to_string();
    for what in LEASEHOLD {
        ground.machines.kubectl(&["patch", "-n", SYSTEM_NAMESPACE, what, "-p", &selector])?;
    }
    ground.machines.installed().await
}

/// Services on a subnet of the machines that is large enough.
async fn fleet(ground: &Ground) -> Result<Fleet> {
    for machine in ground.machines.on() {
        let address = format!("10.64.0.{}/16", machine.number());
        let mut command = machine.command("ip")?;
        let status = command.args(["address", "add", &address, "dev", "eth0"]).status()?;
        ensure!(status.success(), "{address} on {}", machine.name());
    }
    let lab = ground.machines.lab();
    lab.apply(json!({
        "apiVersion": "leasehold.dev/v1alpha1",
        "kind": "IPAddressPool",
        "metadata": { "name": FLEET },
        "spec": {
            "addresses": ["10.64.16.0-10.64.127.255"],
            "serviceAllocation": { "namespaces": [FLEET], "priority": 1 },
        },
    }))
    .await?;
    lab.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FLEET } }))
        .await?;
    Ok(Fleet::within(lab, FLEET, json!({ PROXY: "none" })))
}

/// Waits until so many addresses of the fleet are in kernels.
async fn all_owned(ground: &Ground, services: usize) -> Result<()> {
    let all = async || {
        let mut count = 0;
        for machine in ground.machines.on() {
            let output = machine.command("ip")?.args(["-4", "-o", "address", "show"]).output()?;
            let text = String::from_utf8(output.stdout)?;
            count += text
                .lines()
                .filter(|line| line.contains(" 10.64.") && line.contains("/32"))
                .count();
        }
        if count != services {
            sleep(PAUSE).await;
        }
        Ok(count == services)
    };
    let dump = async || ground.machines.kubectl(&["get", "pods", "-A"]).unwrap_or_default();
    eventually("all Services have an owner", PATIENCE, all, dump).await
}

/// Shows what each container has had; fails if one was killed.
fn fits(ground: &Ground, when: &str) -> Result<()> {
    for machine in ground.machines.on() {
        for name in ["leasehold-speaker", "leasehold-operator"] {
            let Some(Memory { peak, killed }) = machine.memory(name)? else { continue };
            println!("    {when}: {name} of {}: at most {} MiB", machine.name(), peak >> 20);
            ensure!(killed == 0, "{killed} processes of {name} were killed");
        }
    }
    Ok(())
}
