//! Services with an address of each family, where no link of a node can carry both.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::{Client, Node};
use tokio::time::sleep;

use crate::scene::{Scene, UDP, announced, none_lost};

/// The node's IPv6 address goes to another link of it on the same segment.
fn move_ipv6(node: &Node) -> Result<()> {
    let [_, v6] = node.own_addresses();
    node.plug_in("six0")?;
    node.namespace().sysctl(&[("net.ipv6.conf.six0.disable_ipv6", "0")])?;
    node.namespace().ip(&format!("address add {v6}/64 dev six0 nodad\n"))
}

async fn quiet(client: &Client, vip: IpAddr, lasts: Duration) -> Result<()> {
    let probe = client.probe(vip).udp(UDP).start()?;
    sleep(lasts).await;
    none_lost("the other family", probe.stop().await?.udp()?)
}

pub async fn a_family_that_no_link_carries_leaves_the_other_alone_and_may_be_on_another_node()
-> Result<()> {
    let scene = Scene::open("families").await?;
    let cluster = &scene.cluster;
    for node in cluster.nodes() {
        node.namespace().sysctl(&[("net.ipv6.conf.eth0.disable_ipv6", "1")])?;
    }
    // Addresses of nodes count once they have lasted for a second.
    sleep(Duration::from_secs(2)).await;
    let service = cluster.service("pair").dual_stack().vip(1).create().await?;
    let mut addresses = Vec::new();
    scene
        .until("it has both addresses", async || {
            addresses = service.addresses().await?;
            Ok(addresses.len() == 2)
        })
        .await?;
    let of = |v4: bool| addresses.iter().copied().find(|ip| ip.is_ipv4() == v4);
    let (v4, v6) = (of(true).context("no IPv4 address")?, of(false).context("no IPv6 address")?);
    scene.until("the IPv4 address answers", async || service.answers(cluster, v4)).await?;
    scene
        .until("the condition names the IPv6 address and why nobody has it", async || {
            let condition = announced(&service).await?;
            Ok(condition.is_some_and(|it| {
                it.status == "False"
                    && it.reason == "NoOwner"
                    && it.message.contains(&v6.to_string())
            }))
        })
        .await?;
    quiet(cluster.client(), v4, Duration::from_secs(3)).await?;
    ensure!(cluster.holders(v6)?.is_empty(), "a node has {v6}");
    let owner = cluster.holders(v4)?;
    let [owner] = owner.as_slice() else { anyhow::bail!("owners of {v4}: {}", owner.len()) };

    // A node that has the other family, on another link than the first, and is not the owner.
    let mut others = cluster.nodes().iter().filter(|node| node.name() != owner.name());
    let other = others.next().context("no other node")?;
    let probe = cluster.client().probe(v4).udp(UDP).start()?;
    move_ipv6(other)?;
    scene
        .until("the IPv6 address is there, and answers", async || {
            let held = other.has_address(v6)?;
            Ok(held.is_some_and(|held| held.interface == "six0") && service.answers(cluster, v6)?)
        })
        .await?;
    scene
        .until("the condition says that both are announced", async || {
            let condition = announced(&service).await?;
            Ok(condition.is_some_and(|it| it.status == "True" && it.message.contains("six0")))
        })
        .await?;
    none_lost("the first family", probe.stop().await?.udp()?)?;
    ensure!(owner.has_address(v4)?.is_some(), "{v4} has moved");
    Ok(())
}
