//! A node that is shut down, and whose kubelet ends its pods first.

use std::fs;

use anyhow::{Result, ensure};
use leasehold_lab::machines::{Ground, MachinesPlan, NAMESPACE, Program, WEB};
use serde_json::json;

pub async fn an_owner_that_is_shut_down_gracefully_hands_over_without_a_failed_connection()
-> Result<()> {
    let machines = MachinesPlan::new("graceful").logind().start().await?;
    let ground = Ground::on(machines).await?;
    let owner = ground.owner().await?;
    // The pods of such a node are led to until they have ended: connections to these fail, whoever has the address.
    let elsewhere = json!({ "spec": { "template": { "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
            "matchExpressions": [{
                "key": "kubernetes.io/hostname", "operator": "NotIn", "values": [owner.name()],
            }],
        }] },
    } } } } } });
    ground.machines.kubectl(&["patch", "deployment", WEB, "-p", &elsewhere.to_string()])?;
    ground.machines.deployed(NAMESPACE, WEB).await?;
    let gone = async || Ok(ground.machines.pods(NAMESPACE, "app=web").await?.len() == 3);
    ground.machines.eventually("the pods of before are gone", gone).await?;
    ensure!(ground.owner().await?.name() == owner.name(), "the address has moved before");

    let probe = ground.watch().await?;
    owner.shut_down_by_logind().await?;
    ground.moved_from(owner).await?;
    let report = ground.nothing_failed("shut down", probe).await?;
    let both = report.owners()?.two_owners();
    println!("    two owners for {both:?}");
    let log = fs::read_to_string(owner.log(Program::Kubelet))?;
    let ended = |line: &str| line.contains("Shutdown manager finished killing pod");
    let speaker = |line: &str| line.contains("leasehold-system/leasehold-speaker-");
    ensure!(log.lines().any(|line| ended(line) && speaker(line)), "the kubelet ended no speaker");
    Ok(())
}
