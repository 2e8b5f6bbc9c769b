//! Services: what one asks for and has, and the write that brings both together.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, ObjectReference, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;
use leasehold_crds::service::{
    ADDRESSES, ALLOCATED_FROM, CLAIM, allocated_from, ingress_ips, is_ours,
};
use serde_json::json;

use super::condition;
use super::table::Row;
use crate::allocate::{self, Decision, Failure, ServiceKey, Stack};
use crate::report::events::{CONTROLLER, Notice};

/// The condition on a Service that says whether it has the addresses that it asks for.
pub const ALLOCATED: &str = "leasehold.dev/Allocated";

/// The reason of [`ALLOCATED`] while all is well, and of the event that tells of it.
const ASSIGNED: &str = "AddressAssigned";

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRow {
    /// The uid.
    pub uid: String,
    /// The labels, for the selectors of policies; empty unless it wants addresses.
    pub labels: BTreeMap<String, String>,
    /// Whether it names no class.
    pub classless: bool,
    /// What it wants from us, if it does.
    pub wish: Option<allocate::Service>,
    /// The addresses in its status.
    pub present: Vec<IpAddr>,
    /// Whether it bears an annotation or a condition of ours.
    pub marked: bool,
    claim: Option<String>,
    ingress: Vec<LoadBalancerIngress>,
    condition: Option<Condition>,
}

impl Row for ServiceRow {
    type Key = ServiceKey;
    type Object = Service;

    /// Keeps Services that want an address, have one, or bear a mark of ours.
    fn read(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let key = Self::key(&service.metadata)?;
        let present: Vec<IpAddr> = ingress_ips(service).filter_map(|ip| ip.parse().ok()).collect();
        let wish = is_ours(service, true).then(|| wish(service, spec, &key, &present));
        let claim = service.annotations().get(CLAIM).cloned();
        let status = service.status.as_ref();
        let condition = conditions(status).iter().find(|condition| condition.type_ == ALLOCATED);
        let marked = claim.is_some() || allocated_from(service).is_some() || condition.is_some();
        if wish.is_none() && present.is_empty() && !marked {
            return None;
        }
        Some(Self {
            uid: service.metadata.uid.clone()?,
            labels: if wish.is_some() { service.labels().clone() } else { BTreeMap::new() },
            classless: spec.load_balancer_class.is_none(),
            wish,
            present,
            marked,
            claim,
            ingress: ingress(status).to_vec(),
            condition: condition.cloned(),
        })
    }

    fn key(meta: &ObjectMeta) -> Option<ServiceKey> {
        Some(ServiceKey { namespace: meta.namespace.clone()?, name: meta.name.clone()? })
    }
}

fn conditions(status: Option<&ServiceStatus>) -> &[Condition] {
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn ingress(status: Option<&ServiceStatus>) -> &[LoadBalancerIngress] {
    let load_balancer = status.and_then(|status| status.load_balancer.as_ref());
    load_balancer.and_then(|load_balancer| load_balancer.ingress.as_deref()).unwrap_or_default()
}

fn wish(
    service: &Service,
    spec: &ServiceSpec,
    key: &ServiceKey,
    present: &[IpAddr],
) -> allocate::Service {
    let mut families: Vec<Family> = Vec::with_capacity(2);
    for family in spec.ip_families.iter().flatten() {
        let family = if family == "IPv6" { Family::V6 } else { Family::V4 };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        families.push(Family::V4);
    }
    let prefers = spec.ip_family_policy.as_deref() == Some("PreferDualStack");
    allocate::Service {
        created: created(&service.metadata),
        families,
        stack: if prefers { Stack::Any } else { Stack::All },
        request: request(service.annotations().get(ADDRESSES), spec.load_balancer_ip.as_deref()),
        present: present.to_vec(),
        allocated_from: allocated_from(service)
            .filter(|_| wrote_ingress(service))
            .map(str::to_owned),
        claim: LeaseName::claim(&key.namespace, &key.name).to_string(),
    }
}

/// Whether the addresses in the status are as we wrote them: the API server takes the field away from
/// us as soon as anybody else changes it.
fn wrote_ingress(service: &Service) -> bool {
    let entries = service.metadata.managed_fields.iter().flatten();
    let mut ours = entries.filter(|entry| entry.manager.as_deref() == Some(CONTROLLER));
    ours.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let path = ["f:status", "f:loadBalancer", "f:ingress"];
        fields
            .and_then(|fields| path.iter().try_fold(fields, |fields, name| fields.get(name)))
            .is_some()
    })
}

/// When an object was created, in milliseconds since the epoch.
pub(super) fn created(meta: &ObjectMeta) -> allocate::Created {
    meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond())
}

/// The addresses that the annotation asks for, else the field.
fn request(annotation: Option<&String>, field: Option<&str>) -> Result<Vec<IpAddr>, Failure> {
    const FIELD: &str = "spec.loadBalancerIP";
    let parse = |place, entry: &str| {
        entry.parse().map_err(|_| Failure::Malformed { place, entry: entry.to_owned() })
    };
    let annotation = annotation.map_or("", |text| text.trim());
    let field = field.map_or("", str::trim);
    let field = if field.is_empty() { None } else { Some(parse(FIELD, field)?) };
    if annotation.is_empty() {
        return Ok(field.into_iter().collect());
    }
    let entries = annotation.split(',').map(str::trim);
    let asked: Vec<IpAddr> =
        entries.map(|entry| parse(ADDRESSES, entry)).collect::<Result<_, _>>()?;
    match field {
        Some(address) if !asked.contains(&address) => {
            Err(Failure::TwoRequests { field: FIELD, address, annotation: ADDRESSES })
        }
        _ => Ok(asked),
    }
}

/// One write to the status of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWrite {
    /// The addresses that the status has afterwards.
    pub addresses: Vec<IpAddr>,
    /// The pool that it names afterwards.
    pub allocated_from: Option<String>,
    /// What its condition says afterwards; none if the condition goes.
    pub message: Option<String>,
    /// The body of the server-side apply: annotations, condition and addresses together.
    pub patch: serde_json::Value,
    /// What people are told when it is done.
    pub notices: Vec<Notice>,
    /// The failure that it tells of, if that is news.
    pub failure: Option<&'static str>,
    /// Whether it gives addresses.
    pub assigns: bool,
}

impl ServiceWrite {
    /// Whether `other` brings about the same.
    pub fn repeats(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.allocated_from == other.allocated_from
            && self.message == other.message
    }
}

impl ServiceRow {
    /// The claim on record.
    pub fn claim(&self) -> Option<&str> {
        self.claim.as_deref()
    }

    /// The write that makes the Service what `decision` says, or without one takes everything back
    /// that is ours. `None` if it is so already.
    pub fn write(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: Option<&Decision>,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        match decision {
            Some(decision) => self.assign(key, version, decision, now),
            None => self.marked.then(|| self.release(key, version)),
        }
    }

    fn assign(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: &Decision,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        let wish = self.wish.as_ref()?;
        let ingress: Vec<_> = decision.addresses.iter().map(vip).collect();
        let claim = decision.allocated_from.as_ref().map(|_| wish.claim.clone());
        let condition = condition::dated(verdict(decision), self.condition.as_ref(), now);
        let said = self.condition.as_ref().is_some_and(|old| condition::same(old, &condition));
        if said
            && self.ingress == ingress
            && self.claim == claim
            && wish.allocated_from == decision.allocated_from
        {
            return None;
        }
        let failure = decision.failure.as_ref().filter(|failure| !said && !failure.passes());
        let annotations: BTreeMap<&str, &str> =
            [(ALLOCATED_FROM, decision.allocated_from.as_deref()), (CLAIM, claim.as_deref())]
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
        let mut notices = self.address_notices(decision);
        notices.extend(failure.map(|failure| Notice {
            warning: true,
            reason: "AllocationFailed",
            action: "Allocate",
            note: failure.to_string(),
        }));
        let status = json!({ "conditions": [condition], "loadBalancer": { "ingress": ingress } });
        Some(ServiceWrite {
            addresses: decision.addresses.clone(),
            allocated_from: decision.allocated_from.clone(),
            message: Some(condition.message),
            patch: self.patch(key, version, &annotations, &status),
            assigns: notices.iter().any(|notice| notice.reason == ASSIGNED),
            notices,
            failure: failure.map(Failure::reason),
        })
    }

    /// What is left out of a server-side apply is removed where it was ours.
    fn release(&self, key: &ServiceKey, version: u64) -> ServiceWrite {
        let had = list(&self.present);
        let notice = Notice {
            warning: false,
            reason: "AddressReleased",
            action: "Release",
            note: format!("{had}: the service is no longer a load balancer of Leasehold"),
        };
        ServiceWrite {
            addresses: Vec::new(),
            allocated_from: None,
            message: None,
            patch: self.patch(key, version, &BTreeMap::new(), &json!({})),
            notices: if had.is_empty() { Vec::new() } else { vec![notice] },
            failure: None,
            assigns: false,
        }
    }

    fn address_notices(&self, decision: &Decision) -> Vec<Notice> {
        if decision.addresses.is_empty() || decision.addresses == self.present {
            let taken_back = decision.addresses.is_empty() && !self.present.is_empty();
            return taken_back
                .then(|| Notice {
                    warning: false,
                    reason: "AddressReleased",
                    action: "Release",
                    note: list(&self.present),
                })
                .into_iter()
                .collect();
        }
        let mut note = said(decision);
        let lost: Vec<IpAddr> =
            self.present.iter().filter(|ip| !decision.addresses.contains(ip)).copied().collect();
        if !lost.is_empty() {
            note = format!("{note}, instead of {}", list(&lost));
        }
        vec![Notice { warning: false, reason: ASSIGNED, action: "Allocate", note }]
    }

    fn patch(
        &self,
        key: &ServiceKey,
        version: u64,
        annotations: &BTreeMap<&str, &str>,
        status: &serde_json::Value,
    ) -> serde_json::Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": self.uid,
                "resourceVersion": version.to_string(),
                "annotations": annotations,
            },
            "status": status,
        })
    }

    /// The Service as the object of an event.
    pub fn reference(&self, key: &ServiceKey) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

fn vip(ip: &IpAddr) -> LoadBalancerIngress {
    LoadBalancerIngress {
        ip: Some(ip.to_string()),
        ip_mode: Some("VIP".to_owned()),
        ..LoadBalancerIngress::default()
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// `192.0.2.1, 2001:db8::1 from pool lan`
fn said(decision: &Decision) -> String {
    let pool = decision.allocated_from.as_deref().unwrap_or_default();
    format!("{} from pool {pool}", list(&decision.addresses))
}

fn verdict(decision: &Decision) -> condition::Verdict {
    match (&decision.failure, &decision.shortfall) {
        (Some(failure), _) => condition::Verdict {
            type_: ALLOCATED,
            status: false,
            reason: failure.reason(),
            message: failure.to_string(),
            generation: None,
        },
        (None, shortfall) => condition::Verdict {
            type_: ALLOCATED,
            status: true,
            reason: ASSIGNED,
            message: match shortfall {
                Some(shortfall) => format!("{}; {shortfall}", said(decision)),
                None => said(decision),
            },
            generation: None,
        },
    }
}
