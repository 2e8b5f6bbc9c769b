//! As on a kernel that has no `IFA_PROTO`: addresses are marked by metric.

use anyhow::{Context, Result, ensure};
use leasehold_lab::Lab;

use crate::death::dies;
use crate::ownership::own_address_is_left_alone;
use crate::restart::killed_and_started_again;
use crate::scene::Scene;

pub async fn where_addresses_are_marked_by_metric_speakers_restart_and_die_as_elsewhere()
-> Result<()> {
    let plan = Lab::shared().await?.cluster("metric");
    let scene = Scene::before(plan, |cluster| {
        for node in cluster.nodes() {
            let mark = ("LEASEHOLD_ADDRESS_MARK".to_owned(), "metric".to_owned());
            node.speaker()?.reconfigure(|options| options.environment.push(mark));
        }
        Ok(())
    })
    .await?;
    let owner = scene.owner().await?;
    let shown = owner.namespace().command("ip").args(["-4", "address", "show"]).output()?;
    let shown = String::from_utf8(shown.stdout)?;
    let vip = format!("inet {}/32", scene.vip);
    let line = shown.lines().find(|line| line.contains(&vip)).context("no VIP")?;
    ensure!(line.contains("metric 1279806532") && !line.contains("proto"), "{line}");

    killed_and_started_again(&scene).await?;
    own_address_is_left_alone(&scene).await?;
    let (_, owner) = scene.cluster.ready(&scene.service).await?;
    dies(&scene, owner).await?;
    Ok(())
}
