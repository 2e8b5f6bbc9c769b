//! The texts at arrows and lifelines.

use std::time::Duration;

use leasehold_core::election::{Answer, Change, Event, Fact, Target, Write};
use leasehold_crds::lease::{Claim, Session};

/// The text of a write; `None` for a renewal, which changes nothing but its time.
pub(super) fn write(host: &str, write: &Write) -> Option<String> {
    match write {
        Write::Session(change) => session(host, change),
        Write::Claim(change) => claim(change),
    }
}

fn session(host: &str, change: &Change<Session>) -> Option<String> {
    let (name, new) = (&change.name, &change.record);
    let Some(base) = &change.base else { return Some(format!("POST session {name}")) };
    let old = &base.record;
    let what = match &new.holder {
        None if name.as_str() != host => "fence".to_owned(),
        None => "release".to_owned(),
        Some(_) if old.holder.is_none() || old.transitions != new.transitions => {
            format!("holder {name}, number {}", new.transitions)
        }
        Some(_) => return None,
    };
    Some(format!("PUT session {name}: {what}"))
}

fn claim(change: &Change<Claim>) -> Option<String> {
    let (name, new) = (&change.name, &change.record);
    let verb = if change.base.is_some() { "PUT" } else { "POST" };
    let old = change.base.as_ref().map(|base| &base.record);
    let what = match (&new.holder, &new.successor) {
        _ if old == Some(new) => return None,
        (_, Some(successor)) if old.is_none_or(|old| old.successor != new.successor) => {
            format!("successor {}", successor.node)
        }
        (holder, _) if old.is_none_or(|old| old.holder != *holder) => {
            holder.as_ref().map_or_else(|| "no holder".to_owned(), |node| format!("holder {node}"))
        }
        _ => "duration of the change".to_owned(),
    };
    Some(format!("{verb} claim {name}: {what}"))
}

pub(super) fn read(target: &Target) -> String {
    match target {
        Target::Session(name) => format!("GET session {name}"),
        Target::Claim(name) => format!("GET claim {name}"),
    }
}

/// The answer to a write, or to a read if `read`.
pub(super) fn answer(answer: &Answer, read: bool) -> String {
    let holder = |holder: Option<&str>| match holder {
        Some(holder) if read => format!("200: holder {holder}"),
        None if read => "200: no holder".to_owned(),
        _ => "200".to_owned(),
    };
    match answer {
        Answer::Session(stored) => {
            holder(stored.record.holder.as_ref().map(leasehold_crds::names::NodeName::as_str))
        }
        Answer::Claim(stored) => {
            holder(stored.record.holder.as_ref().map(leasehold_crds::names::NodeName::as_str))
        }
        Answer::Absent => "404".to_owned(),
        Answer::Conflict => "409 Conflict".to_owned(),
        Answer::Throttled => "429".to_owned(),
        Answer::Refused(cause) | Answer::Unknown(cause) => cause.clone(),
    }
}

/// The text of a change that a watch delivers.
pub(super) fn stored(event: &Event) -> Option<String> {
    let with = |holder: Option<&str>| {
        holder.map_or_else(|| "no holder".to_owned(), |node| format!("holder {node}"))
    };
    Some(match event {
        Event::Session(stored) => {
            let holder = stored.record.holder.as_ref().map(leasehold_crds::names::NodeName::as_str);
            format!("session {}, {}", stored.name, with(holder))
        }
        Event::Claim(stored) => {
            let holder = stored.record.holder.as_ref().map(leasehold_crds::names::NodeName::as_str);
            let to = stored.record.successor.as_ref();
            let to = to.map(|to| format!(", successor {}", to.node)).unwrap_or_default();
            format!("claim {}, {}{to}", stored.name, with(holder))
        }
        Event::SessionGone(name) => format!("session {name} deleted"),
        Event::ClaimGone(name) => format!("claim {name} deleted"),
        Event::Desired(_) => "Services, policies, Nodes".to_owned(),
        _ => return None,
    })
}

/// The text of a fact that is not drawn otherwise.
pub(super) fn fact(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Silent { owner, after, .. } => {
            format!("suspicion: {} silent for {}", owner.node, milliseconds(*after))
        }
        Fact::SessionLost { cause } => format!("session lost: {cause}"),
        Fact::AddressConflict { address, .. } => format!("reports a conflict for {address}"),
        Fact::TookProvisionally { owner, .. } => {
            format!("provisional ownership, for {}", owner.node)
        }
        Fact::OldOwnerAnswers { address, .. } => format!("old owner answers for {address}"),
        Fact::Yielded { claim, .. } => format!("yields {claim}"),
        _ => return None,
    })
}

fn milliseconds(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}
