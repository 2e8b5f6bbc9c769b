//! A cluster of machines: control plane, scheduler, and nodes with kubelet, containerd, kube-proxy and pods.
//!
//! A machine is one process tree in namespaces of its own (network, mounts, PIDs, UTS, IPC, control groups). One
//! signal ends it all, as a power cut does, and its cables are cut at the bridges. Images are imported: there is no
//! registry.

mod checks;
mod config;
mod ground;
mod images;
mod inside;
mod logind;
mod machine;
mod web;

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod as PodObject, Service as ServiceObject};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

pub use self::ground::{Ground, NAMESPACE, WEB};
use self::images::Images;
pub(crate) use self::inside::{ARGUMENT, run as inside};
use self::machine::Shared;
pub use self::machine::{Machine, Program};
pub use self::web::{AGNHOST, web};
use crate::client::Client;
use crate::controlplane::{Nodes, Programs};
use crate::network::{Network, Plan};
use crate::node::ProxyMode;
use crate::{Lab, SESSION_NAMESPACE, SYSTEM_NAMESPACE, programs, repository, waiting};

/// The timeout of what a cluster has to do by itself.
const PATIENCE: Duration = Duration::from_secs(180);
/// Where kubelets renew their leases.
const NODE_LEASES: &str = "kube-node-lease";
/// The number of machines that are turned on at first.
const AT_FIRST: u8 = 3;
/// The most machines of a cluster: kubelets have their credentials, and others their routes, from the start.
const MOST: u8 = 9;

/// The plan of a cluster of machines.
#[derive(Clone, Debug)]
pub struct MachinesPlan {
    name: String,
    prefix: String,
    images: Vec<String>,
    kubernetes: Option<String>,
    proxy: ProxyMode,
    logind: bool,
}

impl MachinesPlan {
    /// Three machines, whose names begin with that of the cluster.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            prefix: format!("{name}-"),
            images: Vec::new(),
            kubernetes: None,
            proxy: ProxyMode::Nftables,
            logind: false,
        }
    }

    /// Imports the images of another system, too: a folder of `tests` that `tests/images/build` knows.
    #[must_use]
    pub fn images(mut self, system: &str) -> Self {
        self.images.push(system.to_owned());
        self
    }

    /// Another minor version of Kubernetes, one of [`versions`](crate::controlplane::versions).
    #[must_use]
    pub fn kubernetes(mut self, minor: &str) -> Self {
        self.kubernetes = Some(minor.to_owned());
        self
    }

    /// The mode of its kube-proxies (nftables).
    #[must_use]
    pub fn proxy_mode(mut self, mode: ProxyMode) -> Self {
        self.proxy = mode;
        self
    }

    /// Runs a logind on each machine, by which its kubelet learns of a shutdown: it ends its pods first.
    #[must_use]
    pub fn logind(mut self) -> Self {
        self.logind = true;
        self
    }

    /// Names without the cluster's: for a sandbox with one cluster.
    #[must_use]
    pub fn plain_names(mut self) -> Self {
        self.prefix.clear();
        self
    }

    /// Starts the control plane and the machines; returns when each Node is ready.
    pub async fn start(self) -> Result<Machines> {
        let names: Vec<_> = (1..=MOST).map(|it| format!("{}node-{it}", self.prefix)).collect();
        let programs = self.kubernetes.as_deref().map(Programs::of_version);
        let programs = programs.unwrap_or_else(Programs::locate)?;
        let lab = Lab::bare_with(Nodes::Machines(names.clone()), programs).await?;
        let network = Arc::new(Network::create()?);
        let folder = lab.folder().join(&self.name);
        fs::create_dir_all(&folder)?;
        let client = Client::create(&self.prefix, &network)?;
        let shared = Arc::new(Shared {
            plane: Arc::clone(lab.plane()),
            network,
            containerd: programs::of("containerd")?,
            logind: self.logind.then(|| programs::of("elogind")).transpose()?,
            images: Images::collect(&folder, &self.images)?,
            folder,
            proxy: self.proxy,
            most: MOST,
        });
        let machines = names.into_iter().zip(1..);
        let machines = machines.map(|(name, it)| Machine::new(name, it, Arc::clone(&shared)));
        let machines = Machines { all: machines.collect(), client, shared, lab };
        let first: Vec<_> = machines.all.iter().take(usize::from(AT_FIRST)).collect();
        try_join_all(first.iter().map(|machine| machine.power_on())).await?;
        for machine in first {
            machines.node_ready(machine).await?;
        }
        Ok(machines)
    }
}

/// A running cluster of machines.
#[derive(Debug)]
pub struct Machines {
    // Turned off before the control plane ends.
    all: Vec<Machine>,
    client: Client,
    shared: Arc<Shared>,
    lab: Arc<Lab>,
}

impl Machines {
    /// Its control plane.
    pub fn lab(&self) -> &Arc<Lab> {
        &self.lab
    }

    /// The hosts on the clients' segment.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The addresses of its network.
    pub fn addresses(&self) -> Plan {
        self.shared.network.plan()
    }

    /// The folder of containerd's programs, `ctr` among them.
    pub fn programs(&self) -> String {
        self.shared.containerd.display().to_string()
    }

    /// The machines that are on.
    pub fn on(&self) -> impl Iterator<Item = &Machine> {
        self.all.iter().filter(|machine| machine.is_on())
    }

    /// All machines; those that were never turned on are no Nodes.
    pub fn all(&self) -> &[Machine] {
        &self.all
    }

    /// A machine by its name.
    pub fn named(&self, name: &str) -> Result<&Machine> {
        let found = self.all.iter().find(|machine| machine.name() == name);
        found.with_context(|| format!("there is no machine {name}"))
    }

    /// Runs kubectl as the admin and returns what it prints.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.lab.plane().kubectl(arguments)
    }

    /// Applies the cluster's DNS (`tests/coredns`).
    pub fn dns(&self) -> Result<()> {
        let file = repository().join("tests/coredns/coredns.yaml");
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]).map(|_| ())
    }

    /// Has `NetworkPolicies` enforced by kube-router (`tests/kube-router`), whose image was planned.
    pub async fn network_policies(&self) -> Result<()> {
        let file = repository().join("tests/kube-router/kube-router.yaml");
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()])?;
        self.rolled_out("kube-system", "kube-router").await
    }

    /// Installs Leasehold as its users do: `kubectl apply -k deploy`; returns when all of its pods are ready.
    pub async fn install(&self) -> Result<()> {
        let folder = repository().join("deploy");
        self.kubectl(&["apply", "-k", &folder.to_string_lossy()])?;
        self.installed().await
    }

    /// Replaces all pods of Leasehold, as an upgrade does; returns when the new ones are ready.
    pub async fn roll_out(&self) -> Result<()> {
        for what in ["daemonset/leasehold-speaker", "deployment/leasehold-operator"] {
            self.kubectl(&["rollout", "restart", "-n", SYSTEM_NAMESPACE, what])?;
        }
        self.installed().await
    }

    /// Waits until all pods of Leasehold are ready.
    pub async fn installed(&self) -> Result<()> {
        self.rolled_out(SYSTEM_NAMESPACE, "leasehold-speaker").await?;
        self.deployed(SYSTEM_NAMESPACE, "leasehold-operator").await
    }

    /// Applies an `IPAddressPool` with 50 addresses of each family on the clients' segment.
    pub async fn pool(&self) -> Result<()> {
        let ((from_v4, from_v6), (to_v4, to_v6)) =
            (self.addresses().vip(0), self.addresses().vip(49));
        let addresses = [format!("{from_v4}-{to_v4}"), format!("{from_v6}-{to_v6}")];
        self.lab
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1",
                "kind": "IPAddressPool",
                "metadata": { "name": "default" },
                "spec": { "addresses": addresses },
            }))
            .await
    }

    /// Waits until the Node of a machine is ready, and its kubelet has said so since.
    pub async fn node_ready(&self, machine: &Machine) -> Result<()> {
        let since = Timestamp::now();
        let what = format!("the Node {} is ready", machine.name());
        self.eventually(&what, async || {
            let renewed = self.renewed(NODE_LEASES, machine.name(), since).await?;
            Ok(renewed && self.is_ready(machine.name()).await?)
        })
        .await
    }

    /// Waits until the speaker of a machine has renewed its session since.
    pub async fn speaks(&self, machine: &Machine) -> Result<()> {
        let since = Timestamp::now();
        let what = format!("the speaker of {} renews its session", machine.name());
        self.eventually(&what, async || {
            self.renewed(SESSION_NAMESPACE, machine.name(), since).await
        })
        .await
    }

    /// Whether a lease with a holder was renewed since then: all clocks are this host's.
    async fn renewed(&self, namespace: &str, name: &str, since: Timestamp) -> Result<bool> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), namespace);
        let spec = leases.get_opt(name).await?.and_then(|lease| lease.spec).unwrap_or_default();
        let held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
        Ok(held && spec.renew_time.is_some_and(|renewed| renewed.0 > since))
    }

    /// Whether a Node is ready.
    pub async fn is_ready(&self, node: &str) -> Result<bool> {
        let nodes: Api<NodeObject> = Api::all(self.lab.admin());
        let Some(node) = nodes.get_opt(node).await? else { return Ok(false) };
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
    }

    /// The pods with a label in a namespace.
    pub async fn pods(&self, namespace: &str, label: &str) -> Result<Vec<PodObject>> {
        let pods: Api<PodObject> = Api::namespaced(self.lab.admin(), namespace);
        Ok(pods.list(&ListParams::default().labels(label)).await?.items)
    }

    /// Waits until a Deployment has all of its pods.
    pub async fn deployed(&self, namespace: &str, name: &str) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.lab.admin(), namespace);
        self.eventually(&format!("the pods of {name} are ready"), async || {
            let deployment = deployments.get(name).await?;
            let status = deployment.status.unwrap_or_default();
            let wanted = deployment.spec.and_then(|spec| spec.replicas);
            Ok(status.observed_generation == deployment.metadata.generation
                && status.ready_replicas == wanted
                && status.replicas == wanted
                && status.updated_replicas == wanted)
        })
        .await
    }

    /// Waits until a `DaemonSet` has a ready pod on each node that it wants.
    pub async fn rolled_out(&self, namespace: &str, name: &str) -> Result<()> {
        let sets: Api<DaemonSet> = Api::namespaced(self.lab.admin(), namespace);
        self.eventually(&format!("the pods of {name} are ready"), async || {
            let set = sets.get(name).await?;
            let status = set.status.unwrap_or_default();
            let all = status.desired_number_scheduled;
            Ok(status.observed_generation == set.metadata.generation
                && all > 0
                && status.number_ready == all
                && status.updated_number_scheduled == Some(all))
        })
        .await
    }

    /// The addresses of a Service.
    pub async fn service_addresses(&self, namespace: &str, name: &str) -> Result<Vec<IpAddr>> {
        let services: Api<ServiceObject> = Api::namespaced(self.lab.admin(), namespace);
        let status = services.get(name).await?.status.unwrap_or_default();
        let ingress = status.load_balancer.and_then(|balancer| balancer.ingress);
        let addresses = ingress.into_iter().flatten().filter_map(|ingress| ingress.ip);
        addresses.map(|ip| Ok(ip.parse()?)).collect()
    }

    /// The holder of the claim of a Service.
    pub async fn owner(&self, namespace: &str, name: &str) -> Result<Option<&Machine>> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), SYSTEM_NAMESPACE);
        let lease = leases.get_opt(&format!("{namespace}.{name}")).await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        holder.filter(|it| !it.is_empty()).map(|it| self.named(&it)).transpose()
    }

    /// Waits until a Service has an address that its owner's kernel has too, and a pod answers by it.
    pub async fn served(&self, namespace: &str, name: &str) -> Result<(IpAddr, &Machine)> {
        let mut found = None;
        let what = format!("{namespace}/{name} has an address, an owner that has it, and answers");
        self.eventually(&what, async || {
            let Some(&vip) = self.service_addresses(namespace, name).await?.first() else {
                return Ok(false);
            };
            let Some(owner) = self.owner(namespace, name).await? else { return Ok(false) };
            if owner.has_address(vip)? && self.client.get(vip, 80, "/hostname").is_ok() {
                found = Some((vip, owner));
            }
            Ok(found.is_some())
        })
        .await?;
        found.context(what)
    }

    /// The machines whose kernels have an address.
    pub fn holders(&self, vip: IpAddr) -> Result<Vec<&str>> {
        let mut holders = Vec::new();
        for machine in &self.all {
            if machine.has_address(vip)? {
                holders.push(machine.name());
            }
        }
        Ok(holders)
    }

    /// Waits for a condition; when it does not come, the error says which and shows leases, pods, addresses and the
    /// last lines of the logs.
    pub async fn eventually(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        waiting::eventually(what, PATIENCE, condition, async || self.dump().await).await
    }

    /// The state of the cluster, for a failed test.
    pub async fn dump(&self) -> String {
        let mut text = self.lab.dump().await;
        for what in [["get", "nodes", "-o", "wide"], ["get", "pods", "-A", "-o=wide"]] {
            text.push_str(&self.kubectl(&what).unwrap_or_else(|error| format!("{error:#}\n")));
        }
        text.extend(self.all.iter().filter(|it| it.is_on()).map(Machine::dump));
        text
    }
}
