//! The `ClusterServiceVersion`: the operator, its rights and the speakers', and what people read.

use anyhow::{Context, Result};
use leasehold_crds::lease::CLAIM_NAMESPACE;
use serde_json::{Value, json};

use crate::descriptors;
use crate::source::{PACKAGE, REPOSITORY, Source, VERSION, replaced_by};

/// The name of the operator's Deployment and of its account.
pub const OPERATOR: &str = "leasehold-operator";
/// The name of the speakers' `DaemonSet` and of their account.
pub const SPEAKER: &str = "leasehold-speaker";

/// One line about Leasehold.
pub const SUMMARY: &str =
    "LoadBalancer Services on bare metal: exactly one owner per address, decided by Leases";

/// Its name.
pub fn name() -> String {
    format!("{PACKAGE}.v{VERSION}")
}

/// The `ClusterServiceVersion` of this version.
pub fn cluster_service_version(source: &Source) -> Result<Value> {
    let owned: Result<Vec<_>> =
        source.definitions.iter().map(|(_, definition)| descriptors::owned(definition)).collect();
    // Leases are in namespaces with fixed names, one set for the cluster: what serves some namespaces only
    // would still have to read all Services, not to give one address twice.
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let modes = modes.map(|mode| json!({ "type": mode, "supported": mode == "AllNamespaces" }));
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": name(),
            "namespace": CLAIM_NAMESPACE,
            "annotations": annotations(source)?,
            "labels": {
                "operatorframework.io/arch.amd64": "supported",
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": {
            "displayName": "Leasehold",
            "description": source.description,
            "version": VERSION,
            "maturity": "alpha",
            "minKubeVersion": source.kubernetes,
            "icon": [source.icon()?],
            "keywords": ["load balancer", "bare metal", "networking", "ARP", "NDP", "lease"],
            "provider": { "name": "Leasehold", "url": REPOSITORY },
            "maintainers": [{ "name": "Leasehold", "email": "maintainers@leasehold.dev" }],
            "links": [{ "name": "Source and documentation", "url": REPOSITORY }],
            "installModes": modes,
            "customresourcedefinitions": { "owned": owned? },
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": permissions(source)?,
                    "deployments": [deployment(source)?],
                },
            },
            "relatedImages": [
                { "name": "operator", "image": source.image("Deployment", OPERATOR)? },
                { "name": "speaker", "image": source.image("DaemonSet", SPEAKER)? },
            ],
        },
    }))
}

fn annotations(source: &Source) -> Result<Value> {
    let namespace = source.object("Namespace", CLAIM_NAMESPACE, "")?;
    Ok(json!({
        "alm-examples": serde_json::to_string_pretty(&source.examples)?,
        "capabilities": "Seamless Upgrades",
        "categories": "Networking",
        "containerImage": source.image("Deployment", OPERATOR)?,
        "description": SUMMARY,
        "olm.skipRange": replaced_by(VERSION),
        "operatorframework.io/suggested-namespace": CLAIM_NAMESPACE,
        "operatorframework.io/suggested-namespace-template": serde_json::to_string(namespace)?,
        "repository": REPOSITORY,
    }))
}

/// What both accounts are allowed in all namespaces. There are no `permissions`: for an installation that serves
/// all namespaces the manager makes cluster roles of them, too. What is for one namespace is in `bundle`.
fn permissions(source: &Source) -> Result<Vec<Value>> {
    let permission = |account: &str| -> Result<Value> {
        let rules = source.rules("ClusterRole", account, "")?;
        Ok(json!({ "serviceAccountName": account, "rules": rules }))
    };
    [OPERATOR, SPEAKER].into_iter().map(permission).collect()
}

/// The operator's Deployment as in `deploy/base`, with the speakers to deploy.
fn deployment(source: &Source) -> Result<Value> {
    let mut deployment = source.object("Deployment", OPERATOR, CLAIM_NAMESPACE)?.clone();
    let container = deployment.pointer_mut("/spec/template/spec/containers/0");
    let container = container.context("no container")?;
    let mut list = |name: &str, more: &[Value]| -> Result<()> {
        let list = container.get_mut(name).and_then(Value::as_array_mut);
        list.with_context(|| format!("no {name}"))?.extend_from_slice(more);
        Ok(())
    };
    list("args", &[json!("--deploy-speakers")])?;
    let own_namespace = json!({ "fieldRef": { "fieldPath": "metadata.namespace" } });
    list(
        "env",
        &[
            json!({ "name": "LEASEHOLD_POD_NAMESPACE", "valueFrom": own_namespace }),
            json!({
                "name": "RELATED_IMAGE_SPEAKER",
                "value": source.image("DaemonSet", SPEAKER)?,
            }),
        ],
    )?;
    let at = |path: &str| deployment.pointer(path).with_context(|| format!("no {path}"));
    Ok(json!({
        "name": OPERATOR,
        "label": at("/metadata/labels")?,
        "spec": at("/spec")?,
    }))
}
