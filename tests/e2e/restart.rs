//! The owner's speaker ends and comes back: nothing moves, nobody notices.

use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_lab::{Lab, Stuck};
use serde_json::json;
use tokio::time::sleep;

use crate::death::LEASE_RAN_OUT;
use crate::scene::{Scene, annotation, holder_and_transitions, none_lost, say};

/// Longer than a lease and its kernel lifetime: what was not continued would be gone by then.
const AFTERWARDS: Duration = Duration::from_secs(8);

const RESTARTING: &str = "leasehold.dev/restarting";

pub async fn a_killed_speaker_that_is_started_again_goes_on_and_nobody_notices() -> Result<()> {
    killed_and_started_again(&Scene::open("crash").await?).await
}

/// The owner's speaker is killed and started again, and nobody notices.
pub async fn killed_and_started_again(scene: &Scene) -> Result<()> {
    let owner = scene.owner().await?;
    let (claim, session) = (scene.claim().await?, scene.session(owner).await?);
    let probe = scene.watch_with_connection().await?;
    owner.speaker()?.kill().await?;
    sleep(Duration::from_secs(1)).await;
    owner.start_speaker()?;
    sleep(AFTERWARDS).await;
    let report = scene.nothing_was_felt("SIGKILL, restarted after 1 s", probe).await?;
    none_lost("... on one connection", report.connection()?)?;
    ensure!(report.owners()?.macs().len() == 1, "a second owner");
    scene.not_moved(&claim).await?;
    let now = scene.session(owner).await?;
    let (before, after) = (holder_and_transitions(&session), holder_and_transitions(&now));
    ensure!(before == after, "the session was not continued: {before:?}, then {after:?}");
    Ok(())
}

pub async fn a_thread_that_is_stuck_is_seen_by_the_liveness_probe() -> Result<()> {
    let scene = Scene::open("stuck").await?;
    let node = scene.owner().await?;
    // The first thread has the name of the program, cut off.
    for (thread, name) in [("leasehold-speak", "core"), ("kernel", "kernel")] {
        let stuck = Stuck::thread(&*node.speaker()?.process()?, thread)?;
        let says = format!("the thread `{name}` has not made progress for ");
        let seen = async || {
            let said = node.speaker_http("/livez").err();
            Ok(said.is_some_and(|error| format!("{error:#}").contains(&says)))
        };
        scene.until(&format!("/livez says that {says}"), seen).await?;
        drop(stuck);
        scene.until("it turns again", async || Ok(node.speaker_http("/livez").is_ok())).await?;
    }
    Ok(())
}

pub async fn an_upgrade_of_the_owners_speaker_moves_nothing_and_breaks_no_connection() -> Result<()>
{
    let scene = Scene::open("upgrade").await?;
    let owner = scene.owner().await?;
    let (claim, session) = (scene.claim().await?, scene.session(owner).await?);
    let probe = scene.watch_with_connection().await?;
    let status = owner.speaker()?.terminate().await?;
    ensure!(status.success(), "the speaker ended with {status}\n{}", owner.speaker()?.tail(20));

    let meanwhile = scene.session(owner).await?;
    let duration = meanwhile.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    ensure!(annotation(&meanwhile, RESTARTING) == Some("true"), "{meanwhile:?}");
    // It has no pod that could be seen to be replaced.
    ensure!(duration == Some(5), "the session lasts {duration:?} s over a restart");

    sleep(Duration::from_secs(2)).await;
    owner.start_speaker()?;
    sleep(AFTERWARDS).await;
    let report = scene.nothing_was_felt("SIGTERM, restarted after 2 s", probe).await?;
    none_lost("... on one connection", report.connection()?)?;
    scene.not_moved(&claim).await?;
    let now = scene.session(owner).await?;
    let (before, after) = (holder_and_transitions(&session), holder_and_transitions(&now));
    ensure!(before == after, "the session was not continued: {before:?}, then {after:?}");
    ensure!(annotation(&now, RESTARTING) != Some("true"), "still restarting: {now:?}");
    Ok(())
}

/// Nobody drained its node, and no pod says that another process follows: the host shuts down.
pub async fn a_reboot_without_a_drain_costs_no_more_than_a_power_cut_also_by_lease_alone()
-> Result<()> {
    let policy = json!({ "layer2": { "detection": { "mode": "LeaseOnly" } } });
    let plan = Lab::shared().await?.cluster("reboot").policy_fields(policy);
    let scene = Scene::of(plan).await?;
    let old = scene.owner().await?;
    let probe = scene.watch().await?;
    ensure!(old.speaker()?.terminate().await?.success());
    old.dies()?;
    scene.moved_from(old).await?;
    let report = probe.stop().await?;
    say("SIGTERM, then dead, leases only", &report)?;
    let outage = report.udp()?.longest_outage();
    ensure!(LEASE_RAN_OUT.contains(&outage), "the outage took {outage:?}");
    ensure!(report.owners()?.two_owners().is_zero(), "two owners");
    Ok(())
}

pub async fn all_speakers_are_upgraded_one_after_another_and_nothing_moves() -> Result<()> {
    let scene = Scene::open("rollout").await?;
    let claim = scene.claim().await?;
    let probe = scene.watch_with_connection().await?;
    for node in scene.cluster.nodes() {
        node.speaker()?.terminate().await?;
        sleep(Duration::from_millis(500)).await;
        node.start_speaker()?;
        let what = format!("the new speaker of {} is ready", node.name());
        scene.until(&what, async || Ok(node.speaker_http("/readyz").is_ok())).await?;
    }
    sleep(AFTERWARDS).await;
    let report = scene.nothing_was_felt("three upgrades in turn", probe).await?;
    none_lost("... on one connection", report.connection()?)?;
    scene.not_moved(&claim).await
}
