//! The state of the API server, as the answers to requests show it.

use std::time::Duration;

use crate::clock::Instant;
use crate::lease::context::Context;
use crate::lease::context::requests::Pending;
use crate::lease::io::event::Answer;

/// After which time without success the API server counts as gone.
pub(in crate::lease) const GONE: Duration = Duration::from_secs(2);

/// How long an API server that has only just stopped answering is waited for: longer than the steps
/// of the ranking, so that somebody who reaches it acts first.
pub(in crate::lease) const STOPPED: Duration = Duration::from_millis(400);

/// How the API server answers.
#[derive(Clone, Debug, Default)]
pub(in crate::lease) struct Api {
    /// When it last carried out, or refused for good reason, what this node asked.
    answered: Instant,
    /// Since when it has not.
    failing: Option<Instant>,
    /// Lists are to be awaited before anything provisional is settled.
    unsettled: bool,
    asked: Option<Instant>,
    sessions_listed: bool,
    claims_listed: bool,
}

impl Api {
    pub(in crate::lease) fn new(now: Instant) -> Self {
        Self { answered: now, ..Self::default() }
    }

    /// A request was answered, or was not.
    pub(in crate::lease) fn note(&mut self, now: Instant, pending: &Pending, answer: &Answer) {
        match answer {
            Answer::Session(_) | Answer::Claim(_) | Answer::Absent | Answer::Conflict => {
                // A store that is read-only answers reads.
                if !pending.purpose.is_read() || self.failing.is_none() {
                    self.answered = now;
                    self.failing = None;
                }
            }
            Answer::Unknown(_) | Answer::Refused(_) | Answer::Throttled => {
                self.failing = self.failing.or(Some(now));
            }
        }
    }

    /// A complete list came.
    pub(in crate::lease) fn listed_sessions(&mut self) {
        self.sessions_listed = true;
    }

    /// A complete list came.
    pub(in crate::lease) fn listed_claims(&mut self) {
        self.claims_listed = true;
    }

    /// Whether anything is served provisionally, or was until a moment ago.
    pub(in crate::lease) const fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Something is served provisionally.
    pub(in crate::lease) const fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// What is served provisionally has been looked at; whether any of it is left.
    pub(in crate::lease) const fn settle(&mut self, left: bool) {
        self.unsettled = left;
        if !left {
            self.asked = None;
        }
    }

    /// Lists that were asked for count no more.
    pub(in crate::lease) const fn forget_lists(&mut self) {
        self.asked = None;
    }

    /// Whether lists are to be asked for now.
    pub(in crate::lease) fn ask_for_lists(&mut self, now: Instant) -> bool {
        let asks = self.asked.is_none_or(|at| now >= at + GONE);
        if asks {
            self.asked = Some(now);
            self.sessions_listed = false;
            self.claims_listed = false;
        }
        asks
    }
}

impl Context {
    /// Whether the last write was not answered, or was refused.
    pub(in crate::lease) const fn is_api_failing(&self) -> bool {
        self.api.failing.is_some()
    }

    /// When a silence that began at `since` has waited long enough for the API server.
    pub(in crate::lease) fn api_given_up(&self, since: Instant) -> Instant {
        since.max(self.api.answered) + STOPPED
    }

    /// Whether the API server is of no help with what happened at `since`.
    pub(in crate::lease) fn is_api_gone(&self, now: Instant, since: Instant) -> bool {
        if self.api.failing.is_some_and(|failing| now.saturating_since(failing) >= GONE) {
            return true;
        }
        let waits = |pending: &Pending| now.saturating_since(pending.sent) >= STOPPED;
        let unanswered = self.api.failing.is_some() || self.requests.values().any(waits);
        unanswered && now >= self.api_given_up(since)
    }

    /// Whether the lists that come before anything provisional is settled are still awaited.
    pub(in crate::lease) const fn is_settling(&self) -> bool {
        let api = &self.api;
        api.unsettled && !(api.asked.is_some() && api.sessions_listed && api.claims_listed)
    }
}
