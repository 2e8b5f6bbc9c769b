//! Services of `type: LoadBalancer`, with pods behind them.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::node::{CLUSTER_LABEL, Node, Pod};
use crate::pod_server;

/// The load balancer class that is Leasehold's.
pub const CLASS: &str = "leasehold.dev/lease";
/// The annotation by which a service asks for addresses.
pub const ADDRESSES: &str = "leasehold.dev/addresses";
/// The annotation by which the operator records the claim.
const CLAIM: &str = "leasehold.dev/claim";

/// The plan of a Service; see [`Cluster::service`].
#[derive(Debug)]
pub struct ServicePlan<'a> {
    cluster: &'a Cluster,
    name: String,
    app: String,
    class: Option<String>,
    families: Vec<&'static str>,
    tcp: Option<u16>,
    udp: Option<u16>,
    local: bool,
    node_ports: bool,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    pods: usize,
    pod_nodes: Vec<String>,
}

impl<'a> ServicePlan<'a> {
    pub(crate) fn new(cluster: &'a Cluster, name: &str) -> Self {
        let mut labels = Map::new();
        labels.insert(CLUSTER_LABEL.to_owned(), json!(cluster.name()));
        Self {
            cluster,
            name: name.to_owned(),
            app: name.to_owned(),
            class: Some(CLASS.to_owned()),
            families: vec!["IPv4"],
            tcp: Some(80),
            udp: Some(5005),
            local: false,
            node_ports: true,
            annotations: Map::new(),
            labels,
            pods: 1,
            pod_nodes: Vec::new(),
        }
    }

    /// The port for HTTP (80).
    #[must_use]
    pub fn tcp(mut self, port: u16) -> Self {
        self.tcp = Some(port);
        self
    }

    /// The port for datagrams (5005).
    #[must_use]
    pub fn udp(mut self, port: u16) -> Self {
        self.udp = Some(port);
        self
    }

    /// Another load balancer class, or none.
    #[must_use]
    pub fn class(mut self, class: Option<&str>) -> Self {
        self.class = class.map(str::to_owned);
        self
    }

    /// Both address families.
    #[must_use]
    pub fn dual_stack(mut self) -> Self {
        self.families = vec!["IPv4", "IPv6"];
        self
    }

    /// IPv6 alone.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.families = vec!["IPv6"];
        self
    }

    /// `externalTrafficPolicy: Local`.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// `allocateLoadBalancerNodePorts: false`.
    #[must_use]
    pub fn without_node_ports(mut self) -> Self {
        self.node_ports = false;
        self
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), json!(value));
        self
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), json!(value));
        self
    }

    /// Asks for the cluster's VIP with this number (0 to 99), of each of its families. Call it after
    /// the families are chosen.
    #[must_use]
    pub fn vip(self, number: u8) -> Self {
        let addresses = self.cluster.vip_text(number, &self.families);
        self.annotation(ADDRESSES, &addresses)
    }

    /// Sets the number of pods (1), in turn on the workers, or on the nodes where there are none.
    #[must_use]
    pub fn pods(mut self, pods: usize) -> Self {
        self.pods = pods;
        self
    }

    /// One pod on each of these nodes instead.
    #[must_use]
    pub fn pods_on(mut self, nodes: &[&Node]) -> Self {
        self.pod_nodes = nodes.iter().map(|node| node.name().to_owned()).collect();
        self
    }

    /// The pods of another service serve it too, and none of its own.
    #[must_use]
    pub fn pods_of(mut self, other: &Service) -> Self {
        other.name.clone_into(&mut self.app);
        self.pods = 0;
        self
    }

    fn object(&self) -> Value {
        let mut ports = Vec::new();
        for (name, protocol, port) in [("http", "TCP", self.tcp), ("datagrams", "UDP", self.udp)] {
            ports.extend(port.map(|port| {
                json!({
                    "name": name, "protocol": protocol, "port": port,
                    "targetPort": pod_server::PORT,
                })
            }));
        }
        let mut spec = json!({
            "type": "LoadBalancer",
            "selector": { "app": self.app },
            "ports": ports,
            "ipFamilyPolicy": if self.families.len() > 1 { "RequireDualStack" } else { "SingleStack" },
            "ipFamilies": self.families,
            "externalTrafficPolicy": if self.local { "Local" } else { "Cluster" },
        });
        if let (Some(spec), Some(class)) = (spec.as_object_mut(), &self.class) {
            spec.insert("loadBalancerClass".to_owned(), json!(class));
        }
        if let (Some(spec), false) = (spec.as_object_mut(), self.node_ports) {
            spec.insert("allocateLoadBalancerNodePorts".to_owned(), json!(false));
        }
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": self.name,
                "namespace": self.cluster.namespace(),
                "labels": self.labels,
                "annotations": self.annotations,
            },
            "spec": spec,
        })
    }

    fn places(&self) -> Result<Vec<&'a Node>> {
        if !self.pod_nodes.is_empty() {
            return self.pod_nodes.iter().map(|name| self.cluster.node_named(name)).collect();
        }
        let workers = self.cluster.workers();
        let hosts = if workers.is_empty() { self.cluster.nodes() } else { workers };
        Ok(hosts.iter().cycle().take(self.pods).collect())
    }

    /// Creates the Service and its pods; returns when its EndpointSlices name them.
    pub async fn create(self) -> Result<Service> {
        self.cluster.lab().apply(self.object()).await?;
        self.back().await
    }

    /// Runs the pods of a Service that is there already, with the selector `app: <name>`.
    pub async fn back(self) -> Result<Service> {
        let namespace = self.cluster.namespace();
        let labels = json!({ "app": self.name, CLUSTER_LABEL: self.cluster.name() });
        let mut pods = Vec::new();
        for (node, number) in self.places()?.into_iter().zip(1..) {
            let name = format!("{}-{number}", self.name);
            pods.push(node.run_pod(namespace, &name, &labels).await?);
        }
        // Those of another service are there, or will be.
        let least = if self.app == self.name { pods.len() } else { pods.len().max(1) };
        let mut service = Service::named(self.cluster, &self.name);
        service.tcp = self.tcp;
        service.pods = pods;
        let what = format!("the EndpointSlices of {} name its pods", service.name);
        self.cluster
            .eventually(&what, Duration::from_secs(30), async || {
                Ok(service.endpoints().await? >= least)
            })
            .await?;
        Ok(service)
    }
}

/// A Service and its pods; they end with this value.
#[derive(Debug)]
pub struct Service {
    name: String,
    namespace: String,
    tcp: Option<u16>,
    api: Api<ServiceObject>,
    slices: Api<EndpointSlice>,
    pods: Vec<Pod>,
}

impl Service {
    /// A Service of the cluster that somebody else made, with HTTP on port 80 and without pods of
    /// its own.
    pub fn named(cluster: &Cluster, name: &str) -> Self {
        let client = cluster.lab().admin();
        Self {
            name: name.to_owned(),
            namespace: cluster.namespace().to_owned(),
            tcp: Some(80),
            api: Api::namespaced(client.clone(), cluster.namespace()),
            slices: Api::namespaced(client, cluster.namespace()),
            pods: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the claim lease that is named after it.
    pub fn claim(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    /// The name of the claim lease that the operator recorded; none where there is no such record, or
    /// no such Service.
    pub async fn recorded_claim(&self) -> Result<Option<String>> {
        let object = self.api.get_opt(&self.name).await?;
        let annotations = object.and_then(|object| object.metadata.annotations);
        Ok(annotations.and_then(|mut annotations| annotations.remove(CLAIM)))
    }

    /// Its pods.
    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// The object.
    pub async fn get(&self) -> Result<ServiceObject> {
        Ok(self.api.get(&self.name).await?)
    }

    /// The addresses in its status.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>> {
        let status = self.get().await?.status.unwrap_or_default();
        let ingress = status.load_balancer.and_then(|balancer| balancer.ingress);
        ingress
            .into_iter()
            .flatten()
            .filter_map(|ingress| ingress.ip)
            .map(|ip| Ok(ip.parse()?))
            .collect()
    }

    /// Writes the addresses in its status, as a load balancer controller would.
    pub async fn set_addresses(&self, addresses: &[IpAddr]) -> Result<()> {
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let patch = Patch::Merge(status);
        self.api.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Changes it by a merge patch.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.api.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes the object; the pods go on.
    pub async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Checks whether the client gets a page of it by this address.
    pub fn answers(&self, cluster: &Cluster, vip: IpAddr) -> Result<bool> {
        ensure!(self.tcp.is_some(), "{} serves no HTTP", self.name);
        let port = self.tcp.unwrap_or(80);
        Ok(cluster.client().get(vip, port, "/").is_ok())
    }

    /// The number of ready endpoints in its slices, in the family that has the fewest.
    async fn endpoints(&self) -> Result<usize> {
        let own =
            ListParams::default().labels(&format!("kubernetes.io/service-name={}", self.name));
        let slices = self.slices.list(&own).await?;
        let ready = |slice: &EndpointSlice| {
            let endpoints = slice.endpoints.iter();
            let ready = |e: &&k8s_openapi::api::discovery::v1::Endpoint| {
                e.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
            };
            endpoints.filter(ready).count()
        };
        Ok(slices.iter().map(ready).min().unwrap_or(0))
    }
}
