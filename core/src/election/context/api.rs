//! The state of the API server, as the answers to requests show it.

use std::time::Duration;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::api::GONE;
use crate::election::context::state::requests::Pending;

/// How long an API server that has only just stopped answering is waited for: longer than the steps
/// of the ranking, so that somebody who reaches it acts first.
pub(in crate::election) const STOPPED: Duration = Duration::from_millis(400);

impl Context {
    /// Whether the last write was not answered, or was refused.
    pub(in crate::election) const fn is_api_failing(&self) -> bool {
        self.api.failing.is_some()
    }

    /// When a silence that began at `since` has waited long enough for the API server.
    pub(in crate::election) fn api_given_up(&self, since: Instant) -> Instant {
        since.max(self.api.answered) + STOPPED
    }

    /// Whether the API server is of no help with what happened at `since`.
    pub(in crate::election) fn is_api_gone(&self, now: Instant, since: Instant) -> bool {
        if self.api.failing.is_some_and(|failing| now.saturating_since(failing) >= GONE) {
            return true;
        }
        let waits = |pending: &Pending| now.saturating_since(pending.sent) >= STOPPED;
        let unanswered = self.api.failing.is_some() || self.requests.values().any(waits);
        unanswered && now >= self.api_given_up(since)
    }

    /// Whether the lists that come before anything provisional is settled are still awaited.
    pub(in crate::election) const fn is_settling(&self) -> bool {
        let api = &self.api;
        api.unsettled && !(api.asked.is_some() && api.sessions_listed && api.claims_listed)
    }
}
