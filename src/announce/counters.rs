//! Counters of the announcement.

use std::sync::atomic::AtomicU64;

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct AnnouncementCounters {
    /// The number of addresses that left the kernel before the end of their lifetimes and were not removed by this
    /// process: by hand, with their link, or when it went down.
    pub vanished: AtomicU64,
    /// The number of times that the ARP settings of a link were set again after another program had set them back.
    pub confined_again: AtomicU64,
}
