//! The leases as people see them, and what they may do to them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use leasehold_lab::{Node, SESSION_NAMESPACE, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::scene::{Scene, UDP, annotation, delete_lease, edit_lease, holder_and_transitions};

const SESSION: &str = "leasehold.dev/session";

/// Whether session and claim say again that `owner` has the service.
async fn is_in_order(scene: &Scene, owner: &Node) -> Result<bool> {
    let (session, claim) = (scene.session(owner).await?, scene.claim().await?);
    let name = Some(owner.name());
    let held = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    let uid = session.metadata.uid.as_deref().unwrap_or_default();
    let transitions = session.spec.as_ref().and_then(|spec| spec.lease_transitions);
    let id = format!("{uid}/{}", transitions.unwrap_or_default());
    Ok(held(&session).as_deref() == name
        && held(&claim).as_deref() == name
        && annotation(&claim, SESSION) == Some(&id)
        && annotation(&claim, "leasehold.dev/addresses") == Some(&scene.vip.to_string()))
}

/// Runs `damage` and asserts that the leases are mended and that nobody noticed.
async fn is_mended(
    scene: &Scene,
    what: &str,
    damage: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let owner = scene.owner().await?;
    let probe = scene.watch().await?;
    damage().await?;
    scene.until(&format!("mended: {what}"), async || is_in_order(scene, owner).await).await?;
    sleep(Duration::from_secs(2)).await;
    let report = scene.nothing_was_felt(what, probe).await?;
    ensure!(report.owners()?.macs().len() == 1, "{what}: two nodes answered");
    let now = scene.owner().await?;
    ensure!(now.name() == owner.name(), "{what}: moved to {}", now.name());
    ensure!(is_in_order(scene, owner).await?, "{what}: not in order for long");
    Ok(())
}

pub async fn a_claim_that_is_deleted_or_edited_is_mended_and_nothing_moves() -> Result<()> {
    let scene = Scene::open("claims").await?;
    let owner = scene.owner().await?;
    let other = scene.cluster.nodes().iter().find(|node| node.name() != owner.name());
    let other = other.context("there is one node only")?;
    let name = scene.service.claim();
    is_mended(&scene, "claim deleted", async || {
        delete_lease(scene.lab(), SYSTEM_NAMESPACE, &name).await
    })
    .await?;
    let edits: [(&str, Value); 5] = [
        ("claim given to another node", json!({ "spec": { "holderIdentity": other.name() } })),
        ("claim given to nonsense", json!({ "spec": { "holderIdentity": "Not A Node" } })),
        ("claim without transitions", json!({ "spec": { "leaseTransitions": 0 } })),
        ("claim of another session", json!({ "metadata": { "annotations": { SESSION: "x/1" } } })),
        ("claim without annotations", json!({ "metadata": { "annotations": null } })),
    ];
    for (what, patch) in edits {
        is_mended(&scene, what, async || {
            edit_lease(scene.lab(), SYSTEM_NAMESPACE, &name, patch).await
        })
        .await?;
    }
    Ok(())
}

pub async fn a_session_that_is_deleted_or_edited_is_mended_and_nothing_moves() -> Result<()> {
    let scene = Scene::open("sessions").await?;
    let name = scene.owner().await?.name();
    is_mended(&scene, "session deleted", async || {
        delete_lease(scene.lab(), SESSION_NAMESPACE, name).await
    })
    .await?;
    let edits: [(&str, Value); 4] = [
        ("session without annotations", json!({ "metadata": { "annotations": null } })),
        ("session with fewer transitions", json!({ "spec": { "leaseTransitions": 0 } })),
        ("session for an hour", json!({ "spec": { "leaseDurationSeconds": 3600 } })),
        (
            "session renewed long ago",
            json!({ "spec": { "renewTime": "2020-01-01T00:00:00.000000Z" } }),
        ),
    ];
    for (what, patch) in edits {
        is_mended(&scene, what, async || {
            edit_lease(scene.lab(), SESSION_NAMESPACE, name, patch).await
        })
        .await?;
    }
    Ok(())
}

pub async fn a_session_that_is_ended_by_hand_moves_its_claims_once_and_nobody_notices() -> Result<()>
{
    let scene = Scene::open("fence").await?;
    let raised = |lease: &Lease| {
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        transitions.unwrap_or_default() + 1
    };
    for fence in [false, true] {
        let what = if fence { "fenced" } else { "transitions raised" };
        let node = scene.owner().await?;
        let holder = (!fence).then(|| node.name());
        let transitions = raised(&scene.session(node).await?);
        let spec = json!({ "leaseTransitions": transitions, "holderIdentity": holder });
        // Its open connections end: as far as others know it has failed.
        let probe = scene.cluster.client().probe(scene.vip).udp(UDP).owners().start()?;
        sleep(Duration::from_millis(500)).await;
        edit_lease(scene.lab(), SESSION_NAMESPACE, node.name(), json!({ "spec": spec })).await?;
        sleep(Duration::from_secs(3)).await;
        scene.moved_smoothly(what, probe).await?;
        let owner = scene.owner().await?;
        ensure!(is_in_order(&scene, owner).await?, "{what}: not in order");
        ensure!(scene.holders()? == [owner.name()], "{what}: held by {:?}", scene.holders()?);
        let (holder, _) = holder_and_transitions(&scene.session(node).await?);
        ensure!(holder.as_deref() == Some(node.name()), "{what}: {} has no session", node.name());
    }
    Ok(())
}

pub async fn describing_the_lease_of_a_service_says_who_owns_it_where_and_since_when() -> Result<()>
{
    let scene = Scene::open("describe").await?;
    let owner = scene.owner().await?;
    // Renewed at least once since it was acquired.
    scene
        .until("the claim is refreshed", async || {
            let spec = scene.claim().await?.spec.context("no spec")?;
            Ok(spec.renew_time > spec.acquire_time)
        })
        .await?;
    let name = scene.service.claim();
    let text =
        scene.lab().plane().kubectl(&["describe", "lease", "-n", SYSTEM_NAMESPACE, &name])?;
    println!("{text}");
    let has = |label: &str, value: &str| {
        let line = text.lines().find(|line| line.contains(label));
        line.is_some_and(|line| line.ends_with(value))
    };
    ensure!(has("Holder Identity:", owner.name()), "{text}");
    ensure!(has("Lease Duration Seconds:", "5"), "{text}");
    ensure!(has("leasehold.dev/addresses:", &scene.vip.to_string()), "{text}");
    ensure!(has("leasehold.dev/interface:", "eth0"), "{text}");
    ensure!(has("leasehold.dev/mac:", &owner.mac()), "{text}");
    ensure!(has("leasehold.dev/services:", "describe/web"), "{text}");

    let spec = scene.claim().await?.spec.context("no spec")?;
    let transitions = spec.lease_transitions.context("no transitions")?;
    ensure!(has("Lease Transitions:", &transitions.to_string()) && transitions > 0, "{text}");
    let acquired = spec.acquire_time.context("never acquired")?.0;
    let renewed = spec.renew_time.context("never renewed")?.0;
    let age = Timestamp::now().duration_since(renewed);
    ensure!(acquired < renewed, "acquired at {acquired}, renewed at {renewed}");
    ensure!(age.as_secs() <= 5, "the claim is valid, and was renewed {age:#} ago");
    Ok(())
}
