//! The configuration of a machine: the files of containerd, CNI, kubelet and kube-proxy.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use super::logind;
use crate::controlplane::{ControlPlane, kubelet_user};
use crate::network::Plan;
use crate::node::ProxyMode;
use crate::node::proxy;

/// The folder of what Kubernetes' programs read.
pub(super) const FOLDER: &str = "/etc/kubernetes";
/// Where containerd listens.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";
/// Containerd's configuration.
pub(super) const CONTAINERD: &str = "/etc/containerd/config.toml";
/// The sandbox image of containerd 2.3.
pub(super) const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
/// The address of the cluster's DNS, in the API server's range of Services.
pub(crate) const DNS: &str = "172.29.0.10";

/// The names of which the files of a machine are made.
pub(super) struct Machine<'a> {
    pub(super) name: &'a str,
    pub(super) number: u8,
    pub(super) plan: Plan,
    pub(super) plane: &'a ControlPlane,
    pub(super) proxy: ProxyMode,
    /// Whether its kubelet ends its pods before a shutdown.
    pub(super) graceful: bool,
}

impl Machine<'_> {
    /// All files, by their paths on the machine.
    pub(super) fn files(&self) -> Result<BTreeMap<PathBuf, String>> {
        let kubernetes = |name: &str| PathBuf::from(FOLDER).join(name);
        let kubelet = self.plane.kubeconfig(&kubelet_user(self.name));
        let proxy = self.plane.kubeconfig("kube-proxy");
        let authority = self.plane.authority();
        Ok([
            (PathBuf::from("/etc/machine-id"), self.machine_id()),
            (PathBuf::from(CONTAINERD), containerd()),
            (PathBuf::from("/etc/cni/net.d/10-lab.conflist"), self.pods().to_string()),
            (kubernetes("kubelet.kubeconfig"), fs::read_to_string(kubelet)?),
            (kubernetes("kube-proxy.kubeconfig"), fs::read_to_string(proxy)?),
            (kubernetes("ca.crt"), fs::read_to_string(authority)?),
            (kubernetes("resolv.conf"), String::new()),
            (PathBuf::from(logind::BUS), logind::bus()),
            (PathBuf::from("/etc/elogind/logind.conf"), logind::configuration()),
            (kubernetes("kubelet.yaml"), serde_yaml_ng::to_string(&self.kubelet())?),
            (kubernetes("kube-proxy.yaml"), serde_yaml_ng::to_string(&self.proxy())?),
        ]
        .into())
    }

    /// As machine-id(5) says: 32 hexadecimal digits. The address is unique in the sandbox.
    fn machine_id(&self) -> String {
        let id = u32::from(self.plan.management(self.number));
        format!("1ea5e401d{id:023x}\n")
    }

    /// The network of its pods: a bridge, and a range of addresses of each family.
    fn pods(&self) -> Value {
        let (v4, v6) = self.plan.pod(self.number, 0);
        json!({
            "cniVersion": "1.0.0",
            "name": "lab",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": true,
                    "hairpinMode": true,
                    // The other machines and the API servers have routes back.
                    "ipMasq": false,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [
                            [{ "subnet": format!("{v4}/24") }],
                            [{ "subnet": format!("{v6}/64") }],
                        ],
                        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
                        "dataDir": "/var/lib/cni/networks",
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        })
    }

    fn kubelet(&self) -> Value {
        let (all, critical) = if self.graceful { ("40s", "20s") } else { ("0s", "0s") };
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            // Since 1.35 it refuses control groups of version 1 by default.
            "failCgroupV1": false,
            "cgroupDriver": "cgroupfs",
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": format!("{FOLDER}/ca.crt") },
            },
            "authorization": { "mode": "Webhook" },
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "failSwapOn": false,
            // A root without CAP_SYS_RESOURCE cannot lower it.
            "oomScoreAdj": 0,
            "resolvConf": format!("{FOLDER}/resolv.conf"),
            // Images are imported, and could not be pulled again.
            "imageGCHighThresholdPercent": 100,
            // The disk is the host's, and how full it is does not depend on the machine.
            "evictionHard": {
                "memory.available": "50Mi", "nodefs.available": "50Mi", "imagefs.available": "50Mi",
            },
            "enforceNodeAllocatable": ["pods"],
            "shutdownGracePeriod": all,
            "shutdownGracePeriodCriticalPods": critical,
        })
    }

    fn proxy(&self) -> Value {
        let kubeconfig = format!("{FOLDER}/kube-proxy.kubeconfig");
        proxy::configuration(kubeconfig.as_ref(), self.name, self.proxy, self.plan)
    }
}

fn containerd() -> String {
    format!(
        "version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
  # A root without CAP_SYS_RESOURCE cannot lower oom_score_adj.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni', '/opt/cni/bin']
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
"
    )
}
