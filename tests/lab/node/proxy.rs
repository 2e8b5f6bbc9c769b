//! A node's kube-proxy, in one of its modes.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Node;
use crate::network::Plan;
use crate::process::{Process, Signal};

/// The mode of kube-proxy.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ProxyMode {
    /// By a table of nftables.
    Nftables,
    /// By chains of iptables.
    Iptables,
    /// By virtual servers of the kernel, which not each kernel has.
    Ipvs,
}

impl ProxyMode {
    /// As kube-proxy's configuration calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
        }
    }
}

impl fmt::Display for ProxyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The configuration of a node's kube-proxy.
pub(crate) fn configuration(kubeconfig: &Path, node: &str, mode: ProxyMode, plan: Plan) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig },
        "hostnameOverride": node,
        "mode": mode.name(),
        // A client in it would be taken for a pod.
        "clusterCIDR": plan.pods(),
        "detectLocalMode": "ClusterCIDR",
        // Zero leaves the limit alone: it belongs to the machine, not to a namespace.
        "conntrack": { "maxPerCore": 0, "min": 0 },
        // The default of 1 s would be seen in every measurement.
        "nftables": { "minSyncPeriod": "10ms" },
        "iptables": { "minSyncPeriod": "10ms" },
        // As the book says of this mode.
        "ipvs": { "minSyncPeriod": "10ms", "strictARP": true },
        // Node ports on all addresses, as the iptables mode has them by default.
        "nodePortAddresses": ["0.0.0.0/0", "::/0"],
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    })
}

impl Node {
    /// Starts kube-proxy.
    pub fn start_proxy(&self) -> Result<()> {
        let kubeconfig = self.plane.kubeconfig("kube-proxy");
        let plan = self.network().plan();
        let config = configuration(&kubeconfig, self.name(), self.proxy_mode, plan);
        let path = self.folder().join("kube-proxy.yaml");
        fs::write(&path, serde_yaml_ng::to_string(&config)?)?;
        let program = self.plane.programs().path("kube-proxy");
        let mut command = self.namespace().command(&program.display().to_string());
        command.arg("--config").arg(&path);
        let name = format!("kube-proxy of {}", self.name());
        let log = self.folder().join("kube-proxy.log");
        *self.proxy_slot() = Some(Process::spawn(&name, &log, &mut command)?);
        Ok(())
    }

    /// SIGKILL to kube-proxy: its rules stay.
    pub async fn kill_proxy(&self) -> Result<()> {
        let process = self.proxy_slot().take().context("no kube-proxy runs")?;
        process.kill().await
    }

    /// SIGSTOP to kube-proxy.
    pub fn freeze_proxy(&self) -> Result<()> {
        self.proxy_slot().as_ref().context("no kube-proxy runs")?.signal(Signal::STOP)
    }

    /// SIGCONT to kube-proxy.
    pub fn thaw_proxy(&self) -> Result<()> {
        self.proxy_slot().as_ref().context("no kube-proxy runs")?.signal(Signal::CONT)
    }
}
