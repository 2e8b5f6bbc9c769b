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

    /// The condition for names and selectors that match nothing, and for fields that are ignored.
    fn effective(&self, services: usize, unmatched: &[String]) -> Verdict {
        let mut missing = unmatched.to_vec();
        if services == 0 {
            missing.push("the policy governs no Service with an address".to_owned());
        }
        let ignored = self.object.spec.ignored_fields();
        let reason = match (missing.is_empty(), ignored.is_empty()) {
            (true, true) => "AllMatched",
            (true, false) => "FieldsIgnored",
            (false, _) => "NothingMatched",
        };
        let faults = [missing, ignored].concat();
        let message = match faults.as_slice() {
            [] => "every name and selector matches at least one object".to_owned(),
            faults => faults.join("; "),
        };
        Verdict {
            type_: EFFECTIVE,
            status: faults.is_empty(),
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

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use serde_json::Value;

    use super::*;

    /// Status, reason and message of the condition `Effective`.
    fn effective(spec: Value, services: usize, unmatched: &[&str]) -> [String; 3] {
        let mut object = AnnouncementPolicy::new("p", serde_json::from_value(spec).unwrap());
        object.metadata = ObjectMeta { generation: Some(7), ..object.metadata };
        let row = PolicyRow::read(&object).unwrap();
        let unmatched: Vec<String> = unmatched.iter().map(|&it| it.to_owned()).collect();
        let patch = row.write("p", services, &unmatched, Timestamp::UNIX_EPOCH).unwrap();
        let condition = &patch["status"]["conditions"][1];
        assert_eq!(
            (&condition["type"], &condition["observedGeneration"]),
            (&EFFECTIVE.into(), &7.into())
        );
        ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_deprecated_field_that_layer2_overrides_is_named_unless_it_is_the_former_default() {
        let matched = "every name and selector matches at least one object";
        let detection = |misses: i32| json!({"interval": "100ms", "retryInterval": "20ms", "misses": misses, "mode": "Wire"});
        let layer2 =
            json!({"interfaces": ["eth0"], "detection": {"interval": "50ms", "misses": 4}});
        let ignored = "spec.detection.misses '5' is ignored because spec.layer2.detection.misses is '4': \
                       remove spec.detection.misses";
        for (spec, unmatched, expected) in [
            (json!({"detection": detection(5)}), &[][..], ["True", "AllMatched", matched]),
            (json!({"layer2": layer2}), &[], ["True", "AllMatched", matched]),
            (
                json!({"layer2": layer2, "detection": detection(3)}),
                &[],
                ["True", "AllMatched", matched],
            ),
            (
                json!({"layer2": layer2, "detection": detection(4), "interfaces": ["eth0"]}),
                &[],
                ["True", "AllMatched", matched],
            ),
            (
                json!({"layer2": layer2, "detection": detection(5)}),
                &[],
                ["False", "FieldsIgnored", ignored],
            ),
            (
                json!({"layer2": layer2, "detection": detection(5)}),
                &["IPAddressPool a does not exist"],
                ["False", "NothingMatched", &format!("IPAddressPool a does not exist; {ignored}")],
            ),
        ] {
            assert_eq!(effective(spec.clone(), 1, unmatched), expected, "{spec}");
        }
    }
}
