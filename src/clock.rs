//! The clock of this node: the one place that reads a clock for decisions.
//!
//! Everything that decides is passed the time as an argument, as an [`Instant`].

use std::time::Duration;

use leasehold_core::clock::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The present moment on `CLOCK_BOOTTIME`.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel keeps both fields non-negative on this clock.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_boot(Duration::new(seconds, nanoseconds))
}

/// Sleeps until `deadline`; returns at once when it has passed.
///
/// The timer below runs on `CLOCK_MONOTONIC`: after a suspend it wakes late by the time slept, so a
/// caller reads the clock again before it acts.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep(deadline.saturating_since(now())).await;
}

/// Work on all addresses that takes this long is followed by a rest, …
const LONG: Duration = Duration::from_millis(2);
/// … which is no longer than this: on a busy machine work takes longer than it should, and addresses wait.
const REST: Duration = Duration::from_millis(50);

/// Rests as long as the work since `began` took, where that was long: what changes meanwhile is then done
/// together, and a node with thousands of addresses has time for other things.
pub async fn rest_after(began: Instant) {
    let took = now().saturating_since(began);
    if took >= LONG {
        tokio::time::sleep(took.min(REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn the_clock_moves_forward() {
        let first = now();
        assert!(now() >= first);
    }
}
