//! What is done to clusters on weekdays, under 200 new connections a second: none of them fails.

use anyhow::{Result, ensure};
use leasehold_lab::machines::{Ground, Program};

pub async fn a_rollout_of_speakers_and_operators_fails_no_connection() -> Result<()> {
    Ground::start("rollout").await?.rolls_out().await
}

pub async fn a_drain_that_heeds_a_disruption_budget_fails_no_connection() -> Result<()> {
    Ground::start("drain").await?.drains().await
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
