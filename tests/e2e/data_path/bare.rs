//! The lab itself, without speakers: the way from the client by kube-proxy to the pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_lab::{Cluster, Lab, Service};

async fn service(cluster: &Cluster) -> Result<(Service, IpAddr)> {
    // Nobody's class: the addresses are ours to write.
    let class = Some("lab.leasehold.dev/by-hand");
    let service = cluster.service("web").class(class).pods(2).create().await?;
    let vip = IpAddr::from(cluster.addresses().vip(0).0);
    service.set_addresses(&[vip]).await?;
    Ok((service, vip))
}

pub async fn a_vip_that_a_node_has_is_served_by_pods_elsewhere() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("path").nodes(2).without_speakers().start().await?;
    let (service, vip) = service(&cluster).await?;
    let (first, second) = (cluster.node(0), cluster.node(1));
    first.namespace().ip(&format!("address add {vip}/32 dev eth0\n"))?;
    let patience = Duration::from_secs(30);
    cluster
        .eventually("the VIP answers", patience, async || service.answers(&cluster, vip))
        .await?;
    ensure!(first.has_address(vip)?.is_some_and(|a| a.valid_seconds.is_none()));
    ensure!(second.has_address(vip)?.is_none());

    let probe = cluster
        .client()
        .probe(vip)
        .udp(5005)
        .tcp(80, Duration::from_millis(20))
        .connection(80)
        .owners()
        .start()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    for track in [report.udp()?, report.tcp()?, report.connection()?] {
        ensure!(track.count() > 20 && track.lost() == 0, "{track}");
    }
    let (_, answer) = report.udp()?.answered_by().remove(0);
    ensure!(answer.pod.starts_with("web-"), "{answer:?}");
    ensure!(cluster.forwarder(answer.via).is_some_and(|node| node.name() == first.name()));
    let owners: BTreeSet<_> = report.owners()?.macs().iter().map(ToString::to_string).collect();
    ensure!(owners == BTreeSet::from([first.mac()]), "{owners:?}");
    ensure!(report.owners()?.two_owners().is_zero());

    // A second owner is seen as such.
    second.namespace().ip(&format!("address add {vip}/32 dev eth0\n"))?;
    let owners = cluster.client().owners(vip, Duration::from_secs(2)).await?;
    ensure!(owners.two_owners() > Duration::from_millis(500), "{:?}", owners.two_owners());
    Ok(())
}

pub async fn a_dead_node_is_silent_and_its_neighbours_are_not() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("dead").nodes(2).without_speakers().start().await?;
    let (service, vip) = service(&cluster).await?;
    let node = cluster.node(0);
    node.namespace().ip(&format!("address add {vip}/32 dev eth0\n"))?;
    let patience = Duration::from_secs(30);
    cluster
        .eventually("the VIP answers", patience, async || service.answers(&cluster, vip))
        .await?;

    let probe = cluster.client().probe(vip).udp(5005).owners().start()?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.dies()?;
    let died = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.heal()?;
    let healed = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let report = probe.stop().await?;

    let track = report.udp()?;
    let outage = track.longest_outage();
    let dead = healed.duration_since(died);
    ensure!(track.lost() > 300, "{track}");
    ensure!(outage.abs_diff(dead) < Duration::from_secs(1), "{outage:?} instead of {dead:?}");
    let silent = report.owners()?.no_owner();
    ensure!(silent.abs_diff(dead) < Duration::from_secs(1), "{silent:?} instead of {dead:?}");
    Ok(())
}
