//! Open connections through an address that moves: they stay with the node on which they began, for as long as they last
//! and the policy says.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::client::Probe;
use leasehold_lab::{Lab, Node, ProxyMode, Report, Service, Track};
use serde_json::json;
use tokio::time::sleep;

use super::webs::{TCP, Web, metric, webs};
use crate::scene::{Scene, UDP};

const LASTING: usize = 20;
/// Between two requests of a connection. There are hundreds of connections: with 20 requests per second of each, two such
/// rows keep two cores busy, and nodes that do not get to answer in time are taken for dead.
const EVERY: Duration = Duration::from_millis(200);
/// Between two datagrams to an address.
const DATAGRAMS: Duration = Duration::from_millis(20);
/// A node that is down is noticed within 0.16 s; the rest is the machine.
const NOTICED: Duration = Duration::from_millis(1500);
/// The time that clients use their connections between two moves.
const BETWEEN: Duration = Duration::from_secs(2);

pub async fn open_connections_survive_each_move_of_their_address_by_nftables() -> Result<()> {
    open_connections_survive_each_move(ProxyMode::Nftables).await
}

pub async fn open_connections_survive_each_move_of_their_address_by_iptables() -> Result<()> {
    open_connections_survive_each_move(ProxyMode::Iptables).await
}

async fn open_connections_survive_each_move(mode: ProxyMode) -> Result<()> {
    let plan = Lab::shared().await?.cluster(&format!("connect-{}", mode.name())).proxy_mode(mode);
    let scene = Scene::of(plan).await?;
    let (lab, cluster) = (scene.lab(), &scene.cluster);
    let webs = webs(cluster).await?;
    let mut open = Open::default();
    open.more(&scene, &webs)?;
    sleep(BETWEEN).await;

    let first = owners(&scene, &webs).await?;
    for step in ["drained", "moved on", "moved on again"] {
        for web in &webs {
            let owner = cluster.owner(&web.service).await?.context("no owner")?;
            match step {
                "drained" => {
                    lab.plugin(&["drain", &owner])?.with_code(0)?;
                    lab.plugin(&["undrain", &owner])?.with_code(0)?;
                }
                _ => moves_on(&scene, &web.service, &owner)?,
            }
        }
        open.more(&scene, &webs)?;
        sleep(BETWEEN).await;
    }
    for (web, first) in webs.iter().zip(&first) {
        let service = format!("{}/{}", cluster.namespace(), web.service.name());
        lab.plugin(&["move", &service, "--to", first])?.with_code(0)?;
    }
    sleep(BETWEEN).await;
    for node in cluster.nodes() {
        node.speaker()?.kill().await?;
        node.start_speaker()?;
        let ready = async || Ok(node.speaker_http("/readyz").is_ok());
        scene.until("the speaker is ready again", ready).await?;
    }
    sleep(BETWEEN).await;
    let forwarded: f64 = cluster
        .nodes()
        .iter()
        .map(|node| metric(node, "forwarded_addresses"))
        .sum::<Result<_>>()?;
    ensure!(forwarded > 0.0, "no address is forwarded");
    open.check("each move").await
}

pub async fn where_the_policy_says_so_open_connections_end_at_once() -> Result<()> {
    let scene = Scene::open("connect-end").await?;
    scene.cluster.policy_with(json!({ "connectionHandover": "0s" })).await?;
    sleep(Duration::from_secs(1)).await;
    let probe = lasting(&scene, scene.vip)?;
    sleep(Duration::from_secs(1)).await;
    let owner = scene.owner().await?;
    scene.lab().plugin(&["drain", owner.name()])?.with_code(0)?;
    sleep(BETWEEN).await;
    let report = probe.stop().await?;
    let reset = broken(&report).filter(|why| why.contains("reset")).count();
    println!("    {reset} of {LASTING} open connections were reset");
    ensure!(reset == LASTING, "{:?}", broken(&report).collect::<Vec<_>>());
    Ok(())
}

pub async fn a_drain_waits_for_the_end_of_connections_and_says_how_many_are_left() -> Result<()> {
    let scene = Scene::open("connect-wait").await?;
    let lab = scene.lab();
    // A flow of datagrams would be remembered for two minutes.
    let probe = scene.cluster.client().probe(scene.vip).lasting(TCP, LASTING, EVERY).start()?;
    sleep(Duration::from_secs(1)).await;
    let owner = scene.owner().await?;
    let drain = ["drain", owner.name(), "--wait-connections", "15s"];
    let left = lab.plugin(&drain)?.with_code(1)?;
    print!("    {}", left.text.replace('\n', "\n    "));
    let number = format!("{LASTING} open connections on {}", owner.name());
    ensure!(left.text.contains(&number), "{left:?}");
    let report = probe.stop().await?;
    ensure!(broken(&report).next().is_none(), "{:?}", broken(&report).collect::<Vec<_>>());
    let drain = ["drain", owner.name(), "--wait-connections", "2m"];
    let none = lab.plugin(&drain)?.with_code(0)?;
    ensure!(none.text.contains("no open connection is left"), "{none:?}");
    Ok(())
}

/// What is forwarded to a node that dies gets no answer: it ends instead of hanging.
pub async fn connections_of_a_former_owner_that_dies_are_reset() -> Result<()> {
    let scene = Scene::open("connect-dies").await?;
    let probe = lasting(&scene, scene.vip)?;
    sleep(Duration::from_secs(1)).await;
    let former = scene.owner().await?;
    scene.lab().plugin(&["drain", former.name()])?.with_code(0)?;
    sleep(BETWEEN).await;
    former.dies()?;
    let at = Instant::now();
    former.speaker()?.kill().await?;
    sleep(Duration::from_secs(8)).await;
    let report = probe.stop().await?;
    let reset = broken(&report).filter(|why| why.contains("reset")).count();
    println!("    {reset} of {LASTING} open connections were reset");
    ensure!(reset == LASTING, "{:?}", broken(&report).collect::<Vec<_>>());
    let last = report.udp()?.last_loss_since(at);
    println!("    UDP: {} lost, the last {last:?} after its death", report.udp()?.lost_since(at));
    ensure!(last < NOTICED, "a datagram is lost {last:?} after its death");
    ensure!(scene.service.answers(&scene.cluster, scene.vip)?, "it does not answer");
    Ok(())
}

/// Connections that were opened at different times.
#[derive(Default)]
struct Open(Vec<(String, Probe)>);

impl Open {
    /// Opens more of them, to each address.
    fn more(&mut self, scene: &Scene, webs: &[Web]) -> Result<()> {
        let after = self.0.len() / webs.len().max(1);
        for web in webs {
            for vip in &web.vips {
                let what = format!("{} {vip}, round {after}", web.what);
                self.0.push((what, lasting(scene, *vip)?));
            }
        }
        Ok(())
    }

    /// Asserts that none has ended.
    async fn check(self, when: &str) -> Result<()> {
        let mut ended = Vec::new();
        for (what, probe) in self.0 {
            let report = probe.stop().await?;
            let longest = report.lasting.iter().map(Track::longest_outage).max();
            let count = broken(&report).count();
            println!(
                "    {when}: {what}: {count} of {LASTING} ended, the longest pause {:?}; UDP: {} lost",
                longest.unwrap_or_default(),
                report.udp()?.lost()
            );
            ended.extend(broken(&report).map(|why| format!("{what}: {why}")));
        }
        ensure!(ended.is_empty(), "{when}: {}", ended.join("\n"));
        Ok(())
    }
}

fn lasting(scene: &Scene, vip: IpAddr) -> Result<Probe> {
    scene.cluster.client().probe(vip).udp_each(UDP, DATAGRAMS).lasting(TCP, LASTING, EVERY).start()
}

fn broken(report: &Report) -> impl Iterator<Item = &str> {
    report.lasting.iter().filter_map(|track| track.broken())
}

async fn owners(scene: &Scene, webs: &[Web]) -> Result<Vec<String>> {
    let mut owners = Vec::new();
    for web in webs {
        owners.push(scene.cluster.owner(&web.service).await?.context("no owner")?);
    }
    Ok(owners)
}

/// To the node after its owner.
fn moves_on(scene: &Scene, service: &Service, owner: &str) -> Result<()> {
    let names: Vec<&str> = scene.cluster.nodes().iter().map(Node::name).collect();
    let at = names.iter().position(|name| *name == owner).context("the owner is no node")?;
    let next = names.iter().cycle().nth(at + 1).context("no node")?;
    let service = format!("{}/{}", scene.cluster.namespace(), service.name());
    scene.lab().plugin(&["move", &service, "--to", next])?.with_code(0)?;
    Ok(())
}
