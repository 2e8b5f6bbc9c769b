//! Counters of failure detection.

use std::sync::atomic::AtomicU64;

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct WireCounters {
    /// Polls of owners.
    pub polls: AtomicU64,
    /// Polls of owners that answered before and did not answer in time.
    pub misses: AtomicU64,
    /// Frames that the kernel dropped because the listener did not keep up.
    pub dropped: AtomicU64,
}
