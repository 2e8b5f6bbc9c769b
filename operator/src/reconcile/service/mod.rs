//! Services: the row of one, and the write that gives it its addresses.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | the request of a Service, from its spec and annotations |
//! | `managers` | the writers of its fields |
//! | `rivals` | controllers that repeatedly revert our writes, and the back-off against them |
//! | `conditions` | its conditions about allocation and announcement |
//! | `data_path` | that about the data path |
//! | `events` | its events |
//! | [`mod@write`] | one write to it |

pub(super) mod conditions;
pub(super) mod data_path;
pub(super) mod events;
mod managers;
pub mod request;
pub(super) mod rivals;
pub mod write;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, ObjectReference, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::service::{
    ALLOCATED, ALLOCATED_FROM, ANNOUNCED, CLAIM, Claims, DATA_PATH, allocated_from, ingress_ips,
    is_ours,
};

use self::conditions::{CONTESTED, NO_ENDPOINT, is_of_retained};
use self::managers::{INGRESS, Rival, wrote};
use self::request::recorded_claims;
use self::rivals::Mark;
use super::table::Row;
use crate::allocate::{self, ServiceKey};

/// `ipMode` of an address that nodes answer for.
const VIP: &str = "VIP";

/// The row of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRow {
    /// The uid.
    pub uid: String,
    /// Whether it names no class.
    pub classless: bool,
    /// Its request, if it makes one, whatever its class.
    pub request: Option<allocate::Service>,
    /// The addresses in its status.
    pub present: Vec<IpAddr>,
    /// The writers of these.
    pub written: Written,
    /// Whether it bears an annotation or a condition that we wrote.
    pub marked: bool,
    claims: Option<Claims>,
    /// The pool on record, by any writer.
    noted: Option<String>,
    /// The last other writer of the fields that we write, where they are not as we wrote them.
    rival: Option<Rival>,
    /// The entries of addresses to which others have added a name or ports.
    decorated: Vec<LoadBalancerIngress>,
    /// The condition about allocation.
    condition: Option<Condition>,
    /// The condition about announcement.
    announced: Option<Condition>,
    /// The condition about the data path.
    data_path: Option<Condition>,
    /// `spec.externalTrafficPolicy`.
    pub traffic: Traffic,
}

/// The writers of the addresses in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether we wrote them and no other client has changed them since.
    pub by_us: bool,
    /// Whether they have the form in which we write them, but for additions of others.
    pub plainly: bool,
    /// Whether we wrote them and the annotations about them, and no other client has changed either since.
    pub intact: bool,
}

/// The nodes that forward to the endpoints of a Service: `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// All.
    Cluster,
    /// Those on which endpoints are.
    Local,
}

impl Row for ServiceRow {
    type Key = ServiceKey;
    type Object = Service;

    /// Reads Services that request an address, have one, or bear a mark of ours.
    fn read(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let key = Self::key(&service.metadata)?;
        let present: Vec<IpAddr> = ingress_ips(service).filter_map(|ip| ip.parse().ok()).collect();
        let ours = wrote(service, &INGRESS);
        let pool = allocated_from(service);
        let claims = recorded_claims(service);
        let annotated = |name: &str| {
            let field = format!("f:{name}");
            wrote(service, &["f:metadata", "f:annotations", &field])
        };
        let intact = ours
            && claims.is_some()
            && pool.is_some()
            && [CLAIM, ALLOCATED_FROM].into_iter().all(annotated);
        let request = is_ours(service, true)
            .then(|| request::read(service, spec, &key, &present, pool.filter(|_| ours)));
        let status = service.status.as_ref();
        let said = |type_| conditions(status).iter().find(|condition| condition.type_ == type_);
        let condition = said(ALLOCATED);
        let noted = pool.is_some() || service.annotations().contains_key(CLAIM);
        let marked = (noted || condition.is_some()) && wrote(service, &[]);
        if request.is_none() && present.is_empty() && !marked {
            return None;
        }
        let decorated = |entry: &&LoadBalancerIngress| {
            entry.ip.is_some() && (entry.hostname.is_some() || entry.ports.is_some())
        };
        Some(Self {
            uid: service.metadata.uid.clone()?,
            classless: spec.load_balancer_class.is_none(),
            request,
            written: Written {
                by_us: ours,
                plainly: ingress(status).len() == present.len()
                    && ingress(status).iter().zip(&present).all(|(entry, ip)| is_vip(entry, *ip)),
                intact,
            },
            marked,
            claims,
            noted: pool.map(str::to_owned),
            rival: if intact { None } else { managers::rival(service) },
            decorated: ingress(status).iter().filter(decorated).cloned().collect(),
            present,
            condition: condition.cloned(),
            announced: said(ANNOUNCED).cloned(),
            data_path: said(DATA_PATH).cloned(),
            traffic: match spec.external_traffic_policy.as_deref() {
                Some("Local") => Traffic::Local,
                _ => Traffic::Cluster,
            },
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

impl ServiceRow {
    /// The claim on record.
    pub fn claim(&self) -> Option<&LeaseName> {
        self.claims.as_ref().map(|claims| &claims.claim)
    }

    /// The claim on record, with those of single addresses.
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// Whether its condition reports already an address that no pool offers any more.
    pub fn reports_retained(&self) -> bool {
        self.condition.as_ref().is_some_and(is_of_retained)
    }

    /// The reason for which it lacks an address or is not announced, from its conditions.
    pub fn trouble(&self) -> Option<String> {
        let conditions = [&self.condition, &self.announced].into_iter().flatten();
        let mut wrong = conditions.filter(|condition| condition.status == "False");
        wrong.next().map(|condition| condition.message.clone())
    }

    /// Whether its condition reports that packets are not spread as its policy says.
    pub fn reports_not_spread(&self) -> bool {
        self.data_path.as_ref().is_some_and(|condition| condition.status == "False")
    }

    /// Whether it has a condition about its announcement already.
    pub fn reports_announcement(&self) -> bool {
        self.announced.is_some()
    }

    /// Whether its condition reports already that it has no endpoint.
    pub fn reports_no_endpoint(&self) -> bool {
        self.announced.as_ref().is_some_and(|condition| condition.reason == NO_ENDPOINT)
    }

    /// The hashes of the fields that we write.
    pub(super) fn mark(&self) -> Mark {
        let mut shape = DefaultHasher::new();
        let mut present = self.present.clone();
        present.sort_unstable();
        let claims = self.claims.as_ref().map(|claims| (&claims.claim, &claims.by_address));
        (present, self.written.plainly, &self.noted, claims).hash(&mut shape);
        self.condition.is_some().hash(&mut shape);
        let mut whole = shape.clone();
        self.present.hash(&mut whole);
        for said in [&self.condition, &self.announced, &self.data_path] {
            said.as_ref().map(|it| (&it.status, &it.reason, &it.message)).hash(&mut whole);
        }
        Mark { whole: whole.finish(), shape: shape.finish() }
    }

    /// The last other writer of the fields that we write, as far as the API server records it.
    pub(super) const fn rival(&self) -> Option<&Rival> {
        self.rival.as_ref()
    }

    /// The pool on record, by any writer.
    pub(super) fn noted(&self) -> Option<&str> {
        self.noted.as_deref()
    }

    /// Whether its condition reports already that a rival writes to it.
    pub(super) fn reports_contest(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.reason == CONTESTED)
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

/// Whether an entry of the status has `ip`, written as we write it, as an address that nodes answer for.
/// A hostname or ports that others added do not matter.
fn is_vip(entry: &LoadBalancerIngress, ip: IpAddr) -> bool {
    entry.ip.as_ref().is_some_and(|text| *text == ip.to_string())
        && entry.ip_mode.as_deref().is_none_or(|mode| mode == VIP)
}
