//! Probes that are under way.

use std::time::Duration;

use crate::clock::Instant;

/// Between the two probes of a new claim, and after the second.
pub(in crate::election) const PROBE: Duration = Duration::from_millis(20);

/// The largest number of repetitions where frames were dropped meanwhile: in a storm that does not end an
/// address is served all the same.
pub(in crate::election) const ROUNDS: u32 = 3;

/// A new claim whose address is probed for before it is added.
#[derive(Debug)]
pub(in crate::election) struct Probing {
    pub(in crate::election::claim) until: Instant,
    pub(in crate::election::claim) second: Option<Instant>,
    /// The number of repetitions.
    pub(in crate::election::claim) round: u32,
    /// An answer may have been dropped.
    pub(in crate::election::claim) missed: bool,
}

impl Probing {
    /// The time of the next probe, or of the end of the last one.
    pub(in crate::election) fn deadline(&self) -> Instant {
        self.second.unwrap_or(self.until)
    }

    pub(in crate::election) fn new(now: Instant, round: u32) -> Self {
        Self { until: now + PROBE * 2, second: Some(now + PROBE), round, missed: false }
    }
}
