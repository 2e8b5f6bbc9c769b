//! Nodes that join, nodes whose objects are deleted, and what an uninstallation leaves behind.

use anyhow::{Context, Result, ensure};
use leasehold_lab::SYSTEM_NAMESPACE;
use leasehold_lab::machines::{Ground, Machine, NAMESPACE, Program, WEB};

pub async fn a_node_that_joins_gets_a_speaker_and_may_own() -> Result<()> {
    let ground = Ground::start("join").await?;
    let joins = ground.machines.all().get(3).context("there is no fourth machine")?;
    joins.power_on().await?;
    ground.machines.node_ready(joins).await?;
    let speaker = format!("a speaker is ready on {}", joins.name());
    ground
        .machines
        .eventually(&speaker, async || {
            let label = "app.kubernetes.io/component=speaker";
            let pods = ground.machines.pods(SYSTEM_NAMESPACE, label).await?;
            Ok(pods.iter().any(|pod| {
                let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
                on == Some(joins.name()) && conditions.into_iter().flatten().any(is_ready)
            }))
        })
        .await?;
    for machine in ground.machines.on().filter(|machine| machine.name() != joins.name()) {
        exclude(&ground, machine.name())?;
    }
    owns(&ground, joins).await
}

/// Keeps a node from owning.
fn exclude(ground: &Ground, node: &str) -> Result<()> {
    let label = "node.kubernetes.io/exclude-from-external-load-balancers=";
    ground.machines.kubectl(&["label", "node", node, label]).map(|_| ())
}

async fn owns(ground: &Ground, machine: &Machine) -> Result<()> {
    let what = format!("{} owns the address", machine.name());
    ground
        .machines
        .eventually(&what, async || {
            let owner = ground.machines.owner(NAMESPACE, WEB).await?;
            Ok(owner.is_some_and(|owner| owner.name() == machine.name()))
        })
        .await
}

fn is_ready(condition: &k8s_openapi::api::core::v1::PodCondition) -> bool {
    condition.type_ == "Ready" && condition.status == "True"
}

pub async fn a_node_that_comes_back_with_another_address_may_own() -> Result<()> {
    let ground = Ground::start("readdress").await?;
    let owner = ground.owner().await?;
    let before = owner.number();
    owner.power_off()?;
    ground.moved_from(owner).await?;
    owner.renumber(before + 5)?;
    owner.power_on().await?;
    ground.machines.node_ready(owner).await?;
    ground.machines.speaks(owner).await?;
    ground.machines.installed().await?;
    let others = ground.machines.on().filter(|machine| machine.name() != owner.name());
    for machine in others {
        exclude(&ground, machine.name())?;
    }
    owns(&ground, owner).await?;
    ground.owner().await.map(|_| ())
}

pub async fn a_node_whose_object_is_deleted_gives_its_address_up_and_can_come_back() -> Result<()> {
    let ground = Ground::start("deleted").await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    ground.machines.kubectl(&["delete", "node", owner.name()])?;
    ground.moved_from(owner).await?;
    let gone = async || Ok(!owner.has_address(ground.vip)?);
    ground.machines.eventually("the address is off the deleted node", gone).await?;
    let report = probe.stop().await?;
    println!("    deleted: {}", report.tcp()?);
    ensure!(report.owners()?.two_owners().as_millis() < 250, "{:?}", report.owners()?.two_owners());

    // A kubelet registers its node when it starts.
    owner.restart(Program::Kubelet).await?;
    ground.machines.node_ready(owner).await?;
    ground.machines.speaks(owner).await?;
    ground.machines.installed().await
}

pub async fn an_uninstallation_with_a_dead_node_leaves_no_address_behind() -> Result<()> {
    let ground = Ground::start("uninstall").await?;
    let owner = ground.owner().await?;
    owner.power_off()?;
    ground.moved_from(owner).await?;
    let vips = ground.uninstalls().await?;
    // It comes back with a disk on which Leasehold's state was, and without Leasehold.
    owner.power_on().await?;
    ground.machines.node_ready(owner).await?;
    ground.leaves_nothing(&vips).await
}
