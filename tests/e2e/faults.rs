//! The lab's own faults: that they break what they say, and nothing else.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use leasehold_lab::{Cluster, Direction, Lab};

/// Whether the client's segment has an answer to ARP for a node's own address.
async fn answers_arp(cluster: &Cluster, index: usize) -> Result<bool> {
    let [address, _] = cluster.node(index).own_addresses();
    let owners = cluster.client().arp_owners(address, Duration::from_millis(200)).await?;
    Ok(!owners.macs().is_empty())
}

/// Whether a node reaches another host by TCP: refused is as good as accepted.
fn reaches(cluster: &Cluster, index: usize, host: IpAddr) -> Result<bool> {
    let script = format!("exec 3<>/dev/tcp/{host}/9");
    let mut command = cluster.node(index).namespace().command("timeout");
    let output = command.args(["1", "bash", "-c", &script]).output()?;
    Ok(String::from_utf8_lossy(&output.stderr).contains("refused"))
}

pub async fn links_are_cut_one_way_and_lose_their_carrier() -> Result<()> {
    let lab = Lab::start().await?;
    let cluster = lab.cluster("links").nodes(2).workers(0).without_speakers().start().await?;
    let (first, second) = (cluster.node(0), cluster.node(1));
    let api = lab.plane().socket().ip();
    let pods: IpAddr = cluster.addresses().pods_link(second.number()).0.into();
    ensure!(answers_arp(&cluster, 0).await? && reaches(&cluster, 0, api)?);

    for direction in [Direction::FromHost, Direction::ToHost] {
        first.cut_clients_one_way(direction)?;
        ensure!(!answers_arp(&cluster, 0).await?, "answers although cut {direction:?}");
        ensure!(answers_arp(&cluster, 1).await?, "its neighbour is cut too");
        ensure!(reaches(&cluster, 0, api)? && reaches(&cluster, 0, pods)?);
        first.heal()?;
        ensure!(answers_arp(&cluster, 0).await?, "healed and silent");
    }

    first.cut_management()?;
    ensure!(!reaches(&cluster, 0, api)?, "reaches the API server although cut");
    ensure!(reaches(&cluster, 0, pods)? && answers_arp(&cluster, 0).await?);
    first.heal_management()?;
    ensure!(reaches(&cluster, 0, api)?);

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
    ensure!(carrier()? && answers_arp(&cluster, 0).await?);
    Ok(())
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
    ensure!(answers().await);
    plane.freeze_api_server()?;
    ensure!(!answers().await, "a frozen API server answers");
    plane.thaw_api_server()?;
    ensure!(answers().await, "thawed and silent");
    plane.kill_api_server().await?;
    ensure!(!answers().await, "a killed API server answers");
    plane.start_api_server().await?;
    ensure!(answers().await, "started again without its data");
    plane.stop_api_server().await?;
    ensure!(!answers().await, "a stopped API server answers");
    plane.start_api_server().await?;
    ensure!(answers().await);
    Ok(())
}
