//! The write to a Service: its addresses, annotations and conditions, by one server-side apply.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use leasehold_crds::event::Reason;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::service::{ADDRESS_CLAIMS, ALLOCATED_FROM, CLAIM, Claims};
use serde::Serialize;

use super::conditions::{self, Report, Reports};
use super::events;
use super::rivals::{Contest, Given};
use super::{ServiceRow, VIP, is_vip};
use crate::allocate::{Decision, Failure, ServiceKey};
use crate::reconcile::condition;
use crate::report::events::Notice;

/// One write to the status of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceWrite {
    /// The addresses that the status has afterwards.
    pub addresses: Vec<IpAddr>,
    /// The pool that it names afterwards.
    pub allocated_from: Option<String>,
    /// The claims that it names afterwards.
    pub claims: Option<Claims>,
    /// The messages of its conditions afterwards; none if they go.
    pub message: Option<String>,
    /// The body of the server-side apply: annotations, condition and addresses together.
    pub body: Body,
    /// The events to publish when it is done.
    pub notices: Vec<Notice>,
    /// The failure that it reports, if that is news.
    pub failure: Option<&'static str>,
    /// Whether it gives addresses.
    pub assigns: bool,
    /// Whether it changes nothing but the condition about announcement.
    pub only_reports: bool,
}

/// The body of a server-side apply. Ten thousand of these may wait: as a [`serde_json::Value`] each would take several
/// times as much memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    annotations: BTreeMap<&'static str, String>,
}

/// Fields that are left out are removed where they were of this operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<Condition>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_balancer: Option<LoadBalancerStatus>,
}

/// The content of a write beside the decision.
#[derive(Debug)]
pub struct Supplement<'a> {
    /// The addresses that have claims of their own.
    pub(in crate::reconcile) by_address: BTreeSet<LeaseName>,
    /// The conditions about announcement and data path.
    pub(in crate::reconcile) reports: Reports,
    /// The rivals that write to the Service.
    pub(in crate::reconcile) contest: Option<Contest<'a>>,
    /// The addresses that it had, whatever others have written to its status.
    pub(in crate::reconcile) had: Vec<IpAddr>,
}

impl ServiceWrite {
    /// The addresses, pool and claims that it gives.
    pub(in crate::reconcile) fn given(&self) -> Given {
        Given {
            addresses: self.addresses.clone(),
            allocated_from: self.allocated_from.clone(),
            claims: self.claims.clone(),
        }
    }

    /// Whether one of its events reports that a rival writes to the Service.
    pub(in crate::reconcile) fn reports_contest(&self) -> bool {
        self.notices.iter().any(|notice| notice.reason == Reason::OtherWriter)
    }

    /// Whether `other` has the same effect.
    pub fn repeats(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.allocated_from == other.allocated_from
            && self.claims == other.claims
            && self.message == other.message
    }
}

impl ServiceRow {
    /// The write that gives the Service what `decision` says, or without one takes back everything that is
    /// ours. `None` if nothing differs.
    pub fn write(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: Option<&Decision>,
        supplement: Supplement<'_>,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        match decision {
            Some(decision) => self.assign(key, version, decision, supplement, now),
            None => self.take_back(key, version),
        }
    }

    /// The write that takes back everything that is ours; `None` if nothing is.
    pub fn take_back(&self, key: &ServiceKey, version: u64) -> Option<ServiceWrite> {
        self.marked.then(|| self.release(key, version))
    }

    /// The write that gives the Service its addresses and conditions.
    fn assign(
        &self,
        key: &ServiceKey,
        version: u64,
        decision: &Decision,
        supplement: Supplement<'_>,
        now: Timestamp,
    ) -> Option<ServiceWrite> {
        self.request.as_ref()?;
        let Supplement { by_address, reports, contest, had } = supplement;
        let old = self.condition.as_ref();
        let outlasts = old.filter(|old| contest.is_none() && conditions::outlasts(old, decision));
        let said = outlasts.is_some()
            || old.is_some_and(|old| conditions::says(old, key, decision, contest));
        let before = self.announced.as_ref();
        let Reports { announced, data_path } = reports;
        let announced = if outlasts.is_some() { Report::Later } else { announced };
        let spread = self.data_path.as_ref();
        let reported = announced.is_said_by(before) && data_path.is_said_by(spread);
        // A claim that others wrote to a Service without an address governs nothing, and is theirs.
        let claims = decision.claim.clone().map(|claim| Claims { claim, by_address });
        let governed = claims.is_none() || claims == self.claims;
        let recorded = decision.allocated_from.is_none() || decision.allocated_from == self.noted;
        let decided = said
            && governed
            && recorded
            && self.written.plainly
            && self.present == decision.addresses;
        if decided && reported {
            return None;
        }
        let mut notices = events::notices(key, &had, decision, old, said);
        let unreported = contest.filter(|_| !self.reports_contest());
        notices.extend(unreported.and_then(events::of_contest));
        let verdict = || condition::dated(conditions::verdict(key, decision, contest), old, now);
        let mut conditions = vec![outlasts.cloned().unwrap_or_else(verdict)];
        match announced {
            Report::Nothing => {}
            Report::Later => conditions.extend(before.cloned()),
            Report::Now(verdict) => {
                notices.extend(events::of_announcement(&verdict, decision, before));
                conditions.push(condition::dated(verdict, before, now));
            }
        }
        match data_path {
            Report::Nothing => {}
            Report::Later => conditions.extend(spread.cloned()),
            Report::Now(verdict) => {
                notices.extend(events::of_data_path(&verdict, spread));
                conditions.push(condition::dated(verdict, spread, now));
            }
        }
        let messages = conditions.iter().map(|condition| condition.message.as_str());
        let message = messages.collect::<Vec<_>>().join("; ");
        let ingress: Vec<_> = decision.addresses.iter().map(|ip| self.entry(*ip)).collect();
        let claim = claims.as_ref().map(|claims| claims.claim.to_string());
        let further = claims.as_ref().map(|claims| {
            claims.by_address.iter().map(LeaseName::as_str).collect::<Vec<_>>().join(",")
        });
        let further = further.filter(|names| !names.is_empty());
        let allocated_from = decision.allocated_from.clone();
        let annotations =
            [(ALLOCATED_FROM, allocated_from), (CLAIM, claim), (ADDRESS_CLAIMS, further)]
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
        let failure = decision.failure.as_ref().filter(|failure| !said && !failure.passes());
        let load_balancer = LoadBalancerStatus { ingress: Some(ingress) };
        let status = Status { conditions: Some(conditions), load_balancer: Some(load_balancer) };
        Some(ServiceWrite {
            addresses: decision.addresses.clone(),
            allocated_from: decision.allocated_from.clone(),
            claims,
            message: Some(message),
            body: self.body(key, version, annotations, status),
            assigns: notices.iter().any(|notice| notice.reason == Reason::AddressAssigned),
            notices,
            failure: failure.map(Failure::reason),
            only_reports: decided,
        })
    }

    /// The entry of an address, with the additions of others.
    fn entry(&self, ip: IpAddr) -> LoadBalancerIngress {
        let is_it = |entry: &&LoadBalancerIngress| is_vip(entry, ip);
        self.decorated.iter().find(is_it).map_or_else(
            || vip(ip),
            |entry| LoadBalancerIngress { ip_mode: vip(ip).ip_mode, ..entry.clone() },
        )
    }

    /// The write of nothing: a server-side apply removes the fields of ours that it leaves out.
    fn release(&self, key: &ServiceKey, version: u64) -> ServiceWrite {
        ServiceWrite {
            addresses: Vec::new(),
            allocated_from: None,
            claims: None,
            message: None,
            body: self.body(key, version, BTreeMap::new(), Status::default()),
            notices: events::released(&self.present).into_iter().collect(),
            failure: None,
            assigns: false,
            only_reports: false,
        }
    }

    fn body(
        &self,
        key: &ServiceKey,
        version: u64,
        annotations: BTreeMap<&'static str, String>,
        status: Status,
    ) -> Body {
        let metadata = Metadata {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            uid: self.uid.clone(),
            resource_version: version.to_string(),
            annotations,
        };
        Body { api_version: "v1", kind: "Service", metadata, status }
    }
}

/// The entry of an address as we write it.
fn vip(ip: IpAddr) -> LoadBalancerIngress {
    LoadBalancerIngress {
        ip: Some(ip.to_string()),
        ip_mode: Some(VIP.to_owned()),
        ..LoadBalancerIngress::default()
    }
}
