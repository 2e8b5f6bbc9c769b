//! Uncached reads of sessions, and the record of a fence.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Session, Silenced, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::lease::context::Context;
use crate::lease::context::facts::Config;

/// How long after a failed read or fence the next is tried.
pub(in crate::lease) const RETRY: Duration = Duration::from_millis(250);

/// A node that was fenced so often lately takes orphans only after all others. The count is in its
/// session, and so the same for all: those that rank by what each alone has seen would wait for each other.
pub const UNSTEADY: u32 = 3;

/// More is not counted.
pub(in crate::lease) const MOST_FENCES: u32 = UNSTEADY * 2;

/// The longest duration that is believed: a lease edited to a larger one would never end.
pub(in crate::lease) const LONGEST: Duration = Duration::from_secs(300);

/// Uncached reads of the sessions of others.
#[derive(Debug, Default)]
pub(in crate::lease) struct SessionReads {
    /// When the last one of each session that was answered had been sent, …
    answered: BTreeMap<LeaseName, Instant>,
    /// … and when the next one may be because a claim names a session that is not known.
    next: BTreeMap<LeaseName, Instant>,
}

/// For how long a session may be silent: as long as it says, but never less than L.
pub(in crate::lease) fn duration(session: &Session, config: &Config) -> Duration {
    let seconds = u64::try_from(session.duration_seconds).unwrap_or(0);
    Duration::from_secs(seconds).clamp(config.lease_duration, LONGEST.max(config.lease_duration))
}

impl SessionReads {
    /// When reads may be sent that wait for it.
    pub(in crate::lease) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.next.values().copied()
    }

    /// When the last read of the session of `node` that was answered had been sent.
    pub(in crate::lease) fn read(&self, node: &NodeName) -> Option<Instant> {
        self.answered.get(node.as_str()).copied()
    }

    /// Whether the session `name` may be read now because a claim names one that is not known.
    pub(in crate::lease) fn may_read(&mut self, now: Instant, name: &LeaseName) -> bool {
        let may = self.next.get(name).is_none_or(|next| now >= *next);
        if may {
            self.next.insert(name.clone(), now + RETRY);
        }
        may
    }

    /// A read that was sent at `sent` was answered.
    pub(in crate::lease) fn note_answered(&mut self, name: &LeaseName, sent: Instant) {
        self.answered.insert(name.clone(), sent);
        self.next.remove(name);
    }
}

/// What the cause of a fence says.
pub(in crate::lease) const FENCED_BY: &str = "fenced by";

/// The record that ends a session: with it all its claims are orphans, for good.
pub(in crate::lease) fn fenced(
    stored: &Stored<Session>,
    silence: Silenced,
    cause: String,
) -> Session {
    Session {
        holder: None,
        transitions: stored.record.transitions.saturating_add(1),
        restarting: false,
        fences: stored.record.fences.saturating_add(1).min(MOST_FENCES),
        silence: Some(silence),
        cause,
        ..stored.record.clone()
    }
}

impl Context {
    /// The nodes that are fenced again and again.
    pub(in crate::lease) fn unsteady(&self) -> Vec<&NodeName> {
        let unsteady = self.live_sessions().filter(|(_, s)| s.record.fences >= UNSTEADY);
        unsteady.map(|(node, _)| node).collect()
    }
}
