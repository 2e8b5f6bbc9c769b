//! A node's clock against the world's.

use std::time::Duration;

use leasehold_core::clock::Instant;

/// The clock of a node: it runs fast or slow, and stands still while the node is paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// At this moment of the world …
    world: Instant,
    /// … it showed this.
    shown: Instant,
    /// Parts per million by which it runs fast, or slow.
    rate: u64,
    slow: bool,
    stopped: bool,
}

const MILLION: u64 = 1_000_000;

/// `whole * part / of`, rounded down.
const fn share(whole: u64, part: u64, of: u64) -> u64 {
    whole / of * part + whole % of * part / of
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

impl Clock {
    /// Shows what the world's clock shows.
    pub(crate) fn true_one() -> Self {
        let zero = Instant::default();
        Self { world: zero, shown: zero, rate: 0, slow: false, stopped: false }
    }

    pub(crate) const fn new(now: Instant, shown: Instant, rate: u64, slow: bool) -> Self {
        Self { world: now, shown, rate, slow, stopped: false }
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.shown = self.at(now);
        self.world = now;
        self.stopped = true;
    }

    pub(crate) const fn go(&mut self, now: Instant) {
        self.world = now;
        self.stopped = false;
    }

    /// What it shows at `now`.
    pub(crate) fn at(&self, now: Instant) -> Instant {
        if self.stopped {
            return self.shown;
        }
        let passed = now.saturating_since(self.world);
        if self.rate == 0 {
            return self.shown + passed;
        }
        let off = Duration::from_nanos(share(nanos(passed), self.rate, MILLION));
        self.shown + if self.slow { passed.saturating_sub(off) } else { passed + off }
    }

    /// When it will show `shown`, at the earliest a moment later; never while it stands still.
    pub(crate) fn when(&self, shown: Instant) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let ahead = shown.saturating_since(self.shown);
        if self.rate == 0 {
            return Some(self.world + ahead);
        }
        let factor = if self.slow { MILLION - self.rate } else { MILLION + self.rate };
        // Rounded up by more than all was rounded down.
        let passes = share(nanos(ahead), MILLION, factor) + 3;
        Some(self.world + Duration::from_nanos(passes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_due_when_the_clock_shows_it() {
        for (rate, slow) in [(0, false), (200, false), (200, true), (10_000, false), (9_999, true)]
        {
            let now = Instant::from_boot(Duration::from_secs(1000));
            let shown = Instant::from_boot(Duration::from_secs(77));
            let clock = Clock::new(now, shown, rate, slow);
            for ahead in [1, 999, 1_000_003, 6_500_000_001, 600_000_000_007] {
                let due = shown + Duration::from_nanos(ahead);
                let at = clock.when(due).unwrap();
                assert!(clock.at(at) >= due, "{rate} {slow} {ahead}");
                assert!(clock.at(at).saturating_since(due) < Duration::from_micros(900));
            }
        }
    }
}
