//! Conditions: their time of transition stays as long as their status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its type.
    pub type_: &'static str,
    /// Whether its status is `True`.
    pub status: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// The generation of the object, for kinds that have one.
    pub generation: Option<i64>,
}

const fn status(verdict: &Verdict) -> &'static str {
    if verdict.status { "True" } else { "False" }
}

/// The condition with this content that replaces `old`.
pub(super) fn dated(verdict: Verdict, old: Option<&Condition>, now: Timestamp) -> Condition {
    let status = status(&verdict);
    let last_transition_time = match old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => Time(now),
    };
    Condition {
        last_transition_time,
        message: verdict.message,
        observed_generation: verdict.generation,
        reason: verdict.reason.to_owned(),
        status: status.to_owned(),
        type_: verdict.type_.to_owned(),
    }
}

/// Whether `condition` has this content already.
pub(super) fn says(condition: &Condition, verdict: &Verdict) -> bool {
    condition.type_ == verdict.type_
        && condition.status == status(verdict)
        && condition.reason == verdict.reason
        && condition.message == verdict.message
        && condition.observed_generation == verdict.generation
}

/// Whether two conditions have the same content, whatever their times of transition.
fn same(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.reason == b.reason
        && a.message == b.message
        && a.observed_generation == b.observed_generation
}

/// Whether two lists of conditions have the same content, in any order.
pub(super) fn all_same(a: &[Condition], b: &[Condition]) -> bool {
    a.len() == b.len() && a.iter().all(|a| b.iter().any(|b| same(a, b)))
}
