//! Services: what one asks for and has, and the write that brings both together.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, ObjectReference, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::service::{
    ADDRESS_CLAIMS, ALLOCATED_FROM, CLAIM, Claims, allocated_from, ingress_ips, is_ours,
};
pub use leasehold_crds::service::{ALLOCATED, ANNOUNCED};
use serde_json::json;

use super::announcing::Telling;
use super::condition;
use super::managers::{self, INGRESS, Rival, wrote};
use super::rivals::{Contest, Given, Mark};
use super::table::Row;
use super::tell;
use super::wish::{recorded_claims, wish};
use crate::allocate::{self, Decision, Failure, ServiceKey};
use crate::report::events::Notice;

/// `ipMode` of an address that nodes answer for.
const VIP: &str = "VIP";

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRow {
    /// The uid.
    pub uid: String,
    /// Whether it names no class.
    pub classless: bool,
    /// What it wants from us, if it does.
    pub wish: Option<allocate::Service>,
    /// The addresses in its status.
    pub present: Vec<IpAddr>,
    /// How these were written.
    pub written: Written,
    /// Whether it bears an annotation or a condition that we wrote.
    pub marked: bool,
    claims: Option<Claims>,
    /// The pool on record, whoever wrote it there.
    noted: Option<String>,
    /// Who changed last what we write, where that is not as we wrote it.
    rival: Option<Rival>,
    /// The entries of addresses to which somebody has added a name or ports.
    decorated: Vec<LoadBalancerIngress>,
    condition: Option<Condition>,
    /// What it says of who announces it.
    announced: Option<Condition>,
    /// `spec.externalTrafficPolicy`.
    pub traffic: Traffic,
}

/// How the addresses in a status were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// By us, and nobody has changed them since.
    pub by_us: bool,
    /// In the form in which we write them, but for what others add to them.
    pub plainly: bool,
    /// They and the annotations about them by us, and nobody has changed either since.
    pub intact: bool,
}

/// From which nodes the endpoints of a Service are reached by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// From all.
    Cluster,
    /// From those on which they are.
    Local,
}

impl Row for ServiceRow {
    type Key = ServiceKey;
    type Object = Service;

    /// Keeps Services that want an address, have one, or bear a mark of ours.
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
        let wish = is_ours(service, true)
            .then(|| wish(service, spec, &key, &present, pool.filter(|_| ours)));
        let status = service.status.as_ref();
        let said = |type_| conditions(status).iter().find(|condition| condition.type_ == type_);
        let condition = said(ALLOCATED);
        let noted = pool.is_some() || service.annotations().contains_key(CLAIM);
        let marked = (noted || condition.is_some()) && wrote(service, &[]);
        if wish.is_none() && present.is_empty() && !marked {
            return None;
        }
        let decorated = |entry: &&LoadBalancerIngress| {
            entry.ip.is_some() && (entry.hostname.is_some() || entry.ports.is_some())
        };
        Some(Self {
            uid: service.metadata.uid.clone()?,
            classless: spec.load_balancer_class.is_none(),
            wish,
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

/// When an object was created, in milliseconds since the epoch.
pub(super) fn created(meta: &ObjectMeta) -> allocate::Created {
    meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond())
}

/// One write to the status of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWrite {
    /// The addresses that the status has afterwards.
    pub addresses: Vec<IpAddr>,
    /// The pool that it names afterwards.
    pub allocated_from: Option<String>,
    /// The claims that it names afterwards.
    pub claims: Option<Claims>,
    /// What its conditions say afterwards; none if they go.
    pub message: Option<String>,
    /// The body of the server-side apply: annotations, condition and addresses together.
    pub patch: serde_json::Value,
    /// What people are told when it is done.
    pub notices: Vec<Notice>,
    /// The failure that it tells of, if that is news.
    pub failure: Option<&'static str>,
    /// Whether it gives addresses.
    pub assigns: bool,
    /// Whether it does no more than say who announces them.
    pub only_tells: bool,
}

/// What a write says beside what was decided.
#[derive(Debug)]
pub struct Beside<'a> {
    /// The addresses that have claims of their own.
    pub(super) by_address: BTreeSet<LeaseName>,
    /// Who announces them.
    pub(super) announced: Telling,
    /// Who else writes to the Service.
    pub(super) contest: Option<Contest<'a>>,
    /// The addresses that it had, whatever others have written to its status.
    pub(super) had: Vec<IpAddr>,
}

impl ServiceWrite {
    /// What it gives.
    pub(super) fn given(&self) -> Given {
        Given {
            addresses: self.addresses.clone(),
            allocated_from: self.allocated_from.clone(),
            claims: self.claims.clone(),
        }
    }

    /// Whether it tells by an event that a rival writes to the Service.
    pub(super) fn tells_of_contest(&self) -> bool {
        self.notices.iter().any(|notice| notice.reason == tell::CONTESTED)
    }

    /// Whether `other` brings about the same.
    pub fn repeats(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.allocated_from == other.allocated_from
            && self.claims == other.claims
            && self.message == other.message
    }
}

impl ServiceRow {
    /// The claim on record.
    pub fn claim(&self) -> Option<&LeaseName> {
        self.claims.as_ref().map(|claims| &claims.claim)
    }

    /// That and those of single addresses.
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// Whether it says already that an address is kept that no pool would give out any more.
    pub fn is_told_of_kept(&self) -> bool {
        self.condition.as_ref().is_some_and(tell::is_of_kept)
    }

    /// What its conditions say of why it lacks an address, or nobody announces it.
    pub fn trouble(&self) -> Option<String> {
        let conditions = [&self.condition, &self.announced].into_iter().flatten();
        let mut wrong = conditions.filter(|condition| condition.status == "False");
        wrong.next().map(|condition| condition.message.clone())
    }

    /// Whether it says already that it has no endpoint.
    pub fn is_told_of_no_endpoint(&self) -> bool {
        self.announced.as_ref().is_some_and(|condition| condition.reason == tell::NO_ENDPOINT)
    }

    /// How the fields that we write read.
    pub(super) fn mark(&self) -> Mark {
        let mut shape = DefaultHasher::new();
        let mut present = self.present.clone();
        present.sort_unstable();
        let claims = self.claims.as_ref().map(|claims| (&claims.claim, &claims.by_address));
        (present, self.written.plainly, &self.noted, claims).hash(&mut shape);
        self.condition.is_some().hash(&mut shape);
        let mut whole = shape.clone();
        self.present.hash(&mut whole);
        for said in [&self.condition, &self.announced] {
            said.as_ref().map(|it| (&it.status, &it.reason, &it.message)).hash(&mut whole);
        }
        Mark { whole: whole.finish(), shape: shape.finish() }
    }

    /// Who changed last what we write, as far as the API server tells.
    pub(super) const fn rival(&self) -> Option<&Rival> {
        self.rival.as_ref()
    }

    /// The pool on record, whoever wrote it there.
    pub(super) fn noted(&self) -> Option<&str> {
        self.noted.as_deref()
    }

    /// Whether it says that a rival writes to it.
    pub(super) fn says_that_it_is_contested(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.reason == tell::CONTESTED)
    }

    /// The write that makes the Service what `decision` says, or without one takes everything back
    /// that is ours. `None` if it is so already.
    pub fn write(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: Option<&Decision>,
        beside: Beside<'_>,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        match decision {
            Some(decision) => self.assign(key, version, decision, beside, now),
            None => self.take_back(key, version),
        }
    }

    /// The write that takes everything back that is ours; `None` if nothing is.
    pub fn take_back(&self, key: &ServiceKey, version: u64) -> Option<ServiceWrite> {
        self.marked.then(|| self.release(key, version))
    }

    fn assign(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: &Decision,
        beside: Beside<'_>,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        self.wish.as_ref()?;
        let Beside { by_address, announced, contest, had } = beside;
        let old = self.condition.as_ref();
        let outlasts = old.filter(|old| contest.is_none() && tell::outlasts(old, decision));
        let said =
            outlasts.is_some() || old.is_some_and(|old| tell::says(old, key, decision, contest));
        let before = self.announced.as_ref();
        let announced = if outlasts.is_some() { Telling::Later } else { announced };
        let told = match (before, &announced) {
            (_, Telling::Later) => true,
            (Some(before), Telling::Now(verdict)) => condition::says(before, verdict),
            (before, Telling::Nothing) => before.is_none(),
            (None, Telling::Now(_)) => false,
        };
        // A name that somebody wrote to a Service without an address governs nothing, and is theirs.
        let claims = decision.claim.clone().map(|claim| Claims { claim, by_address });
        let governed = claims.is_none() || claims == self.claims;
        let recorded = decision.allocated_from.is_none() || decision.allocated_from == self.noted;
        let decided = said
            && governed
            && recorded
            && self.written.plainly
            && self.present == decision.addresses;
        if decided && told {
            return None;
        }
        let mut notices = tell::notices(key, &had, decision, old, said);
        let untold = contest.filter(|_| !self.says_that_it_is_contested());
        notices.extend(untold.and_then(tell::of_contest));
        let verdict = || condition::dated(tell::verdict(key, decision, contest), old, now);
        let mut conditions = vec![outlasts.cloned().unwrap_or_else(verdict)];
        match announced {
            Telling::Nothing => {}
            Telling::Later => conditions.extend(before.cloned()),
            Telling::Now(verdict) => {
                notices.extend(tell::of_announcement(&verdict, decision, before));
                conditions.push(condition::dated(verdict, before, now));
            }
        }
        let messages = conditions.iter().map(|condition| condition.message.as_str());
        let message = messages.collect::<Vec<_>>().join("; ");
        let ingress: Vec<_> = decision.addresses.iter().map(|ip| self.entry(*ip)).collect();
        let claim = claims.as_ref().map(|claims| claims.claim.as_str());
        let further = claims.as_ref().map(|claims| {
            claims.by_address.iter().map(LeaseName::as_str).collect::<Vec<_>>().join(",")
        });
        let further = further.as_deref().filter(|names| !names.is_empty());
        let allocated_from = decision.allocated_from.as_deref();
        let annotations: BTreeMap<&str, &str> =
            [(ALLOCATED_FROM, allocated_from), (CLAIM, claim), (ADDRESS_CLAIMS, further)]
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
        let failure = decision.failure.as_ref().filter(|failure| !said && !failure.passes());
        let status = json!({ "conditions": conditions, "loadBalancer": { "ingress": ingress } });
        let patch = self.patch(key, version, &annotations, &status);
        Some(ServiceWrite {
            addresses: decision.addresses.clone(),
            allocated_from: decision.allocated_from.clone(),
            claims,
            message: Some(message),
            patch,
            assigns: notices.iter().any(|notice| notice.reason == tell::ASSIGNED),
            notices,
            failure: failure.map(Failure::reason),
            only_tells: decided,
        })
    }

    /// The entry of an address, with what others have added to it.
    fn entry(&self, ip: IpAddr) -> LoadBalancerIngress {
        let is_it = |entry: &&LoadBalancerIngress| is_vip(entry, ip);
        self.decorated.iter().find(is_it).map_or_else(
            || vip(ip),
            |entry| LoadBalancerIngress { ip_mode: vip(ip).ip_mode, ..entry.clone() },
        )
    }

    /// What is left out of a server-side apply is removed where it was ours.
    fn release(&self, key: &ServiceKey, version: u64) -> ServiceWrite {
        ServiceWrite {
            addresses: Vec::new(),
            allocated_from: None,
            claims: None,
            message: None,
            patch: self.patch(key, version, &BTreeMap::new(), &json!({})),
            notices: tell::released(&self.present).into_iter().collect(),
            failure: None,
            assigns: false,
            only_tells: false,
        }
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

fn vip(ip: IpAddr) -> LoadBalancerIngress {
    LoadBalancerIngress {
        ip: Some(ip.to_string()),
        ip_mode: Some(VIP.to_owned()),
        ..LoadBalancerIngress::default()
    }
}

/// Whether an entry of the status has `ip`, written as we write it, as an address that nodes answer for.
/// A hostname or ports that somebody added change nothing about that.
fn is_vip(entry: &LoadBalancerIngress, ip: IpAddr) -> bool {
    entry.ip.as_ref().is_some_and(|text| *text == ip.to_string())
        && entry.ip_mode.as_deref().is_none_or(|mode| mode == VIP)
}
