//! A node that is short of memory.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use leasehold_lab::machines::{AGNHOST, Ground, Machine, NAMESPACE, Program, WEB};
use serde_json::{Value, json};

use crate::trouble::{node_of, restarts, speakers};

/// What is left for pods to take, in bytes.
const LEFT: u64 = 400 << 20;
/// The pod that takes more.
const GLUTTON: &str = "glutton";
/// Where a machine has the configuration of its kubelet.
const CONFIGURATION: &str = "/etc/kubernetes/kubelet.yaml";

pub async fn a_node_without_memory_evicts_the_pod_that_eats_it_and_no_speaker() -> Result<()> {
    let ground = Ground::start("pressure").await?;
    // A pod that has what it asks for is not evicted for memory: the kubelet would leave it a second to end.
    let request = ["set", "resources", "deployment", WEB, "--requests=memory=64Mi"];
    ground.machines.kubectl(&request)?;
    ground.machines.deployed(NAMESPACE, WEB).await?;
    let owner = ground.owner().await?;
    let before = (identities(&ground).await?, restarts(&ground).await?);
    let file = owner.path(CONFIGURATION)?;
    let original = fs::read_to_string(&file)?;
    let mut configuration: Value = serde_yaml_ng::from_str(&original)?;
    let fields = configuration.as_object_mut().context("no fields")?;
    let threshold = available(&ground, owner)?.saturating_sub(LEFT);
    fields.insert("evictionHard".to_owned(), json!({ "memory.available": threshold.to_string() }));
    fields.insert("evictionPressureTransitionPeriod".to_owned(), json!("10s"));
    configure(&ground, owner, &file, &serde_yaml_ng::to_string(&configuration)?).await?;

    let probe = ground.watch().await?;
    ground.machines.lab().apply(glutton(owner)).await?;
    let pods: Api<Pod> = Api::namespaced(ground.machines.lab().admin(), NAMESPACE);
    ground
        .machines
        .eventually("the node is short of memory", pressed(&ground, owner, "True"))
        .await?;
    ground
        .machines
        .eventually("the pod is evicted", async || {
            let status = pods.get(GLUTTON).await?.status.unwrap_or_default();
            Ok(status.reason.as_deref() == Some("Evicted"))
        })
        .await?;
    ground.machines.eventually("the node has memory", pressed(&ground, owner, "False")).await?;
    configure(&ground, owner, &file, &original).await?;
    ground.nothing_failed("short of memory", probe).await?;
    ensure!(ground.owner().await?.name() == owner.name(), "the address has moved");
    let after = (identities(&ground).await?, restarts(&ground).await?);
    ensure!(before == after, "the speakers were {before:?}, and are {after:?}");
    ground.machines.installed().await
}

/// Gives a kubelet another configuration.
async fn configure(ground: &Ground, machine: &Machine, file: &PathBuf, text: &str) -> Result<()> {
    fs::write(file, text)?;
    machine.restart(Program::Kubelet).await?;
    ground.machines.node_ready(machine).await
}

/// What its kubelet says that it has left, in bytes.
fn available(ground: &Ground, machine: &Machine) -> Result<u64> {
    let path = format!("/api/v1/nodes/{}/proxy/stats/summary", machine.name());
    let summary: Value = serde_json::from_str(&ground.machines.kubectl(&["get", "--raw", &path])?)?;
    let bytes = summary.pointer("/node/memory/availableBytes").and_then(Value::as_u64);
    bytes.context("no available memory in the summary")
}

/// A pod without requests that takes twice as much as there is left, over some seconds.
fn glutton(machine: &Machine) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": GLUTTON, "namespace": NAMESPACE },
        "spec": {
            "nodeName": machine.name(),
            "restartPolicy": "Never",
            "containers": [{
                "name": "stress",
                "image": AGNHOST,
                "args": ["stress", "--mem-total", (2 * LEFT).to_string(),
                    "--mem-alloc-size", "50Mi", "--mem-alloc-sleep", "500ms"],
            }],
        },
    })
}

/// Whether the condition of a node is this.
fn pressed(
    ground: &Ground,
    machine: &Machine,
    expected: &str,
) -> impl AsyncFnMut() -> Result<bool> {
    let nodes: Api<Node> = Api::all(ground.machines.lab().admin());
    async move || {
        let status = nodes.get(machine.name()).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let condition = conditions.find(|condition| condition.type_ == "MemoryPressure");
        Ok(condition.is_some_and(|condition| condition.status == expected))
    }
}

/// The speakers' pods and their nodes.
async fn identities(ground: &Ground) -> Result<Vec<(Option<String>, Option<String>)>> {
    let pods = speakers(ground).await?;
    let mut all: Vec<_> = pods
        .iter()
        .map(|pod| (pod.metadata.uid.clone(), node_of(pod).map(ToOwned::to_owned)))
        .collect();
    all.sort();
    Ok(all)
}
