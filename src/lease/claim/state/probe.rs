//! Probes that are under way.

use std::time::Duration;

use crate::clock::Instant;

/// Between the two probes of a new claim, and after the second.
pub(in crate::lease) const PROBE: Duration = Duration::from_millis(20);

/// How often they are sent again, at most, where frames were dropped meanwhile: in a storm that does not end an
/// address is served all the same.
pub(in crate::lease) const ROUNDS: u32 = 3;

/// A new claim whose address is probed for before it is added.
#[derive(Debug)]
pub(in crate::lease) struct Probing {
    pub(in crate::lease::claim) until: Instant,
    pub(in crate::lease::claim) second: Option<Instant>,
    /// How often they were sent again.
    pub(in crate::lease::claim) round: u32,
    /// An answer may have been dropped.
    pub(in crate::lease::claim) missed: bool,
}

impl Probing {
    /// The time of the next probe, or of the end of the last one.
    pub(in crate::lease) fn deadline(&self) -> Instant {
        self.second.unwrap_or(self.until)
    }

    pub(in crate::lease) fn new(now: Instant, round: u32) -> Self {
        Self { until: now + PROBE * 2, second: Some(now + PROBE), round, missed: false }
    }
}
