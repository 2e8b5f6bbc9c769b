//! The lab of Leasehold: a real control plane, nodes that are network namespaces, and a client.
//!
//! ```text
//!  sandbox (own network, mount and PID namespaces; nothing outlives it)
//!  ├─ etcd, kube-apiserver, kube-controller-manager, leasehold-operator
//!  │     │ management bridge
//!  ├─ node 1..N  namespace: eth0, mgmt0, pods0; kube-proxy; leasehold-speaker; pods
//!  │     │ clients' segment
//!  └─ client, observer, router
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`sandbox`] | namespaces around everything |
//! | [`controlplane`] | the Kubernetes API, and its faults |
//! | [`network`] | bridges, addresses, cuts |
//! | [`host`] | hosts with three links, and the faults of these |
//! | [`node`] | hosts that play nodes, with kube-proxy, pods and speaker |
//! | [`confinement`] | the system calls that a container runtime leaves to a process |
//! | [`browser`] | headless Chromium |
//! | [`olm`] | bundle and catalog for the Operator Lifecycle Manager, and its programs |
//! | [`operator`] | the operator's process |
//! | [`plugin`] | `kubectl leasehold`, as the admin |
//! | [`prometheus`] | Prometheus, which scrapes speakers and operator, and promtool |
//! | [`previous`] | the version from which an upgrade is tested |
//! | [`helm`] | Helm, with the chart |
//! | [`schemas`] | kubeconform, with the schemas of the API server |
//! | `programs` | what is built of Go modules |
//! | [`cluster`] | nodes and a client of one test; services |
//! | [`machines`] | nodes with kubelet, containerd and pods, and their power |
//! | `cgroups` | the control groups of machines |
//! | [`client`] | probes and their reports |
//! | [`crowd`] | Services, endpoints and nodes that Leasehold does not serve |
//! | [`fleet`] | Services without pods, by the thousand |
//! | [`hogs`] | busy cores |
//! | [`wall_clock`] | a process's wall clock, set back and forward |
//! | [`harness`] | async tests under the usual test arguments |

// The lab measures what a user feels and decides nothing; and its threads are its own.
#![allow(clippy::disallowed_methods, reason = "clocks and sleeps of an observer")]

pub mod binaries;
pub mod browser;
mod cgroups;
pub mod client;
pub mod cluster;
pub mod confinement;
pub mod controlplane;
pub mod crowd;
pub mod fleet;
pub mod harness;
pub mod helm;
pub mod hogs;
pub mod host;
pub mod machines;
mod management;
pub mod metrics;
pub mod namespace;
pub mod network;
pub mod node;
pub mod olm;
pub mod operator;
pub mod plugin;
pub mod pod_server;
pub mod previous;
pub mod process;
mod programs;
pub mod prometheus;
pub mod sandbox;
pub mod schemas;
pub mod service;
mod shell;
mod stuck;
pub mod terminal;
mod waiting;
pub mod wall_clock;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::OnceCell;

pub use crate::cgroups::Memory;
pub use crate::client::{Client, Owners, Report, Storm, Sweep, Track};
pub use crate::cluster::{Cluster, ClusterPlan};
use crate::controlplane::{ControlPlane, Nodes, Programs};
pub use crate::host::Host;
pub use crate::network::Direction;
pub use crate::node::{Node, ProxyMode, SpeakerOptions};
use crate::operator::Operator;
pub use crate::operator::OperatorOptions;
pub use crate::service::Service;
pub use crate::stuck::Stuck;
pub use crate::waiting::eventually;

/// Where speakers and operator live, and the claims.
pub const SYSTEM_NAMESPACE: &str = "leasehold-system";
/// Where the sessions are.
pub const SESSION_NAMESPACE: &str = "leasehold-sessions";
/// The service account of the speakers.
pub const SPEAKER_ACCOUNT: &str = "leasehold-speaker";
/// The service account of the operator.
pub const OPERATOR_ACCOUNT: &str = "leasehold-operator";

/// Kinds in `deploy/base` that need a kubelet, or are no object of the API.
const NOT_APPLIED: [&str; 3] = ["DaemonSet", "Deployment", "Kustomization"];

/// A control plane with Leasehold's API in it, and the operator.
#[derive(Debug)]
pub struct Lab {
    // Ended before the control plane, which it talks to.
    operator: Mutex<Option<Arc<Operator>>>,
    plane: Arc<ControlPlane>,
    folder: PathBuf,
}

impl Lab {
    /// The lab that the tests of this process share. Its operator runs with `--default-class`.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: OnceCell<Arc<Lab>> = OnceCell::const_new();
        let lab = SHARED.get_or_try_init(|| async {
            let lab = Self::start().await?;
            lab.start_operator(&["--default-class"])?;
            anyhow::Ok(lab)
        });
        lab.await.cloned()
    }

    /// Starts a lab of its own, for a test that breaks the API server or the operator. The
    /// operator is not started.
    pub async fn start() -> Result<Arc<Self>> {
        Self::installed_from(&repository()).await
    }

    /// The same with the definitions and roles of another version, in `root`.
    pub async fn installed_from(root: &Path) -> Result<Arc<Self>> {
        let lab = Self::bare().await?;
        lab.install(root).await?;
        lab.accounts().await?;
        Ok(lab)
    }

    /// Applies the definitions and roles of a version, in `root`.
    pub async fn install(&self, root: &Path) -> Result<()> {
        self.plane.apply_folder(&root.join("crds/generated"), |_| true).await?;
        let base = root.join("deploy/base");
        self.plane.apply_folder(&base, |kind| !NOT_APPLIED.contains(&kind)).await
    }

    /// The same with what the Operator Lifecycle Manager makes of the bundle in place of the manifests.
    pub async fn start_by_bundle() -> Result<Arc<Self>> {
        let lab = Self::bare().await?;
        olm::Bundle::read()?.install(&lab).await?;
        lab.accounts().await?;
        Ok(lab)
    }

    async fn accounts(&self) -> Result<()> {
        for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
            self.plane.service_account(SYSTEM_NAMESPACE, account).await?;
        }
        Ok(())
    }

    /// Starts a control plane that has never heard of Leasehold.
    pub async fn bare() -> Result<Arc<Self>> {
        Self::bare_with(Nodes::Played, Programs::locate()?).await
    }

    /// The same for these nodes, of these programs.
    pub(crate) async fn bare_with(nodes: Nodes, programs: Programs) -> Result<Arc<Self>> {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = sandbox::scratch()?.join(format!("lab-{number}"));
        fs::create_dir_all(&folder)?;
        let files = folder.join("control-plane");
        let plane = ControlPlane::start(&files, number, nodes, programs).await?;
        Ok(Arc::new(Self { operator: Mutex::default(), plane: Arc::new(plane), folder }))
    }

    /// The control plane.
    pub fn plane(&self) -> &Arc<ControlPlane> {
        &self.plane
    }

    /// A client with all rights.
    pub fn admin(&self) -> kube::Client {
        self.plane.admin()
    }

    /// Where the lab's files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Plans a cluster: nodes and a client on a network of their own. The name is part of its
    /// nodes' names and is the Kubernetes namespace of its services.
    pub fn cluster(self: &Arc<Self>, name: &str) -> ClusterPlan {
        ClusterPlan::new(Arc::clone(self), name)
    }

    /// Starts the operator with further arguments, in place of the one before.
    pub fn start_operator(&self, arguments: &[&str]) -> Result<()> {
        self.start_operator_with(OperatorOptions { arguments, ..OperatorOptions::default() })
    }

    /// The same with further options.
    pub fn start_operator_with(&self, options: OperatorOptions<'_>) -> Result<()> {
        // Two at once would be another test; the old one ends first.
        self.operator_slot().take();
        let kubeconfig = self.plane.kubeconfig(OPERATOR_ACCOUNT);
        let operator = Operator::start(&self.folder, "operator", &kubeconfig, options)?;
        *self.operator_slot() = Some(Arc::new(operator));
        Ok(())
    }

    /// The operator that was started last.
    pub fn operator(&self) -> Result<Arc<Operator>> {
        self.operator_slot().clone().context("the operator was not started")
    }

    fn operator_slot(&self) -> MutexGuard<'_, Option<Arc<Operator>>> {
        self.operator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Server-side applies an object as the admin.
    pub async fn apply(&self, object: Value) -> Result<()> {
        self.plane.apply(&[object]).await
    }

    /// Server-side applies the objects of a YAML text as the admin.
    pub async fn apply_yaml(&self, text: &str) -> Result<()> {
        self.plane.apply(&controlplane::documents(text)?).await
    }

    /// Deletes an object; it may be gone already.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        self.plane.delete(object).await
    }

    /// Waits for a condition; when it does not come, the error says which and shows the leases and
    /// the operator's log.
    pub async fn eventually(
        &self,
        what: &str,
        patience: Duration,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        waiting::eventually(what, patience, condition, async || self.dump().await).await
    }

    /// The leases, and the last lines of the operator's log.
    pub async fn dump(&self) -> String {
        let mut text = waiting::leases(&self.admin()).await;
        if let Ok(operator) = self.operator() {
            text.push_str(&operator.process().tail(20));
        }
        text
    }
}

/// The folder with the programs of a folder of `tests`, which are built if this user has not got them yet.
pub fn programs_of(module: &str) -> Result<PathBuf> {
    programs::of(module)
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Becomes a pod's server, or a confined process, if that is what this process was started for. Call it
/// first in `main` of every binary that uses the lab.
pub fn serve_if_pod() -> Result<()> {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some(pod_server::ARGUMENT) => {
            pod_server::serve(&arguments.next().context("a pod has a name")?)
        }
        Some(confinement::ARGUMENT) => confinement::execute(env::args_os().skip(2)),
        Some(machines::ARGUMENT) => {
            machines::inside(arguments.next().context("a machine has a file")?.as_ref())
        }
        _ => Ok(()),
    }
}
