//! The time that decisions are made on.
//!
//! [`Instant`] is a point on `CLOCK_BOOTTIME`: it never jumps and counts while the machine is suspended, which
//! `CLOCK_MONOTONIC` (the `Instant` of tokio and of std) does not. Nothing here reads a clock: whatever decides is
//! passed the time as an argument.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the local `CLOCK_BOOTTIME`, as the time since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_the_boot() {
        let early = Instant::from_boot(Duration::from_secs(1));
        assert_eq!((early - Duration::from_secs(5)).since_boot(), Duration::ZERO);
        assert_eq!(early.saturating_since(early + Duration::from_secs(1)), Duration::ZERO);
    }
}
