//! How the API server answers.

use std::time::Duration;

use crate::clock::Instant;
use crate::election::context::state::requests::Pending;
use crate::election::io::event::Answer;

/// After which time without success the API server counts as gone.
pub(in crate::election) const GONE: Duration = Duration::from_secs(2);

/// How the API server answers.
#[derive(Clone, Debug, Default)]
pub(in crate::election) struct Api {
    /// When it last carried out, or refused for good reason, what this node asked.
    pub(in crate::election::context) answered: Instant,
    /// Since when it has not.
    pub(in crate::election::context) failing: Option<Instant>,
    /// Lists are to be awaited before anything provisional is settled.
    pub(in crate::election::context) unsettled: bool,
    pub(in crate::election::context) asked: Option<Instant>,
    pub(in crate::election::context) sessions_listed: bool,
    pub(in crate::election::context) claims_listed: bool,
}

impl Api {
    pub(in crate::election) fn new(now: Instant) -> Self {
        Self { answered: now, ..Self::default() }
    }

    /// A request was answered, or was not.
    pub(in crate::election) fn note(&mut self, now: Instant, pending: &Pending, answer: &Answer) {
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
    pub(in crate::election) fn listed_sessions(&mut self) {
        self.sessions_listed = true;
    }

    /// A complete list came.
    pub(in crate::election) fn listed_claims(&mut self) {
        self.claims_listed = true;
    }

    /// Whether anything is served provisionally, or was until a moment ago.
    pub(in crate::election) const fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Something is served provisionally.
    pub(in crate::election) const fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// What is served provisionally has been looked at; whether any of it is left.
    pub(in crate::election) const fn settle(&mut self, left: bool) {
        self.unsettled = left;
        if !left {
            self.asked = None;
        }
    }

    /// Lists that were asked for count no more.
    pub(in crate::election) const fn forget_lists(&mut self) {
        self.asked = None;
    }

    /// Whether lists are to be asked for now.
    pub(in crate::election) fn ask_for_lists(&mut self, now: Instant) -> bool {
        let asks = self.asked.is_none_or(|at| now >= at + GONE);
        if asks {
            self.asked = Some(now);
            self.sessions_listed = false;
            self.claims_listed = false;
        }
        asks
    }
}
