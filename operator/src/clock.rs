//! The one place that reads clocks.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// A point in time as the time since boot: `CLOCK_BOOTTIME`, which never jumps and counts while the
/// machine is suspended. All decisions are made on it.
pub type Instant = Duration;

/// The present moment.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel keeps both fields non-negative on this clock.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// The time of day, for people and for the API's records; no decision depends on it.
pub fn time_of_day() -> Timestamp {
    Timestamp::now()
}

/// Sleeps until `deadline`. Wakes late by the length of a suspend: a caller reads the clock again
/// before it acts.
pub async fn sleep_until(deadline: Instant) {
    tokio::time::sleep(deadline.saturating_sub(now())).await;
}
