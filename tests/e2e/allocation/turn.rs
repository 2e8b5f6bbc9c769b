//! One row's turn in the lab.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, ResourceExt};
use leasehold_lab::{Lab, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::block::Block;

/// The longest that an allocation may take.
pub const SOON: Duration = Duration::from_secs(5);

/// One row's turn in the lab: no pool, no Service of type `LoadBalancer`, a namespace of its own, and
/// addresses of its own.
///
/// Rows write documentation addresses, and read them ([`Block`]). Services are named `name`, or
/// `namespace/name` where they are elsewhere.
pub struct Turn {
    pub lab: Arc<Lab>,
    namespace: String,
    block: Block,
    begun: Timestamp,
    _guard: MutexGuard<'static, ()>,
}

impl Turn {
    pub async fn take(namespace: &str) -> Result<Self> {
        static LAB: OnceCell<Arc<Lab>> = OnceCell::const_new();
        static TURN: Mutex<()> = Mutex::const_new(());
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let guard = TURN.lock().await;
        let lab = Arc::clone(LAB.get_or_try_init(Lab::start).await?);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        ensure!(number < u8::MAX, "there are no addresses for another turn");
        // A row that failed may have left the lab without an operator.
        if !lab.operator().is_ok_and(|operator| operator.process().alive()) {
            lab.start_operator(&["--default-class"])?;
        }
        let turn = Self {
            lab,
            namespace: namespace.to_owned(),
            block: Block(number),
            begun: Timestamp::now(),
            _guard: guard,
        };
        turn.clear().await?;
        turn.namespace(namespace, json!({})).await?;
        Ok(turn)
    }

    async fn clear(&self) -> Result<()> {
        let services: Api<Service> = Api::all(self.lab.admin());
        for service in services.list(&ListParams::default()).await? {
            if service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
            {
                let namespace = service.namespace().context("a Service has a namespace")?;
                let own: Api<Service> = Api::namespaced(self.lab.admin(), &namespace);
                own.delete(&service.name_any(), &DeleteParams::default()).await?;
            }
        }
        self.kubectl(&["delete", "ipaddresspools", "--all"]).map(drop)
    }

    // === the cluster ===

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        Ok(self.block.documented(&self.lab.plane().kubectl(arguments)?))
    }

    pub async fn apply(&self, object: &Value) -> Result<()> {
        self.lab.apply(self.block.own_json(object)).await
    }

    /// Applies what the rules of this definition refuse, as it may have been stored before there were any; `says`
    /// is what they say of it.
    pub async fn stored(&self, definition: &str, object: &Value, says: &str) -> Result<()> {
        let refused = self.apply(object).await;
        let refused = refused.err().with_context(|| format!("{definition}: not refused"))?;
        ensure!(format!("{refused:#}").contains(says), "{refused:#}, and not {says}");
        let definitions: Api<CustomResourceDefinition> = Api::all(self.lab.admin());
        let strict = serde_json::to_value(definitions.get(definition).await?)?;
        let mut lax = strict.clone();
        without_rules(&mut lax);
        let define = async |it: &Value| {
            let versions = json!({ "spec": { "versions": it["spec"]["versions"] } });
            let patch = Patch::Merge(versions);
            definitions.patch(definition, &PatchParams::default(), &patch).await
        };
        define(&lax).await?;
        // It counts a moment later.
        let taken = async || Ok(self.apply(object).await.is_ok());
        self.until("it is taken without rules", taken).await?;
        define(&strict).await?;
        Ok(())
    }

    /// A namespace with these labels and no others.
    pub async fn namespace(&self, name: &str, labels: Value) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        }))
        .await
    }

    /// Writes into the status of a Node, as its kubelet would.
    pub async fn node_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(self.block.own_json(&json!({ "status": status })));
        let nodes: Api<Node> = Api::all(self.lab.admin());
        nodes.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn restart_operator(&self) -> Result<()> {
        self.stop_operator().await?;
        self.lab.start_operator(&["--default-class"])
    }

    pub async fn stop_operator(&self) -> Result<()> {
        let status = self.lab.operator()?.terminate().await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }

    pub async fn until(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.lab.eventually(what, SOON, condition).await
    }

    // === pools ===

    pub async fn pool(&self, name: &str, addresses: &[&str]) -> Result<()> {
        self.pool_with(name, json!({ "addresses": addresses })).await
    }

    pub async fn pool_with(&self, name: &str, spec: Value) -> Result<()> {
        let applied = self.apply(&pool(name, &spec)).await;
        applied.map_err(|error| anyhow::anyhow!(self.block.documented(&format!("{error:#}"))))
    }

    pub fn delete_pool(&self, name: &str) -> Result<()> {
        self.kubectl(&["delete", "ipaddresspool", name]).map(drop)
    }

    pub fn pool_status(&self, name: &str) -> Result<Value> {
        let pool = self.kubectl(&["get", "ipaddresspool", name, "-o", "json"])?;
        Ok(serde_json::from_str::<Value>(&pool)?["status"].clone())
    }

    /// Waits until a condition of a pool has this status and says this.
    pub async fn pool_says(&self, pool: &str, type_: &str, status: &str, text: &str) -> Result<()> {
        let what = format!("pool {pool} is {type_}={status}: {text}");
        self.until(&what, async || {
            let condition = pool_condition(&self.pool_status(pool)?, type_);
            let message = condition["message"].as_str().unwrap_or_default();
            Ok(condition["status"] == status && message.contains(text))
        })
        .await
    }

    // === Services ===

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.lab.admin(), &self.namespace)
    }

    /// The API of a Service's namespace, and its name there.
    fn at<'a>(&self, name: &'a str) -> (Api<Service>, &'a str) {
        match name.split_once('/') {
            Some((namespace, name)) => (Api::namespaced(self.lab.admin(), namespace), name),
            None => (self.services(), name),
        }
    }

    /// Applies a Service of type `LoadBalancer` with port 80; `metadata` and `spec` are merged into it.
    pub async fn create(&self, name: &str, metadata: Value, spec: Value) -> Result<()> {
        let (namespace, name) = name.split_once('/').unwrap_or((&self.namespace, name));
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            for (field, value) in more.as_object().into_iter().flatten() {
                object[part][field] = value.clone();
            }
        }
        self.apply(&object).await
    }

    pub async fn service(&self, name: &str, annotations: Value, spec: Value) -> Result<()> {
        self.create(name, json!({ "annotations": annotations }), spec).await
    }

    pub async fn plain(&self, name: &str) -> Result<()> {
        self.create(name, json!({}), json!({})).await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        let (services, name) = self.at(name);
        services.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn merge(&self, name: &str, patch: Value) -> Result<()> {
        let (services, name) = self.at(name);
        let patch = Patch::Merge(self.block.own_json(&patch));
        services.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sets an annotation, or with null removes it.
    pub async fn annotate(&self, name: &str, annotation: &str, value: Value) -> Result<()> {
        self.merge(name, json!({"metadata": {"annotations": { annotation: value }}})).await
    }

    /// Writes a status by hand, as the admin.
    pub async fn forge(&self, name: &str, address: &str) -> Result<()> {
        self.forge_ingress(name, json!([{ "ip": address }])).await
    }

    pub async fn forge_ingress(&self, name: &str, ingress: Value) -> Result<()> {
        self.status(name, json!({"loadBalancer": { "ingress": ingress }})).await
    }

    /// Merges into the status of a Service, as the admin.
    pub async fn status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(self.block.own_json(&json!({ "status": status })));
        let (services, name) = self.at(name);
        services.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// A Service with documentation addresses.
    pub async fn get(&self, name: &str) -> Result<Service> {
        let (services, name) = self.at(name);
        self.block.documented_object(&services.get(name).await?)
    }

    pub async fn addresses(&self, name: &str) -> Result<Vec<String>> {
        Ok(addresses(&self.get(name).await?))
    }

    /// The claim on record.
    pub async fn claim(&self, name: &str) -> Result<Option<String>> {
        Ok(annotation(&self.get(name).await?, super::CLAIM).map(str::to_owned))
    }

    /// The lease of that name among the claims.
    pub async fn lease(&self, claim: &str) -> Result<Option<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.lab.admin(), SYSTEM_NAMESPACE);
        Ok(leases.get_opt(claim).await?)
    }

    /// The name of the claim that is named after an address.
    pub fn claim_of_address(&self, address: &str) -> String {
        format!("{}.address.leasehold", self.block.own(address).replace(['.', ':'], "-"))
    }

    /// The versions of the Services of the turn's namespace, from now on, with documentation addresses.
    pub async fn versions(&self) -> Result<impl Stream<Item = Result<Service>> + Send + use<>> {
        let block = self.block;
        let params = WatchParams::default().timeout(120);
        let from = self.services().list(&ListParams::default()).await?.metadata.resource_version;
        let events = self.services().watch(&params, &from.unwrap_or_default()).await?;
        Ok(events.map_err(anyhow::Error::from).try_filter_map(move |event| async move {
            let (WatchEvent::Added(service) | WatchEvent::Modified(service)) = event else {
                return Ok(None);
            };
            block.documented_object(&service).map(Some)
        }))
    }

    // === what they come to ===

    /// Waits until a Service has exactly these addresses.
    pub async fn has(&self, name: &str, expected: &[&str]) -> Result<()> {
        let what = format!("{name} has {expected:?}");
        self.until(&what, async || Ok(self.addresses(name).await? == expected))
            .await
            .with_context(|| self.describe(name))
    }

    /// Waits until a Service has an address that is recorded as from this pool; returns the first.
    pub async fn is_from(&self, name: &str, pool: &str) -> Result<String> {
        let what = format!("{name} has an address from pool {pool}");
        let mut found = None;
        self.until(&what, async || {
            let service = self.get(name).await?;
            if annotation(&service, super::ALLOCATED_FROM) == Some(pool) {
                found = addresses(&service).into_iter().next();
            }
            Ok(found.is_some())
        })
        .await
        .with_context(|| self.describe(name))?;
        found.context(what)
    }

    /// Waits until the condition of a Service has this status and reason, and a message with `text`.
    pub async fn says(&self, name: &str, status: &str, reason: &str, text: &str) -> Result<()> {
        let what = format!("{name} says {status}, {reason}: {text}");
        self.until(&what, async || {
            let condition = condition(&self.get(name).await?);
            let message = condition["message"].as_str().unwrap_or_default();
            Ok(condition["status"] == status
                && condition["reason"] == reason
                && message.contains(text))
        })
        .await
        .with_context(|| self.describe(name))
    }

    /// Waits until a Service is pending, with a condition and a Warning of this reason whose message
    /// has `text`.
    pub async fn fails(&self, name: &str, reason: &str, text: &str) -> Result<()> {
        self.says(name, "False", reason, text).await?;
        let has = self.addresses(name).await?;
        ensure!(has.is_empty(), "{name} is pending with {has:?}");
        self.event(name, "Warning", "AllocationFailed", text).await
    }

    /// Waits for an event of this turn about a Service or a pool.
    pub async fn event(&self, name: &str, type_: &str, reason: &str, text: &str) -> Result<()> {
        let what = format!("{type_} {reason} about {name}: {text}");
        self.until(&what, async || Ok(self.events(name, type_, reason, text).await? > 0)).await
    }

    /// How many events of this turn there are.
    pub async fn events(&self, name: &str, type_: &str, reason: &str, text: &str) -> Result<usize> {
        let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
        let says = |note: &String| self.block.documented(note).contains(text);
        let matches = |event: &&Event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            about == Some(name)
                && event.event_time.as_ref().is_some_and(|time| time.0 >= self.begun)
                && event.type_.as_deref() == Some(type_)
                && event.reason.as_deref() == Some(reason)
                && event.note.as_ref().is_some_and(says)
        };
        let events: Api<Event> = Api::all(self.lab.admin());
        let events = events.list(&ListParams::default()).await?;
        Ok(events.items.iter().filter(matches).count())
    }

    fn describe(&self, name: &str) -> String {
        let (namespace, name) = name.split_once('/').unwrap_or((&self.namespace, name));
        let arguments = ["describe", "service", name, "-n", namespace];
        self.kubectl(&arguments).unwrap_or_else(|error| format!("{error:#}"))
    }
}

pub fn addresses(service: &Service) -> Vec<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|entry| entry.ip.clone()).collect()
}

/// The condition `leasehold.dev/Allocated`; null without one.
pub fn condition(service: &Service) -> Value {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ours = conditions.into_iter().flatten().find(|c| c.type_ == "leasehold.dev/Allocated");
    json!(ours)
}

pub fn pool(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
        "metadata": { "name": name }, "spec": spec,
    })
}

/// The condition of this type in the status of a pool or a policy; null without one.
pub fn pool_condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == type_).cloned().unwrap_or_default()
}

pub fn annotation<'a>(service: &'a Service, name: &str) -> Option<&'a str> {
    service.annotations().get(name).map(String::as_str)
}

/// The resource versions of some Services: equal as long as nobody writes to them.
pub async fn versions(turn: &Turn, names: &[&str]) -> Result<Vec<Option<String>>> {
    let mut versions = Vec::new();
    for name in names {
        versions.push(turn.get(name).await?.resource_version());
    }
    ensure!(versions.iter().all(Option::is_some));
    Ok(versions)
}

fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}
