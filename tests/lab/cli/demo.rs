//! The story that `make demo` tells, with what was measured on the way.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold_lab::client::Probe;
use leasehold_lab::{Cluster, Node, Report, Service};
use tokio::time::sleep;

use super::story::{self, chapter, say, show};
use super::table::{self, Table, mebibytes};

/// The time for which the client watches after all is well again.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// A change of who answers that lasts less is not told: the machine was busy elsewhere.
const NOTABLE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(scratch: &Path) -> Result<ExitCode> {
    story::run(scratch, tell())
}

async fn tell() -> Result<()> {
    let mut table = Table::default();
    chapter("1. A Kubernetes cluster on this machine, in network namespaces");
    let cluster = story::cluster().await?;

    chapter("2. A Service gets an address, and a Lease names its owner");
    let (service, took) = story::service(&cluster).await?;
    table.add_time("Service applied -> a node has its address", took.held);
    table.add_time("... -> a pod answers by it", took.answered);
    let demo = Demo { cluster: &cluster, service: &service };
    let (vip, owner) = cluster.ready(&service).await?;
    show(cluster.lab(), &["get", "service", "web"])?;
    say(&format!("client$ curl http://{vip}/"));
    say(&format!("  {}", cluster.client().get(vip, 80, "/")?.trim()));
    demo.describe()?;
    say(&format!("{} has the address:", owner.name()));
    kernel(owner, vip)?;

    demo.node_dies(vip, &mut table).await?;
    demo.upgrade(vip, &mut table).await?;
    demo.crash(vip, &mut table).await?;
    demo.drain(vip, &mut table).await?;
    demo.memory(&mut table)?;

    chapter("What was measured");
    say("A client on the same network sent a datagram and an ARP request every 5 ms.\n");
    println!("{table}");
    Ok(())
}

struct Demo<'a> {
    cluster: &'a Cluster,
    service: &'a Service,
}

impl<'a> Demo<'a> {
    fn describe(&self) -> Result<()> {
        let claim = self.service.claim();
        show(self.cluster.lab(), &["describe", "lease", "-n", "leasehold-system", &claim])
    }

    fn probe(&self, vip: IpAddr) -> Result<Probe> {
        self.cluster.client().probe(vip).udp(5005).connection(80).owners().start()
    }

    async fn owner(&self) -> Result<&'a Node> {
        let owner = self.cluster.owner(self.service).await?.context("the claim has no holder")?;
        self.cluster.node_named(&owner)
    }

    async fn other_owner(&self, old: &Node, vip: IpAddr) -> Result<&'a Node> {
        let what = format!("another node than {} owns {vip} and serves it", old.name());
        self.cluster
            .eventually(&what, PATIENCE, async || {
                let owner = self.owner().await?;
                Ok(owner.name() != old.name()
                    && owner.has_address(vip)?.is_some()
                    && self.service.answers(self.cluster, vip)?)
            })
            .await?;
        self.owner().await
    }

    fn felt(&self, report: &Report) -> Result<()> {
        say(&format!("the client's datagrams: {}", report.udp()?));
        say(&format!("its open connection:    {}", report.connection()?));
        let owners = report.owners()?;
        for (at, macs) in owners.changes_lasting(NOTABLE) {
            let since = report.udp()?.started().map(|start| at.saturating_duration_since(start));
            let names: Vec<_> = macs
                .iter()
                .map(|&mac| self.cluster.node_with_mac(mac).map_or("a stranger", Node::name))
                .collect();
            let names = if names.is_empty() { "nobody".to_owned() } else { names.join(" and ") };
            say(&format!(
                "  {:>6.3} s: {names} answers ARP",
                since.unwrap_or_default().as_secs_f64()
            ));
        }
        Ok(())
    }

    async fn node_dies(&self, vip: IpAddr, table: &mut Table) -> Result<()> {
        let old = self.owner().await?;
        chapter(&format!("3. {}, the owner, dies: no packet in or out, no process", old.name()));
        let probe = self.probe(vip)?;
        sleep(Duration::from_millis(500)).await;
        old.dies()?;
        old.speaker()?.kill().await?;
        let died = Instant::now();
        let lapsed = async {
            let what = format!("the kernel of {} removes the address by itself", old.name());
            let gone = async || Ok(old.has_address(vip)?.is_none());
            self.cluster.eventually(&what, PATIENCE, gone).await?;
            anyhow::Ok(died.elapsed())
        };
        let (new, lapsed) = futures::try_join!(self.other_owner(old, vip), lapsed)?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        self.felt(&report)?;
        say(&format!("{} is the new owner:", new.name()));
        kernel(new, vip)?;
        self.describe()?;
        table.add_time("node of the owner dead: outage", report.udp()?.longest_outage());
        table.add_time("... the dead node's kernel drops the address after", lapsed);
        table.add_time("... two owners at once", report.owners()?.two_owners());

        say(&format!("{} comes back:", old.name()));
        let probe = self.probe(vip)?;
        sleep(Duration::from_millis(500)).await;
        old.heal()?;
        old.start_speaker()?;
        let session = format!("{} has a session again", old.name());
        let healed = Instant::now();
        self.cluster
            .eventually(&session, PATIENCE, async || {
                let session = self.cluster.session(old.name()).await?;
                let holder = session.and_then(|lease| lease.spec?.holder_identity);
                Ok(holder.as_deref() == Some(old.name()) && healed.elapsed() > AFTERWARDS)
            })
            .await?;
        let report = probe.stop().await?;
        self.felt(&report)?;
        table.add("node is back: datagrams lost", lost(&report)?);
        table.add_time("... two owners at once", report.owners()?.two_owners());
        Ok(())
    }

    async fn upgrade(&self, vip: IpAddr, table: &mut Table) -> Result<()> {
        let owner = self.owner().await?;
        chapter(&format!("4. The speaker of {} is upgraded: SIGTERM, and a new one", owner.name()));
        let probe = self.probe(vip)?;
        sleep(Duration::from_millis(500)).await;
        let status = owner.speaker()?.terminate().await?;
        say(&format!("ended ({status}); the address stays:"));
        kernel(owner, vip)?;
        sleep(Duration::from_secs(1)).await;
        owner.start_speaker()?;
        sleep(Duration::from_secs(6)).await;
        let report = probe.stop().await?;
        self.felt(&report)?;
        say(&format!("the owner is {}", self.owner().await?.name()));
        table.add("upgrade of the owner's speaker: datagrams lost", lost(&report)?);
        table.add("... open connection", table::end(report.connection()?));
        Ok(())
    }

    async fn crash(&self, vip: IpAddr, table: &mut Table) -> Result<()> {
        let owner = self.owner().await?;
        chapter(&format!("5. The speaker of {} is killed, and started again", owner.name()));
        let probe = self.probe(vip)?;
        sleep(Duration::from_millis(500)).await;
        owner.speaker()?.kill().await?;
        sleep(Duration::from_secs(1)).await;
        owner.start_speaker()?;
        sleep(Duration::from_secs(7)).await;
        let report = probe.stop().await?;
        self.felt(&report)?;
        say(&format!("the owner is {}", self.owner().await?.name()));
        table.add("owner's speaker killed and restarted: datagrams lost", lost(&report)?);
        table.add_time("... two owners at once", report.owners()?.two_owners());
        Ok(())
    }

    async fn drain(&self, vip: IpAddr, table: &mut Table) -> Result<()> {
        let old = self.owner().await?;
        chapter(&format!("6. {} is drained: the address moves before it leaves", old.name()));
        let probe = self.probe(vip)?;
        sleep(Duration::from_millis(500)).await;
        self.leasehold("drain", old)?;
        let new = self.other_owner(old, vip).await?;
        sleep(AFTERWARDS).await;
        let report = probe.stop().await?;
        self.felt(&report)?;
        say(&format!("{} is the new owner", new.name()));
        self.describe()?;
        table.add("planned move: datagrams lost", lost(&report)?);
        table.add_time("... two owners at once", report.owners()?.two_owners());
        self.leasehold("undrain", old)
    }

    /// A command of the plugin about a node.
    fn leasehold(&self, command: &str, node: &Node) -> Result<()> {
        let arguments = [command, node.name()];
        say(&format!("$ kubectl leasehold {}", arguments.join(" ")));
        let answer = self.cluster.lab().plugin(&arguments)?.with_code(0)?;
        for line in answer.text.lines() {
            say(&format!("  {line}"));
        }
        Ok(())
    }

    fn memory(&self, table: &mut Table) -> Result<()> {
        let nodes = self.cluster.nodes().iter();
        let resident = nodes.map(|node| node.speaker()?.resident_kib());
        let speaker = resident.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(0);
        let operator = self.cluster.lab().operator()?.process().resident_kib()?;
        table.add("resident memory of the largest speaker", mebibytes(speaker));
        table.add("resident memory of the operator", mebibytes(operator));
        Ok(())
    }
}

/// Shows the address as the kernel of a node has it.
fn kernel(node: &Node, vip: IpAddr) -> Result<()> {
    match node.has_address(vip)? {
        Some(address) => {
            let left = address.valid_seconds.map(|seconds| format!("valid for {seconds} s"));
            let left = left.unwrap_or_else(|| "for ever".to_owned());
            say(&format!("  {} on {}, {left}", address.address, address.interface));
        }
        None => say(&format!("  {vip} is not on {}", node.name())),
    }
    Ok(())
}

fn lost(report: &Report) -> Result<String> {
    report.udp().map(table::lost)
}
