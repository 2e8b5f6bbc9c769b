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
//! | [`node`] | nodes with kube-proxy, pods and speaker, and their faults |
//! | [`browser`] | headless Chromium |
//! | [`operator`] | the operator's process |
//! | [`plugin`] | `kubectl leasehold`, as the admin |
//! | [`prometheus`] | Prometheus, which scrapes speakers and operator, and promtool |
//! | [`cluster`] | nodes and a client of one test; services |
//! | [`client`] | probes and their reports |
//! | [`hogs`] | busy cores |
//! | [`wall_clock`] | a process's wall clock, set back and forward |
//! | [`harness`] | async tests under the usual test arguments |

// The lab measures what a user feels and decides nothing; and its threads are its own.
#![allow(clippy::disallowed_methods, reason = "clocks and sleeps of an observer")]

pub mod binaries;
pub mod browser;
pub mod client;
pub mod cluster;
pub mod controlplane;
pub mod harness;
pub mod hogs;
mod management;
pub mod metrics;
pub mod namespace;
pub mod network;
pub mod node;
pub mod operator;
pub mod plugin;
pub mod pod_server;
pub mod process;
pub mod prometheus;
pub mod sandbox;
pub mod service;
mod shell;
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

pub use crate::client::{Client, Owners, Report, Sweep, Track};
pub use crate::cluster::{Cluster, ClusterPlan};
use crate::controlplane::ControlPlane;
pub use crate::network::Direction;
pub use crate::node::{Node, ProxyMode, SpeakerOptions};
use crate::operator::Operator;
pub use crate::service::Service;
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
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = sandbox::scratch()?.join(format!("lab-{number}"));
        fs::create_dir_all(&folder)?;
        let plane = ControlPlane::start(&folder.join("control-plane"), number).await?;
        let root = repository();
        plane.apply_folder(&root.join("crds/generated"), |_| true).await?;
        let base = root.join("deploy/base");
        plane.apply_folder(&base, |kind| !NOT_APPLIED.contains(&kind)).await?;
        for account in [SPEAKER_ACCOUNT, OPERATOR_ACCOUNT] {
            plane.service_account(SYSTEM_NAMESPACE, account).await?;
        }
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
        // Two at once would be another test; the old one ends first.
        self.operator_slot().take();
        let kubeconfig = self.plane.kubeconfig(OPERATOR_ACCOUNT);
        let operator = Operator::start(&self.folder, "operator", &kubeconfig, arguments)?;
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

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Becomes a pod's server if that is what this process was started for. Call it first in `main` of
/// every binary that uses the lab.
pub fn serve_if_pod() -> Result<()> {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() == Some(pod_server::ARGUMENT) {
        pod_server::serve(&arguments.next().context("a pod has a name")?)?;
    }
    Ok(())
}
