//! A Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager, with TLS and RBAC.
//!
//! It runs in the network of the sandbox itself, on an address of its own on the management
//! bridge, which every node reaches by its second link.

mod apply;
mod credentials;
mod programs;

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

pub use self::apply::documents;
pub(crate) use self::credentials::kubelet_user;
pub use self::programs::{Programs, default_version, minor, versions};
use crate::process::{Process, Signal};
use crate::shell;

/// Where the API server logs what was asked for.
const AUDIT_LOG: &str = "audit.log";
/// The API server's port on its address.
const PORT: u16 = 6443;
/// The time between SIGTERM and SIGKILL for the API server.
const GRACE: Duration = Duration::from_secs(3);
/// The timeout of the API server's readiness.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first address of the range of Services, which is the API server's own.
const SERVICE: Ipv4Addr = Ipv4Addr::new(172, 29, 0, 1);
/// Controllers that run beside nodes that are played; the others want a cloud, kubelets, or do what no test looks at.
const CONTROLLERS: &str = "endpointslice-controller,endpointslice-mirroring-controller,\
    endpoints-controller,serviceaccount-controller,serviceaccount-token-controller,\
    root-ca-certificate-publisher-controller,garbage-collector-controller,namespace-controller";

/// The audit policy: the requests of Leasehold's service accounts, with account, verb, object and status.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: [\"system:serviceaccounts:leasehold-system\"]
  - level: None
";

/// The nodes of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Objects by hand, and pods too: no kubelet runs.
    Played,
    /// Machines with these names, each with a kubelet: all controllers run, and a scheduler.
    Machines(Vec<String>),
}

impl Nodes {
    fn machines(&self) -> &[String] {
        match self {
            Self::Played => &[],
            Self::Machines(names) => names,
        }
    }
}

/// A running control plane.
pub struct ControlPlane {
    folder: PathBuf,
    programs: Programs,
    address: Ipv4Addr,
    etcd_port: u16,
    etcd: Mutex<Option<Process>>,
    api_server: RwLock<Option<Process>>,
    nodes: Nodes,
    controllers: Mutex<Option<Process>>,
    scheduler: Mutex<Option<Process>>,
    admin: RwLock<kube::Client>,
}

async fn admin(folder: &Path) -> Result<kube::Client> {
    let config = Kubeconfig::read_from(folder.join("admin.kubeconfig"))?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

impl ControlPlane {
    /// Starts control plane number `number` (from 1) of this sandbox, of these programs and with its files in
    /// `folder`, and returns when its API server is ready.
    pub async fn start(
        folder: &Path,
        number: u8,
        nodes: Nodes,
        programs: Programs,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let address = Ipv4Addr::new(172, 31, 0, number);
        crate::management::add_address(address)?;
        credentials::write(folder, address, nodes.machines())?;
        fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        let admin = RwLock::new(admin(folder).await?);
        let plane = Self {
            folder: folder.to_owned(),
            programs,
            address,
            // Two ports each; loopback is the sandbox's own.
            etcd_port: 20_000 + 2 * u16::from(number),
            etcd: Mutex::new(None),
            api_server: RwLock::new(None),
            nodes,
            controllers: Mutex::new(None),
            scheduler: Mutex::new(None),
            admin,
        };
        plane.start_etcd()?;
        plane.start_api_server().await?;
        Ok(plane)
    }

    /// A client with all rights, for the tests themselves.
    pub fn admin(&self) -> kube::Client {
        self.admin.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives the stopped API server a certificate of another authority, which all kubeconfigs name from now on.
    /// kube-controller-manager is started anew with it.
    pub async fn rotate_authority(&self) -> Result<()> {
        credentials::rotate(&self.folder, self.address)?;
        let controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner).take();
        controllers.context("kube-controller-manager is not running")?.kill().await?;
        let admin = admin(&self.folder).await?;
        *self.admin.write().unwrap_or_else(PoisonError::into_inner) = admin;
        Ok(())
    }

    /// The API server's URL, as the nodes and this sandbox reach it.
    pub fn url(&self) -> String {
        format!("https://{}:{PORT}", self.address)
    }

    /// The API server's address and port.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::from((self.address, PORT))
    }

    /// The programs it was made of.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The requests of Leasehold's service accounts so far: one JSON object per line
    /// (`audit.k8s.io/v1`, `Event`).
    pub fn audit_log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join(AUDIT_LOG))?)
    }

    /// The file with the certificate of its authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A kubeconfig file by name: `admin` or `kube-proxy`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.kubeconfig"))
    }

    fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }

    /// Starts etcd on its data of before.
    pub fn start_etcd(&self) -> Result<()> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.etcd_port + 1);
        let mut command = Command::new(self.programs.path("etcd"));
        command
            .arg("--data-dir")
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "warn"]);
        let process = Process::spawn("etcd", &self.log("etcd"), &mut command)?;
        *self.etcd.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(())
    }

    /// Starts the API server, on the address and data of before, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let at = |file: &str| self.folder.join(file).display().to_string();
        let mut command = Command::new(self.programs.path("kube-apiserver"));
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg(format!("--bind-address={}", self.address))
            .arg(format!("--advertise-address={}", self.address))
            .arg(format!("--secure-port={PORT}"))
            .arg(format!("--tls-cert-file={}", at("api-server.crt")))
            .arg(format!("--tls-private-key-file={}", at("api-server.key")))
            .arg(format!("--token-auth-file={}", at("tokens.csv")))
            .arg(format!("--service-account-signing-key-file={}", at("service-account.key")))
            .arg(format!("--service-account-key-file={}", at("service-account.pub")))
            .arg(format!("--cert-dir={}", at("api-server")))
            .args(["--service-account-issuer=https://kubernetes.default.svc"])
            .arg(format!("--audit-policy-file={}", at("audit-policy.yaml")))
            .arg(format!("--audit-log-path={}", at(AUDIT_LOG)))
            .arg("--profiling=false")
            // No cluster of whatever number has these on a link or among its pods (`network`).
            .args(["--service-cluster-ip-range=172.29.0.0/16,fd1e:a5e:0:29::/112"]);
        match self.nodes {
            Nodes::Played => command
                .arg("--authorization-mode=RBAC")
                // Pods here are made by hand, on Nodes that no controller marks as ready.
                .arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
                // As OpenShift has it: who changes the owners of an object needs the right to delete it.
                .arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement"),
            Nodes::Machines(_) => command
                .arg("--authorization-mode=Node,RBAC")
                .arg(
                    "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
                )
                .arg("--allow-privileged=true")
                // No kube-proxy runs where it does: it calls webhooks by the addresses of pods.
                .arg("--enable-aggregator-routing=true")
                .arg(format!("--client-ca-file={}", at("ca.crt")))
                .arg(format!("--kubelet-client-certificate={}", at("kubelet-client.crt")))
                .arg(format!("--kubelet-client-key={}", at("kubelet-client.key")))
                .arg("--kubelet-preferred-address-types=InternalIP"),
        };
        let process = Process::spawn("kube-apiserver", &self.log("kube-apiserver"), &mut command)?;
        *self.api_server.write().unwrap_or_else(PoisonError::into_inner) = Some(process);
        self.await_ready().await?;
        // It gives up where no API server answers for a while.
        let running = self.controllers.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if running {
            return Ok(());
        }
        self.start_controllers()?;
        if self.nodes == Nodes::Played { Ok(()) } else { self.start_scheduler() }
    }

    /// Runs `function` on the API server's process.
    fn with_api_server<T>(&self, function: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        let server = self.api_server.read().unwrap_or_else(PoisonError::into_inner);
        function(server.as_ref().context("the API server is stopped")?)
    }

    async fn await_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let admin = self.admin();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = tokio::time::timeout(Duration::from_secs(2), admin.request_text(request));
            if matches!(answer.await, Ok(Ok(_))) {
                return Ok(());
            }
            self.with_api_server(|server| {
                if !server.alive() {
                    bail!("the API server has ended\n{}", server.tail(30));
                }
                if Instant::now() > deadline {
                    bail!("the API server is not ready\n{}", server.tail(30));
                }
                Ok(())
            })?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops the API server as a kubelet does: SIGTERM, and SIGKILL after a grace period. It stops
    /// listening at the first, and would wait a minute for open watches.
    pub async fn stop_api_server(&self) -> Result<()> {
        let server = self.take_api_server()?;
        if server.terminate(GRACE).await.is_err() {
            server.kill().await?;
        }
        Ok(())
    }

    /// SIGKILL to the API server.
    pub async fn kill_api_server(&self) -> Result<()> {
        self.take_api_server()?.kill().await
    }

    fn take_api_server(&self) -> Result<Process> {
        let server = self.api_server.write().unwrap_or_else(PoisonError::into_inner).take();
        server.context("the API server is stopped")
    }

    /// SIGSTOP: connections stay, answers stop.
    pub fn freeze_api_server(&self) -> Result<()> {
        self.with_api_server(|server| server.signal(Signal::STOP))
    }

    /// SIGCONT.
    pub fn thaw_api_server(&self) -> Result<()> {
        self.with_api_server(|server| server.signal(Signal::CONT))
    }

    /// Slows the API server down: of each `period` it stands still for `frozen`, until the value
    /// returned is dropped.
    pub fn slow_down(self: &Arc<Self>, frozen: Duration, period: Duration) -> Slowness {
        let stop = Arc::new(AtomicBool::new(false));
        let (plane, asked) = (Arc::clone(self), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                // It may have been stopped meanwhile: then it is slow enough.
                drop(plane.freeze_api_server());
                thread::sleep(frozen);
                drop(plane.thaw_api_server());
                thread::sleep(period.saturating_sub(frozen));
            }
        });
        Slowness { stop, thread: Some(thread) }
    }

    fn start_controllers(&self) -> Result<()> {
        let at = |file: &str| self.folder.join(file).display().to_string();
        let controllers = if self.nodes == Nodes::Played { CONTROLLERS } else { "*" };
        let mut command = Command::new(self.programs.path("kube-controller-manager"));
        command
            .arg(format!("--kubeconfig={}", at("kube-controller-manager.kubeconfig")))
            .arg(format!("--service-account-private-key-file={}", at("service-account.key")))
            .arg(format!("--root-ca-file={}", at("ca.crt")))
            .arg(format!("--controllers={controllers}"))
            .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"])
            .args(["--use-service-account-credentials=true"])
            .args(["--kube-api-qps=200", "--kube-api-burst=400"]);
        let log = self.log("kube-controller-manager");
        let process = Process::spawn("kube-controller-manager", &log, &mut command)?;
        *self.controllers.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(())
    }

    fn start_scheduler(&self) -> Result<()> {
        let mut command = Command::new(self.programs.path("kube-scheduler"));
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig("kube-scheduler").display()))
            .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"]);
        let log = self.log("kube-scheduler");
        let process = Process::spawn("kube-scheduler", &log, &mut command)?;
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        Ok(())
    }

    /// Server-side applies every object of a YAML text or a JSON value's list.
    pub async fn apply(&self, objects: &[serde_json::Value]) -> Result<()> {
        apply::objects(&self.admin(), objects).await
    }

    /// Server-side applies YAML files, leaving out kinds that `accept` does not want.
    pub async fn apply_folder(&self, folder: &Path, accept: impl Fn(&str) -> bool) -> Result<()> {
        apply::folder(&self.admin(), folder, accept).await
    }

    /// Deletes an object that [`ControlPlane::apply`] would apply; it may be gone already.
    pub async fn delete(&self, object: &serde_json::Value) -> Result<()> {
        apply::delete(&self.admin(), object).await
    }

    /// Writes a kubeconfig with a token of a service account, and returns its path.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        let request = serde_json::from_value(json!({
            "spec": { "audiences": [], "expirationSeconds": 24 * 3600 }
        }))?;
        let answer = accounts
            .create_token_request(name, &kube::api::PostParams::default(), &request)
            .await
            .with_context(|| format!("ask for a token of {namespace}/{name}"))?;
        let token = answer.status.context("a TokenRequest without status")?.token;
        credentials::kubeconfig(&self.folder, name, &self.url(), &token)
    }

    /// Where one of its programs is, kubectl among them.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.path(name)
    }

    /// Runs kubectl as the admin and returns what it prints.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.program("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig("admin"));
        // Its discovery cache would be written to the home folder.
        command.arg("--cache-dir").arg(self.folder.join("kubectl-cache"));
        command.args(arguments);
        shell::output(&mut command)
    }
}

/// While it lasts, the API server is slow; see [`ControlPlane::slow_down`].
#[derive(Debug)]
pub struct Slowness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Slowness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread's last act lets the server go on.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("address", &self.address).finish_non_exhaustive()
    }
}
