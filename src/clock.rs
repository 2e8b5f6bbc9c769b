//! The one place that reads a clock for decisions.
//!
//! [`Instant`] is `CLOCK_BOOTTIME`: it never jumps and counts while the machine is suspended, which
//! `CLOCK_MONOTONIC` (tokio's and std's `Instant`) does not. Everything that decides takes `now` as
//! an argument.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on the local `CLOCK_BOOTTIME`, as the time since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The present moment.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        // The kernel keeps both fields non-negative on this clock.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanoseconds))
    }

    /// The point `since_boot` after the boot: for simulated time and for tests.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// The time since the boot.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the boot.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0.as_secs_f64())
    }
}

/// Sleeps until `deadline`; returns at once when it has passed.
///
/// The timer below runs on `CLOCK_MONOTONIC`: after a suspend it wakes late by the time slept, so a
/// caller reads the clock again before it acts.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep(deadline.saturating_since(Instant::now())).await;
}

/// Work on all addresses that takes this long is followed by a rest, …
const LONG: Duration = Duration::from_millis(2);
/// … which is no longer than this: on a busy machine work takes longer than it should, and addresses wait.
const REST: Duration = Duration::from_millis(50);

/// Rests as long as the work since `began` took, where that was long: what changes meanwhile is then done
/// together, and a node with thousands of addresses has time for other things.
pub async fn rest_after(began: Instant) {
    let took = Instant::now().saturating_since(began);
    if took >= LONG {
        tokio::time::sleep(took.min(REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_the_boot() {
        let early = Instant::from_boot(Duration::from_secs(1));
        assert_eq!((early - Duration::from_secs(5)).since_boot(), Duration::ZERO);
        assert_eq!(early.saturating_since(early + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn the_clock_moves_forward() {
        let first = Instant::now();
        assert!(Instant::now() >= first);
    }
}
