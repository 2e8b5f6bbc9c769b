//! The real Prometheus: it finds speakers and operator as pods, scrapes them, and evaluates the alerts that
//! are shipped.
//!
//! It runs in the network of the sandbox, beside the API server: the nodes are reached by their second
//! link, like pods of a `DaemonSet` with the host's network by their nodes' addresses. As nothing makes
//! pods of the lab's speakers, the pods are written here, from the templates in `deploy/base`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::controlplane::documents;
use crate::process::Process;
use crate::{SYSTEM_NAMESPACE, metrics, programs, repository, shell, waiting};

/// From one scrape, and one look at the alerts, to the next: what the test waits for anyway.
const INTERVAL: &str = "1s";
/// The service account by which it finds pods.
const ACCOUNT: &str = "prometheus";
/// The timeout of its start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prometheus and promtool.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Finds them, and builds them if this user has not got them yet (`tests/prometheus/build`).
    pub fn locate() -> Result<Self> {
        Ok(Self { folder: programs::of("prometheus")? })
    }

    /// Runs promtool in a folder; its failure carries what it printed.
    pub fn promtool(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.folder.join("promtool"));
        let output = command.current_dir(folder).args(arguments).stdin(Stdio::null()).output()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(output.status.success(), "promtool {arguments:?}: {}\n{text}", output.status);
        Ok(text.into_owned())
    }

    /// Runs promtool's lint on what a process serves at `/metrics`.
    pub fn lint(&self, exposition: &str) -> Result<()> {
        let mut command = Command::new(self.folder.join("promtool"));
        shell::feed(command.args(["check", "metrics"]), exposition)
    }
}

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    server: SocketAddr,
}

impl Prometheus {
    /// Starts one for a cluster whose operator runs, with the shipped configuration: `scrape.yaml` and
    /// `alerts.yaml` of `deploy/monitoring`. To the former the kubeconfig is added by which a process
    /// outside of pods reaches the API server.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let programs = Programs::locate()?;
        let folder = cluster.lab().folder().join(format!("prometheus-{}", cluster.name()));
        fs::create_dir_all(&folder)?;
        pods(cluster).await?;
        let kubeconfig = account(cluster).await?;
        let shipped = repository().join("deploy/monitoring");
        let scrape = scrape_configs(&shipped.join("scrape.yaml"), &kubeconfig)?;
        let config = json!({
            "global": {
                "scrape_interval": INTERVAL,
                "scrape_timeout": INTERVAL,
                "evaluation_interval": INTERVAL,
            },
            "rule_files": [shipped.join("alerts.yaml")],
            "scrape_configs": scrape,
        });
        fs::write(folder.join("prometheus.yml"), serde_yaml_ng::to_string(&config)?)?;
        programs.promtool(&folder, &["check", "config", "prometheus.yml"])?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = Command::new(programs.folder.join("prometheus"));
        command
            .current_dir(&folder)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={server}"));
        let process = Process::spawn("Prometheus", &folder.join("prometheus.log"), &mut command)?;
        let prometheus = Self { process, server };
        let ready = async || Ok(metrics::get_here(server, "/-/ready").is_ok());
        let dump = async || prometheus.dump();
        waiting::eventually("Prometheus is ready", PATIENCE, ready, dump).await?;
        Ok(prometheus)
    }

    fn get(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&metrics::get_here(self.server, path)?)?;
        ensure!(answer.get("status") == Some(&json!("success")), "GET {path}: {answer}");
        answer.get("data").cloned().with_context(|| format!("GET {path}: no data"))
    }

    /// The series that an expression has now, each with `metric` (its labels) and `value`.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let data = self.get(&format!("/api/v1/query?query={}", encoded(expression)))?;
        let result = data.get("result").and_then(Value::as_array);
        result.cloned().with_context(|| format!("{expression} is no vector: {data}"))
    }

    /// The active targets, each with `labels`, `health` and `lastError`.
    pub fn targets(&self) -> Result<Vec<Value>> {
        let data = self.get("/api/v1/targets?state=active")?;
        let targets = data.get("activeTargets").and_then(Value::as_array);
        targets.cloned().with_context(|| format!("no targets: {data}"))
    }

    /// The alerts of a name that fire, each with `labels` and `annotations`, as an on-call sees them.
    pub fn firing(&self, name: &str) -> Result<Vec<Value>> {
        let data = self.get("/api/v1/alerts")?;
        let alerts = data.get("alerts").and_then(Value::as_array);
        let mut alerts = alerts.cloned().with_context(|| format!("no alerts: {data}"))?;
        alerts.retain(|alert| {
            alert.pointer("/labels/alertname") == Some(&json!(name))
                && alert.get("state") == Some(&json!("firing"))
        });
        Ok(alerts)
    }

    /// The state of Prometheus, for a failed test.
    pub fn dump(&self) -> String {
        let mut text = self.process.tail(20);
        for path in ["/api/v1/alerts", "/api/v1/targets?state=active"] {
            let answer = metrics::get_here(self.server, path);
            text += &answer.unwrap_or_else(|error| format!("{error:#}"));
            text.push('\n');
        }
        text
    }
}

/// The shipped scrape configurations, with a kubeconfig.
fn scrape_configs(path: &Path, kubeconfig: &Path) -> Result<Value> {
    let mut shipped: Value = serde_yaml_ng::from_str(&fs::read_to_string(path)?)?;
    let configs = shipped.get_mut("scrape_configs").context("no scrape_configs")?;
    for config in configs.as_array_mut().into_iter().flatten() {
        let discoveries = config.get_mut("kubernetes_sd_configs").and_then(Value::as_array_mut);
        for discovery in discoveries.context("no kubernetes_sd_configs")? {
            let discovery = discovery.as_object_mut().context("no object")?;
            discovery.insert("kubeconfig_file".to_owned(), json!(kubeconfig));
        }
    }
    Ok(configs.clone())
}

/// A service account with the right that a Prometheus needs, and its kubeconfig.
async fn account(cluster: &Cluster) -> Result<PathBuf> {
    let meta = json!({ "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE });
    let plane = cluster.lab().plane();
    plane
        .apply(&[
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
                "rules": [{
                    "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"],
                }],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT,
                },
                "subjects": [{
                    "kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM_NAMESPACE,
                }],
            }),
        ])
        .await?;
    plane.service_account(SYSTEM_NAMESPACE, ACCOUNT).await
}

/// Writes the pods of the cluster's speakers and of the operator.
async fn pods(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        let name = format!("leasehold-speaker-{}", node.name());
        pod(cluster, "speaker.yaml", &name, node.name(), node.speaker_socket()).await?;
    }
    let operator = cluster.lab().operator()?.socket();
    let node = cluster.workers().first().context("no worker")?.name();
    pod(cluster, "operator.yaml", "leasehold-operator-1", node, operator).await
}

/// Writes one pod of a `DaemonSet` or `Deployment` of `deploy/base`, as running at an address and port.
async fn pod(
    cluster: &Cluster,
    file: &str,
    name: &str,
    node: &str,
    socket: SocketAddr,
) -> Result<()> {
    let text = fs::read_to_string(repository().join("deploy/base").join(file))?;
    let owner = documents(&text)?.into_iter().next().context("an empty file")?;
    let labels = owner.pointer("/spec/template/metadata/labels").context("no labels")?;
    let mut ports = owner.pointer("/spec/template/spec/containers/0/ports").cloned();
    let port = ports.as_mut().and_then(|ports| ports.pointer_mut("/0/containerPort"));
    *port.context("no port")? = json!(socket.port());
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "leasehold", "image": "leasehold-lab", "ports": ports }],
        },
    });
    cluster.lab().apply(object).await?;
    let now = Timestamp::now().to_string();
    let status = json!({
        "status": {
            "phase": "Running",
            "podIP": socket.ip(),
            "podIPs": [{ "ip": socket.ip() }],
            "startTime": now,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(cluster.lab().admin(), SYSTEM_NAMESPACE);
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A text as the value of a parameter in a URL (RFC 3986, section 2.1).
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}
