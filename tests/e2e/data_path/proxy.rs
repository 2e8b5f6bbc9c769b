//! Nodes whose kube-proxy is dead or late: an address goes where the rules for its Service are.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use leasehold_lab::{Cluster, Node, Service};
use tokio::time::sleep;

use crate::plugin::named;
use crate::scene::{Scene, UDP, annotation, cordon, say};

const SERVICE_PROXY: &str = "leasehold.dev/service-proxy";
/// What is felt of a planned move, on a busy machine.
const MOVED: Duration = Duration::from_millis(500);

fn freeze_all(cluster: &Cluster) -> Result<()> {
    cluster.nodes().iter().try_for_each(Node::freeze_proxy)
}

fn thaw_all(cluster: &Cluster) -> Result<()> {
    cluster.nodes().iter().try_for_each(Node::thaw_proxy)
}

pub async fn a_node_whose_kube_proxy_died_is_no_successor_and_says_so() -> Result<()> {
    let scene = Scene::open("proxydead").await?;
    let lab = scene.lab();
    let owner = scene.owner().await?;
    let mut others = scene.cluster.nodes().iter().filter(|node| node.name() != owner.name());
    let (dead, third) = (others.next().context("another")?, others.next().context("a third")?);
    all_proxies_answer(&scene).await?;
    let silent = async || {
        let session = scene.session(dead).await?;
        Ok(annotation(&session, SERVICE_PROXY).is_some_and(|it| it == "silent"))
    };
    dead.kill_proxy().await?;
    scene.until("its session says that kube-proxy is silent", silent).await?;

    let (web, claim) = (named(&scene, "web"), scene.claim().await?);
    let refused = lab.plugin(&["move", &web, "--to", dead.name()])?.with_code(1)?;
    ensure!(refused.notes.contains("its kube-proxy does not answer"), "{refused:?}");
    scene.not_moved(&claim).await?;
    let explained = lab.plugin(&["explain", &web])?;
    ensure!(explained.text.contains("its kube-proxy does not answer"), "{explained:?}");

    let probe = scene.watch().await?;
    cordon(owner, true).await?;
    let new = scene.moved_from(owner).await?;
    ensure!(new.name() == third.name(), "{} took it", new.name());
    scene.moved_smoothly("cordon", probe).await?;

    // It lives again.
    dead.start_proxy()?;
    scene.until("its session says nothing any more", async || Ok(!silent().await?)).await?;
    let moved = lab.plugin(&["move", &web, "--to", dead.name()])?.with_code(0)?;
    ensure!(moved.text.contains(dead.name()), "{moved:?}");
    Ok(())
}

pub async fn a_local_service_stays_where_its_pod_ends_until_the_rules_are_where_it_begins()
-> Result<()> {
    let scene = Scene::open("proxylate").await?;
    all_proxies_answer(&scene).await?;
    let cluster = &scene.cluster;
    let (first, second) = (cluster.node(0), cluster.node(1));
    let service = cluster.service("near").vip(1).local().pods_on(&[first, second]).create().await?;
    let (vip, _) = cluster.ready(&service).await?;
    let pod = |node: &Node| service.pods().iter().find(|pod| pod.node() == node.name());
    let (ending, beginning) = pod(first).zip(pod(second)).context("no pods")?;
    let owned_by = async |node: &Node| {
        let owner = cluster.owner(&service).await?;
        Ok(owner.as_deref() == Some(node.name()) && service.answers(cluster, vip)?)
    };
    beginning.set_ready(false).await?;
    scene.until("the first node owns it", async || owned_by(first).await).await?;

    second.freeze_proxy()?;
    let probe = cluster.client().probe(vip).udp(UDP).owners().start()?;
    sleep(Duration::from_millis(300)).await;
    beginning.set_ready(true).await?;
    ending.leave().await?;
    sleep(Duration::from_secs(5)).await;
    ensure!(owned_by(first).await?, "it moved to where nothing leads on");
    second.thaw_proxy()?;
    scene.until("the second node owns it", async || owned_by(second).await).await?;
    sleep(Duration::from_millis(500)).await;
    let report = probe.stop().await?;
    say("its pod went to a node whose kube-proxy stood still for 5 s", &report)?;
    ensure!(report.udp()?.longest_outage() < MOVED, "{}", report.udp()?);
    Ok(())
}

pub async fn who_asked_before_there_was_a_service_is_answered_as_soon_as_its_address_is_there()
-> Result<()> {
    let scene = Scene::open("proxyfirst").await?;
    all_proxies_answer(&scene).await?;
    for number in 2..5 {
        if is_answered_at_once(&scene, number).await? {
            return Ok(());
        }
    }
    bail!("three times the machine was too busy to stop a kube-proxy for less than {WAITED:?}")
}

pub async fn an_address_waits_for_its_rules_where_the_tables_of_kube_proxy_are_gone() -> Result<()>
{
    let scene = Scene::open("proxyflushed").await?;
    let cluster = &scene.cluster;
    all_proxies_answer(&scene).await?;
    for number in 2..5 {
        freeze_all(cluster)?;
        for node in cluster.nodes() {
            flush(node)?;
        }
        let gone = Instant::now();
        let service = cluster.service(&format!("new-{number}")).vip(number);
        let service = service.pods_of(&scene.service).create().await?;
        let early = without_rules(&scene, &service, number).await?;
        let in_time = gone.elapsed() <= WAITED;
        // One that goes on may take half a minute to see that they are gone.
        for node in cluster.nodes() {
            node.kill_proxy().await?;
            node.start_proxy()?;
        }
        cluster.ready(&service).await?;
        if in_time {
            ensure!(early.is_empty(), "an address without rules is on {early:?}");
            return Ok(());
        }
    }
    bail!("three times the machine was too busy to look within {WAITED:?}")
}

/// As somebody does who loads a ruleset anew.
fn flush(node: &Node) -> Result<()> {
    let gone = |family| format!("add table {family} kube-proxy; delete table {family} kube-proxy;");
    let done = node.namespace().command("nft").arg([gone("ip"), gone("ip6")].concat()).status()?;
    ensure!(done.success(), "nft: {done}");
    Ok(())
}

/// What never answered is not waited for.
async fn all_proxies_answer(scene: &Scene) -> Result<()> {
    let answers = "leasehold_speaker_kube_proxy_answers 1\n";
    scene
        .until("each speaker has seen its kube-proxy", async || {
            let nodes = scene.cluster.nodes().iter();
            let mut metrics = nodes.map(|node| node.speaker_http("/metrics"));
            metrics.try_fold(true, |all, text| Ok(all && text?.contains(answers)))
        })
        .await
}

/// The nodes that have the address of a new Service a moment after one of them has taken its claim.
async fn without_rules(scene: &Scene, service: &Service, number: u8) -> Result<Vec<String>> {
    let cluster = &scene.cluster;
    scene
        .until("the claim has an owner", async || Ok(cluster.owner(service).await?.is_some()))
        .await?;
    sleep(Duration::from_millis(300)).await;
    let holders = cluster.holders(IpAddr::from(cluster.addresses().vip(number).0))?;
    Ok(holders.into_iter().map(|node| node.name().to_owned()).collect())
}

/// For how long an address waits for its rules, less what a look takes.
const WAITED: Duration = Duration::from_millis(2500);

/// Asks for an address before a Service has it, whose kube-proxies stand still at first; no, where that took
/// so long that its address did without their rules.
async fn is_answered_at_once(scene: &Scene, number: u8) -> Result<bool> {
    let cluster = &scene.cluster;
    let vip = IpAddr::from(cluster.addresses().vip(number).0);
    let probe = cluster.client().probe(vip).udp(UDP).tcp(80, Duration::from_millis(20)).owners();
    let probe = probe.start()?;
    freeze_all(cluster)?;
    let frozen = Instant::now();
    let new = cluster.service(&format!("new-{number}")).vip(number);
    let service = new.pods_of(&scene.service).create().await?;
    let early = without_rules(scene, &service, number).await?;
    let thawed = Instant::now();
    thaw_all(cluster)?;
    cluster.ready(&service).await?;
    sleep(Duration::from_millis(500)).await;
    let report = probe.stop().await?;
    if thawed - frozen > WAITED {
        return Ok(false);
    }
    let (udp, tcp) = (report.udp()?, report.tcp()?);
    let announced = report.owners()?.changes().into_iter().find(|(_, macs)| !macs.is_empty());
    let (announced, _) = announced.context("nobody ever had it")?;
    let (datagrams, connections) = (udp.lost_since(announced), tcp.lost_since(announced));
    println!(
        "    the address was there {:?} after the rules could be; from then on {datagrams} datagrams and \
         {connections} connections were lost",
        announced.saturating_duration_since(thawed)
    );
    ensure!(early.is_empty(), "an address without rules is on {early:?}");
    // A tenth of a second of either, for a busy machine: without rules it would be all.
    ensure!(datagrams <= 20 && connections <= 5, "{udp}; {tcp}");
    ensure!(udp.answered_since(announced), "it is answered: {udp}");
    Ok(true)
}
