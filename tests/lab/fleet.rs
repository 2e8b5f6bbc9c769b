//! Services without pods, by the thousand.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::Lab;

/// The number of Services that are created concurrently.
const AT_ONCE: usize = 16;
/// The interval between two reads of a Service that waits for an address.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// The Services of a namespace, which are not run by pods: each has an `EndpointSlice` with one endpoint.
#[derive(Clone, Debug)]
pub struct Fleet {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    /// The labels of all of them.
    labels: Value,
}

impl Fleet {
    /// In the namespace `default` of a lab.
    pub fn of(lab: &Lab) -> Self {
        Self::within(lab, "default", json!({}))
    }

    /// In another namespace, with these labels.
    pub fn within(lab: &Lab, namespace: &str, labels: Value) -> Self {
        Self {
            services: Api::namespaced(lab.admin(), namespace),
            slices: Api::namespaced(lab.admin(), namespace),
            labels,
        }
    }

    /// Creates a Service of type `LoadBalancer`.
    pub async fn create(&self, name: &str, annotations: &Value) -> Result<()> {
        let service = serde_json::from_value(json!({
            "metadata": { "name": name, "annotations": annotations, "labels": self.labels },
            // There are fewer node ports than Services.
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }],
                "allocateLoadBalancerNodePorts": false },
        }))?;
        self.services.create(&PostParams::default(), &service).await?;
        Ok(())
    }

    /// One endpoint, as the endpoint slice controller writes it for a Service with a pod.
    async fn give_endpoint(&self, service: &str) -> Result<()> {
        let mut labels = self.labels.clone();
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/service-name".to_owned(), json!(service));
        }
        let slice = serde_json::from_value(json!({
            "metadata": { "name": format!("{service}-1"), "labels": labels },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.255.0.1"], "conditions": { "ready": true } }],
            "ports": [{ "port": 80 }],
        }))?;
        self.slices.create(&PostParams::default(), &slice).await?;
        Ok(())
    }

    /// Creates `<prefix>-<number>` for each number.
    pub async fn create_many(
        &self,
        prefix: &str,
        numbers: Range<usize>,
        annotations: &Value,
    ) -> Result<()> {
        let create = async |number| {
            let name = format!("{prefix}-{number}");
            self.give_endpoint(&name).await?;
            self.create(&name, annotations).await
        };
        stream::iter(numbers).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    /// Deletes a Service.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.services.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The number of Services with this prefix that have an address.
    pub async fn served(&self, prefix: &str) -> Result<usize> {
        let all = self.services.list(&ListParams::default()).await?;
        let such = all.iter().filter(|service| service.name_any().starts_with(prefix));
        Ok(such.filter(|service| has_address(service)).count())
    }

    /// Waits until a Service has an address.
    pub async fn answered(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        while !has_address(&self.services.get(name).await?) {
            ensure!(begin.elapsed() < PATIENCE, "{name} gets no address");
            sleep(LOOK).await;
        }
        Ok(())
    }
}

fn has_address(service: &Service) -> bool {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
