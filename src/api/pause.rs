//! The pause after a failed watch.

use std::time::Duration;

use kube::runtime::utils::Backoff;

use crate::clock;
use leasehold_core::clock::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);
/// The time without a failure after which a watch counts as successful.
const WORKED: Duration = Duration::from_secs(5);

/// 0.1 s, doubling to 1 s: an API server that comes back is to be seen at once.
#[derive(Debug)]
pub struct Pause {
    next: Duration,
    failed: Option<Instant>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { next: FIRST, failed: None }
    }
}

impl Pause {
    /// After a failure at this moment.
    fn after(&mut self, now: Instant) -> Duration {
        if self.failed.is_none_or(|before| now.saturating_since(before) > WORKED) {
            self.next = FIRST;
        }
        self.failed = Some(now);
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.after(clock::now()))
    }
}

impl Backoff for Pause {
    /// Does nothing: a watch says that it begins to list, and that would reset the pause of one whose list
    /// is refused.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_failures_follow_each_other_whatever_a_watch_begins_meanwhile() {
        let mut pause = Pause::default();
        let mut now = Instant::from_boot(Duration::from_secs(100));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pause.reset();
            pauses.push(pause.after(now).as_millis());
            now = now + Duration::from_secs(1);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        now = now + WORKED;
        assert_eq!(pause.after(now), FIRST);
    }
}
