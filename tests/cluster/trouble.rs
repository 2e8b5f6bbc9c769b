//! Pods that are evicted, that cannot start, and that hardly get any processor time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold_lab::SYSTEM_NAMESPACE;
use leasehold_lab::machines::{Ground, Machine, NAMESPACE};
use leasehold_lab::process::Process;
use serde_json::{Value, json};
use tokio::time::sleep;

const SPEAKERS: &str = "daemonset/leasehold-speaker";

pub async fn a_taint_evicts_the_pods_of_a_service_and_no_speaker() -> Result<()> {
    let ground = Ground::start("taint").await?;
    let owner = ground.owner().await?;
    let probe = ground.watch().await?;
    ground.machines.kubectl(&["taint", "node", owner.name(), "trouble=yes:NoExecute"])?;
    ground
        .machines
        .eventually("no pod of the Service is on the node", async || {
            let pods = ground.machines.pods(NAMESPACE, "app=web").await?;
            Ok(pods.len() == 3 && !pods.iter().any(|pod| node_of(pod) == Some(owner.name())))
        })
        .await?;
    ground.machines.deployed(NAMESPACE, "web").await?;
    ground.nothing_failed("evicted", probe).await?;
    ensure!(ground.owner().await?.name() == owner.name(), "the address has moved");
    ground.machines.installed().await
}

pub async fn a_speaker_that_cannot_start_halts_the_rollout_and_one_that_can_ends_it() -> Result<()>
{
    let ground = Ground::start("crash").await?;
    let set = "/spec/template/spec/containers/0/args";
    let wrong = json!([{ "op": "add", "path": set, "value": ["--no-such-flag"] }]).to_string();
    let patch = ["patch", SPEAKERS, "-n", SYSTEM_NAMESPACE, "--type=json", "-p"];
    ground.machines.kubectl(&[&patch[..], &[&wrong]].concat())?;
    ground
        .machines
        .eventually("the kubelet backs off", async || {
            let pods = speakers(&ground).await?;
            Ok(pods.iter().any(|pod| waits_for(pod) == Some("CrashLoopBackOff")))
        })
        .await?;
    // All others run on, and the address is served by one of them, or still by the kernel of this one.
    let broken: Vec<_> = speakers(&ground).await?;
    let broken = broken.iter().filter(|pod| waits_for(pod).is_some()).count();
    ensure!(broken == 1, "{broken} speakers are broken at once");
    // Longer than a speaker that restarts keeps its session.
    sleep(Duration::from_secs(35)).await;
    let probe = ground.watch().await?;
    ground.nothing_failed("one speaker cannot start", probe).await?;

    ground.machines.kubectl(&["rollout", "undo", SPEAKERS, "-n", SYSTEM_NAMESPACE])?;
    let probe = ground.watch().await?;
    ground.machines.installed().await?;
    ground.nothing_failed("undone", probe).await.map(|_| ())
}

pub async fn a_speaker_on_a_node_without_idle_time_is_not_restarted() -> Result<()> {
    let ground = Ground::start("starved").await?;
    let owner = ground.owner().await?;
    let before = restarts(&ground).await?;
    let hogs = hogs(owner, 8)?;
    let probe = ground.watch().await?;
    // Four times as long as the kubelet's default probes need to fail.
    sleep(Duration::from_secs(120)).await;
    drop(hogs);
    let report = probe.stop().await?;
    println!("    starved: {}", report.tcp()?);
    ensure!(restarts(&ground).await? == before, "a container was restarted");
    ensure!(report.owners()?.two_owners().as_millis() < 250, "{:?}", report.owners()?.two_owners());
    ground.machines.installed().await
}

/// So many processes of the machine, outside of its pods, that never sleep.
fn hogs(machine: &Machine, count: u8) -> Result<Vec<Process>> {
    let log = machine.log(leasehold_lab::machines::Program::Kubelet).with_file_name("hogs.log");
    (0..count)
        .map(|number| {
            let mut command = machine.command("timeout")?;
            command.args(["300", "sh", "-c", "while :; do :; done"]);
            Process::spawn(&format!("hog {number} of {}", machine.name()), &log, &mut command)
        })
        .collect()
}

pub async fn speakers(ground: &Ground) -> Result<Vec<k8s_openapi::api::core::v1::Pod>> {
    ground.machines.pods(SYSTEM_NAMESPACE, "app.kubernetes.io/component=speaker").await
}

pub fn node_of(pod: &k8s_openapi::api::core::v1::Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Why its container does not run.
fn waits_for(pod: &k8s_openapi::api::core::v1::Pod) -> Option<&str> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.first()?.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

/// The number of times that containers of Leasehold were restarted.
pub async fn restarts(ground: &Ground) -> Result<i64> {
    let output = ground.machines.kubectl(&["get", "pods", "-n", SYSTEM_NAMESPACE, "-o", "json"])?;
    let pods: Value = serde_json::from_str(&output)?;
    let items = pods.get("items").and_then(Value::as_array).context("no list")?;
    let counts = items.iter().filter_map(|pod| {
        pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_i64)
    });
    Ok(counts.sum())
}
