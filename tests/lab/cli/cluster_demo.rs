//! The story that `make cluster-demo` tells: pods, kubelets, and a client that makes new connections.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_lab::Report;
use leasehold_lab::client::Probe;
use leasehold_lab::machines::{Machine, Machines, Program};
use tokio::time::sleep;

use super::machines::{self, show};
use super::story::{self, chapter, say};
use super::table::{self, Table};

/// The time between new connections of the client.
const PERIOD: Duration = Duration::from_millis(5);
/// The time for which the client watches after all is well again.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// A Node whose kubelet is silent is not ready after 50 s (Kubernetes 1.32 and later): so long the pods of a dead
/// node are in EndpointSlices.
const UNTIL_NOT_READY: Duration = Duration::from_secs(60);

pub(crate) fn run(scratch: &Path) -> Result<ExitCode> {
    story::run(scratch, tell())
}

async fn tell() -> Result<()> {
    let mut table = Table::default();
    chapter("1. A Kubernetes cluster on this machine: three nodes with kubelet and containerd");
    let machines = machines::start().await?;
    let (vip, _) = machines.served("default", "web").await?;
    let demo = Demo { machines: &machines, vip };
    show(&machines, &["get", "pods", "-A", "-o", "wide"])?;
    show(&machines, &["get", "service", "web"])?;
    show(&machines, &["describe", "lease", "-n", "leasehold-system", "default.web"])?;

    demo.roll_out(&mut table).await?;
    demo.drain(&mut table).await?;
    demo.kubelet_restarts(&mut table).await?;
    demo.power_cut(&mut table).await?;

    chapter("What was measured");
    say("A client on the same network made a new connection every 5 ms, and held one open.\n");
    println!("{table}");
    Ok(())
}

struct Demo<'a> {
    machines: &'a Machines,
    vip: IpAddr,
}

impl<'a> Demo<'a> {
    fn probe(&self) -> Result<Probe> {
        self.machines.client().probe(self.vip).tcp(80, PERIOD).connection(80).owners().start()
    }

    async fn owner(&self) -> Result<&'a Machine> {
        self.machines.served("default", "web").await.map(|(_, owner)| owner)
    }

    fn felt(report: &Report) -> Result<()> {
        say(&format!("new connections:     {}", report.tcp()?));
        say(&format!("its open connection: {}", report.connection()?));
        Ok(())
    }

    async fn roll_out(&self, table: &mut Table) -> Result<()> {
        chapter("2. Leasehold is rolled out anew: each speaker and operator is replaced");
        let owner = self.owner().await?;
        let probe = self.probe()?;
        sleep(Duration::from_millis(500)).await;
        for what in ["daemonset/leasehold-speaker", "deployment/leasehold-operator"] {
            show(self.machines, &["rollout", "restart", "-n", "leasehold-system", what])?;
        }
        self.machines.installed().await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        Self::felt(&report)?;
        say(&format!("the owner was {}, and is {}", owner.name(), self.owner().await?.name()));
        table.add("all speakers replaced: connections failed", failed(&report)?);
        table.add("... open connection", table::end(report.connection()?));
        Ok(())
    }

    async fn drain(&self, table: &mut Table) -> Result<()> {
        let owner = self.owner().await?;
        chapter(&format!(
            "3. {}, the owner, is drained: its pods move, then its address",
            owner.name()
        ));
        let probe = self.probe()?;
        sleep(Duration::from_millis(500)).await;
        let drain = ["drain", owner.name(), "--ignore-daemonsets", "--delete-emptydir-data"];
        show(self.machines, &drain)?;
        self.machines.deployed("default", "web").await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        Self::felt(&report)?;
        say(&format!("the owner is {}", self.owner().await?.name()));
        table.add("owner's node drained: connections failed", failed(&report)?);
        show(self.machines, &["uncordon", owner.name()])?;
        // Back to a pod on each of two nodes.
        show(self.machines, &["rollout", "restart", "deployment/web"])?;
        self.machines.deployed("default", "web").await?;
        // Those that end refuse connections until kube-proxy knows.
        let gone = async || Ok(self.machines.pods("default", "app=web").await?.len() == 2);
        self.machines.eventually("the pods of before are gone", gone).await
    }

    async fn kubelet_restarts(&self, table: &mut Table) -> Result<()> {
        let owner = self.owner().await?;
        chapter(&format!("4. kubelet and containerd of {} are restarted", owner.name()));
        let probe = self.probe()?;
        sleep(Duration::from_millis(500)).await;
        owner.restart(Program::Kubelet).await?;
        owner.restart(Program::Containerd).await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        Self::felt(&report)?;
        table.add("kubelet and containerd restarted: connections failed", failed(&report)?);
        Ok(())
    }

    async fn power_cut(&self, table: &mut Table) -> Result<()> {
        let owner = self.owner().await?;
        chapter(&format!("5. {}, the owner, loses its power, with the pods on it", owner.name()));
        show(self.machines, &["get", "pods", "-o", "wide"])?;
        let probe = self.probe()?;
        sleep(Duration::from_millis(500)).await;
        let cut = Instant::now();
        owner.power_off()?;
        let new = async || {
            let now = self.machines.owner("default", "web").await?;
            Ok(now.is_some_and(|now| now.name() != owner.name()))
        };
        self.machines.eventually("another node owns the address", new).await?;
        say(&format!(
            "{} is the new owner; waiting until Kubernetes notices, too ...",
            self.owner().await?.name()
        ));
        sleep(UNTIL_NOT_READY).await;
        let report = probe.stop().await?;
        Self::felt(&report)?;
        let track = report.tcp()?;
        say("new connections that failed, in each second after the power was cut:");
        let seconds =
            track.by_second(cut).into_iter().fold(String::new(), |mut text, (lost, _)| {
                write!(text, " {lost}").unwrap_or_default();
                text
            });
        say(&format!(" {seconds}"));
        say(
            "Some failed until the Node was not ready: kube-proxy sent them to pods that were dead.",
        );
        let first = track.answered_again_since(cut).unwrap_or_default();
        table.add_time("owner's power cut: first connection by the new owner", first);
        table.add_time("... last connection that failed", track.last_loss_since(cut));
        table.add("... connections failed", failed(&report)?);
        table.add_time("... two owners at once", report.owners()?.two_owners());

        say(&format!("{} is turned on again:", owner.name()));
        let on = Instant::now();
        owner.power_on().await?;
        self.machines.node_ready(owner).await?;
        self.machines.speaks(owner).await?;
        self.machines.installed().await?;
        table.add_time("turned on again: Node and Leasehold's pods ready", on.elapsed());
        Ok(())
    }
}

fn failed(report: &Report) -> Result<String> {
    report.tcp().map(table::lost)
}
