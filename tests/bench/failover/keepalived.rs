//! keepalived in the same namespaces, for comparison: one VRRP instance with one address.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use leasehold_lab::process::Process;
use leasehold_lab::{Cluster, Node};

/// Whether it is installed.
pub(crate) fn installed() -> bool {
    let mut command = Command::new("keepalived");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A keepalived on each node.
pub(crate) struct Routers {
    folder: PathBuf,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
}

impl Routers {
    /// Starts them, with `interval` seconds between advertisements.
    pub(crate) fn start(cluster: &Cluster, vip: IpAddr, interval: &str) -> Result<Self> {
        let folder = cluster.lab().folder().join("keepalived");
        fs::create_dir_all(&folder)?;
        let routers = Self { folder, processes: Mutex::default() };
        for node in cluster.nodes() {
            // Version 3 is the one with intervals below a second (RFC 5798). Nobody preempts: a
            // node that is back takes nothing away, as a Leasehold node does not.
            let config = format!(
                "global_defs {{\n  router_id {name}\n  vrrp_version 3\n}}\n\
                 vrrp_instance web {{\n  state BACKUP\n  nopreempt\n  interface eth0\n  \
                 virtual_router_id 51\n  priority {priority}\n  advert_int {interval}\n  \
                 virtual_ipaddress {{\n    {vip}/32\n  }}\n}}\n",
                name = node.name(),
                priority = 100 + node.number(),
            );
            fs::write(routers.file(node, "conf"), config)?;
            routers.restart(node)?;
        }
        Ok(routers)
    }

    fn file(&self, node: &Node, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", node.name()))
    }

    /// Starts it on a node, in place of the one before.
    pub(crate) fn restart(&self, node: &Node) -> Result<()> {
        self.all().remove(node.name());
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        for kind in ["pid", "vrrp-pid"] {
            // One that was killed leaves its own, and the next would think it still runs.
            drop(fs::remove_file(self.file(node, kind)));
        }
        let mut command = node.namespace().command("keepalived");
        command
            .args(["--dont-fork", "--log-console", "--vrrp"])
            .arg(option("use-file", &self.file(node, "conf")))
            .arg(option("pid", &self.file(node, "pid")))
            .arg(option("vrrp_pid", &self.file(node, "vrrp-pid")));
        let name = format!("keepalived of {}", node.name());
        let process = Process::spawn(&name, &self.file(node, "log"), &mut command)?;
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

impl Drop for Routers {
    fn drop(&mut self) {
        for process in self.all().values() {
            // Its child would go on without it; what has ended needs no signal.
            drop(process.signal_group(leasehold_lab::process::Signal::KILL));
        }
    }
}
