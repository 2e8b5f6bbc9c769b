//! A node that is played: a host, a Node object, a kube-proxy, pods and a speaker.

mod pods;
pub(crate) mod proxy;
mod speaker;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

pub use self::pods::Pod;
pub use self::proxy::ProxyMode;
pub use self::speaker::{Speaker, SpeakerOptions};
use crate::controlplane::ControlPlane;
use crate::host::{Host, HostPlan};
use crate::metrics;
use crate::network::Network;
use crate::process::Process;
use crate::shell;

/// The label by which policies and selectors tell clusters of one control plane apart.
pub const CLUSTER_LABEL: &str = "lab.leasehold.dev/cluster";

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    host: Host,
    plane: Arc<ControlPlane>,
    proxy_mode: ProxyMode,
    proxy: Mutex<Option<Process>>,
    speaker: Option<Speaker>,
    next_pod: AtomicU8,
}

/// The plan of a node.
pub(crate) struct Blueprint<'a> {
    pub(crate) name: String,
    pub(crate) cluster: &'a str,
    pub(crate) number: u8,
    /// The number of nodes of the cluster: routes lead to the pods of each.
    pub(crate) nodes: u8,
    pub(crate) folder: &'a Path,
    pub(crate) proxy: ProxyMode,
    pub(crate) start_proxy: bool,
    pub(crate) speaker: Option<SpeakerOptions>,
}

impl Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Node {
    /// Makes the host, the Node object and the processes; the speaker is not started.
    pub(crate) async fn create(
        plan: Blueprint<'_>,
        network: Arc<Network>,
        plane: Arc<ControlPlane>,
    ) -> Result<Self> {
        let host = HostPlan {
            name: &plan.name,
            number: plan.number,
            hosts: plan.nodes,
            folder: plan.folder,
        };
        let host = Host::create(&host, network)?;
        let addresses = host.network().plan();
        let speaker = plan
            .speaker
            .map(|it| Speaker::new(&plan.name, host.folder(), addresses, plan.number, it))
            .transpose()?;
        let node = Self {
            host,
            plane,
            proxy_mode: plan.proxy,
            proxy: Mutex::default(),
            speaker,
            next_pod: AtomicU8::new(10),
        };
        node.bridge_pods()?;
        node.register(plan.cluster).await?;
        if plan.start_proxy {
            node.start_proxy()?;
        }
        Ok(node)
    }

    /// The bridge of its pods, as a container network makes it.
    fn bridge_pods(&self) -> Result<()> {
        let (gateway_v4, gateway_v6) = self.network().plan().pod(self.number(), 1);
        self.namespace().ip(&format!(
            "link add name cni0 type bridge\n\
             link set dev cni0 up\n\
             address add {gateway_v4}/24 dev cni0\n\
             address add {gateway_v6}/64 dev cni0 nodad\n"
        ))
    }

    async fn register(&self, cluster: &str) -> Result<()> {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name(),
                "labels": {
                    "kubernetes.io/hostname": self.name(),
                    "kubernetes.io/os": "linux",
                    CLUSTER_LABEL: cluster,
                },
            },
        });
        self.plane.apply(&[node]).await?;
        let (v4, v6) = self.network().plan().node(self.number());
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let status = json!({
            "status": {
                // All fields are required.
                "nodeInfo": {
                    "kernelVersion": kernel.trim(), "osImage": "Lab", "operatingSystem": "linux",
                    "architecture": env::consts::ARCH, "containerRuntimeVersion": "",
                    "kubeletVersion": "", "kubeProxyVersion": "", "bootID": "", "machineID": "",
                    "systemUUID": "",
                },
                "addresses": [
                    { "type": "InternalIP", "address": v4 },
                    { "type": "InternalIP", "address": v6 },
                    { "type": "Hostname", "address": self.name() },
                ],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Lab", "message": "",
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                }],
            },
        });
        self.objects()
            .patch_status(self.name(), &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    fn objects(&self) -> Api<NodeObject> {
        Api::all(self.plane.admin())
    }

    /// The name of its Node object, and of the network namespace.
    pub fn name(&self) -> &str {
        self.host.name()
    }

    /// Its speaker.
    ///
    /// # Errors
    /// If it is a node without one.
    pub fn speaker(&self) -> Result<&Speaker> {
        self.speaker.as_ref().with_context(|| format!("{} has no speaker", self.name()))
    }

    /// Starts its speaker.
    pub fn start_speaker(&self) -> Result<()> {
        self.speaker()?.start(self.namespace(), &self.plane)
    }

    /// Starts a second speaker beside it, as somebody who installs Leasehold twice does.
    pub fn start_second_speaker(&self) -> Result<Process> {
        let metrics = speaker::METRICS + 1;
        self.speaker()?.spawn(self.namespace(), &self.plane, "second-speaker.log", metrics)
    }

    /// The answer of the second speaker's HTTP server to `GET path`.
    pub fn second_speaker_http(&self, path: &str) -> Result<String> {
        metrics::get(self.namespace(), speaker::METRICS + 1, path)
    }

    /// The answer of its speaker's HTTP server to `GET path`: `/metrics`, `/readyz`, ….
    pub fn speaker_http(&self, path: &str) -> Result<String> {
        self.speaker()?;
        metrics::get(self.namespace(), speaker::METRICS, path)
    }

    /// Where its speaker's HTTP server is, as the API server's machine reaches it.
    pub fn speaker_socket(&self) -> SocketAddr {
        SocketAddr::from((self.network().plan().management(self.number()), speaker::METRICS))
    }

    /// Patches the Node object (a strategic merge): `{"spec": {"unschedulable": true}}` cordons it.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        let patch = Patch::Strategic(patch);
        self.objects().patch(self.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Drops ARP from these nodes in this node's kernel, as a firewall between nodes does; other
    /// hosts are answered. An empty list lifts it.
    pub fn filter_arp_of(&self, nodes: &[&Node]) -> Result<()> {
        let mut rules = "table arp guard {}\ndelete table arp guard\n".to_owned();
        if !nodes.is_empty() {
            let macs: Vec<_> = nodes.iter().map(|node| node.mac()).collect();
            writeln!(
                rules,
                "table arp guard {{ chain input {{ type filter hook input priority 0; \
                 arp saddr ether {{ {} }} drop; }}; }}",
                macs.join(", ")
            )?;
        }
        shell::feed(self.namespace().command("nft").args(["-f", "-"]), &rules)
    }

    /// The state of this node, for a failed test.
    pub fn dump(&self) -> String {
        let mut command = self.namespace().command("ip");
        let addresses = shell::output(command.args(["-brief", "address", "show"]));
        let mut text = format!("=== node {}\n{}", self.name(), addresses.unwrap_or_default());
        if let Some(speaker) = &self.speaker {
            text.push_str(&speaker.tail(15));
        }
        text
    }

    fn proxy_slot(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pod_number(&self) -> u8 {
        self.next_pod.fetch_add(1, Ordering::Relaxed)
    }
}
