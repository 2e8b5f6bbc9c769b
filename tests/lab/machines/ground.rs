//! Where tests on machines begin: three of them with Leasehold, and a Service with a pod on each.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::{Machine, Machines, MachinesPlan, web};
use crate::client::{Probe, Report};

/// The time between new connections: 200 in a second.
const PERIOD: Duration = Duration::from_millis(5);
/// The namespace of the Service.
pub const NAMESPACE: &str = "default";
/// The Service and its Deployment.
pub const WEB: &str = "web";

/// Machines, and the Service's address.
#[derive(Debug)]
pub struct Ground {
    /// The machines.
    pub machines: Machines,
    /// The first address of [`WEB`].
    pub vip: IpAddr,
}

impl Ground {
    /// Starts the machines, whose names begin with this one, and installs Leasehold.
    pub async fn start(name: &str) -> Result<Self> {
        Self::on(MachinesPlan::new(name).start().await?).await
    }

    /// Installs Leasehold on these machines.
    pub async fn on(machines: Machines) -> Result<Self> {
        machines.install().await?;
        Self::serving(machines).await
    }

    /// On machines where Leasehold is being installed.
    pub async fn installed(machines: Machines) -> Result<Self> {
        machines.installed().await?;
        Self::serving(machines).await
    }

    async fn serving(machines: Machines) -> Result<Self> {
        machines.pool().await?;
        for object in web(NAMESPACE, WEB) {
            machines.lab().apply(object).await?;
        }
        machines.deployed(NAMESPACE, WEB).await?;
        let (vip, _) = machines.served(NAMESPACE, WEB).await?;
        Ok(Self { machines, vip })
    }

    /// The machine that owns the address, once that is served.
    pub async fn owner(&self) -> Result<&Machine> {
        self.machines.served(NAMESPACE, WEB).await.map(|(_, owner)| owner)
    }

    /// Waits until another machine than this one owns the address.
    pub async fn moved_from(&self, old: &Machine) -> Result<()> {
        let what = format!("another machine than {} owns {}", old.name(), self.vip);
        self.machines
            .eventually(&what, async || {
                let owner = self.machines.owner(NAMESPACE, WEB).await?;
                let other = owner.filter(|owner| owner.name() != old.name());
                other.map_or(Ok(false), |owner| owner.has_address(self.vip))
            })
            .await
    }

    /// A new connection every 5 ms, one that lasts, and who owns the address; for half a second already.
    pub async fn watch(&self) -> Result<Probe> {
        let client = self.machines.client();
        let probe = client.probe(self.vip).tcp(80, PERIOD).connection(80).owners().start()?;
        sleep(Duration::from_millis(500)).await;
        Ok(probe)
    }

    /// Fails unless all new connections were answered.
    pub async fn nothing_failed(&self, what: &str, probe: Probe) -> Result<Report> {
        // What ends late is seen, too.
        sleep(Duration::from_secs(3)).await;
        let report = probe.stop().await?;
        let track = report.tcp()?;
        println!("    {what}: {track}; the open connection: {}", report.connection()?);
        ensure!(track.count() > 0 && track.lost() == 0, "{what}: {track}");
        Ok(report)
    }
}
