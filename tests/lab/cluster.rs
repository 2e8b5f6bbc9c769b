//! A cluster: the nodes, the client and the services of one test, on a network of their own.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod as PodObject, Service as ServiceObject};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use pnet_base::MacAddr;
use serde_json::{Value, json};

use crate::Lab;
use crate::client::Client;
use crate::network::{Direction, Network, Plan};
use crate::node::{Blueprint, CLUSTER_LABEL, Node, ProxyMode, SpeakerOptions};
use crate::service::{Service, ServicePlan};
use crate::waiting;

/// The plan of a cluster; see [`Lab::cluster`].
#[derive(Debug)]
pub struct ClusterPlan {
    lab: Arc<Lab>,
    name: String,
    namespace: String,
    prefix: String,
    nodes: u8,
    workers: u8,
    proxy: ProxyMode,
    proxies: bool,
    start_speakers: bool,
    policy: Value,
}

impl ClusterPlan {
    pub(crate) fn new(lab: Arc<Lab>, name: &str) -> Self {
        Self {
            lab,
            name: name.to_owned(),
            namespace: name.to_owned(),
            prefix: format!("{name}-"),
            nodes: 3,
            workers: 1,
            proxy: ProxyMode::Nftables,
            proxies: true,
            start_speakers: true,
            policy: json!({}),
        }
    }

    /// Sets the number of nodes with a speaker (3).
    #[must_use]
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the number of nodes without one (1). Pods run on these, unless a service says otherwise: when a
    /// node dies, what is measured is its addresses and not its pods.
    #[must_use]
    pub fn workers(mut self, workers: u8) -> Self {
        self.workers = workers;
        self
    }

    /// The mode of its kube-proxies (nftables).
    #[must_use]
    pub fn proxy_mode(mut self, mode: ProxyMode) -> Self {
        self.proxy = mode;
        self
    }

    /// Starts no kube-proxy: for Services by the thousand, to which nobody connects.
    #[must_use]
    pub fn without_proxies(mut self) -> Self {
        self.proxies = false;
        self
    }

    /// Further fields for the `spec` of its policy ([`Cluster::policy`]): `{"onApiOutage": "Drop"}`.
    #[must_use]
    pub fn policy_fields(mut self, fields: Value) -> Self {
        self.policy = fields;
        self
    }

    /// Leaves the speakers to be started by [`Node::start_speaker`].
    #[must_use]
    pub fn without_speakers(mut self) -> Self {
        self.start_speakers = false;
        self
    }

    /// Another Kubernetes namespace for the services than the cluster's name.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Node names without the cluster's name: for a lab with one cluster.
    #[must_use]
    pub fn plain_names(mut self) -> Self {
        self.prefix.clear();
        self
    }

    /// Makes it: returns when the nodes exist and, unless told otherwise, the speakers are started.
    pub async fn start(self) -> Result<Cluster> {
        let network = Arc::new(Network::create()?);
        let folder = self.lab.folder().join(&self.name);
        fs::create_dir_all(&folder)?;
        self.lab
            .apply(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace },
            }))
            .await?;
        let total = self.nodes.saturating_add(self.workers);
        let made = (1..=total).map(|number| {
            let speaks = number <= self.nodes;
            let (role, index) =
                if speaks { ("node", number) } else { ("worker", number - self.nodes) };
            let blueprint = Blueprint {
                name: format!("{}{role}-{index}", self.prefix),
                cluster: &self.name,
                number,
                nodes: total,
                folder: &folder,
                proxy: self.proxy,
                start_proxy: self.proxies,
                speaker: speaks.then(SpeakerOptions::default),
            };
            Node::create(blueprint, Arc::clone(&network), Arc::clone(self.lab.plane()))
        });
        let mut nodes = try_join_all(made).await?;
        let workers = nodes.split_off(usize::from(self.nodes));
        let client = Client::create(&self.prefix, &network)?;
        let cluster = Cluster {
            name: self.name,
            namespace: self.namespace,
            policy: self.policy,
            nodes,
            workers,
            client,
            network,
            lab: self.lab,
        };
        if self.start_speakers {
            for node in &cluster.nodes {
                node.start_speaker()?;
            }
        }
        Ok(cluster)
    }
}

/// A running cluster; its objects in the API and its network go away with it.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    namespace: String,
    policy: Value,
    nodes: Vec<Node>,
    workers: Vec<Node>,
    client: Client,
    network: Arc<Network>,
    lab: Arc<Lab>,
}

impl Cluster {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Kubernetes namespace of its services.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The lab that it is in.
    pub fn lab(&self) -> &Arc<Lab> {
        &self.lab
    }

    /// The nodes with a speaker.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this index, from 0.
    ///
    /// # Panics
    /// If there is none.
    #[expect(clippy::indexing_slicing, reason = "a test that asks for a missing node is wrong")]
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The nodes without a speaker.
    pub fn workers(&self) -> &[Node] {
        &self.workers
    }

    /// A node by its name.
    pub fn node_named(&self, name: &str) -> Result<&Node> {
        let mut all = self.nodes.iter().chain(&self.workers);
        all.find(|node| node.name() == name).with_context(|| format!("there is no node {name}"))
    }

    /// The hosts on the clients' segment.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The addresses of its network.
    pub fn addresses(&self) -> Plan {
        self.network.plan()
    }

    /// The node with this MAC address on the clients' segment.
    pub fn node_with_mac(&self, mac: MacAddr) -> Option<&Node> {
        self.nodes.iter().chain(&self.workers).find(|node| node.mac() == mac.to_string())
    }

    /// The node that forwarded, by the peer that the pod saw.
    pub fn forwarder(&self, via: Option<IpAddr>) -> Option<&Node> {
        let number = self.network.plan().forwarder(via?)?;
        self.nodes.iter().chain(&self.workers).find(|node| node.number() == number)
    }

    /// Plans a Service with pods; see [`ServicePlan`].
    pub fn service(&self, name: &str) -> ServicePlan<'_> {
        ServicePlan::new(self, name)
    }

    /// Applies an `IPAddressPool` named after the cluster with its VIPs `from` to `to` (0 to 99) of
    /// both families. It is not for automatic assignment, so that clusters of one lab do not take
    /// each other's addresses: services ask for theirs by annotation ([`ServicePlan::vip`]).
    pub async fn pool(&self, from: u8, to: u8) -> Result<()> {
        let (first_v4, first_v6) = self.network.plan().vip(from);
        let (last_v4, last_v6) = self.network.plan().vip(to);
        self.lab
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1",
                "kind": "IPAddressPool",
                "metadata": { "name": self.name },
                "spec": {
                    "addresses": [
                        format!("{first_v4}-{last_v4}"),
                        format!("{first_v6}-{last_v6}"),
                    ],
                    "autoAssign": false,
                },
            }))
            .await
    }

    /// Applies an `AnnouncementPolicy` named after the cluster: its services, from its nodes.
    pub async fn policy(&self) -> Result<()> {
        self.policy_with(self.policy.clone()).await
    }

    /// The same with these further fields in its `spec`.
    pub async fn policy_with(&self, fields: Value) -> Result<()> {
        let own = json!([{ "matchLabels": { CLUSTER_LABEL: self.name } }]);
        // A cordon is the shortest way to have addresses move.
        let mut spec =
            json!({ "serviceSelectors": own, "nodeSelectors": own, "drainOnCordon": true });
        if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
            spec.extend(fields);
        }
        self.lab
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1",
                "kind": "AnnouncementPolicy",
                "metadata": { "name": self.name },
                "spec": spec,
            }))
            .await
    }

    /// The claim lease of a service: the one on record, or where there is none, the one named after it.
    pub async fn claim(&self, service: &Service) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), crate::SYSTEM_NAMESPACE);
        let recorded = service.recorded_claim().await?;
        Ok(leases.get_opt(&recorded.unwrap_or_else(|| service.claim())).await?)
    }

    /// The session lease of a node.
    pub async fn session(&self, node: &str) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), crate::SESSION_NAMESPACE);
        Ok(leases.get_opt(node).await?)
    }

    /// The holder that the service's claim names.
    pub async fn owner(&self, service: &Service) -> Result<Option<String>> {
        let holder = self.claim(service).await?.and_then(|l| l.spec?.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    }

    /// Waits until the service has an address that is held and answers, and returns the address
    /// (IPv4 if it has one) and the owner.
    pub async fn ready(&self, service: &Service) -> Result<(IpAddr, &Node)> {
        let mut found = None;
        let what = format!("{} has an address, an owner that has it, and answers", service.name());
        self.eventually(&what, Duration::from_secs(60), async || {
            let Some(&vip) = service.addresses().await?.first() else { return Ok(false) };
            let Some(owner) = self.owner(service).await? else { return Ok(false) };
            let owner = self.node_named(&owner)?;
            let held = owner.has_address(vip)?.is_some();
            if held && service.answers(self, vip)? {
                found = Some((vip, owner.name().to_owned()));
            }
            Ok(found.is_some())
        })
        .await?;
        let (vip, owner) = found.ok_or_else(|| anyhow!("{what}"))?;
        Ok((vip, self.node_named(&owner)?))
    }

    /// Which nodes' kernels have an address.
    pub fn holders(&self, vip: IpAddr) -> Result<Vec<&Node>> {
        let mut holders = Vec::new();
        for node in self.nodes.iter().chain(&self.workers) {
            if node.has_address(vip)?.is_some() {
                holders.push(node);
            }
        }
        Ok(holders)
    }

    // === faults of several nodes ===

    /// As [`Host::dies`](crate::host::Host::dies), for several nodes in the same instant.
    pub fn die_together(&self, nodes: &[&Node]) -> Result<()> {
        let ports: Vec<_> = nodes.iter().flat_map(|node| node.ports()).collect();
        self.network.cut(&ports, &[Direction::FromHost, Direction::ToHost])
    }

    /// Parts the clients' segment: these nodes on one half, all other hosts on the other.
    pub fn part_segment(&self, nodes: &[&Node]) -> Result<()> {
        let all = self.nodes.iter().chain(&self.workers);
        let inside = |node: &Node| nodes.iter().any(|other| other.name() == node.name());
        let (here, there): (Vec<_>, Vec<_>) = all.partition(|node| inside(node));
        let here: Vec<_> = here.into_iter().map(|node| node.clients_port()).collect();
        let there = there.into_iter().map(|node| node.clients_port());
        let there: Vec<_> = there.chain(self.client.ports()).collect();
        self.network.part(&here, &there)
    }

    /// Joins the halves of [`Self::part_segment`].
    pub fn join_segment(&self) -> Result<()> {
        self.network.join()
    }

    /// Sets port isolation among all nodes on the clients' segment: they still reach router, client
    /// and observer, and not each other.
    pub fn isolate_nodes(&self, on: bool) -> Result<()> {
        let ports = self.nodes.iter().chain(&self.workers).map(|node| node.clients_port());
        self.network.isolate(&ports.collect::<Vec<_>>(), on)
    }

    /// Waits for a condition; when it does not come, the error says which and shows the leases,
    /// the addresses and the last lines of the logs.
    pub async fn eventually(
        &self,
        what: &str,
        patience: Duration,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        waiting::eventually(what, patience, condition, async || self.dump().await).await
    }

    /// The state of the cluster, for a failed test.
    pub async fn dump(&self) -> String {
        let mut text = self.lab.dump().await;
        for node in &self.nodes {
            text.push_str(&node.dump());
        }
        text
    }

    /// The first address of each family of an IPv4 VIP's number, as text for annotations.
    pub(crate) fn vip_text(&self, number: u8, families: &[&str]) -> String {
        let (v4, v6) = self.network.plan().vip(number);
        let all: BTreeMap<&str, IpAddr> =
            [("IPv4", v4.into()), ("IPv6", v6.into())].into_iter().collect();
        let texts = families.iter().filter_map(|family| all.get(family)).map(IpAddr::to_string);
        texts.collect::<Vec<_>>().join(",")
    }

    /// An IPv4 address on the clients' segment that nobody has.
    pub fn stranger(&self) -> Ipv4Addr {
        self.network.plan().client_v4(250)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let client = self.lab.admin();
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        // Best effort, for the other tests' sake: the API server goes with the sandbox.
        runtime.spawn(async move {
            let own = ListParams::default().labels(&format!("{CLUSTER_LABEL}={name}"));
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let nodes: Api<NodeObject> = Api::all(client.clone());
            drop(nodes.delete_collection(&now, &own).await);
            let services: Api<ServiceObject> = Api::namespaced(client.clone(), &namespace);
            for service in services.list(&own).await.into_iter().flatten() {
                drop(services.delete(&service.name_any(), &now).await);
            }
            let pods: Api<PodObject> = Api::namespaced(client, &namespace);
            drop(pods.delete_collection(&now, &own).await);
        });
    }
}
