//! The turn of refreshes, and how many writes and reads of claims may be in flight.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::lease::claim::Claims;
use crate::lease::claim::state::Tenure;
use crate::lease::context::Context;
use crate::lease::context::owner::Owner;
use crate::lease::context::requests::{Pending, Purpose};
use crate::lease::io::event::{Action, Target};

/// How many claim writes may be unanswered at once.
pub(in crate::lease) const IN_FLIGHT: usize = 4;

/// After how long a claim is asked for again where the API server had no time for that: few are asked for at
/// once by then.
pub(in crate::lease) const THROTTLED: Duration = Duration::from_millis(250);

/// The turn of refreshes.
#[derive(Debug, Default)]
pub(in crate::lease) struct Refresh {
    pub(in crate::lease::claim) due: Instant,
    last: Option<LeaseName>,
    /// How many claim writes may be unanswered; fewer after the API server asked to slow down.
    pub(in crate::lease::claim) allowed: Option<usize>,
    /// When it first asked for that last time.
    throttled: Option<Instant>,
}

impl Refresh {
    /// What was sent at `sent` was answered so that half as many may be unanswered. Those that were on their way
    /// together are one reason, not one each.
    pub(in crate::lease) fn throttle(&mut self, now: Instant, sent: Instant) {
        if self.throttled.is_none_or(|throttled| sent >= throttled) {
            self.throttled = Some(now);
            self.allowed = Some((self.allowed.unwrap_or(IN_FLIGHT) / 2).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_throttled_together_halves_the_room_once() {
        let at =
            |millis| Instant::from_boot(Duration::from_secs(1) + Duration::from_millis(millis));
        let mut refresh = Refresh::default();
        for answered in 10..14 {
            refresh.throttle(at(answered), at(0));
        }
        assert_eq!(refresh.allowed, Some(2));
        refresh.throttle(at(30), at(20));
        assert_eq!(refresh.allowed, Some(1));
        refresh.throttle(at(50), at(40));
        assert_eq!(refresh.allowed, Some(1));
    }
}

impl Claims {
    pub(in crate::lease) fn has_room(&self, cx: &Context) -> bool {
        let writing = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose != Purpose::Read
        };
        cx.requests().values().filter(writing).count() < self.refresh.allowed.unwrap_or(IN_FLIGHT)
    }

    /// The claim after `last`, in the order of names and round again, whose tenure is such a one.
    pub(in crate::lease) fn next_in_turn(
        &self,
        last: Option<&LeaseName>,
        such: impl Fn(&Tenure) -> bool,
    ) -> Option<LeaseName> {
        let mut fitting = self.tenures.iter().filter(|(_, tenure)| such(tenure));
        let mut again = fitting.clone();
        let next = fitting.find(|(name, _)| last.is_none_or(|last| *name > last));
        next.or_else(|| again.next()).map(|(name, _)| name.clone())
    }

    pub(in crate::lease) fn refresh_in_turn(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if now < self.refresh.due {
            return;
        }
        self.refresh.due = now + cx.refresh_interval();
        let orphans = self.tenures.values().any(|tenure| tenure.orphan.is_some() && !tenure.mine);
        if orphans || cx.own().is_ending() || !cx.is_api_answering(now) {
            return;
        }
        // How long a change took is to be known soon.
        let untold = self.next_in_turn(None, |tenure| tenure.mine && tenure.took.is_some());
        let last = self.refresh.last.as_ref();
        let Some(name) = untold.or_else(|| self.next_in_turn(last, |tenure| tenure.mine)) else {
            return;
        };
        self.refresh.last = Some(name.clone());
        let steady =
            self.tenures.get(&name).is_some_and(|t| t.leaving.is_none() && t.handover.is_none());
        let stored = cx.claims().get(&name).filter(|stored| cx.owner(stored) == Owner::Me).cloned();
        let asked = cx.desired_claim(&name).is_some();
        let (Some(stored), true, true) = (stored, asked, steady) else { return };
        if !cx.is_pending(&Target::Claim(name.clone())) {
            let record = self.held_record(cx, &stored);
            Self::put_claim(cx, now, &name, Some(stored), record, Purpose::Refresh, actions);
        }
    }
}
