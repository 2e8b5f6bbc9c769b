//! Machines that die or hang with the pods on them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::ground::Ground;

/// Far more than the 0.13 s that it takes: other tests measure that.
const REPLACED: Duration = Duration::from_secs(3);

pub async fn an_owner_whose_power_is_cut_is_replaced_and_comes_back() -> Result<()> {
    let ground = Ground::start("power").await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    let cut = Instant::now();
    owner.power_off()?;
    ground.moved_from(owner).await?;
    sleep(Duration::from_secs(2)).await;
    owner.power_on().await?;
    ground.machines.node_ready(owner).await?;
    ground.machines.speaks(owner).await?;
    ground.machines.installed().await?;
    ensure!(!owner.has_address(ground.vip)?, "{} has the address again", owner.name());
    let report = probe.stop().await?;
    let track = report.tcp()?;
    println!("    power cut: {track}");
    let first = track.answered_again_since(cut).unwrap_or(Duration::MAX);
    ensure!(first < REPLACED, "a connection by the new owner after {first:?}");
    ensure!(report.owners()?.two_owners().is_zero(), "{:?}", report.owners()?.two_owners());
    Ok(())
}

pub async fn an_owner_whose_processes_hang_or_whose_cable_is_pulled_is_replaced() -> Result<()> {
    let ground = Ground::start("hang").await?;
    let owner = ground.owner().await?;
    owner.cable(false)?;
    ground.moved_from(owner).await?;
    owner.cable(true)?;
    ground.machines.node_ready(owner).await?;
    ground.machines.speaks(owner).await?;
    ensure!(!owner.has_address(ground.vip)?, "{} has the address again", owner.name());

    // Its kernel goes on answering until the lifetime of the address is over.
    let owner = ground.owner().await?;
    owner.freeze()?;
    ground.moved_from(owner).await?;
    let gone = async || Ok(!owner.has_address(ground.vip)?);
    ground.machines.eventually("the kernel has removed the address", gone).await?;
    owner.thaw()?;
    ground.machines.node_ready(owner).await?;
    ground.machines.speaks(owner).await?;
    ground.machines.installed().await?;
    ensure!(!owner.has_address(ground.vip)?, "{} has the address again", owner.name());
    Ok(())
}
