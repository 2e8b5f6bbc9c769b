//! The events about a Service: only for news.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use leasehold_crds::event::Reason;

use super::conditions::{Assignment, NO_OWNER, NOT_ANSWERED, contested, list, refused, retained};
use super::rivals::Contest;
use crate::allocate::{Decision, Failure, Lost, ServiceKey};
use crate::reconcile::condition::Verdict;
use crate::report::events::Notice;

/// The event that reports a rival, once.
pub(super) fn of_contest(contest: Contest<'_>) -> Option<Notice> {
    (!contest.reported).then(|| Notice { reason: Reason::OtherWriter, note: contested(contest) })
}

/// The event for the change of the condition from `before`: none for a reason that it gave already, or that
/// another event reports.
pub(super) fn of_announcement(
    verdict: &Verdict,
    decision: &Decision,
    before: Option<&Condition>,
) -> Option<Notice> {
    let same = before.is_some_and(|it| it.status == "False" && it.reason == verdict.reason);
    let news = !verdict.status && !same && !decision.addresses.is_empty();
    let reason = if [NO_OWNER, NOT_ANSWERED].contains(&verdict.reason) {
        Reason::NotAnnounced
    } else {
        Reason::NotToBeAnnounced
    };
    news.then(|| Notice { reason, note: verdict.message.clone() })
}

/// The event for the change of the condition about the data path from `before`: none for a reason that it gave already.
pub(super) fn of_data_path(verdict: &Verdict, before: Option<&Condition>) -> Option<Notice> {
    let same = before.is_some_and(|it| it.status == "False" && it.reason == verdict.reason);
    let news = !verdict.status && !same;
    news.then(|| Notice { reason: Reason::NotSpread, note: verdict.message.clone() })
}

/// The events for the change from the addresses that a Service had, and from its condition, to `decision`.
pub(super) fn notices(
    key: &ServiceKey,
    had: &[IpAddr],
    decision: &Decision,
    condition: Option<&Condition>,
    said_already: bool,
) -> Vec<Notice> {
    let mut notices: Vec<Notice> = addresses(had, decision).into_iter().collect();
    let passes = decision.failure.as_ref().is_none_or(Failure::passes);
    if let Some(note) = refused(key, decision).filter(|_| !said_already && !passes) {
        notices.push(Notice { reason: Reason::AllocationFailed, note });
    }
    let reported = |note: &String| condition.is_some_and(|old| old.message.contains(note));
    if let Some(note) = retained(key, decision).filter(|note| !reported(note)) {
        notices.push(Notice { reason: Reason::AddressKept, note });
    }
    notices
}

/// The event for a Service that is no longer ours.
pub(super) fn released(present: &[IpAddr]) -> Option<Notice> {
    (!present.is_empty()).then(|| Notice {
        reason: Reason::AddressReleased,
        note: format!("released {}: Leasehold no longer serves this Service", list(present)),
    })
}

/// The event for a change of the addresses.
fn addresses(had: &[IpAddr], decision: &Decision) -> Option<Notice> {
    let lost: Vec<IpAddr> =
        had.iter().filter(|ip| !decision.addresses.contains(ip)).copied().collect();
    if lost.is_empty() && decision.addresses.iter().all(|ip| had.contains(ip)) {
        return None;
    }
    let (reason, mut note) = match (decision.addresses.is_empty(), lost.is_empty()) {
        (true, _) => (Reason::AddressReleased, format!("released {}", list(had))),
        (false, true) => (Reason::AddressAssigned, Assignment(decision).to_string()),
        (false, false) => {
            let note = format!("{}, instead of {}", Assignment(decision), list(&lost));
            (Reason::AddressAssigned, note)
        }
    };
    for Lost { address, owner, clash } in &decision.lost {
        note = format!("{note}; {address} belongs to Service {owner}{clash}");
    }
    Some(Notice { reason, note })
}
