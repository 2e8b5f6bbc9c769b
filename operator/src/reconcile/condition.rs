//! Conditions: their time of transition stays as long as their status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub type_: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
    /// The generation of the object that it is about, for objects that have one.
    pub generation: Option<i64>,
}

const fn status(verdict: &Verdict) -> &'static str {
    if verdict.status { "True" } else { "False" }
}

/// The condition that says `verdict` and follows `old`.
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

/// Whether `condition` says `verdict` already.
pub(super) fn says(condition: &Condition, verdict: &Verdict) -> bool {
    condition.type_ == verdict.type_
        && condition.status == status(verdict)
        && condition.reason == verdict.reason
        && condition.message == verdict.message
        && condition.observed_generation == verdict.generation
}

/// Whether two conditions say the same, whenever they came to.
pub(super) fn same(a: &Condition, b: &Condition) -> bool {
    a.type_ == b.type_
        && a.status == b.status
        && a.reason == b.reason
        && a.message == b.message
        && a.observed_generation == b.observed_generation
}
