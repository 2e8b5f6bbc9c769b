//! Pools: their entries and rules, and their status.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;
use kube::{Resource, ResourceExt};
use leasehold_core::explain::first_of;
use leasehold_crds::IPAddressPool;
use leasehold_crds::event::Reason;
use leasehold_crds::pool::{IPAddressPoolStatus, OVERLAPPING, READY, ServiceAllocation};
use leasehold_crds::range::IpRange;
use leasehold_crds::selector;
use serde_json::json;

use super::condition::{self, Verdict, all_same};
use super::table::{Row, created};
use crate::allocate::{Labels, Overlap, Pool, Rules, Scope, Usage, Why};
use crate::report::events::Notice;

/// The largest number of parts of a pool that a condition names.
const SHOWN: usize = 8;

/// The reason of `Ready` while entries cannot be used, and of the event that tells of it.
const INVALID_ADDRESSES: &str = Reason::InvalidAddresses.as_str();
/// The reason of `Ready` while selectors cannot be read, and of the event that tells of it.
const INVALID_SELECTOR: &str = Reason::InvalidSelector.as_str();

/// The row of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolRow {
    /// The pool, with its valid entries.
    pub pool: Pool,
    /// Its labels.
    pub labels: Labels,
    generation: Option<i64>,
    /// The errors of entries.
    errors: Vec<String>,
    /// The errors of selectors.
    unreadable: Vec<String>,
    status: Option<IPAddressPoolStatus>,
    reference: ObjectReference,
}

impl Row for PoolRow {
    type Key = String;
    type Object = IPAddressPool;

    fn read(object: &IPAddressPool) -> Option<Self> {
        let (mut ranges, mut errors) = (Vec::new(), Vec::new());
        for entry in &object.spec.addresses {
            match entry.parse() {
                Ok(range) => match range.reserved() {
                    Some(what) => errors
                        .push(format!("`{}` contains only reserved addresses: {what}", entry.0)),
                    None => ranges.push(range),
                },
                Err(error) => errors.push(error.to_string()),
            }
        }
        // An entry that cannot be read excludes nothing: the condition says so.
        for entry in &object.spec.excluded_addresses {
            match entry.parse() {
                Ok(out) => ranges = ranges.iter().flat_map(|range| range.without(&out)).collect(),
                Err(error) => errors.push(format!("excludedAddresses: {error}")),
            }
        }
        let spec = &object.spec;
        let mut unreadable = Vec::new();
        let rules = Rules {
            auto_assign: spec.auto_assign,
            avoid_buggy: spec.avoid_buggy_ips,
            disabled: spec.disabled,
            sharing: spec.sharing,
            scope: spec
                .service_allocation
                .as_ref()
                .map(|allocation| scope(allocation, &mut unreadable))
                .unwrap_or_default(),
        };
        Some(Self {
            pool: Pool { created: created(&object.metadata), ranges, rules },
            labels: object.labels().clone(),
            generation: object.metadata.generation,
            errors,
            unreadable,
            status: object.status.clone(),
            reference: object.object_ref(&()),
        })
    }

    fn key(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// The services that a pool admits; errors in its selectors are added to `errors`.
fn scope(allocation: &ServiceAllocation, errors: &mut Vec<String>) -> Scope {
    let before = errors.len();
    let mut read = |field: &str, selectors: &[LabelSelector]| -> Vec<Selector> {
        let mut good = Vec::with_capacity(selectors.len());
        for (index, selector) in selectors.iter().enumerate() {
            match selector::read(selector) {
                Ok(selector) => good.push(selector),
                Err(error) => errors.push(format!(
                    "serviceAllocation.{field}[{index}] is not a valid selector: {error}"
                )),
            }
        }
        good
    };
    let namespace_selectors = read("namespaceSelectors", &allocation.namespace_selectors);
    let service_selectors = read("serviceSelectors", &allocation.service_selectors);
    Scope {
        priority: allocation.priority,
        namespaces: allocation.namespaces.iter().cloned().collect(),
        namespace_selectors,
        service_selectors,
        closed: errors.len() > before,
    }
}

/// One write to the status of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolWrite {
    /// The body of the server-side apply.
    pub patch: serde_json::Value,
    /// The events to publish when it is done.
    pub notices: Vec<Notice>,
}

impl PoolRow {
    /// The write that brings the status up to date; `None` if it is already.
    pub fn write(
        &self,
        name: &str,
        usage: Usage,
        overlaps: &[Overlap],
        unusable: &[(IpRange, Why)],
        now: Timestamp,
    ) -> Option<PoolWrite> {
        let old = |type_: &str| {
            let conditions = self.status.as_ref().map(|status| status.conditions.as_slice());
            conditions.unwrap_or_default().iter().find(|condition| condition.type_ == type_)
        };
        let ready = condition::dated(self.ready(unusable), old(READY), now);
        let overlapping = condition::dated(self.overlapping(overlaps), old(OVERLAPPING), now);
        let status = IPAddressPoolStatus {
            assigned_ipv4: capped(usage.assigned_v4),
            available_ipv4: capped(usage.available_v4),
            assigned_ipv6: capped(usage.assigned_v6),
            available_ipv6: capped(usage.available_v6),
            conditions: vec![ready, overlapping],
        };
        if self.status.as_ref().is_some_and(|old| says(old, &status)) {
            return None;
        }
        let mut notices = Vec::new();
        for (condition, bad) in status.conditions.iter().zip(["False", "True"]) {
            let news = old(&condition.type_).is_none_or(|old| old.message != condition.message);
            if condition.status == bad && news {
                notices.push(Notice {
                    reason: match condition.reason.as_str() {
                        INVALID_SELECTOR => Reason::InvalidSelector,
                        INVALID_ADDRESSES => Reason::InvalidAddresses,
                        _ => Reason::Overlapping,
                    },
                    note: condition.message.clone(),
                });
            }
        }
        let patch = json!({
            "apiVersion": IPAddressPool::api_version(&()),
            "kind": IPAddressPool::kind(&()),
            "metadata": { "name": name, "uid": self.reference.uid },
            "status": status,
        });
        Some(PoolWrite { patch, notices })
    }

    fn ready(&self, unusable: &[(IpRange, Why)]) -> Verdict {
        let mut wrong = Vec::new();
        if !self.unreadable.is_empty() {
            wrong.push(format!(
                "{}; until you correct the pool, it serves no Service",
                first_of(&self.unreadable, SHOWN, "; ")
            ));
        }
        if !self.errors.is_empty() {
            wrong.push(format!(
                "{}; the other entries remain in use",
                first_of(&self.errors, SHOWN, "; ")
            ));
        }
        let reason = match (self.unreadable.is_empty(), self.errors.is_empty()) {
            (true, true) => "AddressesValid",
            (true, false) => INVALID_ADDRESSES,
            (false, _) => INVALID_SELECTOR,
        };
        let status = wrong.is_empty();
        let mut message =
            if status { "all entries are valid".to_owned() } else { wrong.join("; ") };
        let unusable: Vec<String> =
            unusable.iter().map(|(range, why)| format!("{range} ({why})")).collect();
        if !unusable.is_empty() {
            let shown = first_of(&unusable, SHOWN, ", ");
            message = format!("{message}; never allocated, because no host can use them: {shown}");
        }
        Verdict { type_: READY, status, reason, message, generation: self.generation }
    }

    fn overlapping(&self, overlaps: &[Overlap]) -> Verdict {
        let shared: Vec<String> = overlaps
            .iter()
            .map(|overlap| {
                format!("{} belongs to the older pool {}", overlap.shared, overlap.owner)
            })
            .collect();
        let status = !shared.is_empty();
        let message = if status {
            format!("{}: remove it from one of the pools", first_of(&shared, SHOWN, "; "))
        } else {
            "no address belongs to an older pool".to_owned()
        };
        let reason = if status { "EarlierPool" } else { "NoOverlap" };
        Verdict { type_: OVERLAPPING, status, reason, message, generation: self.generation }
    }

    /// The pool as the object of an event.
    pub fn reference(&self) -> &ObjectReference {
        &self.reference
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether two statuses have the same content.
fn says(a: &IPAddressPoolStatus, b: &IPAddressPoolStatus) -> bool {
    let conditions = |status: &IPAddressPoolStatus| -> Vec<Condition> { status.conditions.clone() };
    let counts = |status: &IPAddressPoolStatus| {
        let v4 = (status.assigned_ipv4, status.available_ipv4);
        (v4, status.assigned_ipv6, status.available_ipv6)
    };
    counts(a) == counts(b) && all_same(&conditions(a), &conditions(b))
}
