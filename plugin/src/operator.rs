//! Check of the operator: its active replica renews the Lease of its election twice a second, and the Lease of one
//! that was killed keeps its name. No clock of the operator is compared with ours.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep};

use super::connect::Cluster;
use super::error::PluginError;

/// The lease by which one replica of the operator is elected.
const LEASE: &str = "leasehold-operator";
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// The longest time to look: longer than a tenure of two seconds, after which another replica takes the Lease.
const LONGEST: Duration = Duration::from_secs(3);

/// The state of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// This replica renews the lease.
    Active(String),
    /// The lease names this replica, which does not renew it.
    Still(String),
    /// The Lease has no holder.
    Absent,
}

impl Operator {
    /// The problem, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        match self {
            Self::Active(_) => None,
            Self::Still(holder) => Some(format!(
                "no operator replica is active: {holder}, the last one, does not renew its Lease"
            )),
            Self::Absent => Some("no operator replica is active".to_owned()),
        }
    }
}

/// Looks at the lease, which is among `leases` as it was, until it changes.
pub(super) async fn look(cluster: &Cluster, leases: &[Lease]) -> Result<Operator, PluginError> {
    let before = leases.iter().find(|lease| lease.name_any() == LEASE);
    let Some((before, holder)) = before.and_then(|lease| Some((lease, holder(lease)?))) else {
        return Ok(Operator::Absent);
    };
    let api: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.system);
    let only = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        sleep(LOOK).await;
        let now = cluster.call("list leases".to_owned(), api.list(&only)).await?.items;
        if let Some(judged) = judge(before, now.first()) {
            return Ok(judged);
        }
    }
    Ok(Operator::Still(holder))
}

/// The state that two looks at the Lease show; `None` as long as it has not changed.
fn judge(before: &Lease, now: Option<&Lease>) -> Option<Operator> {
    match now.and_then(|lease| Some((lease, holder(lease)?))) {
        None => Some(Operator::Absent),
        Some((now, holder)) => (now.spec != before.spec).then_some(Operator::Active(holder)),
    }
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_does_not_renew_the_lease_is_not_active() {
        let lease = |holder: &str, second: u8, log: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": { "name": LEASE, "annotations": { "leasehold.dev/log": log } },
                "spec": {
                    "holderIdentity": holder,
                    "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z"),
                },
            }))
            .unwrap()
        };
        let before = lease("a", 1, "");
        for (now, expected) in [
            (Some(lease("a", 1, "")), None),
            (Some(lease("a", 1, "debug")), None),
            (Some(lease("a", 2, "")), Some(Operator::Active("a".to_owned()))),
            (Some(lease("b", 1, "")), Some(Operator::Active("b".to_owned()))),
            (Some(lease("", 1, "")), Some(Operator::Absent)),
            (None, Some(Operator::Absent)),
        ] {
            assert_eq!(judge(&before, now.as_ref()), expected, "{now:?}");
        }
        let still = Operator::Still("a".to_owned()).trouble();
        assert!(still.is_some_and(|text| text.contains("a, the last one, does not renew")));
    }
}
