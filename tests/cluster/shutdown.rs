//! A node that is shut down, and whose kubelet ends its pods first.

use std::fs;

use anyhow::{Context, Result, ensure};
use leasehold_lab::machines::{Ground, MachinesPlan, NAMESPACE, Program, WEB};
use serde_json::json;

pub async fn a_graceful_shutdown_by_the_kubelet_fails_no_connection() -> Result<()> {
    let machines = MachinesPlan::new("graceful").logind().start().await?;
    machines.install().await?;
    let ground = Ground::installed(machines).await?;
    // Only the node lifecycle controller, which looks every 5 s, takes the pods of such a node out of use.
    let sleep = "/spec/template/spec/containers/0/lifecycle/preStop/sleep/seconds";
    let longer = json!([{ "op": "replace", "path": sleep, "value": 12 }]).to_string();
    ground.machines.kubectl(&["patch", "deployment", WEB, "--type=json", "-p", &longer])?;
    ground.machines.deployed(NAMESPACE, WEB).await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    owner.shut_down_by_logind().await?;
    ground.moved_from(owner).await?;
    let report = ground.nothing_failed("shut down", probe).await?;
    let both = report.owners()?.two_owners();
    ensure!(both.as_millis() < 250, "two owners for {both:?}");

    let log = fs::read_to_string(owner.log(Program::Kubelet))?;
    let at = |what: &str, pod: &str| {
        let line = log.lines().position(|line| line.contains(what) && line.contains(pod));
        line.with_context(|| format!("the kubelet does not say of {pod}: {what}"))
    };
    let web = at("Shutdown manager finished killing pod", "pod=\"default/web-")?;
    let speaker = at("Shutdown manager killing pod", "pod=\"leasehold-system/leasehold-speaker-")?;
    ensure!(web < speaker, "the speaker was not left until the pods of the Service had ended");
    Ok(())
}
