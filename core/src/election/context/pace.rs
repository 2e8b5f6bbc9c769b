//! The pace of reads and refreshes, which depends on the number of speakers.

use std::time::Duration;

use crate::election::context::Context;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::Target;

/// How many claims may be read at once of which many may have to be.
pub(in crate::election) const READS: usize = 4;

impl Context {
    /// Whether another claim may be read, beside those that are being read.
    pub(in crate::election) fn has_room_to_read(&self) -> bool {
        let reading = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose == Purpose::Read
        };
        self.requests.values().filter(reading).count() < READS
    }

    /// p: how often a claim is refreshed per speaker.
    pub(in crate::election) fn refresh_interval(&self) -> Duration {
        let speakers = u32::try_from(self.living()).unwrap_or(u32::MAX);
        Duration::from_millis(1500).max(Duration::from_millis(100).saturating_mul(speakers))
    }

    pub(in crate::election) fn claim_duration(&self) -> i32 {
        let held = self.published.count().max(1);
        let turns = u32::try_from(held).unwrap_or(u32::MAX).saturating_mul(3);
        let seconds = self.refresh_interval().saturating_mul(turns).as_secs();
        i32::try_from(seconds).unwrap_or(i32::MAX).max(self.lease_seconds())
    }
}
