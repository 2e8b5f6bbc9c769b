//! Which interface announces, and whether any does.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::scene::{Scene, annotation, silence};

/// A subnet of containers on each node, and a range that is in no subnet at all.
const CONTAINERS: &str = "172.30.7";
const NOWHERE: &str = "172.30.8";

pub async fn an_address_is_not_announced_to_containers_but_where_the_default_route_leads()
-> Result<()> {
    let scene = Scene::open("uplink").await?;
    let cluster = &scene.cluster;
    for node in cluster.nodes() {
        node.namespace().ip(&format!(
            "link add docker0 type bridge\n\
             link add veth1 type veth peer name veth2\n\
             link set dev veth1 master docker0 up\n\
             link set dev veth2 up\n\
             link set dev docker0 up\n\
             address add {CONTAINERS}.1/24 dev docker0\n"
        ))?;
    }
    cluster.client().namespace().ip(&format!(
        "route add {CONTAINERS}.0/24 dev eth0\n\
         route add {NOWHERE}.0/24 dev eth0\n"
    ))?;
    let pool = format!("{}-far", cluster.name());
    scene
        .lab()
        .apply(json!({
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "IPAddressPool",
            "metadata": { "name": pool },
            "spec": {
                "addresses": [format!("{CONTAINERS}.100/32"), format!("{NOWHERE}.100/32")],
                "autoAssign": false,
            },
        }))
        .await?;
    for (name, network) in [("inner", CONTAINERS), ("nowhere", NOWHERE)] {
        let ip = format!("{network}.100");
        let service = cluster.service(name).annotation("leasehold.dev/addresses", &ip);
        let service = service.pods_of(&scene.service).create().await?;
        let (vip, owner) = cluster.ready(&service).await?;
        ensure!(vip == ip.parse::<IpAddr>()?, "{name} has {vip}");
        let held = owner.has_address(vip)?.context("the owner lacks it")?;
        ensure!(held.interface == "eth0", "{name}: {held:?}");
        let claim = cluster.claim(&service).await?.context("no claim")?;
        ensure!(annotation(&claim, "leasehold.dev/interface") == Some("eth0"), "{claim:?}");
        ensure!(service.answers(cluster, vip)?, "{vip} does not answer");
    }
    Ok(())
}

pub async fn where_the_policy_says_none_nobody_announces_and_the_service_says_why() -> Result<()> {
    let scene = Scene::open("mute").await?;
    ensure!(
        silence(&scene.service).await?.is_none(),
        "announced, and yet: {:?}",
        silence(&scene.service).await?
    );
    scene.cluster.policy_with(json!({ "mode": "None" })).await?;
    scene
        .until("nobody has the address, and the claim is nobody's", async || {
            let claim = scene.claim().await?.spec.unwrap_or_default();
            let holder = claim.holder_identity.unwrap_or_default();
            Ok(scene.holders()?.is_empty() && holder.is_empty())
        })
        .await?;
    scene.until("a condition", async || Ok(silence(&scene.service).await?.is_some())).await?;
    let condition = silence(&scene.service).await?.context("no condition")?;
    let says = "no node announces the addresses: policy mute sets `mode: None`";
    ensure!((condition.status.as_str(), condition.message.as_str()) == ("False", says));
    ensure!(scene.service.addresses().await? == [scene.vip], "the address stays assigned");
    let events: Api<Event> = Api::namespaced(scene.lab().admin(), scene.cluster.namespace());
    scene
        .until("an event", async || {
            let all = events.list(&ListParams::default()).await?;
            let told = |event: &&Event| {
                event.reason.as_deref() == Some("NotAnnounced")
                    && event.note.as_deref() == Some(says)
            };
            Ok(all.iter().filter(told).count() == 1)
        })
        .await?;
    let owners = scene.cluster.client().owners(scene.vip, Duration::from_secs(1)).await?;
    ensure!(owners.macs().is_empty() && scene.holders()?.is_empty(), "{:?}", owners.macs());

    scene.cluster.policy_with(json!({ "mode": "Layer2" })).await?;
    scene
        .until("it is announced again", async || {
            let owned = scene.holders()?.len() == 1 && silence(&scene.service).await?.is_none();
            Ok(owned && scene.service.answers(&scene.cluster, scene.vip)?)
        })
        .await
}
