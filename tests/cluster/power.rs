//! Machines that die or hang with the pods on them.

use anyhow::{Result, ensure};
use leasehold_lab::machines::Ground;

pub async fn an_owner_whose_power_is_cut_is_replaced_and_comes_back() -> Result<()> {
    Ground::start("power").await?.replaces_an_owner_without_power().await
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
