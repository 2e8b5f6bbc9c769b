//! `MetalLB` in its layer 2 mode.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold_lab::machines::{Machines, MachinesPlan};
use leasehold_lab::{Cluster, Node, Service, programs_of};
use serde_json::{Value, json};

use super::Ground;

/// The folder in `tests` that builds it.
const FOLDER: &str = "metallb";
/// Its namespace on machines.
const NAMESPACE: &str = "metallb-system";
/// The labels by which its speakers find each other.
const LABELS: &str = "app=metallb,component=speaker";
/// Where it looks for settings of memberlist.
const SETTINGS: &str = "/etc/metallb/memberlist";
/// Runs a command with a file of these settings, in a mount namespace.
const WITH_SETTINGS: &str = "mount -t tmpfs tmpfs /etc && mkdir -p \"$1\" && cp \"$2\" \"$1/config.json\" && shift 2 && exec \"$@\"";

/// How quickly it notices that a node is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    /// Those of memberlist for a local network: a probe each second.
    Default,
    /// Five times as quick, by its `ConfigMap`.
    Fast,
}

impl Settings {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Default => "metallb",
            Self::Fast => "metallb fast",
        }
    }

    /// The file of memberlist's settings: all are required. Others than these are memberlist's own for a local
    /// network: `ProbeInterval` 1 s, `ProbeTimeout` 500 ms, `SuspicionMult` 4, `GossipInterval` 200 ms,
    /// `AwarenessMaxMultiplier` 8.
    fn file(self) -> Option<Value> {
        (self == Self::Fast).then(|| {
            json!({
                "ProbeInterval": "200ms", "ProbeTimeout": "100ms", "SuspicionMult": 2,
                "GossipInterval": "50ms", "AwarenessMaxMultiplier": 2,
                "TCPTimeout": "10s", "IndirectChecks": 3, "RetransmitMult": 4,
                "SuspicionMaxTimeoutMult": 6, "PushPullInterval": "30s", "DisableTcpPings": false,
                "GossipNodes": 3, "GossipToTheDeadTime": "30s", "GossipVerifyIncoming": true,
                "GossipVerifyOutgoing": true, "EnableCompression": true, "HandoffQueueDepth": 1024,
                "UDPBufferSize": 1400, "QueueCheckInterval": "30s",
            })
        })
    }
}

/// Installs its own manifest on machines, with a pool and its announcement.
pub(crate) async fn install(plan: MachinesPlan, settings: Settings) -> Result<Machines> {
    let machines = plan.images(FOLDER).start().await?;
    let manifest = programs_of(FOLDER)?.join("metallb-native.yaml");
    machines.kubectl(&["apply", "--server-side", "-f", &manifest.to_string_lossy()])?;
    if let Some(file) = settings.file() {
        let metadata = json!({ "name": "metallb-memberlist-config", "namespace": NAMESPACE });
        let data = json!({ "config.json": file.to_string() });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
        });
        machines.lab().apply(map).await?;
        // Those that have started without it.
        machines.kubectl(&["rollout", "restart", "-n", NAMESPACE, "daemonset/speaker"])?;
    }
    machines.deployed(NAMESPACE, "controller").await?;
    machines.rolled_out(NAMESPACE, "speaker").await?;
    let (from, to) = (machines.addresses().vip(0).0, machines.addresses().vip(49).0);
    for object in configuration(NAMESPACE, &format!("{from}-{to}")) {
        // Its webhook has to have a certificate first.
        let applied = async || Ok(machines.lab().apply(object.clone()).await.is_ok());
        machines.eventually("MetalLB takes its configuration", applied).await?;
    }
    Ok(machines)
}

/// A pool, and its announcement.
fn configuration(namespace: &str, addresses: &str) -> [Value; 2] {
    let metadata = json!({ "name": "default", "namespace": namespace });
    let kind = |kind: &str| json!({ "apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": metadata });
    let (mut pool, announcement) = (kind("IPAddressPool"), kind("L2Advertisement"));
    if let Some(pool) = pool.as_object_mut() {
        pool.insert("spec".to_owned(), json!({ "addresses": [addresses] }));
    }
    [pool, announcement]
}

/// A Service of its class, with the address that its controller would allocate. Its speakers are told of each other by
/// Pod objects, as those of a `DaemonSet`.
pub(super) async fn serve(cluster: &Cluster, vip: IpAddr) -> Result<Service> {
    let (lab, namespace) = (cluster.lab(), cluster.namespace());
    let manifest = fs::read_to_string(programs_of(FOLDER)?.join("metallb-native.yaml"))?;
    let mut objects = leasehold_lab::controlplane::documents(&manifest)?;
    objects.retain(|object| object.get("kind") == Some(&json!("CustomResourceDefinition")));
    lab.plane().apply(&objects).await?;
    lab.plane().apply(&configuration(namespace, &format!("{vip}/32"))).await?;
    let pods: Api<Pod> = Api::namespaced(lab.admin(), namespace);
    for node in cluster.nodes() {
        let [ip, _] = node.own_addresses();
        let name = pod(node);
        let labels = json!({ "app": "metallb", "component": "speaker" });
        lab.apply(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "spec": {
                "nodeName": node.name(),
                "hostNetwork": true,
                "containers": [{ "name": "speaker", "image": "speaker" }],
            },
        }))
        .await?;
        let status =
            json!({ "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] } });
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    let service = cluster.service("web").class(Some(&class(namespace))).create().await?;
    service.set_addresses(&[vip]).await?;
    Ok(service)
}

fn pod(node: &Node) -> String {
    format!("speaker-{}", node.name())
}

fn class(namespace: &str) -> String {
    format!("metallb.io/{namespace}")
}

/// Its speaker, as in its manifest, but for the class of one cluster.
pub(super) fn command(ground: &Ground, node: &Node, settings: Settings) -> Result<Command> {
    let program = programs_of(FOLDER)?.join("speaker");
    let mut command = match settings.file() {
        None => node.namespace().command(&program.to_string_lossy()),
        Some(text) => {
            let file = ground.file(node, "json");
            fs::write(&file, text.to_string())?;
            let mut command = node.namespace().command("unshare");
            command.args(["--mount", "sh", "-c", WITH_SETTINGS, "sh", SETTINGS]);
            command.arg(file).arg(program);
            command
        }
    };
    let [ip, _] = node.own_addresses();
    command
        .args(["--port=9120", "--log-level=info"])
        .arg(format!("--namespace={}", ground.namespace))
        .arg(format!("--lb-class={}", class(&ground.namespace)))
        .arg(format!("--node-name={}", node.name()))
        .arg(format!("--pod-name={}", pod(node)))
        .arg(format!("--ml-bindaddr={ip}"))
        .arg(format!("--ml-labels={LABELS}"))
        .env("KUBECONFIG", &ground.kubeconfig);
    Ok(command)
}
