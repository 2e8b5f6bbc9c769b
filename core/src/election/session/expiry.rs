//! The lease path: a session that is not renewed for as long as it said is fenced.

use std::time::Duration;

use leasehold_crds::lease::{EvidenceKind, LeaseName, Silenced};

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::fence::Evidence;
use crate::election::context::session_reads::duration;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::context::state::session_reads::RETRY;
use crate::election::io::event::{Action, Answer, Fact, Target};
use crate::election::io::transition::OwnerId;
use crate::election::placement::rank::weight;
use crate::election::session::Sessions;
use crate::election::session::state::expiry::Suspect;
use crate::election::wire::Wire;

/// By how much each speaker waits for those before it, so that a silent session is read and fenced
/// by one of them and not by all at once.
pub(in crate::election) const STAGGER: Duration = Duration::from_millis(20);

/// Among how many places the speakers spread.
pub(in crate::election) const PLACES: u64 = 16;

impl Sessions {
    /// When each session of others will have been silent for as long as it said. When it is suspected depends
    /// on the speaker, too: [`Self::stagger`].
    pub(in crate::election) fn silent_from(
        cx: &Context,
    ) -> impl Iterator<Item = (&LeaseName, Instant)> {
        cx.sessions().iter().filter(|(name, _)| *name != cx.own_name()).filter_map(
            |(name, entry)| {
                let stored = entry.stored.as_ref()?;
                stored.record.holder.as_ref()?;
                let since = entry.changed.max(cx.own().counting_since);
                Some((name, since + duration(&stored.record, cx.config())))
            },
        )
    }

    /// The delay with which this speaker suspects the session `name`, so that not all do so at once.
    pub(in crate::election) fn stagger(cx: &Context, name: &LeaseName) -> Duration {
        let place = weight(name.as_str(), cx.own_name().as_str()) % PLACES;
        STAGGER.saturating_mul(u32::try_from(place).unwrap_or(0))
    }

    pub(in crate::election) fn peers_deadline(&self, cx: &Context) -> Option<Instant> {
        cx.own().id.as_ref()?;
        let none_before = cx.first_ahead(self.peers.none_silent_before);
        let reads = cx.reads().deadlines();
        let mut first = cx.first_ahead(reads.chain(none_before));
        if none_before.is_some() {
            return first;
        }
        for (name, silent) in Self::silent_from(cx) {
            // Most are later without their stagger.
            if first.is_some_and(|first| silent >= first)
                || cx.is_pending(&Target::Session(name.clone()))
            {
                continue;
            }
            let at = silent + Self::stagger(cx, name);
            let at = self.peers.suspects.get(name).map_or(at, |suspect| at.max(suspect.next));
            first = cx.first_ahead(first.into_iter().chain([at]));
        }
        first
    }

    pub(in crate::election) fn advance_peers(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.own().id.is_none() || cx.own().is_ending() {
            return;
        }
        if self.peers.none_silent_before.is_some_and(|until| now < until) {
            self.peers.suspects.clear();
            return;
        }
        let first = Self::silent_from(cx).map(|(_, at)| at).min();
        self.peers.none_silent_before = first.filter(|first| now < *first);
        let silent = Self::silent_from(cx).filter(|(_, at)| now >= *at);
        let silent = silent.filter(|(name, at)| now >= *at + Self::stagger(cx, name));
        let silent: Vec<LeaseName> = silent.map(|(name, _)| name.clone()).collect();
        self.peers.suspects.retain(|name, _| silent.contains(name));
        for name in silent {
            self.suspect(cx, now, &name, actions);
        }
    }

    /// Confirms the silence by a read that no cache serves, then fences.
    pub(in crate::election) fn suspect(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let answering = cx.is_api_answering(now);
        let target = Target::Session(name.clone());
        if cx.is_pending(&target) {
            return;
        }
        let Some(stored) = cx.sessions().get(name).cloned() else { return };
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
            let renewed = cx.sessions().entry(name).map_or(now, |entry| entry.changed);
            let finding = "session was not renewed".to_owned();
            cx.fence(now, Evidence::new(stored, EvidenceKind::Lease, renewed, finding), actions);
        } else {
            cx.read(now, target, actions);
        }
    }

    pub(in crate::election) fn peer_answered(
        &mut self,
        cx: &mut Context,
        wire: &mut Wire,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        wire.silence_answered(now, pending, answer);
        if pending.purpose.is_read() && matches!(answer, Answer::Session(_) | Answer::Absent) {
            cx.reads_mut().note_answered(name, pending.sent);
        }
        if let (Purpose::Fence, Answer::Session(stored)) = (pending.purpose, answer)
            && let (Ok(node), Some(silence)) = (name.as_str().parse(), stored.record.silence)
        {
            let session = stored.record.transitions.saturating_sub(1);
            let owner = OwnerId { node, session };
            let lasted = silence.lasted + now.saturating_since(pending.sent);
            let silence = Silenced { lasted, ..silence };
            Context::report(Fact::Fenced { owner, silence }, actions);
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
