//! Detection of owners that do not answer clients.
//!
//! Those ask in a name of their own. An owner whose routes to them lead by another link, with strict reverse
//! path filtering, answers none of them; and without a route to them or with `arp_filter` neither. What is
//! asked from 0.0.0.0 it answers all the same, so that its polls look well.

use std::time::Duration;

use crate::clock::Instant;

/// The number of questions without an answer after which the owner counts as unanswering.
const ASKED: u32 = 3;
/// Interval between these questions.
const SOON: Duration = Duration::from_secs(1);
/// Interval between questions to an owner that answered, or that is known to be unanswering.
const LATER: Duration = Duration::from_secs(10);

/// The state of one owner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clients {
    /// The number of questions in a row without an answer.
    asked: u32,
    next: Option<Instant>,
    unanswered: bool,
}

impl Clients {
    /// Whether it does not answer them.
    pub(super) const fn is_unanswered(self) -> bool {
        self.unanswered
    }

    /// Whether to ask now; if so that counts as asked.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.unanswered |= self.asked >= ASKED;
        self.asked = self.asked.saturating_add(1);
        self.next = Some(now + if self.asked <= ASKED { SOON } else { LATER });
        true
    }

    /// Questions, or answers to them, may have been lost here.
    pub(super) fn void(&mut self) {
        self.asked = 0;
    }

    /// It has answered a question in this node's name.
    pub(super) fn hear(&mut self, at: Instant) {
        *self = Self { asked: 0, next: Some(at + LATER), unanswered: false };
    }
}
