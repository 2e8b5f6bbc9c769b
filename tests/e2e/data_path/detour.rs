//! Pods on a node that dies get no new connection from then on, although the EndpointSlices list them as ready; nobody
//! in this lab says otherwise, as nobody says for forty seconds and more elsewhere.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Lab, Node, ProxyMode, Report};
use serde_json::json;
use tokio::time::sleep;

use super::webs::{TCP, Web, ask_at, is_on, metric, webs};
use crate::scene::{Scene, UDP};

const EVERY: Duration = Duration::from_millis(10);
const LASTING: usize = 12;
/// A node that is down is noticed within 0.16 s; the rest is the machine.
const NOTICED: Duration = Duration::from_millis(1500);
/// Open connections are reset with the first packet after two seconds of silence: TCP sends again after 0.2, 0.4, 0.8, …
/// seconds.
const ENDED: Duration = Duration::from_secs(8);

pub async fn no_connection_leads_to_a_dead_node_by_nftables() -> Result<()> {
    no_connection_leads_to_a_dead_node(ProxyMode::Nftables).await
}

pub async fn no_connection_leads_to_a_dead_node_by_iptables() -> Result<()> {
    no_connection_leads_to_a_dead_node(ProxyMode::Iptables).await
}

async fn no_connection_leads_to_a_dead_node(mode: ProxyMode) -> Result<()> {
    let plan = Lab::shared().await?.cluster(&format!("detour-{}", mode.name())).proxy_mode(mode);
    let scene = Scene::of(plan).await?;
    let cluster = &scene.cluster;
    // The third node has pods and owns nothing.
    let (owners, bystander) = ([cluster.node(0), cluster.node(1)], cluster.node(2));
    scene.policy_for(&owners).await?;
    let webs = webs(cluster).await?;

    let at = dies_under_load(&scene, &webs, bystander).await?;
    at.check("a node that owns nothing", Some(bystander))?;
    let detoured = async |number: fn(f64) -> bool| {
        let nodes = owners.iter().map(|node| metric(node, "detoured_ports"));
        Ok(nodes.collect::<Result<Vec<_>>>()?.into_iter().all(number))
    };
    ensure!(detoured(|ports| ports > 0.0).await?, "no port is detoured");
    bystander.heal()?;
    bystander.start_speaker()?;
    scene
        .until("detours end with the node's new session", async || detoured(|it| it == 0.0).await)
        .await?;
    let vip = webs.first().and_then(|web| web.vips.first()).context("no address")?;
    scene
        .until("its pods answer again", async || {
            let answers = (0..20).filter_map(|_| ask_at(cluster, *vip).ok());
            Ok(answers.into_iter().any(|pod| is_on(&webs, &pod, bystander)))
        })
        .await?;

    let owner = cluster.owner(&webs.first().context("no Service")?.service).await?;
    let owner = cluster.node_named(&owner.context("no owner")?)?;
    let at = dies_under_load(&scene, &webs, owner).await?;
    at.check("the owner", None)
}

pub async fn a_dead_node_is_passed_over_while_the_api_server_is_away() -> Result<()> {
    let scene = Scene::alone("detouraway").await?;
    let cluster = &scene.cluster;
    let (owners, bystander) = ([cluster.node(0), cluster.node(1)], cluster.node(2));
    scene.policy_for(&owners).await?;
    let webs = webs(cluster).await?;
    sleep(Duration::from_secs(1)).await;
    scene.lab().plane().kill_api_server().await?;
    sleep(Duration::from_secs(2)).await;
    let at = dies_under_load(&scene, &webs, bystander).await?;
    at.check("a node that owns nothing, without the API server", Some(bystander))?;
    scene.lab().plane().start_api_server().await
}

pub async fn where_the_policy_says_so_dead_endpoints_are_left_to_kube_proxy() -> Result<()> {
    let scene = Scene::open("detourleave").await?;
    let cluster = &scene.cluster;
    let nodes = [cluster.node(0), cluster.node(1), cluster.node(2)];
    let service = cluster.service("left").vip(1).pods_on(&nodes).create().await?;
    let (vip, owner) = cluster.ready(&service).await?;
    cluster.policy_with(json!({ "deadEndpoints": "Leave" })).await?;
    let victim = nodes.into_iter().find(|it| it.name() != owner.name()).context("no victim")?;
    victim.dies()?;
    victim.speaker()?.kill().await?;
    let down = async || Ok(metric(owner, "nodes_down")? > 0.0);
    scene.until("the owner sees that the node is down", down).await?;
    // It may have heard of the policy a moment after that.
    let none = async || Ok(metric(owner, "detoured_ports")? == 0.0);
    scene.until("there are no detours", none).await?;
    let failed = (0..40).filter(|_| ask_at(cluster, vip).is_err()).count();
    ensure!(failed > 0, "no connection leads to the dead node");
    cluster.policy_with(json!({})).await?;
    let detoured = async || Ok(metric(owner, "detoured_ports")? > 0.0);
    scene.until("with another policy there are detours", detoured).await?;
    let failed = (0..40).filter(|_| ask_at(cluster, vip).is_err()).count();
    ensure!(failed == 0, "{failed} of 40 connections failed");
    Ok(())
}

/// What clients saw when a node died.
struct Death<'a> {
    webs: &'a [Web],
    at: Instant,
    reports: Vec<(&'a Web, IpAddr, Report)>,
}

async fn dies_under_load<'a>(scene: &Scene, webs: &'a [Web], victim: &Node) -> Result<Death<'a>> {
    let client = scene.cluster.client();
    let mut probes = Vec::new();
    for web in webs {
        for vip in &web.vips {
            let probe = client.probe(*vip).udp(UDP).tcp(TCP, EVERY);
            let probe = probe.lasting(TCP, LASTING, Duration::from_millis(50)).start()?;
            probes.push((web, *vip, probe));
        }
    }
    sleep(Duration::from_secs(1)).await;
    victim.dies()?;
    let at = Instant::now();
    victim.speaker()?.kill().await?;
    sleep(ENDED).await;
    let mut reports = Vec::new();
    for (web, vip, probe) in probes {
        reports.push((web, vip, probe.stop().await?));
    }
    Ok(Death { webs, at, reports })
}

impl Death<'_> {
    /// Asserts that clients felt no more than they had to; `bystander`: the node that died, if it owned nothing.
    fn check(&self, what: &str, bystander: Option<&Node>) -> Result<()> {
        for (web, vip, report) in &self.reports {
            let what = format!("{what}: {} {vip}", web.what);
            for (kind, track) in [("TCP", report.tcp()?), ("UDP", report.udp()?)] {
                let (last, count) = (track.last_loss_since(self.at), track.lost_since(self.at));
                println!("    {what}, {kind}: {count} lost, the last {last:?} after its death");
                ensure!(last < NOTICED, "{what}, {kind}: one failed {last:?} after its death");
            }
            let Some(bystander) = bystander else {
                // Of another owner's Service nothing ended but the connections to the dead pods.
                let ended = report.lasting.iter().filter(|it| it.broken().is_some()).count();
                println!("    {what}: {ended} of {LASTING} open connections ended");
                continue;
            };
            let mut reset = 0;
            for track in &report.lasting {
                let pod =
                    track.answered_by().pop().context("a connection without an answer")?.1.pod;
                match (track.broken(), is_on(self.webs, &pod, bystander)) {
                    (None, false) => {}
                    (Some(why), true) if why.contains("reset") => reset += 1,
                    (broken, _) => anyhow::bail!("{what}: a connection to {pod}: {broken:?}"),
                }
            }
            println!("    {what}: {reset} of {LASTING} open connections were reset");
        }
        Ok(())
    }
}
