//! Definitions, pools and policies.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResourceExt, ResourceExt};
use leasehold_core::explain::View;
use leasehold_crds::policy::{ACCEPTED, EFFECTIVE};
use leasehold_crds::pool::READY;
use leasehold_crds::range::IpRange;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};

use super::finding::Finding;

const DEFINITIONS: &str = "definitions";
const POOLS: &str = "pools";
const POLICIES: &str = "policies";

/// Checks whether the kinds of Leasehold are installed and served.
pub(super) fn definitions(read: &Result<Vec<CustomResourceDefinition>, String>) -> Vec<Finding> {
    let definitions = match read {
        Ok(definitions) => definitions,
        Err(why) => return vec![Finding::skipped(DEFINITIONS, why)],
    };
    let wanted = [IPAddressPool::crd_name(), AnnouncementPolicy::crd_name()];
    let fix = "kubectl apply -f crds/generated";
    let mut findings = Vec::new();
    for name in wanted {
        let Some(found) = definitions.iter().find(|it| it.name_any() == name) else {
            findings.push(Finding::fail(DEFINITIONS, format!("{name} is not installed"), fix));
            continue;
        };
        let conditions = found.status.as_ref().and_then(|status| status.conditions.as_ref());
        let established = |type_: &str, status: &str| type_ == "Established" && status == "True";
        let mut conditions = conditions.into_iter().flatten();
        if !conditions.any(|it| established(&it.type_, &it.status)) {
            let text = format!("{name} is installed but not established");
            let fix = format!("see kubectl describe crd {name}");
            findings.push(Finding::fail(DEFINITIONS, text, fix));
        }
    }
    if findings.is_empty() {
        let text = format!("{} are installed", wanted.join(" and "));
        findings.push(Finding::ok(DEFINITIONS, text));
    }
    findings
}

/// Checks whether entries can be used, and whether two pools hold the same address.
pub(super) fn pools(pools: &[IPAddressPool]) -> Vec<Finding> {
    let ranges = |pool: &IPAddressPool| -> Vec<IpRange> {
        pool.spec.addresses.iter().filter_map(|entry| entry.parse().ok()).collect()
    };
    let read: Vec<_> = pools.iter().map(|pool| (pool.name_any(), ranges(pool))).collect();
    let mut findings = Vec::new();
    for (index, (first, ours)) in read.iter().enumerate() {
        for (second, theirs) in read.iter().skip(index + 1) {
            let both = ours.iter().flat_map(|a| theirs.iter().filter_map(|b| a.intersection(b)));
            let both: Vec<String> = both.map(|range| range.to_string()).collect();
            if !both.is_empty() {
                let text = format!("pools {first} and {second} both contain {}", both.join(", "));
                let fix = "remove it from one of them; until then the older pool holds it";
                findings.push(Finding::fail(POOLS, text, fix));
            }
        }
    }
    for pool in pools {
        let conditions = pool.status.iter().flat_map(|status| &status.conditions);
        let message = said(conditions, READY, "False");
        findings.extend(message.map(|it| {
            Finding::fail(POOLS, format!("pool {}: {it}", pool.name_any()), "edit the pool")
        }));
    }
    match (pools.len(), findings.is_empty()) {
        (0, _) => vec![Finding::warn(
            POOLS,
            "no IPAddressPool exists: Services get no addresses",
            "create one (examples/pool.yaml)",
        )],
        (count, true) => {
            vec![Finding::ok(POOLS, format!("{count} valid, without overlaps"))]
        }
        (_, false) => findings,
    }
}

/// Checks whether policies can be read, and match a Service.
pub(super) fn policies(policies: &[AnnouncementPolicy], view: &View<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = view
        .rules()
        .errors()
        .iter()
        .map(|error| Finding::fail(POLICIES, error.to_string(), "edit the policy"))
        .collect();
    let unreadable = findings.len();
    for policy in policies {
        let name = policy.name_any();
        let conditions = || policy.status.iter().flat_map(|status| &status.conditions);
        // What cannot be read here was said above.
        if let Some(message) = said(conditions(), ACCEPTED, "False").filter(|_| unreadable == 0) {
            let text = format!("policy {name}: {message}");
            findings.push(Finding::fail(POLICIES, text, "edit the policy"));
        }
        if let Some(message) = said(conditions(), EFFECTIVE, "False") {
            let text = format!("policy {name}: {message}");
            let fix = "correct or remove what the message names";
            findings.push(Finding::warn(POLICIES, text, fix));
        }
    }
    if findings.is_empty() {
        let text = match policies.len() {
            0 => "no policy: the defaults apply to all Services".to_owned(),
            count => format!("{count} valid, and all match at least one object"),
        };
        findings.push(Finding::ok(POLICIES, text));
    }
    findings
}

/// The message of a condition with this status.
fn said<'a>(
    mut conditions: impl Iterator<Item = &'a Condition>,
    type_: &str,
    status: &str,
) -> Option<&'a str> {
    let found = conditions.find(|it| it.type_ == type_ && it.status == status);
    found.map(|condition| condition.message.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    fn pool(name: &str, addresses: &[&str]) -> IPAddressPool {
        serde_json::from_value(json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
            "metadata": { "name": name }, "spec": { "addresses": addresses },
        }))
        .unwrap()
    }

    #[test]
    fn pools_that_overlap_are_found_with_what_they_share() {
        let found = pools(&[
            pool("a", &["192.0.2.0/25", "2001:db8::/120"]),
            pool("b", &["192.0.2.100-192.0.2.200"]),
            pool("c", &["192.0.2.201-192.0.2.202"]),
        ]);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.level, Level::Fail);
        assert_eq!(finding.message, "pools a and b both contain 192.0.2.100-192.0.2.127");
        assert_eq!(pools(&[pool("a", &["192.0.2.0/25"])])[0].level, Level::Ok);
        assert_eq!(pools(&[])[0].level, Level::Warn);
    }

    #[test]
    fn definitions_are_missing_unestablished_or_there() {
        let definition = |name: &str, established: &str| -> CustomResourceDefinition {
            serde_json::from_value(json!({
                "metadata": { "name": name },
                "spec": { "group": "leasehold.dev", "scope": "Cluster", "versions": [],
                    "names": { "kind": "K", "plural": "ks" } },
                "status": { "conditions": [
                    { "type": "Established", "status": established, "reason": "", "message": "" },
                ] },
            }))
            .unwrap()
        };
        let (pool, policy) = (IPAddressPool::crd_name(), AnnouncementPolicy::crd_name());
        let levels = |read| definitions(&read).iter().map(|it| it.level).collect::<Vec<_>>();
        for (read, expected) in [
            (Ok(vec![definition(pool, "True"), definition(policy, "True")]), vec![Level::Ok]),
            (Ok(vec![definition(pool, "True"), definition(policy, "False")]), vec![Level::Fail]),
            (Ok(vec![]), vec![Level::Fail, Level::Fail]),
            (Err("forbidden".to_owned()), vec![Level::Skipped]),
        ] {
            assert_eq!(levels(read), expected);
        }
    }
}
