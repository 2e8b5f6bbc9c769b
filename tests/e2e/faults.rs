//! The lab's own faults: that they break what they say, and nothing else.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use leasehold_lab::{Cluster, Direction, Lab};

/// Whether the client's segment has an answer to ARP for a node's own address.
pub async fn answers_arp(cluster: &Cluster, index: usize) -> Result<bool> {
    let [address, _] = cluster.node(index).own_addresses();
    let owners = cluster.client().owners(address, Duration::from_millis(200)).await?;
    Ok(!owners.macs().is_empty())
}

/// Whether a node reaches another host by TCP: refused is as good as accepted.
pub fn reaches(cluster: &Cluster, index: usize, host: IpAddr) -> Result<bool> {
    let script = format!("exec 3<>/dev/tcp/{host}/9");
    let mut command = cluster.node(index).namespace().command("timeout");
    let output = command.args(["1", "bash", "-c", &script]).output()?;
    Ok(String::from_utf8_lossy(&output.stderr).contains("refused"))
}

/// Waits until a node reaches these hosts and answers ARP on the clients' segment: after a cut the
/// kernel asks for a neighbour again only after a second.
pub async fn is_connected(cluster: &Cluster, index: usize, hosts: &[IpAddr]) -> Result<()> {
    let what = format!("node {index} reaches {hosts:?} and answers ARP");
    let connected = async || {
        for host in hosts {
            if !reaches(cluster, index, *host)? {
                return Ok(false);
            }
        }
        answers_arp(cluster, index).await
    };
    cluster.eventually(&what, Duration::from_secs(30), connected).await
}

pub async fn links_are_cut_one_way_and_lose_their_carrier() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("links").nodes(2).workers(0).without_speakers().start().await?;
    let (first, second) = (cluster.node(0), cluster.node(1));
    let api = lab.plane().socket().ip();
    let pods: IpAddr = cluster.addresses().pods_link(second.number()).0.into();
    is_connected(&cluster, 0, &[api, pods]).await?;
    is_connected(&cluster, 1, &[api]).await?;

    for direction in [Direction::FromHost, Direction::ToHost] {
        first.cut_clients_one_way(direction)?;
        ensure!(!answers_arp(&cluster, 0).await?, "answers although cut {direction:?}");
        is_connected(&cluster, 1, &[api]).await?;
        ensure!(reaches(&cluster, 0, api)? && reaches(&cluster, 0, pods)?);
        first.heal()?;
        is_connected(&cluster, 0, &[api, pods]).await?;
    }

    first.cut_management()?;
    ensure!(!reaches(&cluster, 0, api)?, "reaches the API server although cut");
    is_connected(&cluster, 0, &[pods]).await?;
    first.heal_management()?;
    is_connected(&cluster, 0, &[api, pods]).await?;

    let carrier = || -> Result<bool> {
        let output =
            first.namespace().command("ip").args(["link", "show", "dev", "eth0"]).output()?;
        Ok(!String::from_utf8_lossy(&output.stdout).contains("NO-CARRIER"))
    };
    first.cut_clients()?;
    ensure!(carrier()?, "a cut takes the carrier away");
    first.clients_link_down()?;
    ensure!(!carrier()?, "the link is down and has a carrier");
    first.heal()?;
    ensure!(carrier()?, "healed and without a carrier");
    is_connected(&cluster, 0, &[api, pods]).await
}

pub async fn the_api_server_freezes_dies_and_comes_back_with_its_data() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("api").nodes(1).workers(0).without_speakers().start().await?;
    let nodes: Api<Node> = Api::all(lab.admin());
    let name = cluster.node(0).name();
    let answers = async || {
        let answer = tokio::time::timeout(Duration::from_secs(2), nodes.get(name)).await;
        matches!(answer, Ok(Ok(_)))
    };
    let plane = lab.plane();
    let answering = async |what: &str| {
        lab.eventually(what, Duration::from_secs(60), async || Ok(answers().await)).await
    };
    answering("the API server answers").await?;
    plane.freeze_api_server()?;
    ensure!(!answers().await, "a frozen API server answers");
    plane.thaw_api_server()?;
    answering("it answers after it was thawed").await?;
    plane.kill_api_server().await?;
    ensure!(!answers().await, "a killed API server answers");
    plane.start_api_server().await?;
    answering("it answers with its data after it was killed").await?;
    plane.stop_api_server().await?;
    ensure!(!answers().await, "a stopped API server answers");
    plane.start_api_server().await?;
    answering("it answers after it was stopped").await
}
