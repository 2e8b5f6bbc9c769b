//! The turn of refreshes, and the room for writes.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;

/// The largest number of unanswered claim writes.
pub(in crate::election) const IN_FLIGHT: usize = 4;

/// The turn of refreshes.
#[derive(Debug, Default)]
pub(in crate::election) struct Refresh {
    pub(in crate::election::claim) due: Instant,
    pub(in crate::election::claim) last: Option<LeaseName>,
    /// The number of claim writes that may be unanswered; fewer after the API server asked to slow down.
    pub(in crate::election::claim) allowed: Option<usize>,
    /// When it first asked for that last time.
    throttled: Option<Instant>,
}

impl Refresh {
    /// The API server throttled the request of `sent`: half as many may be unanswered. Those that were on their way
    /// together are one reason, not one each.
    pub(in crate::election) fn throttle(&mut self, now: Instant, sent: Instant) {
        if self.throttled.is_none_or(|throttled| sent >= throttled) {
            self.throttled = Some(now);
            self.allowed = Some((self.allowed.unwrap_or(IN_FLIGHT) / 2).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
