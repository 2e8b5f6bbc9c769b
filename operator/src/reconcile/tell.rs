//! What people are told about a Service: in its condition, and by events where that is news.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use leasehold::explain::{self, OTHER_WRITER};

use super::announcing::Part;
use super::condition::{self, Verdict};
use super::governing::Silence;
use super::managers::Rival;
use super::rivals::{Contest, LONGEST};
use super::service::{ALLOCATED, ANNOUNCED};
use crate::allocate::{Decision, Failure, Lost, ServiceKey};
use crate::report::events::Notice;

/// The reason of the condition while all is well, and of the event that tells of it.
pub(super) const ASSIGNED: &str = "AddressAssigned";
/// The reason of the condition, and of the event, while an address is kept that no pool would give
/// out any more.
pub(super) const KEPT: &str = "AddressKept";

/// The reason of the condition, and of the event, while somebody else undoes again and again what we
/// write.
pub(super) const CONTESTED: &str = OTHER_WRITER;

/// The reason of the condition while all addresses are announced.
const ALL_ANNOUNCED: &str = "Announced";
/// The reason of the condition while nobody owns an address that somebody is to have.
const NO_OWNER: &str = "NoOwner";
/// The reason of the condition while an owner announces an address and does not answer its clients.
const NOT_ANSWERED: &str = "ClientsNotAnswered";
/// The reason of the event that tells that nobody announces.
pub(super) const SILENT: &str = "NotAnnounced";
/// The reason of the condition while that is so for want of an endpoint.
pub(super) const NO_ENDPOINT: &str = "NoEndpoint";

/// What is said of each such address.
const ALTHOUGH: &str = "is kept although";

/// Whether a condition says that an address is kept that no pool would give out any more.
pub(super) fn is_of_kept(condition: &Condition) -> bool {
    condition.message.contains(ALTHOUGH)
}

/// What the condition says.
pub(super) fn verdict(
    key: &ServiceKey,
    decision: &Decision,
    contest: Option<Contest<'_>>,
) -> Verdict {
    let kept = kept(key, decision);
    let contested = contest.map(contested);
    let (status, reason, text) = match (&decision.failure, &decision.shortfall) {
        (Some(failure), _) => (false, failure.reason(), refused(key, decision)),
        (None, Some(shortfall)) => {
            (true, ASSIGNED, Some(format!("{}; {shortfall}", Said(decision))))
        }
        (None, None) => (true, ASSIGNED, Some(Said(decision).to_string())),
    };
    let reason = match (status, &kept, &contested) {
        (true, _, Some(_)) => CONTESTED,
        (true, Some(_), None) => KEPT,
        _ => reason,
    };
    let apart = decision.apart.as_ref().map(ToString::to_string);
    let parts = text.into_iter().chain(kept).chain(apart).chain(contested);
    let message = parts.collect::<Vec<_>>().join("; ");
    Verdict { type_: ALLOCATED, status, reason, message, generation: None }
}

/// Who undoes what we write, and what to do about it.
fn contested(contest: Contest<'_>) -> String {
    let names = contest.by.iter().map(ToString::to_string).collect::<Vec<_>>();
    let who = match names.as_slice() {
        [] => "a client that metadata.managedFields does not name repeatedly reverts".to_owned(),
        [one] => format!("field manager {one} repeatedly reverts"),
        several => format!("field managers {} repeatedly revert", several.join(", ")),
    };
    let mut advice: Vec<&str> = contest.by.iter().map(Rival::advice).collect();
    advice.dedup();
    if advice.is_empty() {
        advice.push(
            "find the client in the audit log of the API server, and configure it to ignore this \
             Service",
        );
    }
    format!(
        "{who} the status or annotations that Leasehold writes to this Service; Leasehold restores \
         them after increasing delays of at most {} s; {}",
        LONGEST.as_secs(),
        advice.join("; ")
    )
}

/// The event that tells of a rival, once.
pub(super) fn of_contest(contest: Contest<'_>) -> Option<Notice> {
    (!contest.told).then(|| Notice {
        warning: true,
        reason: CONTESTED,
        action: "Restore",
        note: contested(contest),
    })
}

/// Whether `condition` says so already.
pub(super) fn says(
    condition: &Condition,
    key: &ServiceKey,
    decision: &Decision,
    contest: Option<Contest<'_>>,
) -> bool {
    let well = decision.failure.is_none() && decision.shortfall.is_none();
    let plain = decision.retained.is_empty() && decision.apart.is_none();
    if well && plain && contest.is_none() {
        // That of most Services: compared without writing it down.
        condition.status == "True"
            && condition.reason == ASSIGNED
            && is_written(&condition.message, &Said(decision))
    } else {
        condition::says(condition, &verdict(key, decision, contest))
    }
}

/// Whether `condition` says something that is true for longer than what keeps the Service from an address now:
/// of many that wait for one, all see that it is about to be free, and one gets it.
pub(super) fn outlasts(condition: &Condition, decision: &Decision) -> bool {
    condition.reason == Failure::EXHAUSTED
        && decision.addresses.is_empty()
        && decision.failure.as_ref().is_some_and(Failure::passes)
}

/// What the condition says of a Service that nobody announces.
pub(super) fn silence(silence: Silence<'_>) -> Verdict {
    let (reason, why) = match silence {
        Silence::NoPolicy => (
            "NoPolicy",
            "AnnouncementPolicies exist, but none matches this Service: change or add one".to_owned(),
        ),
        Silence::Mode(policy) => ("ModeNone", format!("policy {policy} sets `mode: None`")),
        Silence::NoNode(policy) => (
            "NoNode",
            format!("policy {policy} selects no node that can announce: change its nodeSelectors"),
        ),
        Silence::NoEndpoint => (
            NO_ENDPOINT,
            "the Service has no endpoint; set `announceWithoutEndpoints: true` in its policy to announce \
             them anyway"
                .to_owned(),
        ),
    };
    not_announced(reason, format!("no node announces the addresses: {why}"))
}

const fn not_announced(reason: &'static str, message: String) -> Verdict {
    Verdict { type_: ANNOUNCED, status: false, reason, message, generation: None }
}

/// What the condition says of a Service that has no address: that for `decision`'s failure.
pub(super) fn nothing_to_announce(decision: &Decision) -> Option<Verdict> {
    let failure = decision.failure.as_ref().filter(|failure| !failure.passes())?;
    Some(not_announced(failure.reason(), format!("the Service has no address: {failure}")))
}

/// What the condition says of who announces the addresses.
pub(super) fn announced(parts: &[Part<'_>]) -> Verdict {
    let text = |part: &Part<'_>| {
        let addresses = part.addresses.iter().copied().collect::<Vec<_>>();
        let addresses = list(&addresses);
        match &part.by {
            Ok((node, interface)) => {
                let on = interface.map(|name| format!(" on {name}")).unwrap_or_default();
                let why = part.unanswered.as_ref().map(|why| format!(", and {why}"));
                let held = part.unreadable.map(|policy| {
                    format!("; {}: the owner does not change", explain::unreadable(policy))
                });
                let (why, held) = (why.unwrap_or_default(), held.unwrap_or_default());
                format!("{node} announces {addresses}{on}{why}{held}")
            }
            Err(why) => format!("no node announces {addresses}: {why}"),
        }
    };
    let message = parts.iter().map(text).collect::<Vec<_>>().join("; ");
    let unanswered = parts.iter().any(|part| part.by.is_ok() && part.unanswered.is_some());
    if parts.iter().all(|part| part.by.is_ok()) && unanswered {
        return not_announced(NOT_ANSWERED, message);
    }
    if parts.iter().all(|part| part.by.is_ok()) {
        let reason = ALL_ANNOUNCED;
        return Verdict { type_: ANNOUNCED, status: true, reason, message, generation: None };
    }
    not_announced(NO_OWNER, message)
}

/// The event for what the condition says now and `before`: none for a reason that it gave already, or
/// that another event tells.
pub(super) fn of_announcement(
    verdict: &Verdict,
    decision: &Decision,
    before: Option<&Condition>,
) -> Option<Notice> {
    let same = before.is_some_and(|it| it.status == "False" && it.reason == verdict.reason);
    let news = !verdict.status && !same && !decision.addresses.is_empty();
    news.then(|| Notice {
        warning: [NO_OWNER, NOT_ANSWERED].contains(&verdict.reason),
        reason: SILENT,
        action: "Announce",
        note: verdict.message.clone(),
    })
}

/// The events for the change from what a Service had, and its condition says, to `decision`.
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
        notices.push(Notice {
            warning: true,
            reason: "AllocationFailed",
            action: "Allocate",
            note,
        });
    }
    let told = |note: &String| condition.is_some_and(|old| old.message.contains(note));
    if let Some(note) = kept(key, decision).filter(|note| !told(note)) {
        notices.push(Notice { warning: true, reason: KEPT, action: "Allocate", note });
    }
    notices
}

/// The event for a Service that is no longer ours.
pub(super) fn released(present: &[IpAddr]) -> Option<Notice> {
    (!present.is_empty()).then(|| Notice {
        warning: false,
        reason: "AddressReleased",
        action: "Release",
        note: format!("released {}: Leasehold no longer serves this Service", list(present)),
    })
}

fn addresses(had: &[IpAddr], decision: &Decision) -> Option<Notice> {
    let lost: Vec<IpAddr> =
        had.iter().filter(|ip| !decision.addresses.contains(ip)).copied().collect();
    if lost.is_empty() && decision.addresses.iter().all(|ip| had.contains(ip)) {
        return None;
    }
    let (reason, action, mut note) = match (decision.addresses.is_empty(), lost.is_empty()) {
        (true, _) => ("AddressReleased", "Release", format!("released {}", list(had))),
        (false, true) => (ASSIGNED, "Allocate", Said(decision).to_string()),
        (false, false) => {
            (ASSIGNED, "Allocate", format!("{}, instead of {}", Said(decision), list(&lost)))
        }
    };
    for Lost { address, owner, clash } in &decision.lost {
        note = format!("{note}; {address} belongs to Service {owner}{clash}");
    }
    Some(Notice { warning: false, reason, action, note })
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// `192.0.2.1, 2001:db8::1 from pool lan`
struct Said<'a>(&'a Decision);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.0.addresses.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{address}")?;
        }
        write!(f, " from pool {}", self.0.allocated_from.as_deref().unwrap_or_default())
    }
}

/// Whether `text` is what `value` is written as.
fn is_written(text: &str, value: &impl fmt::Display) -> bool {
    /// What is left of the text.
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    fmt::write(&mut rest, format_args!("{value}")).is_ok() && rest.0.is_empty()
}

/// `no address for web/shop: ...`, or what it has meanwhile.
fn refused(key: &ServiceKey, decision: &Decision) -> Option<String> {
    let failure = decision.failure.as_ref()?;
    Some(if decision.addresses.is_empty() {
        format!("no address for {key}: {failure}")
    } else if failure.is_of_request() {
        let addresses = list(&decision.addresses);
        format!("{key} keeps {addresses}, because its request is invalid: {failure}")
    } else {
        format!("{key} lacks an address: {failure}")
    })
}

/// `192.0.2.1 is kept although no IPAddressPool contains it anymore; ...`, and how to change that.
fn kept(key: &ServiceKey, decision: &Decision) -> Option<String> {
    if decision.retained.is_empty() {
        return None;
    }
    let why =
        decision.retained.iter().map(|kept| format!("{} {ALTHOUGH} {}", kept.address, kept.why));
    let why = why.collect::<Vec<_>>().join("; ");
    let ServiceKey { namespace, name } = key;
    Some(match &decision.stuck {
        Some(stuck) => format!(
            "{why}; leasehold.dev/reassign is set, but no other address is available: {stuck}"
        ),
        None => format!(
            "{why}; to replace it: kubectl annotate service -n {namespace} {name} \
             leasehold.dev/reassign=true"
        ),
    })
}
