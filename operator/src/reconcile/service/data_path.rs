//! The condition of a Service whose policy says `dataPath: Spread`.

use leasehold_core::explain;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, DataPathState};
use leasehold_crds::names::NodeName;
use leasehold_crds::service::DATA_PATH;

use super::conditions::list;
use crate::reconcile::condition::Verdict;

/// The reason of the condition while packets are spread over all nodes with endpoints.
const SPREAD: &str = "Spread";
/// The same, while they take the slow path.
const SLOW: &str = "SlowPath";
/// The reason of the condition while packets are not spread over all of them.
const LEFT_OUT: &str = "NodesLeftOut";
/// The reason of the condition while the owner spreads nothing.
const NOT_SPREAD: &str = "NotSpread";
/// The reason of the condition of a Service that is not spread whatever its policy says.
const NOT_LOCAL: &str = "NotLocal";

/// Some addresses of a Service that a policy has spread, with their owner.
pub(in crate::reconcile) struct Part<'a> {
    pub(in crate::reconcile) addresses: &'a AddressSet,
    pub(in crate::reconcile) claim: &'a Claim,
    pub(in crate::reconcile) owner: &'a NodeName,
    /// The state of the owner's data path, if something is wrong.
    pub(in crate::reconcile) state: Option<DataPathState>,
    /// The nodes with endpoints that packets are not spread over, with the reasons.
    pub(in crate::reconcile) left_out: Vec<(NodeName, String)>,
}

/// The content of the condition of a Service that has `externalTrafficPolicy: Cluster`.
pub(in crate::reconcile) fn not_local() -> Verdict {
    let message = "the policy says dataPath: Spread, and the Service has externalTrafficPolicy: Cluster: \
                   kube-proxy of the owner leads packets to the pods of all nodes, which do not see the addresses of \
                   clients; set externalTrafficPolicy: Local";
    verdict(false, NOT_LOCAL, message.to_owned())
}

/// The content of the condition of a Service with these owners.
pub(in crate::reconcile) fn spread(parts: &[Part<'_>]) -> Verdict {
    let texts: Vec<String> = parts.iter().map(text).collect();
    let same = texts.iter().all(|text| Some(text) == texts.first());
    let message = match texts.first() {
        Some(text) if same => text.clone(),
        _ => {
            let each = parts.iter().zip(&texts).map(|(part, text)| {
                let addresses: Vec<_> = part.addresses.iter().copied().collect();
                format!("{}: {text}", list(&addresses))
            });
            each.collect::<Vec<_>>().join("; ")
        }
    };
    let (status, reason) = if parts.iter().any(|part| !spreads(part)) {
        (false, NOT_SPREAD)
    } else if parts.iter().any(|part| !part.left_out.is_empty()) {
        (false, LEFT_OUT)
    } else if parts.iter().any(|part| part.state.is_some()) {
        (true, SLOW)
    } else {
        (true, SPREAD)
    };
    verdict(status, reason, message)
}

fn spreads(part: &Part<'_>) -> bool {
    part.state.is_none_or(DataPathState::spreads) && !part.claim.members.is_empty()
}

fn text(part: &Part<'_>) -> String {
    let Part { claim, owner, state, left_out, .. } = part;
    let why = state.map(|state| format!(": {}", explain::data_path(state))).unwrap_or_default();
    if !spreads(part) {
        return format!("{owner} does not spread packets over other nodes{why}");
    }
    let mut parts = vec![format!("packets are spread over {}", explain::shares(&claim.members))];
    parts.extend(state.map(|_| format!("on {owner}{why}")));
    parts.extend(left_out.iter().map(|(node, why)| format!("not over {node}: {why}")));
    parts.join("; ")
}

const fn verdict(status: bool, reason: &'static str, message: String) -> Verdict {
    Verdict { type_: DATA_PATH, status, reason, message, generation: None }
}
