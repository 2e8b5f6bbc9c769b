//! Allocation against the real API server: the operator's process, and Services and pools as users
//! write them. No node is needed.
//!
//! All rows share one control plane and take turns: pools are the cluster's.

#![allow(clippy::indexing_slicing, reason = "of JSON only, where a missing field reads as null")]

mod election;
mod leases;
mod pools;
mod requests;
mod services;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold_lab::Lab;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub use election::*;
pub use leases::*;
pub use pools::*;
pub use requests::*;
pub use services::*;

/// The longest that an allocation may take.
const SOON: Duration = Duration::from_secs(5);

const ALLOCATED_FROM: &str = "leasehold.dev/allocated-from";
const CLAIM: &str = "leasehold.dev/claim";
const ADDRESSES: &str = "leasehold.dev/addresses";

/// One test's turn in the lab: no pool, no Service of type `LoadBalancer`, a namespace of its own.
struct Turn {
    lab: Arc<Lab>,
    namespace: String,
    _guard: MutexGuard<'static, ()>,
}

impl Turn {
    async fn take(namespace: &str) -> Result<Self> {
        static LAB: OnceCell<Arc<Lab>> = OnceCell::const_new();
        static TURN: Mutex<()> = Mutex::const_new(());
        let guard = TURN.lock().await;
        let start = || async {
            let lab = Lab::start().await?;
            lab.start_operator(&["--default-class"])?;
            anyhow::Ok(lab)
        };
        let lab = Arc::clone(LAB.get_or_try_init(start).await?);
        let taken = Self { lab, namespace: namespace.to_owned(), _guard: guard };
        taken.clear().await?;
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        taken.lab.apply(object).await?;
        Ok(taken)
    }

    async fn clear(&self) -> Result<()> {
        let services: Api<Service> = Api::all(self.lab.admin());
        for service in services.list(&ListParams::default()).await? {
            if service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
            {
                let namespace = service.namespace().context("a Service has a namespace")?;
                let own: Api<Service> = Api::namespaced(self.lab.admin(), &namespace);
                own.delete(&service.name_any(), &kube::api::DeleteParams::default()).await?;
            }
        }
        self.lab.plane().kubectl(&["delete", "ipaddresspools", "--all"])?;
        Ok(())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.lab.admin(), &self.namespace)
    }

    async fn pool(&self, name: &str, addresses: &[&str]) -> Result<()> {
        self.pool_with(name, json!({ "addresses": addresses })).await
    }

    async fn pool_with(&self, name: &str, spec: Value) -> Result<()> {
        self.lab
            .apply(json!({
                "apiVersion": "leasehold.dev/v1alpha1",
                "kind": "IPAddressPool",
                "metadata": { "name": name },
                "spec": spec,
            }))
            .await
    }

    fn pool_status(&self, name: &str) -> Result<Value> {
        let json = self.lab.plane().kubectl(&["get", "ipaddresspool", name, "-o", "json"])?;
        let pool: Value = serde_json::from_str(&json)?;
        Ok(pool["status"].clone())
    }

    /// Creates a Service of type `LoadBalancer`; `more` is merged into its `spec`.
    async fn service(&self, name: &str, annotations: Value, more: Value) -> Result<()> {
        let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        self.lab
            .apply(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": name, "namespace": self.namespace, "annotations": annotations,
                },
                "spec": spec,
            }))
            .await
    }

    async fn plain(&self, name: &str) -> Result<()> {
        self.service(name, json!({}), json!({})).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.services().delete(name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    async fn merge(&self, name: &str, patch: Value) -> Result<()> {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Writes a status by hand, as the admin.
    async fn forge(&self, name: &str, address: &str) -> Result<()> {
        let patch = json!({"status": {"loadBalancer": {"ingress": [{ "ip": address }]}}});
        let params = PatchParams::default();
        self.services().patch_status(name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn addresses(&self, name: &str) -> Result<Vec<String>> {
        Ok(addresses(&self.services().get(name).await?))
    }

    /// Waits until a Service has exactly these addresses.
    async fn has(&self, name: &str, expected: &[&str]) -> Result<()> {
        let what = format!("{name} has {expected:?}");
        self.lab
            .eventually(&what, SOON, async || Ok(self.addresses(name).await? == expected))
            .await
            .with_context(|| self.describe(name))
    }

    /// Waits until a Service is pending, with a condition and a Warning of this reason whose message
    /// has `text`.
    async fn fails(&self, name: &str, reason: &str, text: &str) -> Result<()> {
        let what = format!("{name} is pending: {reason}, {text}");
        self.lab
            .eventually(&what, SOON, async || {
                let service = self.services().get(name).await?;
                let condition = condition(&service);
                let said = condition["reason"] == reason
                    && condition["status"] == "False"
                    && condition["message"].as_str().is_some_and(|message| message.contains(text));
                Ok(said && addresses(&service).is_empty())
            })
            .await
            .with_context(|| self.describe(name))?;
        self.event(name, "Warning", "AllocationFailed", text).await
    }

    /// Waits for an event about a Service or a pool.
    async fn event(&self, name: &str, type_: &str, reason: &str, text: &str) -> Result<()> {
        let what = format!("{type_} {reason} about {name}: {text}");
        self.lab
            .eventually(&what, SOON, async || Ok(self.events(name, type_, reason, text).await? > 0))
            .await
    }

    async fn events(&self, name: &str, type_: &str, reason: &str, text: &str) -> Result<usize> {
        let events: Api<Event> = Api::all(self.lab.admin());
        let matches = |event: &&Event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            about == Some(name)
                && event.type_.as_deref() == Some(type_)
                && event.reason.as_deref() == Some(reason)
                && event.note.as_deref().is_some_and(|note| note.contains(text))
        };
        let events = events.list(&ListParams::default()).await?;
        Ok(events.items.iter().filter(matches).count())
    }

    fn describe(&self, name: &str) -> String {
        let arguments = ["describe", "service", name, "-n", &self.namespace];
        self.lab.plane().kubectl(&arguments).unwrap_or_else(|error| format!("{error:#}"))
    }
}

fn addresses(service: &Service) -> Vec<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|entry| entry.ip.clone()).collect()
}

/// The condition `leasehold.dev/Allocated`; null without one.
fn condition(service: &Service) -> Value {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ours = conditions.into_iter().flatten().find(|c| c.type_ == "leasehold.dev/Allocated");
    json!(ours)
}

fn annotation<'a>(service: &'a Service, name: &str) -> Option<&'a str> {
    service.annotations().get(name).map(String::as_str)
}

/// The resource versions of some Services: equal as long as nobody writes to them.
async fn versions(turn: &Turn, names: &[&str]) -> Result<Vec<Option<String>>> {
    let mut versions = Vec::new();
    for name in names {
        versions.push(turn.services().get(name).await?.resource_version());
    }
    ensure!(versions.iter().all(Option::is_some));
    Ok(versions)
}
