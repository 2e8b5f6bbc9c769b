//! The owner is gone, or cannot be told from one that is: another takes over, and what comes back
//! does not serve what it lost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_lab::{Lab, Node};
use serde_json::json;
use tokio::time::sleep;

use crate::scene::{LEASE, Scene, holder_and_transitions, say};

/// A silence on the wire is noticed within 0.16 s; the rest is the claim, and a busy machine. Less than a lease needs to
/// run out: see the next.
pub const SILENCE: std::ops::Range<Duration> = Duration::ZERO..Duration::from_millis(2500);
/// A lease that ran out, at its earliest and at its latest: the silence began up to a renewal
/// interval after the last renewal, and detection and claim take their time on a busy machine.
pub const LEASE_RAN_OUT: std::ops::Range<Duration> = Duration::from_secs(3)..Duration::from_secs(9);
/// How long two owners may last when a partition heals; the target is 50 ms, the rest is the
/// machine.
const HEALED: Duration = Duration::from_millis(250);
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Waits until the node holds a session.
async fn has_session(scene: &Scene, node: &Node) -> Result<()> {
    let what = format!("{} has a session", node.name());
    scene
        .until(&what, async || {
            let (holder, _) = holder_and_transitions(&scene.session(node).await?);
            Ok(holder.as_deref() == Some(node.name()))
        })
        .await
}

/// The owner dies: another one takes the address within the time of a silence, and the dead one's kernel removes it.
pub async fn dies<'a>(scene: &'a Scene, old: &Node) -> Result<&'a Node> {
    let probe = scene.watch().await?;
    old.dies()?;
    old.speaker()?.kill().await?;
    let died = Instant::now();
    let lapsed = async {
        let what = format!("the kernel of {} removes the address", old.name());
        scene.until(&what, async || Ok(old.has_address(scene.vip)?.is_none())).await?;
        anyhow::Ok(died.elapsed())
    };
    let (new, lapsed) = futures::try_join!(scene.moved_from(old), lapsed)?;
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    say("dead node", &report)?;
    println!("    ... its kernel removes the address after {} ms", lapsed.as_millis());
    let outage = report.udp()?.longest_outage();
    ensure!(SILENCE.contains(&outage), "the outage took {outage:?}");
    ensure!(report.owners()?.two_owners().is_zero(), "two owners");
    ensure!(lapsed < LEASE + Duration::from_secs(3), "the address stayed for {lapsed:?}");
    Ok(new)
}

pub async fn a_dead_nodes_addresses_are_taken_and_it_gets_none_back() -> Result<()> {
    let scene = Scene::open("death").await?;
    let old = scene.owner().await?;
    let new = dies(&scene, old).await?;

    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    old.heal()?;
    old.start_speaker()?;
    has_session(&scene, old).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the node comes back", probe).await?;
    scene.not_moved(&claim).await?;
    ensure!(scene.holders()? == [new.name()], "held by {:?}", scene.holders()?);
    Ok(())
}

pub async fn without_the_wire_a_dead_nodes_addresses_are_taken_when_its_lease_runs_out()
-> Result<()> {
    // In the deprecated field: policies of before `layer2` keep their effect.
    let policy = json!({ "detection": { "mode": "LeaseOnly" } });
    let plan = Lab::shared().await?.cluster("leaseonly").policy_fields(policy);
    let scene = Scene::of(plan).await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    old.dies()?;
    old.speaker()?.kill().await?;
    scene.moved_from(old).await?;
    let report = probe.stop().await?;
    say("dead node, leases only", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(LEASE_RAN_OUT.contains(&outage), "the outage took {outage:?}");
    ensure!(report.owners()?.two_owners().is_zero(), "two owners");
    Ok(())
}

pub async fn a_node_that_was_cut_off_comes_back_and_does_not_answer_for_what_it_lost() -> Result<()>
{
    let scene = Scene::open("cut").await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    old.dies()?;
    sleep(Duration::from_secs(10)).await;
    let report = probe.stop().await?;
    say("cut off", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(SILENCE.contains(&outage), "the outage took {outage:?}");
    let new = scene.owner().await?;
    ensure!(new.name() != old.name(), "{} still owns it", old.name());
    // Nobody told it: it goes on, as it would if only the API server were gone.
    ensure!(old.has_address(scene.vip)?.is_some(), "{} does not hold", old.name());

    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    old.heal()?;
    has_session(&scene, old).await?;
    sleep(AFTERWARDS).await;
    let report = probe.stop().await?;
    say("healed", &report)?;
    let two = report.owners()?.two_owners();
    ensure!(two < HEALED, "two owners for {two:?}\n{}", scene.cluster.dump().await);
    ensure!(scene.holders()? == [new.name()], "held by {:?}", scene.holders()?);
    scene.not_moved(&claim).await
}

pub async fn a_speaker_that_hangs_loses_its_addresses_and_takes_none_back() -> Result<()> {
    let scene = Scene::open("hang").await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    old.speaker()?.freeze()?;
    sleep(Duration::from_secs(15)).await;
    let report = probe.stop().await?;
    say("hung for 15 s", &report)?;
    // The kernel's lifetime ends up to 2.03 s after the lease.
    let two = report.owners()?.two_owners();
    ensure!(two < Duration::from_millis(2500), "two owners for {two:?}");
    ensure!(report.udp()?.lost() < 40, "{}", report.udp()?);
    let new = scene.owner().await?;
    ensure!(scene.holders()? == [new.name()] && new.name() != old.name());

    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    old.speaker()?.thaw()?;
    has_session(&scene, old).await?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("goes on", probe).await?;
    scene.not_moved(&claim).await
}

pub async fn an_owner_without_a_carrier_gives_up_at_once_and_gets_nothing_back() -> Result<()> {
    let scene = Scene::open("carrier").await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    old.clients_link_down()?;
    let new = scene.moved_from(old).await?;
    sleep(Duration::from_secs(1)).await;
    let report = probe.stop().await?;
    say("carrier lost", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(outage < Duration::from_secs(2), "the outage took {outage:?}");

    let claim = scene.claim().await?;
    let probe = scene.watch().await?;
    old.clients_link_up()?;
    sleep(AFTERWARDS).await;
    scene.nothing_was_felt("the carrier is back", probe).await?;
    scene.not_moved(&claim).await?;
    ensure!(scene.holders()? == [new.name()], "held by {:?}", scene.holders()?);
    Ok(())
}
