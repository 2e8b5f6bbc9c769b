//! Addresses on links where the nodes have none of their own.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::Node;
use serde_json::json;
use tokio::time::sleep;

use crate::death::SILENCE;
use crate::scene::{Scene, UDP, annotation, say};

/// The network that a provider hands over by a link without an address.
const SUBNET: &str = "172.29.9";

/// Nothing that arrives by the link is heard, and its kernel answers nothing there: as though it were dead.
fn deafen(node: &Node, link: &str) -> Result<()> {
    let rules = format!(
        "add table netdev dead; add chain netdev dead {link} \
         {{ type filter hook ingress device {link} priority 0; policy drop; }}"
    );
    let done = node.namespace().command("nft").arg(rules).status()?;
    ensure!(done.success(), "nft: {done}");
    Ok(())
}

pub async fn an_address_on_links_without_one_is_announced_and_taken_when_its_owner_dies()
-> Result<()> {
    let scene = Scene::open("bare").await?;
    let cluster = &scene.cluster;
    for node in cluster.nodes() {
        node.plug_in("ext0")?;
        node.namespace().ip(&format!("route add {SUBNET}.0/24 dev ext0\n"))?;
    }
    let client = cluster.client();
    client.namespace().ip(&format!("address add {SUBNET}.200/24 dev eth0\n"))?;
    let (name, vip): (_, IpAddr) =
        (format!("{}-bare", cluster.name()), format!("{SUBNET}.100").parse()?);
    let selector = json!([{ "matchLabels": { "lab.leasehold.dev/cluster": cluster.name() } }]);
    for object in [
        json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "IPAddressPool",
            "metadata": { "name": name },
            "spec": { "addresses": [format!("{vip}/32")], "autoAssign": false },
        }),
        json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "AnnouncementPolicy",
            "metadata": { "name": name },
            "spec": { "priority": 1, "ipAddressPools": [name], "nodeSelectors": selector,
                "layer2": { "interfaces": ["ext0"] } },
        }),
    ] {
        scene.lab().apply(object).await?;
    }
    let service = cluster.service("bare").annotation("leasehold.dev/addresses", &vip.to_string());
    let service = service.pods_of(&scene.service).create().await?;
    let (_, owner) = cluster.ready(&service).await?;
    let claim = cluster.claim(&service).await?.context("no claim")?;
    ensure!(annotation(&claim, "leasehold.dev/interface") == Some("ext0"), "{claim:?}");
    let carries = owner.has_address(vip)?.map(|held| held.interface);
    ensure!(carries.as_deref() == Some("ext0"), "on {carries:?}");

    let probe = client.probe(vip).udp(UDP).owners().start()?;
    // By then all have heard it.
    sleep(Duration::from_secs(2)).await;
    deafen(owner, "ext0")?;
    owner.dies()?;
    owner.speaker()?.kill().await?;
    scene
        .until("another node announces it", async || {
            let now = cluster.owner(&service).await?;
            Ok(now.is_some_and(|it| it != owner.name()) && service.answers(cluster, vip)?)
        })
        .await?;
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    say("the owner dies", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(SILENCE.contains(&outage), "the outage took {outage:?}");
    Ok(())
}
