//! Services with `externalTrafficPolicy: Local` whose packets are spread over all nodes with pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_lab::client::Probe;
use leasehold_lab::client::{Track, ask};
use leasehold_lab::node::Pod;
use leasehold_lab::{Cluster, Lab, Node, ProxyMode, Service};
use serde_json::json;
use tokio::time::sleep;

use super::webs::TCP;
use crate::scene::{PATIENCE, annotation, condition};

/// Of each address.
const LASTING: usize = 40;
const EVERY: Duration = Duration::from_millis(100);
/// The time that clients use their connections between two steps.
const BETWEEN: Duration = Duration::from_secs(2);
/// The time in which nodes notice what the network drops, or that it does so no more.
const NOTICED: Duration = Duration::from_secs(180);
const DNS: u16 = 53;
const DATA_PATH: &str = "leasehold.dev/DataPath";
const MEMBERS: &str = "leasehold.dev/members";

pub async fn connections_through_a_spread_address_outlive_its_owners_by_nftables() -> Result<()> {
    outlive(ProxyMode::Nftables).await
}

pub async fn connections_through_a_spread_address_outlive_its_owners_by_iptables() -> Result<()> {
    outlive(ProxyMode::Iptables).await
}

async fn outlive(mode: ProxyMode) -> Result<()> {
    let plan = Lab::shared().await?.cluster(&format!("spread-{}", mode.name()));
    let cluster = plan.nodes(4).proxy_mode(mode).start().await?;
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let with_pods = [cluster.node(0), cluster.node(1), cluster.node(2)];
    let service =
        cluster.service("shop").vip(1).local().dual_stack().pods_on(&with_pods).create().await?;
    cluster.ready(&service).await?;
    let vips = service.addresses().await?;
    spread_over(&cluster, &service, &with_pods).await?;
    let [one, two, three] = with_pods.map(Node::name);
    let shares = format!("packets are spread over {one} 34 %, {two} 33 %, {three} 33 %");
    says(&cluster, &service, &format!("True Spread: {shares}")).await?;
    for vip in &vips {
        reaches(&cluster, *vip, &service, &with_pods).await?;
    }

    let probes: Vec<Probe> =
        vips.iter().map(|vip| lasting(&cluster, *vip)).collect::<Result<_>>()?;
    let mut steps = Steps::default();
    let name = format!("{}/{}", cluster.namespace(), service.name());
    for node in cluster.nodes().iter().chain([cluster.node(0)]) {
        if cluster.owner(&service).await?.as_deref() != Some(node.name()) {
            steps.begin(format!("the move to {}", node.name()));
            cluster.lab().plugin(&["move", &name, "--to", node.name()])?.with_code(0)?;
        }
        sleep(BETWEEN).await;
    }
    for node in cluster.nodes() {
        steps.begin(format!("the end of the speaker of {}", node.name()));
        node.speaker()?.kill().await?;
        node.start_speaker()?;
        let ready = async || Ok(node.speaker_http("/readyz").is_ok());
        cluster.eventually("the speaker is ready again", PATIENCE, ready).await?;
    }
    sleep(BETWEEN).await;
    let owner = cluster.owner(&service).await?.context("no owner")?;
    let owner = cluster.nodes().iter().find(|node| node.name() == owner).context("no such node")?;
    steps.begin(format!("the death of {}", owner.name()));
    owner.dies()?;
    owner.speaker()?.kill().await?;
    sleep(Duration::from_secs(6)).await;

    let mine: BTreeSet<&str> = pods_on(&service, owner);
    ensure!(!mine.is_empty(), "the owner has no pod");
    let mut ended = Vec::new();
    let mut kept = 0;
    for probe in probes {
        for track in probe.stop().await?.lasting {
            let pods = track.pods();
            ensure!(pods.len() == 1, "a connection was answered by {pods:?}");
            let died = pods.iter().all(|pod| mine.contains(pod));
            kept += usize::from(!died);
            ended.extend(steps.ended(&track).filter(|_| !died));
        }
    }
    println!("    of {kept} connections to other nodes' pods {} ended", ended.len());
    ensure!(ended.is_empty(), "{}", ended.join("\n"));
    let alive: Vec<&Node> =
        with_pods.into_iter().filter(|node| node.name() != owner.name()).collect();
    for vip in vips {
        reaches(&cluster, vip, &service, &alive).await?;
    }
    Ok(())
}

/// The steps of a row, to say after which of them a connection has ended.
#[derive(Default)]
struct Steps(Vec<(Instant, String)>);

impl Steps {
    fn begin(&mut self, step: String) {
        self.0.push((Instant::now(), step));
    }

    /// Why and when a connection has ended, if it has.
    fn ended(&self, track: &Track) -> Option<String> {
        let (why, at) = track.broken().zip(track.broken_at())?;
        let before = self.0.iter().rev().find(|(began, _)| *began <= at);
        let when = before.map_or_else(
            || "before the first step".to_owned(),
            |(began, step)| format!("{:?} after {step}", at.duration_since(*began)),
        );
        Some(format!("with {:?}: {why}, {when}", track.pods()))
    }
}

/// A pod is replaced by one on a node that had none: two changes of the nodes, which is as many as connections outlive.
pub async fn connections_through_a_spread_address_outlive_pods_that_come_and_go() -> Result<()> {
    let cluster = Lab::shared().await?.cluster("rolling").nodes(3).start().await?;
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let nodes: Vec<&Node> = cluster.nodes().iter().collect();
    let [one, two, three] = nodes[..] else { anyhow::bail!("not three nodes") };
    let service = cluster.service("shop").vip(1).local().dual_stack().udp(DNS);
    let service = service.pods_on(&[one, two]).create().await?;
    cluster.ready(&service).await?;
    let vips = service.addresses().await?;
    spread_over(&cluster, &service, &[one, two]).await?;
    let mut pods: BTreeSet<String> = service.pods().iter().map(|pod| pod.name().into()).collect();
    reached(&cluster, &vips, &pods).await?;
    let probes: Vec<Probe> =
        vips.iter().map(|vip| lasting(&cluster, *vip)).collect::<Result<_>>()?;
    sleep(BETWEEN).await;

    let labels = json!({ "app": service.name() });
    let name = format!("shop-on-{}", three.name());
    let _new = three.run_pod(cluster.namespace(), &name, &labels).await?;
    pods.insert(name);
    spread_over(&cluster, &service, &nodes).await?;
    reached(&cluster, &vips, &pods).await?;
    // It serves on, as pods do that end gracefully.
    let old = service.pods().iter().find(|pod| pod.node() == one.name()).context("no pod")?;
    old.leave().await?;
    pods.remove(old.name());
    spread_over(&cluster, &service, &[two, three]).await?;
    reached(&cluster, &vips, &pods).await?;
    sleep(BETWEEN).await;

    let mut kept = 0;
    let mut ended = Vec::new();
    for probe in probes {
        for track in probe.stop().await?.lasting {
            kept += 1;
            ended.extend(track.broken().map(str::to_owned));
        }
    }
    println!("    of {kept} connections {} ended", ended.len());
    ensure!(ended.is_empty(), "{}", ended.join("\n"));

    // A client stays with its pod, whichever node has the address.
    service.patch(json!({ "spec": { "sessionAffinity": "ClientIP" } })).await?;
    let name = format!("{}/{}", cluster.namespace(), service.name());
    let first: Vec<IpAddr> = vips.iter().take(1).copied().collect();
    let mut chosen = None;
    for node in [one, two, three] {
        if cluster.owner(&service).await?.as_deref() != Some(node.name()) {
            cluster.lab().plugin(&["move", &name, "--to", node.name()])?.with_code(0)?;
        }
        let one_pod = async || {
            let Ok(found) = asked(&cluster, &first, 20) else { return Ok(false) };
            Ok(found.len() == 1 && chosen.as_ref().is_none_or(|chosen| *chosen == found))
        };
        cluster.eventually("one pod answers the client", PATIENCE, one_pod).await?;
        chosen = Some(asked(&cluster, &first, 20)?);
    }
    Ok(())
}

/// The pods that answer new connections and datagrams, each of so many.
fn asked(cluster: &Cluster, vips: &[IpAddr], count: usize) -> Result<BTreeSet<String>> {
    let (client, own) = (cluster.client().namespace(), cluster.client().addresses());
    let mut found = BTreeSet::new();
    for vip in vips {
        for _ in 0..count {
            for answer in
                [ask::by_tcp(client, (*vip, TCP).into())?, ask::by_udp(client, (*vip, DNS).into())?]
            {
                let via = answer.via.context("the pod does not say who has asked")?;
                ensure!(own.contains(&via), "{vip}: the pod sees {via} instead of the client");
                found.insert(answer.pod);
            }
        }
    }
    Ok(found)
}

/// Waits until these pods answer and no others, by TCP and UDP.
async fn reached(cluster: &Cluster, vips: &[IpAddr], pods: &BTreeSet<String>) -> Result<()> {
    let all = async || Ok(asked(cluster, vips, 30).is_ok_and(|found| found == *pods));
    cluster.eventually("all pods are reached, and no other", PATIENCE, all).await
}

pub async fn nodes_that_packets_cannot_be_spread_over_are_named() -> Result<()> {
    let cluster = Lab::shared().await?.cluster("left-out").nodes(3).start().await?;
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let all: Vec<&Node> = cluster.nodes().iter().collect();
    let service = cluster.service("shop").vip(1).local().pods_on(&all).create().await?;
    cluster.ready(&service).await?;
    let vip = service.addresses().await?.first().copied().context("no address")?;
    spread_over(&cluster, &service, &all).await?;
    let owner = cluster.owner(&service).await?.context("no owner")?;
    let (left, others): (Vec<&Node>, Vec<&Node>) =
        all.iter().partition(|node| node.name() != owner);
    let [out, stays] = left[..] else { anyhow::bail!("not two others") };
    let kept: Vec<&Node> = others.into_iter().chain([stays]).collect();

    out.namespace().ip("link set dev eth0 mtu 1400\n")?;
    spread_over(&cluster, &service, &kept).await?;
    let mut names: Vec<&str> = kept.iter().map(|node| node.name()).collect();
    names.sort_unstable();
    let shares = format!("{} 50 %", names.join(" 50 %, "));
    let why = "the MTU of its interface eth0 is 1400, and that of the owner's eth0 is 1500";
    let spread = format!("packets are spread over {shares}; not over {}: {why}", out.name());
    let text = format!("False NodesLeftOut: {spread}");
    says(&cluster, &service, &text).await?;
    reaches(&cluster, vip, &service, &kept).await?;
    let name = format!("{}/{}", cluster.namespace(), service.name());
    let explained = cluster.lab().plugin(&["explain", &name])?.with_code(0)?;
    ensure!(explained.text.contains(&shares), "{explained:?}");

    out.namespace().ip("link set dev eth0 mtu 1500\n")?;
    spread_over(&cluster, &service, &all).await?;
    reaches(&cluster, vip, &service, &all).await?;
    service.patch(json!({ "spec": { "externalTrafficPolicy": "Cluster" } })).await?;
    says(&cluster, &service, "False NotLocal: ").await?;
    cluster.policy_with(json!({ "dataPath": "Owner" })).await?;
    let gone = async || Ok(condition(&service, DATA_PATH).await?.is_none());
    cluster.eventually("the condition is gone", PATIENCE, gone).await
}

pub async fn without_kube_proxy_an_owner_has_a_pod_and_spreads_nothing() -> Result<()> {
    let plan = Lab::shared().await?.cluster("replaced").nodes(3).without_proxies();
    let cluster = plan.start().await?;
    for node in cluster.nodes() {
        node.namespace().ip("link add cilium_host type veth peer name cilium_net\n")?;
    }
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let with_pod = cluster.node(2);
    for number in 1..=4 {
        let service = cluster.service(&format!("shop-{number}")).vip(number).local();
        let service = service.pods_on(&[with_pod]).create().await?;
        let owned = async || Ok(cluster.owner(&service).await?.as_deref() == Some(with_pod.name()));
        cluster.eventually("a node with a pod owns it", PATIENCE, owned).await?;
        let text = format!(
            "False NotSpread: {} does not spread packets over other nodes: a CNI has replaced",
            with_pod.name()
        );
        says(&cluster, &service, &text).await?;
    }
    Ok(())
}

pub async fn a_network_that_drops_what_nodes_send_for_clients_is_named() -> Result<()> {
    let cluster = Lab::shared().await?.cluster("port-security").nodes(3).start().await?;
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let nodes: Vec<&Node> = cluster.nodes().iter().collect();
    let [_, with_pods @ ..] = &nodes[..] else { anyhow::bail!("no nodes") };
    let service = cluster.service("shop").vip(1).local().pods_on(with_pods).create().await?;
    cluster.ready(&service).await?;
    let vips = service.addresses().await?;
    let vip = vips.first().copied().context("no address")?;
    spread_over(&cluster, &service, with_pods).await?;
    reaches(&cluster, vip, &service, with_pods).await?;

    // Each node may have the address, and none may forward.
    for node in &nodes {
        node.bind_sources(vips.clone())?;
    }
    let text = "does not spread packets over other nodes: the network drops packets that it sends with the addresses";
    let mut owner = None;
    let named = async || {
        let condition = condition(&service, DATA_PATH).await?;
        let says = |owner: &&&Node| {
            let expected = format!("{} {text}", owner.name());
            condition.as_ref().is_some_and(|it| {
                (it.status.as_str(), it.reason.as_str()) == ("False", "NotSpread")
                    && it.message.starts_with(&expected)
            })
        };
        owner = with_pods.iter().find(says).copied();
        Ok(owner.is_some())
    };
    cluster.eventually("the condition names a node with a pod", NOTICED, named).await?;
    let owner = owner.context("no owner")?;
    reaches(&cluster, vip, &service, &[owner]).await?;

    for node in &nodes {
        node.heal()?;
    }
    let over =
        async || Ok(condition(&service, DATA_PATH).await?.is_some_and(|it| it.status == "True"));
    cluster.eventually("packets are spread again", NOTICED, over).await?;
    spread_over(&cluster, &service, with_pods).await?;
    reaches(&cluster, vip, &service, with_pods).await
}

pub async fn a_node_whose_answers_the_network_drops_is_left_out() -> Result<()> {
    let cluster = Lab::shared().await?.cluster("no-answers").nodes(3).start().await?;
    cluster.pool(0, 29).await?;
    cluster.policy_with(json!({ "dataPath": "Spread" })).await?;
    let nodes: Vec<&Node> = cluster.nodes().iter().collect();
    let service = cluster.service("shop").vip(1).local().pods_on(&nodes).create().await?;
    cluster.ready(&service).await?;
    let vip = service.addresses().await?.first().copied().context("no address")?;
    spread_over(&cluster, &service, &nodes).await?;
    let owner = cluster.owner(&service).await?.context("no owner")?;
    let out = nodes.iter().find(|node| node.name() != owner).context("no other node")?;
    let kept: Vec<&Node> = nodes.iter().filter(|it| it.name() != out.name()).copied().collect();

    // It may send what it forwards, and nothing from the address.
    let unassigned = [IpAddr::from([192, 0, 0, 8]), "100::1".parse()?];
    out.bind_sources(unassigned.into_iter().chain(cluster.client().addresses()))?;
    let mut said = None;
    let why = format!("; not over {}: the network drops packets that it sends", out.name());
    let named = async || {
        said = condition(&service, DATA_PATH).await?.map(|it| (it.reason, it.message));
        let is_left_out = |(reason, message): &(String, String)| {
            reason == "NodesLeftOut" && message.contains(&why)
        };
        Ok(said.as_ref().is_some_and(is_left_out))
    };
    let named = cluster.eventually("the condition names it", NOTICED, named).await;
    named.with_context(|| format!("{said:?}"))?;
    spread_over(&cluster, &service, &kept).await?;
    reaches(&cluster, vip, &service, &kept).await
}

/// Waits until the condition about the data path begins so.
async fn says(cluster: &Cluster, service: &Service, text: &str) -> Result<()> {
    let mut said = None;
    let says = async || {
        let condition = condition(service, DATA_PATH).await?;
        said = condition.map(|it| format!("{} {}: {}", it.status, it.reason, it.message));
        Ok(said.as_ref().is_some_and(|said| said.starts_with(text)))
    };
    let told = cluster.eventually("the condition says so", PATIENCE, says).await;
    told.with_context(|| format!("{said:?} instead of {text}"))
}

fn lasting(cluster: &Cluster, vip: IpAddr) -> Result<Probe> {
    cluster.client().probe(vip).lasting(TCP, LASTING, EVERY).start()
}

fn pods_on<'a>(service: &'a Service, node: &Node) -> BTreeSet<&'a str> {
    let pods = service.pods().iter().filter(|pod| pod.node() == node.name());
    pods.map(Pod::name).collect()
}

/// Waits until the claim names these nodes.
async fn spread_over(cluster: &Cluster, service: &Service, nodes: &[&Node]) -> Result<()> {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name()).collect();
    let told = async || {
        let Some(claim) = cluster.claim(service).await? else { return Ok(false) };
        let members = annotation(&claim, MEMBERS).unwrap_or_default();
        Ok(members.split(',').collect::<BTreeSet<_>>() == names)
    };
    cluster.eventually("the claim names its members", PATIENCE, told).await
}

/// New connections lead to a pod on each of these nodes and no other, with the address of the client.
async fn reaches(cluster: &Cluster, vip: IpAddr, service: &Service, nodes: &[&Node]) -> Result<()> {
    let expected: BTreeSet<&str> = nodes.iter().flat_map(|node| pods_on(service, node)).collect();
    let own = cluster.client().addresses();
    let all = async || {
        let mut found = BTreeSet::new();
        for _ in 0..40 {
            let Ok(answer) = ask::by_tcp(cluster.client().namespace(), (vip, TCP).into()) else {
                return Ok(false);
            };
            let via = answer.via.context("the pod does not say who has asked")?;
            ensure!(own.contains(&via), "{vip}: the pod sees {via} instead of the client");
            found.insert(answer.pod);
        }
        Ok(found.iter().map(String::as_str).collect::<BTreeSet<_>>() == expected)
    };
    cluster.eventually("all pods are reached, and no other", PATIENCE, all).await
}
