//! Services, endpoints and nodes that Leasehold does not serve, as large clusters have them.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::Lab;

/// The number of objects that are created concurrently.
const AT_ONCE: usize = 16;
/// The namespace of what is namespaced.
const NAMESPACE: &str = "crowd";

/// How large the cluster is.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The number of Services, with one `EndpointSlice` each.
    pub services: usize,
    /// The number of endpoints of each slice.
    pub endpoints: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of images in the status of each node.
    pub images: usize,
    /// Whether the Services are headless: kube-proxies leave them alone.
    pub headless: bool,
}

impl Default for Crowd {
    /// The size of which the documentation says how much memory it takes.
    fn default() -> Self {
        Self { services: 20_000, endpoints: 100, nodes: 2_000, images: 50, headless: false }
    }
}

impl Crowd {
    /// Creates all of it, in a namespace of its own. Its nodes take no pods, except those of a `DaemonSet`.
    pub async fn create(&self, lab: &Lab) -> Result<()> {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        lab.apply(namespace).await?;
        let post = PostParams::default();
        let nodes: Api<NodeObject> = Api::all(lab.admin());
        let create = async |number| {
            nodes.create(&post, &serde_json::from_value(node(number, self.images))?).await?;
            anyhow::Ok(())
        };
        let all = stream::iter(0..self.nodes).map(create).buffer_unordered(AT_ONCE);
        all.try_collect::<()>().await?;
        let services: Api<Service> = Api::namespaced(lab.admin(), NAMESPACE);
        let slices: Api<EndpointSlice> = Api::namespaced(lab.admin(), NAMESPACE);
        let create = async |number| {
            services.create(&post, &serde_json::from_value(service(number, self))?).await?;
            slices.create(&post, &serde_json::from_value(slice(number, self))?).await?;
            anyhow::Ok(())
        };
        let all = stream::iter(0..self.services).map(create).buffer_unordered(AT_ONCE);
        all.try_collect::<()>().await
    }
}

fn node_name(number: usize) -> String {
    format!("worker-{number:04}.rack-{:02}.cluster.example.com", number % 40)
}

/// A Node as a kubelet registers it and reports of it.
fn node(number: usize, images: usize) -> Value {
    let name = node_name(number);
    let image = |image: usize| {
        let repository = format!("registry.example.com/team-{}/application-{image}", image % 7);
        let digest = format!("{repository}@sha256:{:064x}", image * 7919 + 1);
        json!({ "names": [digest, format!("{repository}:v1.{image}.0")], "sizeBytes": 123_456_789 })
    };
    let condition = |type_: &str, status: &str| {
        json!({ "type": type_, "status": status, "reason": format!("Kubelet{type_}"),
            "message": format!("kubelet has said of {type_} what there is to say"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "metadata": { "name": name, "labels": {
            "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "bare-metal.large",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": format!("region-1-{}", number % 3),
            "example.com/rack": format!("rack-{:02}", number % 40), "example.com/pool": "general",
        } },
        "spec": {
            "podCIDR": format!("10.{}.{}.0/24", 128 + number / 256, number % 256),
            "unschedulable": true,
        },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": format!("172.30.{}.{}", number / 256, number % 256) },
                { "type": "Hostname", "address": name },
            ],
            "capacity": { "cpu": "64", "memory": "263842132Ki", "pods": "250" },
            "allocatable": { "cpu": "63", "memory": "262793556Ki", "pods": "250" },
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "images": (0..images).map(image).collect::<Vec<_>>(),
        },
    })
}

fn service(number: usize, crowd: &Crowd) -> Value {
    let address = if crowd.headless { "None" } else { "" };
    let name = format!("application-{number}");
    json!({
        "metadata": { "name": name, "labels": {
            "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": "application-1.2.3",
        } },
        "spec": { "type": "ClusterIP", "clusterIP": address, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] },
    })
}

/// A slice as the endpoint slice controller writes it, with pods on nodes all over the cluster.
fn slice(number: usize, crowd: &Crowd) -> Value {
    let service = format!("application-{number}");
    let endpoint = |pod: usize| {
        let place = (number * 37 + pod * 19) % crowd.nodes.max(1);
        let identity = number * crowd.endpoints + pod;
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + place / 256, place % 256, 1 + identity % 250)],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": node_name(place),
            "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": format!("{service}-7d9c5b8f6d-{pod:05}"),
                "uid": format!("{identity:08x}-0000-4000-8000-{identity:012x}") },
            "zone": format!("region-1-{}", place % 3),
        })
    };
    let mut labels = json!({
        "kubernetes.io/service-name": service, "app.kubernetes.io/name": service,
        "endpointslice.kubernetes.io/managed-by": "leasehold-lab",
    });
    if let (true, Some(labels)) = (crowd.headless, labels.as_object_mut()) {
        labels.insert("service.kubernetes.io/headless".to_owned(), json!(""));
    }
    json!({
        "metadata": { "name": format!("{service}-x7k2p"), "labels": labels },
        "addressType": "IPv4",
        "endpoints": (0..crowd.endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    })
}
