//! The turn of refreshes, and how many writes and reads of claims may be in flight.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use super::election::Election;
use super::event::{Action, Target};
use super::requests::{Pending, Purpose};
use super::tenure::Tenure;
use super::validity::Owner;
use crate::clock::Instant;

/// How many claim writes may be unanswered at once.
pub(super) const IN_FLIGHT: usize = 4;

/// After how long a claim is asked for again where the API server had no time for that: few are asked for at
/// once by then.
pub(super) const THROTTLED: Duration = Duration::from_millis(250);

/// How many claims may be read at once of which many may have to be.
const READS: usize = 4;

/// The turn of refreshes.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    pub(super) due: Instant,
    pub(super) last: Option<LeaseName>,
    /// How many claim writes may be unanswered; fewer after the API server asked to slow down.
    pub(super) allowed: Option<usize>,
    /// When it first asked for that last time.
    throttled: Option<Instant>,
}

impl Refresh {
    /// What was sent at `sent` was answered so that half as many may be unanswered. Those that were on their way
    /// together are one reason, not one each.
    pub(super) fn throttle(&mut self, now: Instant, sent: Instant) {
        if self.throttled.is_none_or(|throttled| sent >= throttled) {
            self.throttled = Some(now);
            self.allowed = Some((self.allowed.unwrap_or(IN_FLIGHT) / 2).max(1));
        }
    }
}

impl Election {
    pub(super) fn has_room(&self) -> bool {
        let writing = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose != Purpose::Read
        };
        self.requests.values().filter(writing).count() < self.refresh.allowed.unwrap_or(IN_FLIGHT)
    }

    /// Whether another claim may be read, beside those that are being read.
    pub(super) fn has_room_to_read(&self) -> bool {
        let reading = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose == Purpose::Read
        };
        self.requests.values().filter(reading).count() < READS
    }

    /// p: how often a claim is refreshed per speaker.
    pub(super) fn refresh_interval(&self) -> Duration {
        let speakers = u32::try_from(self.living()).unwrap_or(u32::MAX);
        Duration::from_millis(1500).max(Duration::from_millis(100).saturating_mul(speakers))
    }

    pub(super) fn claim_duration(&self) -> i32 {
        let held = self.published.count().max(1);
        let turns = u32::try_from(held).unwrap_or(u32::MAX).saturating_mul(3);
        let seconds = self.refresh_interval().saturating_mul(turns).as_secs();
        i32::try_from(seconds).unwrap_or(i32::MAX).max(self.lease_seconds())
    }

    /// The claim after `last`, in the order of names and round again, whose tenure is such a one.
    pub(super) fn next_in_turn(
        &self,
        last: Option<&LeaseName>,
        such: impl Fn(&Tenure) -> bool,
    ) -> Option<LeaseName> {
        let mut fitting = self.tenures.iter().filter(|(_, tenure)| such(tenure));
        let mut again = fitting.clone();
        let next = fitting.find(|(name, _)| last.is_none_or(|last| *name > last));
        next.or_else(|| again.next()).map(|(name, _)| name.clone())
    }

    pub(super) fn refresh_in_turn(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now < self.refresh.due {
            return;
        }
        self.refresh.due = now + self.refresh_interval();
        let orphans = self.tenures.values().any(|tenure| tenure.orphan.is_some() && !tenure.mine);
        if orphans || self.own.is_ending() || !self.is_api_answering(now) {
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
        let stored =
            self.claims.get(&name).filter(|stored| self.owner(stored) == Owner::Me).cloned();
        let asked = self.desired_claim(&name).is_some();
        let (Some(stored), true, true) = (stored, asked, steady) else { return };
        if !self.is_pending(&Target::Claim(name.clone())) {
            let record = self.held_record(&stored);
            self.put_claim(now, &name, Some(stored), record, Purpose::Refresh, actions);
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
