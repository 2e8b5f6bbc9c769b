//! Other systems, for comparison.
//!
//! On nodes that are played, each is a process on each node ([`Daemons`]) that looks after one address; on machines
//! they are installed as their manuals say. [`keepalived`] is measured on the first alone: it knows no Services.

pub(crate) mod keepalived;
pub(crate) mod kube_vip;
pub(crate) mod metallb;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use leasehold_lab::process::{Process, Signal};
use leasehold_lab::{Cluster, Node, Service};

/// A system and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// With this interval between advertisements, in seconds.
    Keepalived(&'static str),
    Metallb(metallb::Settings),
    KubeVip(kube_vip::Leases),
}

impl Other {
    /// Its name in the results.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Keepalived(interval) => format!("keepalived {interval} s"),
            Self::Metallb(settings) => settings.name().to_owned(),
            Self::KubeVip(leases) => leases.name(),
        }
    }

    /// Makes the Service of a cluster, with this address.
    async fn serve(self, cluster: &Cluster, vip: IpAddr) -> Result<Service> {
        match self {
            Self::Keepalived(_) => keepalived::serve(cluster, vip).await,
            Self::Metallb(_) => metallb::serve(cluster, vip).await,
            Self::KubeVip(_) => kube_vip::serve(cluster, vip).await,
        }
    }
}

/// What its process on a node is started with.
#[derive(Debug)]
struct Ground {
    vip: IpAddr,
    /// The Kubernetes namespace of the Service.
    namespace: String,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Ground {
    fn file(&self, node: &Node, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", node.name()))
    }
}

/// Its process on each node.
pub(crate) struct Daemons {
    other: Other,
    ground: Ground,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
}

impl Daemons {
    /// Makes the Service with this address, and starts them.
    pub(crate) async fn start(
        cluster: &Cluster,
        other: Other,
        vip: IpAddr,
    ) -> Result<(Self, Service)> {
        let service = other.serve(cluster, vip).await?;
        let folder = cluster.lab().folder().join(cluster.name()).join("others");
        fs::create_dir_all(&folder)?;
        let namespace = cluster.namespace().to_owned();
        let kubeconfig = cluster.lab().plane().kubeconfig("admin");
        let ground = Ground { vip, namespace, kubeconfig, folder };
        let daemons = Self { other, ground, processes: Mutex::default() };
        cluster.nodes().iter().try_for_each(|node| daemons.restart(node))?;
        Ok((daemons, service))
    }

    /// Whether the address of an owner is in its kernel: `MetalLB` answers requests by itself.
    pub(crate) fn in_kernel(&self) -> bool {
        !matches!(self.other, Other::Metallb(_))
    }

    /// Starts it on a node, in place of the one before.
    pub(crate) fn restart(&self, node: &Node) -> Result<()> {
        self.all().remove(node.name());
        if matches!(self.other, Other::KubeVip(_)) && node.has_address(self.ground.vip)?.is_some() {
            // One that was killed leaves its address, and the next lets it be: two hosts would answer from then on.
            node.namespace().ip(&format!("address delete {}/32 dev eth0\n", self.ground.vip))?;
        }
        let mut command = match self.other {
            Other::Keepalived(interval) => keepalived::command(&self.ground, node, interval)?,
            Other::Metallb(settings) => metallb::command(&self.ground, node, settings)?,
            Other::KubeVip(leases) => kube_vip::command(&self.ground, node, leases)?,
        };
        let name = format!("{} of {}", self.other.name(), node.name());
        let process = Process::spawn(&name, &self.ground.file(node, "log"), &mut command)?;
        self.all().insert(node.name().to_owned(), Arc::new(process));
        Ok(())
    }

    /// The process group on a node.
    pub(crate) fn of(&self, node: &Node) -> Result<Arc<Process>> {
        let process = self.all().get(node.name()).cloned();
        process.with_context(|| format!("none on {}", node.name()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for process in self.all().values() {
            // A child would go on without it; what has ended needs no signal.
            drop(process.signal_group(Signal::KILL));
        }
    }
}
