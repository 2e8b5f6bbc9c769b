//! Renewal of watches.

/// The duration of a watch in seconds, after which it is renewed: the longest time for which a dead watch goes
/// unnoticed.
pub(super) const WATCH_SECONDS: u32 = 30;
