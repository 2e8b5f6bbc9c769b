//! Field managers: the writers of the fields of a Service, as the API server records them in
//! `metadata.managedFields`
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).

use std::fmt;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use crate::report::events::CONTROLLER;

/// The addresses in the status: a list that has one owner.
pub(super) const INGRESS: [&str; 3] = ["f:status", "f:loadBalancer", "f:ingress"];

/// A field manager other than the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reconcile) struct Rival {
    /// Its name; of a program that gives none, the first part of its User-Agent.
    manager: String,
    /// The subresource by which it writes, if any.
    subresource: Option<String>,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subresource {
            Some(subresource) => write!(f, "{} (subresource {subresource})", self.manager),
            None => f.write_str(&self.manager),
        }
    }
}

impl Rival {
    /// The advice that stops it from writing to a Service.
    pub(super) fn advice(&self) -> &'static str {
        let manager = self.manager.to_ascii_lowercase();
        let is = |names: &[&str]| names.iter().any(|name| manager.starts_with(name));
        if is(&["k3s", "rke2", "svccontroller"]) {
            "start the k3s or rke2 servers with --disable servicelb"
        } else if manager.contains("cloud-controller-manager") || is(&["kube-controller-manager"]) {
            "run it without its service controller (--controllers=*,-service-lb-controller)"
        } else if is(&["kube-controllers", "calico"]) {
            "set assignIPs: RequestedServicesOnly in Calico's KubeControllersConfiguration"
        } else if is(&["cilium-operator"]) {
            "change the CiliumLoadBalancerIPPools so that none selects this Service"
        } else if is(&["kubectl", "helm", "terraform", "hashicorp", "argocd", "flux", "kustomize"])
        {
            "configure it to ignore the status and the annotations leasehold.dev/*, and to apply \
             instead of replace"
        } else {
            "stop it, or configure it to ignore this Service; most load balancers ignore Services \
             with spec.loadBalancerClass leasehold.dev/lease"
        }
    }
}

/// Whether the field at `path` is as we wrote it: the API server takes the ownership of it away from us as
/// soon as another client changes it.
pub(super) fn wrote(service: &Service, path: &[&str]) -> bool {
    entries(service).any(|entry| is_ours(entry) && has(entry, path))
}

/// The last other writer of the fields that we write: the manager that owns the addresses in the status
/// instead of us, else one that has written since we did. None where the API server does not record it: it
/// records the fields that a client sets, not those that it removes.
pub(super) fn rival(service: &Service) -> Option<Rival> {
    let latest = |entries: &mut dyn Iterator<Item = &ManagedFieldsEntry>| {
        let entry = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
        let (manager, subresource) = (entry.manager.clone()?, entry.subresource.clone());
        Some(Rival { manager, subresource: subresource.filter(|name| !name.is_empty()) })
    };
    let others = || entries(service).filter(|entry| !is_ours(entry));
    let owner = if wrote(service, &INGRESS) {
        None
    } else {
        latest(&mut others().filter(|entry| has(entry, &INGRESS)))
    };
    let ours = entries(service).filter(|entry| is_ours(entry));
    let since = ours.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max();
    let newer = |entry: &&ManagedFieldsEntry| {
        entry.time.as_ref().is_some_and(|time| since.is_none_or(|since| time.0 >= since))
    };
    owner.or_else(|| latest(&mut others().filter(newer)))
}

fn entries(service: &Service) -> impl Iterator<Item = &ManagedFieldsEntry> {
    service.metadata.managed_fields.iter().flatten()
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(CONTROLLER)
}

fn has(entry: &ManagedFieldsEntry, path: &[&str]) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    fields
        .and_then(|fields| path.iter().try_fold(fields, |fields, name| fields.get(name)))
        .is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(manager: &str, second: u8, fields: &Value) -> Value {
        json!({
            "manager": manager, "operation": "Update", "subresource": "status",
            "time": format!("2026-01-01T00:00:{second:02}Z"), "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        })
    }

    #[test]
    fn who_owns_the_addresses_instead_of_us_is_named_else_who_wrote_after_us() {
        let ingress = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
        let labels = json!({"f:metadata": {"f:labels": {"f:app": {}}}});
        let nothing = json!({});
        let named = |entries: Vec<Value>| {
            let service: Service = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"managedFields": entries},
            }))
            .unwrap();
            rival(&service).map(|rival| rival.to_string())
        };
        let k3s = Some("k3s (subresource status)".to_owned());
        for (entries, expected) in [
            (vec![], None),
            (vec![entry(CONTROLLER, 5, &ingress)], None),
            (vec![entry(CONTROLLER, 5, &ingress), entry("helm", 4, &labels)], None),
            (
                vec![entry(CONTROLLER, 5, &ingress), entry("helm", 5, &labels)],
                Some("helm (subresource status)".to_owned()),
            ),
            (vec![entry("k3s", 3, &ingress), entry("helm", 9, &labels)], k3s.clone()),
            (
                vec![
                    entry(CONTROLLER, 5, &nothing),
                    entry("metallb", 1, &ingress),
                    entry("k3s", 2, &ingress),
                ],
                k3s,
            ),
        ] {
            assert_eq!(named(entries.clone()), expected, "{entries:?}");
        }
    }

    #[test]
    fn each_kind_of_manager_has_its_advice() {
        for (manager, advice) in [
            ("k3s", "--disable servicelb"),
            ("aws-cloud-controller-manager", "service controller"),
            ("kube-controllers", "RequestedServicesOnly"),
            ("cilium-operator-generic", "CiliumLoadBalancerIPPool"),
            ("HashiCorp", "ignore the status"),
            ("kubectl-replace", "ignore the status"),
            ("controller", "loadBalancerClass"),
        ] {
            let rival = Rival { manager: manager.to_owned(), subresource: None };
            assert!(rival.advice().contains(advice), "{manager}: {}", rival.advice());
        }
    }
}
