//! One owner, whichever it is, has the addresses and answers.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use leasehold_lab::Node;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::scene::{Scene, UDP, cordon, say};

/// Within which time a new service answers, on the busiest machine; shorter than any pause of the
/// operator.
const PROMPT: Duration = Duration::from_secs(15);

/// Makes `target` the owner by cordoning the others.
async fn move_to(scene: &Scene, target: &Node) -> Result<()> {
    for node in scene.cluster.nodes() {
        cordon(node, node.name() != target.name()).await?;
    }
    let what = format!("{} owns {} alone", target.name(), scene.vip);
    scene.until(&what, async || Ok(scene.holders()? == [target.name()])).await
}

pub async fn a_service_answers_from_whichever_node_owns_it() -> Result<()> {
    let scene = Scene::open("tour").await?;
    let client = scene.cluster.client();
    for node in scene.cluster.nodes() {
        let probe = scene.watch().await?;
        move_to(&scene, node).await?;
        sleep(Duration::from_secs(1)).await;
        scene.moved_smoothly(&format!("to {}", node.name()), probe).await?;
        ensure!(scene.owner().await?.name() == node.name());

        let every = Duration::from_millis(20);
        let probe = client.probe(scene.vip).udp(UDP).tcp(80, every).owners().start()?;
        sleep(Duration::from_secs(1)).await;
        let report = probe.stop().await?;
        for track in [report.udp()?, report.tcp()?] {
            ensure!(track.count() > 20 && track.lost() == 0, "on {}: {track}", node.name());
        }
        // A new flow of datagrams cannot be told from one of the owner before.
        for (_, answer) in report.tcp()?.answered_by() {
            let forwarder = scene.cluster.forwarder(answer.via).map(Node::name);
            ensure!(forwarder == Some(node.name()), "{answer:?} came by {forwarder:?}");
        }
        let macs = report.owners()?.macs();
        ensure!(
            macs.len() == 1 && macs.iter().all(|mac| mac.to_string() == node.mac()),
            "{macs:?}"
        );
    }
    Ok(())
}

pub async fn both_addresses_of_a_dual_stack_service_have_one_owner_and_move_together() -> Result<()>
{
    let scene = Scene::open("dual").await?;
    let cluster = &scene.cluster;
    let service = cluster.service("both").dual_stack().vip(1).create().await?;
    let (_, owner) = cluster.ready(&service).await?;
    let addresses = service.addresses().await?;
    let v6 = *addresses.iter().find(|address| address.is_ipv6()).context("no IPv6 address")?;
    ensure!(addresses.len() == 2, "{addresses:?}");
    for address in &addresses {
        let held = owner.has_address(*address)?.context("the owner lacks an address")?;
        ensure!(held.valid_seconds.is_some_and(|left| left <= 7), "{held:?}");
        ensure!(held.address.prefix_len() == held.address.max_prefix_len(), "{held:?}");
        ensure!(service.answers(cluster, *address)?, "{address} does not answer");
    }
    let show =
        owner.namespace().command("ip").args(["-6", "address", "show", "dev", "eth0"]).output()?;
    let text = String::from_utf8(show.stdout)?;
    let line = text.lines().find(|line| line.contains(&v6.to_string())).context("no line")?;
    // Never chosen as a source address, and in use from its first moment.
    ensure!(line.contains("deprecated") && !line.contains("tentative"), "{line}");

    let claim = cluster.claim(&service).await?.context("no claim")?;
    let listed = crate::scene::annotation(&claim, "leasehold.dev/addresses").unwrap_or_default();
    ensure!(addresses.iter().all(|a| listed.contains(&a.to_string())), "the claim has {listed}");

    let probe = cluster.client().probe(v6).udp(UDP).start()?;
    sleep(Duration::from_millis(500)).await;
    cordon(owner, true).await?;
    scene
        .until("both addresses are at one other node", async || {
            let holders = |address: IpAddr| -> Result<Vec<String>> {
                Ok(cluster.holders(address)?.iter().map(|node| node.name().to_owned()).collect())
            };
            let [first, second] = addresses.as_slice() else { return Ok(false) };
            let (first, second) = (holders(*first)?, holders(*second)?);
            Ok(first.len() == 1 && first == second && first != [owner.name()])
        })
        .await?;
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    let track = report.udp()?;
    println!("    IPv6, planned move: {track}");
    ensure!(track.count() > 100 && track.lost() <= 1, "IPv6: {track}");
    Ok(())
}

pub async fn an_address_that_is_removed_by_hand_is_back_at_once() -> Result<()> {
    let scene = Scene::open("removed").await?;
    let owner = scene.owner().await?;
    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    for _ in 0..3 {
        owner.namespace().ip(&format!("address del {}/32 dev eth0\n", scene.vip))?;
        sleep(Duration::from_secs(1)).await;
        ensure!(owner.has_address(scene.vip)?.is_some(), "not back\n{}", owner.dump());
    }
    let report = probe.stop().await?;
    say("removed by hand, three times", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(outage < Duration::from_millis(500), "the outage took {outage:?}");
    scene.not_moved(&claim).await
}

/// Waits until an event says so about a service.
async fn address_conflict(scene: &Scene, service: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(scene.lab().admin(), scene.cluster.namespace());
    let mut note = None;
    scene
        .until("an event says AddressConflict", async || {
            let about = |event: &&Event| {
                let name = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                event.reason.as_deref() == Some("AddressConflict") && name == Some(service)
            };
            let all = events.list(&ListParams::default()).await?;
            note = all.iter().find(about).and_then(|event| event.note.clone());
            Ok(note.is_some())
        })
        .await?;
    note.context("an event without a note")
}

pub async fn an_address_of_a_node_itself_is_never_served_and_never_taken_away() -> Result<()> {
    own_address_is_left_alone(&Scene::open("nodes").await?).await
}

/// An address that is a node's own is neither served nor taken from it.
pub async fn own_address_is_left_alone(scene: &Scene) -> Result<()> {
    let owner = scene.owner().await?;
    let own = IpAddr::from(scene.cluster.addresses().vip(1).0);
    // Allocated, and for no speaker to announce yet: the operator gives no node's address away.
    scene.policy_for(&[]).await?;
    let service = scene.cluster.service("same").vip(1).create().await?;
    scene.until("an address", async || Ok(!service.addresses().await?.is_empty())).await?;
    // As the node's administrator would: for ever, with the subnet, and without our mark.
    owner.namespace().ip(&format!("address add {own}/24 dev eth0\n"))?;
    scene.cluster.policy().await?;
    let note = address_conflict(scene, "same").await?;
    println!("    {note}");
    ensure!(note.contains(&own.to_string()) && note.contains(owner.name()), "{note}");
    let holder = scene.cluster.owner(&service).await?;
    ensure!(holder.is_none(), "{holder:?} claims the node's own address");
    // The speaker ends and comes again: a clean-up must not take it either.
    owner.speaker()?.kill().await?;
    owner.start_speaker()?;
    scene.until("ready again", async || Ok(owner.speaker_http("/readyz").is_ok())).await?;
    sleep(Duration::from_secs(2)).await;
    let address = owner.has_address(own)?.context("the node has lost its own address")?;
    ensure!(address.valid_seconds.is_none() && address.address.prefix_len() == 24, "{address:?}");
    ensure!(scene.cluster.holders(own)?.len() == 1, "another node has it too");

    // Once it is free it is served.
    owner.namespace().ip(&format!("address del {own}/24 dev eth0\n"))?;
    let (vip, _) = scene.cluster.ready(&service).await?;
    ensure!(vip == own, "it has {vip}");
    Ok(())
}

pub async fn an_address_that_a_stranger_has_is_not_taken_from_it() -> Result<()> {
    let scene = Scene::open("stranger").await?;
    let theirs = IpAddr::from(scene.cluster.addresses().vip(1).0);
    let stranger = scene.cluster.client().namespace();
    stranger.ip(&format!("address add {theirs}/24 dev eth0\n"))?;
    let service = scene.cluster.service("theirs").vip(1).create().await?;
    let note = address_conflict(&scene, "theirs").await?;
    println!("    {note}");
    ensure!(note.contains(&theirs.to_string()), "{note}");
    let probe = scene.cluster.client().owners(theirs, Duration::from_secs(3)).await?;
    ensure!(probe.macs().len() == 1 && probe.two_owners().is_zero(), "{:?}", probe.macs());
    ensure!(scene.cluster.holders(theirs)?.is_empty(), "a node has it");
    let owner = scene.cluster.owner(&service).await?;
    ensure!(owner.is_none(), "{owner:?} claims it");
    Ok(())
}

pub async fn a_deleted_service_leaves_nothing_behind_and_its_address_serves_another() -> Result<()>
{
    let scene = Scene::open("reuse").await?;
    scene.service.delete().await?;
    scene
        .until("neither address nor claim is left", async || {
            let claim = scene.cluster.claim(&scene.service).await?;
            Ok(scene.holders()?.is_empty() && claim.is_none())
        })
        .await?;
    let next = scene.cluster.service("next").vip(0).create().await?;
    let (vip, _) = scene.cluster.ready(&next).await?;
    ensure!(vip == scene.vip, "it got {vip}");

    // A service that is no load balancer any more is served no more.
    next.patch(json!({ "spec": { "type": "ClusterIP" } })).await?;
    scene.until("nobody has the address", async || Ok(scene.holders()?.is_empty())).await?;

    // One of the same name gets it at once, whatever has become of the former one's claim.
    next.delete().await?;
    let again = scene.cluster.service("next").vip(0).pods_of(&next).create().await?;
    let (vip, _) = timeout(PROMPT, scene.cluster.ready(&again)).await.context("it waits")??;
    ensure!(vip == scene.vip, "it got {vip}");
    Ok(())
}
