//! What clients believe of an IPv6 address follows it, by Neighbor Advertisements with the Override
//! flag: without it they would keep what they know until it no longer answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_lab::{Node, Report};
use tokio::time::sleep;

use crate::death::SILENCE;
use crate::pair::Pair;
use crate::scene::{Scene, cordon};

const AFTERWARDS: Duration = Duration::from_secs(1);
/// Two owners in a planned move: the design allows 200 ms; the rest is the observer's lateness.
const TOGETHER: Duration = Duration::from_millis(300);

/// The new owner has told everybody, and those too that knew another.
fn announced_by(new: &Node, report: &Report) -> Result<()> {
    let all = report.owners()?.announcements();
    let of_new = || all.iter().filter(|heard| heard.mac.to_string() == new.mac());
    ensure!(of_new().next().is_some(), "{} announced nothing: {all:?}", new.name());
    ensure!(of_new().all(|heard| heard.overrides), "without Override: {all:?}");
    Ok(())
}

pub async fn a_clients_entries_follow_both_addresses_of_a_cordoned_node() -> Result<()> {
    let scene = Scene::open("follow").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (old, _) = pair.settled("at first", |_| true).await?;
    pair.is_at(&old.mac()).await?;
    let probes = pair.watch().await?;
    cordon(old, true).await?;
    let (new, _) = pair.settled("it moves", |node| node.name() != old.name()).await?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("planned move", probes).await?;
    pair.is_at(&new.mac()).await?;
    for report in &reports {
        announced_by(new, report)?;
        let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
        ensure!(lost <= 1 && two < TOGETHER, "{}; two owners {two:?}", report.udp()?);
    }
    Ok(())
}

pub async fn a_clients_entries_follow_both_addresses_of_a_dead_node() -> Result<()> {
    let scene = Scene::open("mourn").await?;
    let pair = Pair::open(&scene, 1).await?;
    let (old, _) = pair.settled("at first", |_| true).await?;
    pair.is_at(&old.mac()).await?;
    let probes = pair.watch().await?;
    old.dies()?;
    old.speaker()?.kill().await?;
    // Its own kernel, which nobody hears, has them for a while yet.
    let (new, _) = pair.settled("another takes it", |node| node.name() != old.name()).await?;
    sleep(AFTERWARDS).await;
    let reports = pair.stop("dead node", probes).await?;
    pair.is_at(&new.mac()).await?;
    for report in &reports {
        announced_by(new, report)?;
        let (outage, two) = (report.udp()?.longest_outage(), report.owners()?.two_owners());
        ensure!(SILENCE.contains(&outage) && two.is_zero(), "{outage:?}, two owners for {two:?}");
    }

    // It comes back with neither.
    let probes = pair.watch().await?;
    old.heal()?;
    old.start_speaker()?;
    scene.until("the speaker is ready", async || Ok(old.speaker_http("/readyz").is_ok())).await?;
    sleep(AFTERWARDS).await;
    for report in pair.stop("the node is back", probes).await? {
        let (lost, two) = (report.udp()?.lost(), report.owners()?.two_owners());
        ensure!(lost == 0 && two.is_zero(), "{}; two owners {two:?}", report.udp()?);
    }
    pair.is_at(&new.mac()).await
}
