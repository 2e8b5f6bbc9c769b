//! The rules of the core, each by a directed run in a small world on virtual time.

mod chaos;
mod claims;
mod conflict;
mod handover;
mod lease_path;
mod outage;
mod restart;
mod session;
mod world;

use std::time::Duration;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
