//! The conditions of a Service: its addresses, and the node that announces them.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use leasehold_core::explain::{self, OTHER_WRITER};
use leasehold_crds::event::Reason;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::service::{ALLOCATED, ANNOUNCED};

use super::managers::Rival;
use super::rivals::{Contest, LONGEST};
use crate::allocate::{Decision, Failure, ServiceKey};
use crate::reconcile::condition::{self, Verdict};
use crate::reconcile::leases::Announcer;

/// The reason of the condition while all is well, and of the event that reports it.
pub(super) const ASSIGNED: &str = Reason::AddressAssigned.as_str();
/// The reason of the condition, and of the event, while an address is retained that no pool offers any more.
pub(super) const RETAINED: &str = Reason::AddressKept.as_str();

/// The reason of the condition, and of the event, while a rival repeatedly reverts our writes.
pub(super) const CONTESTED: &str = OTHER_WRITER;

/// The reason of the condition while all addresses are announced.
const ALL_ANNOUNCED: &str = "Announced";
/// The reason of the condition while an address has no owner.
pub(super) const NO_OWNER: &str = "NoOwner";
/// The reason of the condition while an owner announces an address and does not answer its clients.
pub(super) const NOT_ANSWERED: &str = "ClientsNotAnswered";
/// The reason of the condition while no node announces the Service because it has no endpoint.
pub(super) const NO_ENDPOINT: &str = "NoEndpoint";

/// The words about each retained address.
const ALTHOUGH: &str = "is kept although";

/// The content of a condition that is not known at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// There is no such condition.
    Nothing,
    /// The present content stays: more is known later.
    Later,
    /// This content.
    Now(Verdict),
}

impl Report {
    /// Whether nothing is to be written to a Service with this condition.
    pub(super) fn is_said_by(&self, before: Option<&Condition>) -> bool {
        match (before, self) {
            (_, Self::Later) => true,
            (Some(before), Self::Now(verdict)) => condition::says(before, verdict),
            (before, Self::Nothing) => before.is_none(),
            (None, Self::Now(_)) => false,
        }
    }
}

/// The conditions of a Service beside that about allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// That about announcement.
    pub announced: Report,
    /// That about the data path.
    pub data_path: Report,
}

impl Reports {
    /// There are no such conditions.
    pub const NOTHING: Self = Self { announced: Report::Nothing, data_path: Report::Nothing };
}

/// Some addresses of a Service, with their owner or the reason for which they have none.
pub(in crate::reconcile) struct Part<'a> {
    pub(in crate::reconcile) addresses: &'a AddressSet,
    pub(in crate::reconcile) by: Result<Announcer<'a>, String>,
    /// The reason for which the owner does not answer clients, if it reports one.
    pub(in crate::reconcile) unanswered: Option<String>,
    /// The policy that cannot be read, so that no other node takes the addresses.
    pub(in crate::reconcile) unreadable: Option<&'a str>,
}

/// The reason for which no node may announce a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence<'a> {
    /// There are policies, and none matches it.
    NoPolicy,
    /// The policy has `mode: None`.
    Mode(&'a str),
    /// The policy selects no node that may announce.
    NoNode(&'a str),
    /// It has no endpoint, and no policy announces it nevertheless.
    NoEndpoint,
}

/// Whether a condition reports an address that no pool offers any more.
pub(super) fn is_of_retained(condition: &Condition) -> bool {
    condition.message.contains(ALTHOUGH)
}

/// The content of the condition about allocation.
pub(super) fn verdict(
    key: &ServiceKey,
    decision: &Decision,
    contest: Option<Contest<'_>>,
) -> Verdict {
    let retained = retained(key, decision);
    let contested = contest.map(contested);
    let (status, reason, text) = match (&decision.failure, &decision.shortfall) {
        (Some(failure), _) => (false, failure.reason(), refused(key, decision)),
        (None, Some(shortfall)) => {
            (true, ASSIGNED, Some(format!("{}; {shortfall}", Assignment(decision))))
        }
        (None, None) => (true, ASSIGNED, Some(Assignment(decision).to_string())),
    };
    let reason = match (status, &retained, &contested) {
        (true, _, Some(_)) => CONTESTED,
        (true, Some(_), None) => RETAINED,
        _ => reason,
    };
    let apart = decision.apart.as_ref().map(ToString::to_string);
    let parts = text.into_iter().chain(retained).chain(apart).chain(contested);
    let message = parts.collect::<Vec<_>>().join("; ");
    Verdict { type_: ALLOCATED, status, reason, message, generation: None }
}

/// The rivals, and the advice against them.
pub(super) fn contested(contest: Contest<'_>) -> String {
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

/// Whether `condition` has the content of [`verdict`] already.
pub(super) fn says(
    condition: &Condition,
    key: &ServiceKey,
    decision: &Decision,
    contest: Option<Contest<'_>>,
) -> bool {
    let well = decision.failure.is_none() && decision.shortfall.is_none();
    let plain = decision.retained.is_empty() && decision.apart.is_none();
    if well && plain && contest.is_none() {
        // As for most Services: compared without an allocation.
        condition.status == "True"
            && condition.reason == ASSIGNED
            && is_written(&condition.message, &Assignment(decision))
    } else {
        condition::says(condition, &verdict(key, decision, contest))
    }
}

/// Whether the failure in `condition` lasts longer than the one that keeps the Service from an address now:
/// of many Services that wait for an address, all see that it is about to be free, and one gets it.
pub(super) fn outlasts(condition: &Condition, decision: &Decision) -> bool {
    condition.reason == Failure::EXHAUSTED
        && decision.addresses.is_empty()
        && decision.failure.as_ref().is_some_and(Failure::passes)
}

/// The content of the condition of a Service that no node may announce.
pub(in crate::reconcile) fn silence(silence: Silence<'_>) -> Verdict {
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

/// The content for a Service that is not announced.
const fn not_announced(reason: &'static str, message: String) -> Verdict {
    Verdict { type_: ANNOUNCED, status: false, reason, message, generation: None }
}

/// The content of the condition of a Service without an address: the failure of `decision`.
pub(in crate::reconcile) fn nothing_to_announce(decision: &Decision) -> Option<Verdict> {
    let failure = decision.failure.as_ref().filter(|failure| !failure.passes())?;
    Some(not_announced(failure.reason(), format!("the Service has no address: {failure}")))
}

/// The content of the condition of a Service with these owners.
pub(in crate::reconcile) fn announced(parts: &[Part<'_>]) -> Verdict {
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

/// The addresses, separated by commas.
pub(super) fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// `192.0.2.1, 2001:db8::1 from pool lan`
pub(super) struct Assignment<'a>(pub(super) &'a Decision);

impl fmt::Display for Assignment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.0.addresses.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{address}")?;
        }
        write!(f, " from pool {}", self.0.allocated_from.as_deref().unwrap_or_default())
    }
}

/// Whether `value` is formatted as `text`.
fn is_written(text: &str, value: &impl fmt::Display) -> bool {
    /// The rest of the text.
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

/// `no address for web/shop: ...`, or the addresses that it has meanwhile.
pub(super) fn refused(key: &ServiceKey, decision: &Decision) -> Option<String> {
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

/// `192.0.2.1 is kept although no IPAddressPool contains it anymore; ...`, and the command that replaces it.
pub(super) fn retained(key: &ServiceKey, decision: &Decision) -> Option<String> {
    if decision.retained.is_empty() {
        return None;
    }
    let why = decision.retained.iter().map(|one| format!("{} {ALTHOUGH} {}", one.address, one.why));
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
