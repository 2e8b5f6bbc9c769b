//! Who reaches a Service from where, and whom its pods see.
//!
//! ```text
//! IPv4, IPv6, dual stack     Cluster, Local     TCP, UDP     with and without node ports
//!     from the client, from pods of each node (those of the Service too), from each node itself
//! ```
//!
//! All of it with kube-proxy in each of its modes, and with host protection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold_lab::client::{Answer, ask};
use leasehold_lab::namespace::Namespace;
use leasehold_lab::node::Pod;
use leasehold_lab::{Cluster, Lab, Node, ProxyMode, Service};
use serde_json::json;
use tokio::time::sleep;

use super::health;
use crate::host_protection::node_ports;
use crate::scene::{PATIENCE, Scene, UDP, none_lost};

const TCP: u16 = 80;
/// How often each way is tried.
const TIMES: usize = 2;

/// A Service of the table, and where it is.
pub(super) struct Row<'a> {
    pub(super) what: String,
    pub(super) service: Service,
    pub(super) vips: Vec<IpAddr>,
    pub(super) owner: &'a Node,
    pub(super) local: bool,
}

/// Where a question comes from.
enum Origin<'a> {
    Client,
    Pod(&'a Pod, &'a Node),
    Node(&'a Node),
}

pub async fn a_service_is_reached_from_everywhere_by_nftables() -> Result<()> {
    a_service_is_reached_from_everywhere(ProxyMode::Nftables).await
}

pub async fn a_service_is_reached_from_everywhere_by_iptables() -> Result<()> {
    a_service_is_reached_from_everywhere(ProxyMode::Iptables).await
}

async fn a_service_is_reached_from_everywhere(mode: ProxyMode) -> Result<()> {
    let plan = Lab::shared().await?.cluster(&format!("reach-{}", mode.name())).proxy_mode(mode);
    let scene = Scene::of(plan).await?;
    let cluster = &scene.cluster;
    let rows = rows(cluster).await?;
    // Pods of nobody's Service, on each node.
    let mut visitors = Vec::new();
    for node in cluster.nodes().iter().chain(cluster.workers()) {
        let name = format!("visitor-{}", node.number());
        visitors.push(node.run_pod(cluster.namespace(), &name, &json!({})).await?);
    }
    for row in &rows {
        from_the_client(cluster, row).await?;
        from_pods_and_nodes(cluster, row, &visitors, pods_of(&rows)).await?;
        health::only_its_ports_are_open(cluster, row).await?;
        health::its_owner_answers_pings(cluster, row)?;
    }
    health::node_ports_say_where_endpoints_are(cluster, &rows).await
}

/// The first Service has pods on two of the three nodes that announce; they serve the others, too.
async fn rows(cluster: &Cluster) -> Result<Vec<Row<'_>>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let families = ["IPv4", "IPv6", "dual stack", "dual stack without node ports"];
    let kinds = families.into_iter().flat_map(|family| [(family, false), (family, true)]);
    for (number, (family, local)) in (1..).zip(kinds) {
        let plan = cluster.service(&format!("row-{number}"));
        let plan = match family {
            "IPv4" => plan,
            "IPv6" => plan.ipv6(),
            "dual stack" => plan.dual_stack(),
            _ => plan.dual_stack().without_node_ports(),
        };
        let plan = if local { plan.local() } else { plan };
        let plan = match rows.first() {
            Some(row) => plan.pods_of(&row.service),
            None => plan.pods_on(&[cluster.node(0), cluster.node(1)]),
        };
        let service = plan.vip(number).create().await?;
        let (_, owner) = cluster.ready(&service).await?;
        let vips = service.addresses().await?;
        let expected = if family.starts_with("dual") { 2 } else { 1 };
        ensure!(vips.len() == expected, "{family}: {vips:?}");
        let policy = if local { "Local" } else { "Cluster" };
        rows.push(Row { what: format!("{family}, {policy}"), service, vips, owner, local });
    }
    Ok(rows)
}

fn pods_of<'a>(rows: &'a [Row<'_>]) -> &'a [Pod] {
    rows.first().map_or(&[], |row| row.service.pods())
}

/// What a client on the segment feels: nothing is lost, the owner forwards, and pods see the client
/// itself where the policy is `Local`.
async fn from_the_client(cluster: &Cluster, row: &Row<'_>) -> Result<()> {
    for &vip in &row.vips {
        let what = format!("{}: {vip} from the client", row.what);
        until_answered(cluster, row, &Origin::Client, vip).await?;
        let every = Duration::from_millis(20);
        let probe = cluster.client().probe(vip).udp(UDP).tcp(TCP, every).owners().start()?;
        sleep(Duration::from_millis(500)).await;
        let report = probe.stop().await?;
        for track in [report.udp()?, report.tcp()?] {
            ensure!(track.count() > 10, "{what}: {track}");
            none_lost(&what, track)?;
            for (_, answer) in track.answered_by() {
                let expected = who_is_seen(cluster, row, &Origin::Client, &answer);
                ensure!(expected, "{what}, owned by {}: {answer:?}", row.owner.name());
            }
        }
        let macs = report.owners()?.macs();
        let only = macs.iter().all(|mac| mac.to_string() == row.owner.mac());
        ensure!(only && macs.len() == 1, "{what}: {macs:?} answer for it");
    }
    Ok(())
}

async fn from_pods_and_nodes(
    cluster: &Cluster,
    row: &Row<'_>,
    visitors: &[Pod],
    own: &[Pod],
) -> Result<()> {
    let mut from = Vec::new();
    for pod in visitors.iter().chain(own) {
        from.push(Origin::Pod(pod, cluster.node_named(pod.node())?));
    }
    from.extend(cluster.nodes().iter().chain(cluster.workers()).map(Origin::Node));
    for from in &from {
        for &vip in &row.vips {
            until_answered(cluster, row, from, vip).await?;
            for _ in 0..TIMES {
                for answer in [ask_by(cluster, from, vip, TCP)?, ask_by(cluster, from, vip, UDP)?] {
                    let what = format!("{}: {vip} from {}", row.what, from.name());
                    let seen = who_is_seen(cluster, row, from, &answer);
                    ensure!(seen, "{what}, owned by {}: {answer:?}", row.owner.name());
                }
            }
        }
    }
    Ok(())
}

impl Origin<'_> {
    fn name(&self) -> String {
        match self {
            Self::Client => "the client".to_owned(),
            Self::Pod(pod, node) => format!("{} on {}", pod.name(), node.name()),
            Self::Node(node) => node.name().to_owned(),
        }
    }

    fn namespace<'a>(&'a self, cluster: &'a Cluster) -> &'a Namespace {
        match self {
            Self::Client => cluster.client().namespace(),
            Self::Pod(pod, _) => pod.namespace(),
            Self::Node(node) => node.namespace(),
        }
    }
}

fn ask_by(cluster: &Cluster, from: &Origin<'_>, vip: IpAddr, port: u16) -> Result<Answer> {
    let (host, server) = (from.namespace(cluster), SocketAddr::new(vip, port));
    let answer = match port {
        TCP => ask::by_tcp(host, server),
        UDP => ask::by_udp(host, server),
        _ => bail!("no service has port {port}"),
    };
    answer.with_context(|| format!("{server} from {}", from.name()))
}

/// Waits until the kube-proxy on the way has heard of the Service.
async fn until_answered(
    cluster: &Cluster,
    row: &Row<'_>,
    from: &Origin<'_>,
    vip: IpAddr,
) -> Result<()> {
    let what = format!("{}: {vip} answers {}", row.what, from.name());
    let answers = async || {
        let answers = [ask_by(cluster, from, vip, TCP)?, ask_by(cluster, from, vip, UDP)?];
        Ok(answers.iter().all(|answer| answer.pod.starts_with("row-1-")))
    };
    cluster.eventually(&what, PATIENCE, answers).await
}

/// Whether the pod that answered saw whom it should have seen.
fn who_is_seen(cluster: &Cluster, row: &Row<'_>, from: &Origin<'_>, answer: &Answer) -> bool {
    let forwarder = cluster.forwarder(answer.via).map(Node::name);
    let itself = |addresses: [IpAddr; 2]| answer.via.is_some_and(|via| addresses.contains(&via));
    match from {
        Origin::Client if row.local => itself(cluster.client().addresses()),
        Origin::Client => forwarder == Some(row.owner.name()),
        // A pod that reaches itself would answer itself directly: it must not see its own address.
        Origin::Pod(pod, node) if pod.name() == answer.pod => forwarder == Some(node.name()),
        Origin::Pod(pod, _) if row.local => itself(pod.addresses()),
        Origin::Pod(_, node) | Origin::Node(node) => forwarder == Some(node.name()),
    }
}

/// The node ports of a row are there, or not, as asked for.
pub(super) async fn node_ports_of(row: &Row<'_>) -> Result<(Vec<u16>, Vec<u16>)> {
    let (tcp, udp) = node_ports(&row.service).await?;
    let health = usize::from(row.local);
    let ports = usize::from(!row.what.contains("without node ports"));
    ensure!((tcp.len(), udp.len()) == (ports + health, ports), "{}: {tcp:?}, {udp:?}", row.what);
    Ok((tcp, udp))
}
