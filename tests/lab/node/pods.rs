//! Pods: small servers in namespaces of their own, with Pod objects that name their addresses.

use std::env;
use std::net::IpAddr;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod as PodObject;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Node;
use crate::namespace::Namespace;
use crate::pod_server;
use crate::process::Process;

/// A pod and its server.
#[derive(Debug)]
pub struct Pod {
    name: String,
    node: String,
    api: Api<PodObject>,
    server: Process,
    // Dropped after the server, which runs in it.
    network: Namespace,
    addresses: [IpAddr; 2],
}

impl Node {
    /// Runs a pod on this node, in an existing Kubernetes namespace, and marks it as ready.
    pub async fn run_pod(&self, namespace: &str, name: &str, labels: &Value) -> Result<Pod> {
        let number = self.pod_number();
        let (v4, v6) = self.network().plan().pod(self.number(), number);
        let (gateway_v4, gateway_v6) = self.network().plan().pod(self.number(), 1);
        let network = Namespace::create(&format!("{}-pod-{number}", self.name()))?;
        // As container networks do (`hairpinMode`): a pod that asks for a Service may be led to itself.
        self.namespace().ip(&format!(
            "link add name pod{number} type veth peer name eth0 netns {}\n\
             link set dev pod{number} master cni0 up\n\
             link set dev pod{number} type bridge_slave hairpin on\n",
            network.name()
        ))?;
        network.ip(&format!(
            "link set dev eth0 up\n\
             address add {v4}/24 dev eth0\n\
             address add {v6}/64 dev eth0 nodad\n\
             route add default via {gateway_v4}\n\
             route add default via {gateway_v6}\n"
        ))?;
        let mut command = network.command(&env::current_exe()?.display().to_string());
        command.args([pod_server::ARGUMENT, name]);
        let log = self.folder().join(format!("{name}.log"));
        let server = Process::spawn(&format!("pod {name}"), &log, &mut command)?;

        let api: Api<PodObject> = Api::namespaced(self.plane.admin(), namespace);
        let object = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels },
            "spec": {
                "nodeName": self.name(),
                "containers": [{ "name": "server", "image": "leasehold-lab" }],
            },
        }))?;
        api.create(&PostParams::default(), &object).await?;
        let addresses = [v4.into(), v6.into()];
        let node = self.name().to_owned();
        let pod = Pod { name: name.to_owned(), node, api, server, network, addresses };
        pod.report(true).await?;
        Ok(pod)
    }
}

impl Pod {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node that it runs on.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Its namespace, for commands of a test's own.
    pub fn namespace(&self) -> &Namespace {
        &self.network
    }

    /// Its addresses, of IPv4 and of IPv6.
    pub fn addresses(&self) -> [IpAddr; 2] {
        self.addresses
    }

    /// The process that serves.
    pub fn server(&self) -> &Process {
        &self.server
    }

    async fn report(&self, ready: bool) -> Result<()> {
        let [first, _] = self.addresses;
        let status = json!({
            "status": {
                "phase": "Running",
                "podIP": first,
                "podIPs": self.addresses.map(|ip| json!({ "ip": ip })),
                "startTime": Timestamp::now().to_string(),
            },
        });
        self.patch_status(status).await?;
        self.set_ready(ready).await
    }

    /// Says whether it is ready: EndpointSlices follow.
    pub async fn set_ready(&self, ready: bool) -> Result<()> {
        let value = if ready { "True" } else { "False" };
        let now = Timestamp::now().to_string();
        let container = json!({
            "name": "server", "image": "leasehold-lab", "imageID": "leasehold-lab",
            "ready": ready, "restartCount": 0, "state": { "running": { "startedAt": now } },
        });
        let conditions = ["Ready", "ContainersReady", "PodScheduled"]
            .map(|kind| json!({ "type": kind, "status": value, "lastTransitionTime": now }));
        let status = json!({ "conditions": conditions, "containerStatuses": [container] });
        self.patch_status(json!({ "status": status })).await
    }

    async fn patch_status(&self, status: Value) -> Result<()> {
        let patch = Patch::Merge(status);
        self.api.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Has it terminate: the object says so, and the server goes on, as long as nobody ends it.
    pub async fn leave(&self) -> Result<()> {
        let gently = DeleteParams { grace_period_seconds: Some(30), ..DeleteParams::default() };
        self.api.delete(&self.name, &gently).await?;
        Ok(())
    }

    /// Deletes the object at once and ends the server.
    pub async fn delete(self) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api.delete(&self.name, &now).await?;
        Ok(())
    }
}
