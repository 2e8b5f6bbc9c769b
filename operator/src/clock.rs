//! The clocks: decisions are made on the speaker's, which is `CLOCK_BOOTTIME`.

use std::time::Duration;

use jiff::Timestamp;

/// A point in time as the time since boot.
pub type Instant = Duration;

/// The present moment.
pub fn now() -> Instant {
    leasehold::clock::now().since_boot()
}

/// The time of day, for people and for the API's records; no decision depends on it.
pub fn time_of_day() -> Timestamp {
    Timestamp::now()
}

/// Sleeps until `deadline`. Wakes late by the length of a suspend: a caller reads the clock again
/// before it acts.
pub async fn sleep_until(deadline: Instant) {
    leasehold::clock::sleep_until(leasehold_core::clock::Instant::from_boot(deadline)).await;
}
