//! IPv6 addresses: usable at once, never the source of what the node sends, and back after the kernel
//! flushed them.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::Node;
use serde_json::Value;
use tokio::time::sleep;

use crate::pair::{Pair, shorter_than};
use crate::scene::{Scene, holder_and_transitions};

const AFTERWARDS: Duration = Duration::from_secs(1);
/// What may pass on a busy machine until an address is back that was removed under its owner.
const BACK: Duration = Duration::from_millis(1500);
/// ... and until another node has what a node with a dead link had.
const ELSEWHERE: Duration = Duration::from_secs(3);

/// The source address that the node's kernel would choose.
fn source(node: &Node, destination: IpAddr) -> Result<IpAddr> {
    let mut command = node.namespace().command("ip");
    let output = command.args(["-json", "route", "get", &destination.to_string()]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let routes: Value = serde_json::from_str(&text).with_context(|| format!("{text:?}"))?;
    let source = routes.pointer("/0/prefsrc").and_then(Value::as_str).context("no source")?;
    Ok(source.parse()?)
}

/// Whom the client sees when the node sends it a datagram.
fn seen_by_client(node: &Node, scene: &Scene, client: IpAddr) -> Result<IpAddr> {
    let receiver = scene.cluster.client().namespace().within(|| UdpSocket::bind((client, 0)))??;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let to = receiver.local_addr()?;
    node.namespace().within(|| UdpSocket::bind("[::]:0")?.send_to(b"hello", to))??;
    let (_, from) = receiver.recv_from(&mut [0; 16])?;
    Ok(from.ip())
}

pub async fn an_ipv6_address_is_usable_at_once_and_never_the_source_of_what_the_node_sends()
-> Result<()> {
    let scene = Scene::open("source").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (owner, _) = pair.settled("at first", |_| true).await?;
    let held = owner.has_address(pair.v6)?.context("the owner lacks it")?;
    ensure!(held.nodad && held.deprecated, "{held:?}");

    let plan = scene.cluster.addresses();
    let [_, own] = owner.own_addresses();
    let [_, client] = scene.cluster.client().addresses();
    // One beside the VIP, of which it shares the most bits, and one behind the router.
    let beside = IpAddr::from(plan.vip(3).1);
    let destinations = [client, beside, plan.client_v6(1).into(), "2001:db8::1".parse()?];
    for destination in destinations {
        let chosen = source(owner, destination)?;
        ensure!(chosen == own, "to {destination} the node sends from {chosen}");
    }
    let seen = seen_by_client(owner, &scene, client)?;
    ensure!(seen == own, "the client sees {seen}");

    // An ordinary address in its place would be chosen.
    let ordinary = IpAddr::from(plan.vip(2).1);
    owner.namespace().ip(&format!("address add {ordinary}/128 dev eth0 nodad\n"))?;
    ensure!(source(owner, beside)? == ordinary && source(owner, client)? == ordinary);
    ensure!(seen_by_client(owner, &scene, client)? == ordinary);
    Ok(())
}

/// Both are as they should be on `node`.
fn is_whole(pair: &Pair<'_>, node: &Node) -> Result<()> {
    for vip in [pair.v4, pair.v6] {
        let held = node.has_address(vip)?.with_context(|| format!("{vip} is missing"))?;
        let leased = held.valid_seconds.is_some_and(|left| left <= 7);
        ensure!(leased && (vip.is_ipv4() || held.nodad && held.deprecated), "{held:?}");
    }
    Ok(())
}

/// Removes addresses as an administrator does. `ip` looks whether they are gone, ten times at most: an address that
/// is back before each look is no failure of the test.
fn flush(node: &Node, addresses: &str) -> Result<()> {
    match node.namespace().ip(&format!("address flush {addresses}\n")) {
        Err(error) if error.to_string().contains("Flush remains incomplete") => Ok(()),
        other => other,
    }
}

pub async fn ipv6_addresses_that_were_flushed_by_hand_are_back_at_once() -> Result<()> {
    let scene = Scene::open("flushed").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (owner, _) = pair.settled("at first", |_| true).await?;
    let claim = scene.cluster.claim(&pair.service).await?.context("no claim")?;
    let probes = pair.watch().await?;
    for _ in 0..3 {
        flush(owner, &format!("to {}/128 dev eth0", pair.v6))?;
        sleep(AFTERWARDS).await;
        is_whole(&pair, owner)?;
    }
    let reports = pair.stop("the address flushed by hand, three times", probes).await?;
    shorter_than("flushed", BACK, &reports)?;
    let [v4, _] = &reports;
    ensure!(v4.udp()?.lost() == 0, "IPv4 was lost: {}", v4.udp()?);
    let now = scene.cluster.claim(&pair.service).await?.context("no claim")?;
    let (before, after) = (holder_and_transitions(&claim), holder_and_transitions(&now));
    ensure!(before == after, "it moved: {before:?}, {after:?}");

    // With the node's own: it has no subnet any more, so another node announces it.
    let probes = pair.watch().await?;
    flush(owner, "to ::/0 dev eth0 scope global")?;
    let (new, _) = pair.settled("it moves", |node| node.name() != owner.name()).await?;
    owner.configure("eth0")?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("all IPv6 addresses flushed by hand", probes).await?;
    shorter_than("all flushed", ELSEWHERE, &reports)?;
    pair.is_at(&new.mac()).await?;
    is_whole(&pair, new)
}

pub async fn ipv6_addresses_are_back_after_the_link_was_down() -> Result<()> {
    let scene = Scene::open("flap").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (first, _) = pair.settled("at first", |_| true).await?;

    // Another node takes over; what the kernel has kept of IPv4 is removed.
    let probes = pair.watch().await?;
    first.namespace().ip("link set dev eth0 down\n")?;
    let (second, _) = pair.settled("another has it", |node| node.name() != first.name()).await?;
    first.namespace().ip("link set dev eth0 up\n")?;
    first.configure("eth0")?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("link down and up, another took over", probes).await?;
    shorter_than("link down and up", ELSEWHERE, &reports)?;
    pair.is_at(&second.mac()).await?;
    pair.settled("and keeps it", |node| node.name() == second.name()).await?;

    // There is no other.
    scene.policy_for(&[second]).await?;
    let is_second = |node: &Node| node.name() == second.name();
    for round in ["at once", "after a while"] {
        let probes = pair.watch().await?;
        second.namespace().ip("link set dev eth0 down\n")?;
        if round == "after a while" {
            scene
                .until("nobody has it", async || {
                    let holders = |vip| Ok::<_, anyhow::Error>(scene.cluster.holders(vip)?.len());
                    Ok(holders(pair.v4)? + holders(pair.v6)? == 0)
                })
                .await?;
        }
        second.namespace().ip("link set dev eth0 up\n")?;
        second.configure("eth0")?;
        pair.settled("it is back", is_second).await?;
        sleep(AFTERWARDS).await;
        pair.stop(&format!("the only node's link down and up {round}"), probes).await?;
        is_whole(&pair, second)?;
        pair.is_at(&second.mac()).await?;
    }
    Ok(())
}
