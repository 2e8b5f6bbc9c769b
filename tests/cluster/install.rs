//! The other ways to install: by Helm, and by what the Operator Lifecycle Manager makes of the bundle.

use anyhow::Result;
use leasehold_lab::helm::{self, Helm};
use leasehold_lab::machines::{Ground, Machines, MachinesPlan};
use leasehold_lab::olm::Bundle;

pub async fn the_chart_installs_pods_that_serve_and_takes_them_away() -> Result<()> {
    let machines = MachinesPlan::new("helm").start().await?;
    let helm = Helm::of(machines.lab())?;
    let install = ["install", helm::RELEASE, "--namespace", "leasehold-system"];
    let wait = ["--create-namespace", "--wait", "--timeout=120s"];
    helm.with_chart(&[&install[..], &wait].concat(), &helm::chart())?;
    let ground = Ground::installed(machines).await?;
    let probe = ground.watch().await?;
    ground.nothing_failed("installed by Helm", probe).await?;
    helm.run(&["uninstall", helm::RELEASE, "--namespace", "leasehold-system", "--wait"])?;
    nobody_has_the_address(&ground.machines, &ground).await
}

pub async fn the_bundle_installs_an_operator_that_deploys_speakers() -> Result<()> {
    let machines = MachinesPlan::new("olm").start().await?;
    let bundle = Bundle::read()?;
    bundle.install(machines.lab()).await?;
    let ground = Ground::installed(machines).await?;
    let probe = ground.watch().await?;
    ground.nothing_failed("installed by the bundle", probe).await?;
    bundle.uninstall(ground.machines.lab()).await?;
    nobody_has_the_address(&ground.machines, &ground).await
}

async fn nobody_has_the_address(machines: &Machines, ground: &Ground) -> Result<()> {
    let gone = async || Ok(machines.holders(ground.vip)?.is_empty());
    machines.eventually("no machine has the address", gone).await
}
