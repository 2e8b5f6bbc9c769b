//! What is done to clusters on weekdays, under 200 new connections a second: none of them fails.

use anyhow::{Result, ensure};
use leasehold_lab::SYSTEM_NAMESPACE;
use leasehold_lab::machines::Program;
use serde_json::json;

use crate::ground::{Ground, NAMESPACE, WEB};

pub async fn a_rollout_of_speakers_and_operators_fails_no_connection() -> Result<()> {
    let ground = Ground::start("rollout").await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    for what in ["daemonset/leasehold-speaker", "deployment/leasehold-operator"] {
        ground.machines.kubectl(&["rollout", "restart", "-n", SYSTEM_NAMESPACE, what])?;
    }
    ground.machines.installed().await?;
    let report = ground.nothing_failed("rolled out", probe).await?;
    ensure!(report.connection()?.broken().is_none(), "{}", report.connection()?);
    let now = ground.owner().await?;
    ensure!(now.name() == owner.name(), "moved from {} to {}", owner.name(), now.name());
    Ok(())
}

pub async fn a_drain_that_heeds_a_disruption_budget_fails_no_connection() -> Result<()> {
    let ground = Ground::start("drain").await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": WEB, "namespace": NAMESPACE },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": WEB } } },
    });
    ground.machines.lab().apply(budget).await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    let drain = ["drain", owner.name(), "--ignore-daemonsets", "--timeout=120s"];
    println!("{}", ground.machines.kubectl(&drain)?);
    ground.machines.deployed(NAMESPACE, WEB).await?;
    let report = ground.nothing_failed("drained", probe).await?;
    // Both answer while one hands over to the other.
    let both = report.owners()?.two_owners();
    ensure!(both.as_millis() < 250, "two owners for {both:?}");
    for pod in ground.machines.pods(NAMESPACE, "app=web").await? {
        let node = pod.spec.and_then(|spec| spec.node_name);
        ensure!(node.as_deref() != Some(owner.name()), "a pod is on {}", owner.name());
    }
    Ok(())
}

pub async fn kubelet_and_containerd_restart_without_a_failed_connection() -> Result<()> {
    let ground = Ground::start("restarts").await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    for program in [Program::Kubelet, Program::Containerd] {
        owner.restart(program).await?;
    }
    let report = ground.nothing_failed("restarted", probe).await?;
    ensure!(report.connection()?.broken().is_none(), "{}", report.connection()?);
    ensure!(ground.owner().await?.name() == owner.name(), "the address has moved");
    ground.machines.installed().await
}
