//! Uncached reads of sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

use crate::clock::Instant;

/// How long after a failed read or fence the next is tried.
pub(in crate::election) const RETRY: Duration = Duration::from_millis(250);

/// Uncached reads of the sessions of others.
#[derive(Debug, Default)]
pub(in crate::election) struct SessionReads {
    /// When the last one of each session that was answered had been sent, …
    answered: BTreeMap<LeaseName, Instant>,
    /// … and when the next one may be because a claim names a session that is not known.
    next: BTreeMap<LeaseName, Instant>,
}

impl SessionReads {
    /// When reads may be sent that wait for it.
    pub(in crate::election) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.next.values().copied()
    }

    /// When the last read of the session of `node` that was answered had been sent.
    pub(in crate::election) fn read(&self, node: &NodeName) -> Option<Instant> {
        self.answered.get(node.as_str()).copied()
    }

    /// Whether the session `name` may be read now because a claim names one that is not known.
    pub(in crate::election) fn may_read(&mut self, now: Instant, name: &LeaseName) -> bool {
        let may = self.next.get(name).is_none_or(|next| now >= *next);
        if may {
            self.next.insert(name.clone(), now + RETRY);
        }
        may
    }

    /// A read that was sent at `sent` was answered.
    pub(in crate::election) fn note_answered(&mut self, name: &LeaseName, sent: Instant) {
        self.answered.insert(name.clone(), sent);
        self.next.remove(name);
    }
}
