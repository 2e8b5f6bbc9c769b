//! Policies: their status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::policy::{ACCEPTED, AnnouncementPolicyStatus, EFFECTIVE, Policy, PolicyError};
use serde_json::json;

use super::condition::{self, Verdict, all_same};
use super::table::Row;
use leasehold::api::causes;

/// The row of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRow {
    /// The policy, without the metadata that changes with each write.
    pub object: AnnouncementPolicy,
}

impl Row for PolicyRow {
    type Key = String;
    type Object = AnnouncementPolicy;

    fn read(object: &AnnouncementPolicy) -> Option<Self> {
        let mut object = object.clone();
        object.metadata.managed_fields = None;
        // Versions differ where nothing else does.
        object.metadata.resource_version = None;
        Some(Self { object })
    }

    fn key(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

impl PolicyRow {
    /// The body of the server-side apply that brings the status up to date; `None` if it is already.
    pub fn write(
        &self,
        name: &str,
        services: usize,
        unmatched: &[String],
        now: Timestamp,
    ) -> Option<serde_json::Value> {
        let old = self.object.status.as_ref();
        let said = |verdict: Verdict| {
            let mut conditions = old.iter().flat_map(|status| &status.conditions);
            let before = conditions.find(|condition| condition.type_ == verdict.type_);
            condition::dated(verdict, before, now)
        };
        let accepted = self.accepted();
        let effective = accepted.status.then(|| self.effective(services, unmatched));
        let status = AnnouncementPolicyStatus {
            services: i64::try_from(services).unwrap_or(i64::MAX),
            conditions: [accepted].into_iter().chain(effective).map(said).collect(),
        };
        let same = |old: &AnnouncementPolicyStatus| {
            old.services == status.services && all_same(&old.conditions, &status.conditions)
        };
        if old.is_some_and(same) {
            return None;
        }
        Some(json!({
            "apiVersion": AnnouncementPolicy::api_version(&()),
            "kind": AnnouncementPolicy::kind(&()),
            "metadata": { "name": name, "uid": self.object.metadata.uid },
            "status": status,
        }))
    }

    /// The condition for names and selectors that match nothing.
    fn effective(&self, services: usize, unmatched: &[String]) -> Verdict {
        let mut missing = unmatched.to_vec();
        if services == 0 {
            missing.push("the policy governs no Service with an address".to_owned());
        }
        let (reason, message) = if missing.is_empty() {
            ("AllMatched", "every name and selector matches at least one object".to_owned())
        } else {
            ("NothingMatched", missing.join("; "))
        };
        Verdict {
            type_: EFFECTIVE,
            status: missing.is_empty(),
            reason,
            message,
            generation: self.object.metadata.generation,
        }
    }

    fn accepted(&self) -> Verdict {
        let parsed = Policy::parse(&self.object);
        Verdict {
            type_: ACCEPTED,
            status: parsed.is_ok(),
            reason: parsed.as_ref().map_or_else(PolicyError::reason, |_| "Valid"),
            message: match parsed {
                Ok(_) => "the policy is valid".to_owned(),
                Err(error) => format!(
                    "{}; until you correct the policy, the addresses that it governs stay with their \
                     owners, and no other node takes them",
                    causes(&error)
                ),
            },
            generation: self.object.metadata.generation,
        }
    }
}
