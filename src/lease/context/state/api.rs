//! How the API server answers.

use std::time::Duration;

use crate::clock::Instant;
use crate::lease::context::state::requests::Pending;
use crate::lease::io::event::Answer;

/// After which time without success the API server counts as gone.
pub(in crate::lease) const GONE: Duration = Duration::from_secs(2);

/// How the API server answers.
#[derive(Clone, Debug, Default)]
pub(in crate::lease) struct Api {
    /// When it last carried out, or refused for good reason, what this node asked.
    pub(in crate::lease::context) answered: Instant,
    /// Since when it has not.
    pub(in crate::lease::context) failing: Option<Instant>,
    /// Lists are to be awaited before anything provisional is settled.
    pub(in crate::lease::context) unsettled: bool,
    pub(in crate::lease::context) asked: Option<Instant>,
    pub(in crate::lease::context) sessions_listed: bool,
    pub(in crate::lease::context) claims_listed: bool,
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
