//! The lease path: a session that is not renewed for as long as it said is fenced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Evidence, LeaseName, Record as _, Session, Silenced, Stored};
use leasehold_crds::names::NodeName;

use super::election::{Config, Election};
use super::event::{Action, Answer, Change, Fact, Target, Write};
use super::place::weight;
use super::requests::{Pending, Purpose};
use super::story::OwnerId;
use crate::clock::Instant;

/// By how much each speaker waits for those before it, so that a silent session is read and fenced
/// by one of them and not by all at once.
const STAGGER: Duration = Duration::from_millis(20);
/// Among how many places the speakers spread.
const PLACES: u64 = 16;
/// How long after a failed read or fence the next is tried.
const RETRY: Duration = Duration::from_millis(250);
/// A node that was fenced so often lately takes orphans only after all others. The count is in its
/// session, and so the same for all: those that rank by what each alone has seen would wait for each other.
pub const UNSTEADY: u32 = 3;
/// More is not counted.
const MOST_FENCES: u32 = UNSTEADY * 2;
/// The longest duration that is believed: a lease edited to a larger one would never end.
const LONGEST: Duration = Duration::from_secs(300);

/// The sessions of others that are under suspicion.
#[derive(Debug, Default)]
pub(super) struct Peers {
    suspects: BTreeMap<LeaseName, Suspect>,
    /// No session will have been silent for long before that, if that is known: there may be thousands.
    none_silent_before: Option<Instant>,
}

/// Uncached reads of the sessions of others.
#[derive(Debug, Default)]
pub(super) struct SessionReads {
    /// When the last one of each session that was answered had been sent, …
    answered: BTreeMap<LeaseName, Instant>,
    /// … and when the next one may be because a claim names a session that is not known.
    next: BTreeMap<LeaseName, Instant>,
}

/// A session that was silent for as long as it said.
#[derive(Debug)]
struct Suspect {
    /// The version that an uncached read confirmed.
    confirmed: Option<Arc<str>>,
    next: Instant,
}

/// For how long a session may be silent: as long as it says, but never less than L.
pub(super) fn duration(session: &Session, config: &Config) -> Duration {
    let seconds = u64::try_from(session.duration_seconds).unwrap_or(0);
    Duration::from_secs(seconds).clamp(config.lease_duration, LONGEST.max(config.lease_duration))
}

impl Peers {
    /// Something is said of a session now; it may be silent for `least` at least.
    pub(super) fn note_session(&mut self, now: Instant, least: Duration) {
        self.none_silent_before = self.none_silent_before.map(|until| until.min(now + least));
    }

    /// Something is said of all of them.
    pub(super) const fn note_all(&mut self) {
        self.none_silent_before = None;
    }
}

impl SessionReads {
    /// When the last read of the session of `node` that was answered had been sent.
    pub(super) fn read(&self, node: &NodeName) -> Option<Instant> {
        self.answered.get(node.as_str()).copied()
    }

    /// Whether the session `name` may be read now because a claim names one that is not known.
    pub(super) fn may_read(&mut self, now: Instant, name: &LeaseName) -> bool {
        let may = self.next.get(name).is_none_or(|next| now >= *next);
        if may {
            self.next.insert(name.clone(), now + RETRY);
        }
        may
    }

    /// A read that was sent at `sent` was answered.
    fn note_answered(&mut self, name: &LeaseName, sent: Instant) {
        self.answered.insert(name.clone(), sent);
        self.next.remove(name);
    }
}

impl Election {
    /// When each session of others will have been silent for as long as it said. When it is suspected depends
    /// on the speaker, too: [`Self::stagger`].
    fn silent_from(&self) -> impl Iterator<Item = (&LeaseName, Instant)> {
        self.sessions.iter().filter(|(name, _)| **name != self.own_name).filter_map(
            |(name, entry)| {
                let stored = entry.stored.as_ref()?;
                stored.record.holder.as_ref()?;
                let since = entry.changed.max(self.own.counting_since);
                Some((name, since + duration(&stored.record, &self.config)))
            },
        )
    }

    /// How much later this speaker suspects the session `name`, so that not all do at once.
    fn stagger(&self, name: &LeaseName) -> Duration {
        let place = weight(name.as_str(), self.own_name.as_str()) % PLACES;
        STAGGER.saturating_mul(u32::try_from(place).unwrap_or(0))
    }

    /// The nodes that are fenced again and again.
    pub(super) fn unsteady(&self) -> Vec<&NodeName> {
        let unsteady = self.live_sessions().filter(|(_, s)| s.record.fences >= UNSTEADY);
        unsteady.map(|(node, _)| node).collect()
    }

    pub(super) fn peers_deadline(&self) -> Option<Instant> {
        self.own.id.as_ref()?;
        let none_before = self.first_ahead(self.peers.none_silent_before);
        let reads = self.reads.next.values().copied();
        let mut first = self.first_ahead(reads.chain(none_before));
        if none_before.is_some() {
            return first;
        }
        for (name, silent) in self.silent_from() {
            // Most are later without their stagger.
            if first.is_some_and(|first| silent >= first)
                || self.is_pending(&Target::Session(name.clone()))
            {
                continue;
            }
            let at = silent + self.stagger(name);
            let at = self.peers.suspects.get(name).map_or(at, |suspect| at.max(suspect.next));
            first = self.first_ahead(first.into_iter().chain([at]));
        }
        first
    }

    pub(super) fn advance_peers(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.own.id.is_none() || self.own.is_ending() {
            return;
        }
        if self.peers.none_silent_before.is_some_and(|until| now < until) {
            self.peers.suspects.clear();
            return;
        }
        let first = self.silent_from().map(|(_, at)| at).min();
        self.peers.none_silent_before = first.filter(|first| now < *first);
        let silent = self.silent_from().filter(|(_, at)| now >= *at);
        let silent = silent.filter(|(name, at)| now >= *at + self.stagger(name));
        let silent: Vec<LeaseName> = silent.map(|(name, _)| name.clone()).collect();
        self.peers.suspects.retain(|name, _| silent.contains(name));
        for name in silent {
            self.suspect(now, name, actions);
        }
    }

    /// Confirms the silence by a read that no cache serves, then fences.
    fn suspect(&mut self, now: Instant, name: LeaseName, actions: &mut Vec<Action>) {
        let answering = self.is_api_answering(now);
        let target = Target::Session(name.clone());
        if self.is_pending(&target) {
            return;
        }
        let Some(stored) = self.sessions.get(&name).cloned() else { return };
        let suspect = self
            .peers
            .suspects
            .entry(name.clone())
            .or_insert_with(|| Suspect { confirmed: None, next: now });
        if now < suspect.next {
            return;
        }
        suspect.next = now + RETRY;
        // Whoever cannot renew is in no position to say that others do not.
        if !answering {
            return;
        }
        if suspect.confirmed.as_ref() == Some(&stored.resource_version) {
            let holder = stored.record.holder().map(ToString::to_string).unwrap_or_default();
            let by = &self.config.node;
            let cause = format!("{holder} {FENCED_BY} {by}: session was not renewed");
            let renewed = self.sessions.entry(&name).map_or(now, |entry| entry.changed);
            let lasted = now.saturating_since(renewed);
            let record = fenced(&stored, Silenced { evidence: Evidence::Lease, lasted }, cause);
            let change = Change { name, base: Some(stored), record };
            self.write(now, Write::Session(change), Purpose::Fence, actions);
        } else {
            self.read(now, target, actions);
        }
    }

    pub(super) fn peer_answered(
        &mut self,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        self.silence_answered(now, pending, answer);
        if pending.purpose.is_read() && matches!(answer, Answer::Session(_) | Answer::Absent) {
            self.reads.note_answered(name, pending.sent);
        }
        if let (Purpose::Fence, Answer::Session(stored)) = (pending.purpose, answer)
            && let (Ok(node), Some(silence)) = (name.as_str().parse(), stored.record.silence)
        {
            let session = stored.record.transitions.saturating_sub(1);
            let owner = OwnerId { node, session };
            let lasted = silence.lasted + now.saturating_since(pending.sent);
            let silence = Silenced { lasted, ..silence };
            Self::report(Fact::Fenced { owner, silence }, actions);
        }
        let Some(suspect) = self.peers.suspects.get_mut(name) else { return };
        match (pending.purpose, answer) {
            (Purpose::Read, Answer::Session(stored)) => {
                suspect.confirmed = Some(stored.resource_version.clone());
                suspect.next = now;
            }
            // It was renewed or fenced meanwhile, or this cannot be known: from the start.
            (_, Answer::Conflict | Answer::Unknown(_)) => suspect.confirmed = None,
            (_, _) => {}
        }
    }
}

/// What the cause of a fence says.
pub(super) const FENCED_BY: &str = "fenced by";

/// The record that ends a session: with it all its claims are orphans, for good.
pub(super) fn fenced(stored: &Stored<Session>, silence: Silenced, cause: String) -> Session {
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
