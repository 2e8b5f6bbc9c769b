//! Many services: evenly spread, also after a failure and over a drain.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use leasehold_lab::{SYSTEM_NAMESPACE, Service};
use tokio::time::sleep;

use crate::scene::{Scene, annotation, cordon, holder_and_transitions};

/// A Scene with services beside its own, of the same pods, since what counts is who owns them.
pub async fn crowd(name: &str, services: u8) -> Result<(Scene, Vec<Service>)> {
    crowd_in(Scene::open(name).await?, services).await
}

async fn crowd_in(scene: Scene, services: u8) -> Result<(Scene, Vec<Service>)> {
    let mut more = Vec::new();
    for number in 1..=services {
        let plan =
            scene.cluster.service(&format!("web-{number}")).vip(number).pods_of(&scene.service);
        let service = plan.create().await?;
        let owned = async || Ok(scene.cluster.owner(&service).await?.is_some());
        scene.until(&format!("{} has an owner", service.name()), owned).await?;
        more.push(service);
    }
    Ok((scene, more))
}

/// How many services each node owns, once each is owned by a node that alone has its address.
pub async fn shares(
    scene: &Scene,
    services: &[Service],
    nodes: usize,
) -> Result<BTreeMap<String, usize>> {
    let mut shares = BTreeMap::new();
    scene
        .until("each service has one owner, who alone has its address", async || {
            shares.clear();
            for service in services {
                let Some(owner) = scene.cluster.owner(service).await? else { return Ok(false) };
                let Some(vip) = service.addresses().await?.first().copied() else {
                    return Ok(false);
                };
                let holders = scene.cluster.holders(vip)?;
                if !holders.iter().map(|node| node.name()).eq([owner.as_str()]) {
                    return Ok(false);
                }
                *shares.entry(owner).or_default() += 1;
            }
            Ok(shares.len() <= nodes)
        })
        .await?;
    Ok(shares)
}

pub async fn services_are_spread_evenly_and_those_of_a_dead_node_over_all_survivors() -> Result<()>
{
    // A speaker that the machine stops for longer than a step is passed over by the next in rank.
    let mut shares = BTreeMap::new();
    for attempt in ["many", "many-again", "many-at-last"] {
        shares = shares_after_a_death(attempt).await?;
        println!("    ... one dead: {shares:?}");
        if shares.len() == 2 && shares.values().all(|share| (9..=11).contains(share)) {
            return Ok(());
        }
    }
    bail!("uneven each time, at last {shares:?}");
}

/// The shares of 20 services on three nodes once one is dead. Before, 21 are spread evenly.
async fn shares_after_a_death(name: &str) -> Result<BTreeMap<String, usize>> {
    let (scene, services) = crowd(name, 20).await?;
    let mut before = shares(&scene, &services, 3).await?;
    *before.entry(scene.owner().await?.name().to_owned()).or_default() += 1;
    println!("    21 services on 3 nodes: {before:?}");
    ensure!(
        before.len() == 3 && before.values().all(|share| (6..=8).contains(share)),
        "{before:?}"
    );

    let dead = scene.cluster.node(0);
    dead.dies()?;
    dead.speaker()?.kill().await?;
    shares(&scene, &services, 2).await
}

pub async fn a_speaker_that_ends_while_its_node_is_drained_leaves_nothing_behind() -> Result<()> {
    let (scene, services) = crowd_in(Scene::late("drain").await?, 20).await?;
    let node = scene.owner().await?;
    scene.policy_for(&[node]).await?;
    let all = shares(&scene, &services, 1).await?;
    ensure!(all.get(node.name()) == Some(&20), "{all:?}");
    scene.cluster.policy().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    scene.not_moved(&claim).await?;

    // Asked to end in the midst of the moves.
    cordon(node, true).await?;
    let leases: Api<Lease> = Api::namespaced(scene.lab().admin(), SYSTEM_NAMESPACE);
    scene
        .until("the moves have begun", async || {
            let all = leases.list(&ListParams::default()).await?;
            let own = |lease: &&Lease| lease.name_any().starts_with("drain.");
            let here = (Some(node.name().to_owned()), false);
            Ok(all.iter().filter(own).any(|lease| {
                let successor = annotation(lease, "leasehold.dev/successor").is_some();
                (holder_and_transitions(lease).0, successor) != here
            }))
        })
        .await?;
    let status = node.speaker()?.terminate().await?;
    ensure!(status.success(), "the speaker ended with {status}");
    let after = shares(&scene, &services, 2).await?;
    println!("    20 services of a drained node: {after:?}");
    ensure!(after.len() == 2 && after.values().all(|share| (9..=11).contains(share)), "{after:?}");
    scene.moved_from(node).await.context("the watched service")?;
    sleep(Duration::from_secs(1)).await;
    scene.moved_smoothly("drained, and SIGTERM", probe).await?;
    let (holder, _) = holder_and_transitions(&scene.session(node).await?);
    ensure!(holder.as_deref().unwrap_or_default().is_empty(), "still held by {holder:?}");
    Ok(())
}
