//! How long a failed watch waits before it is tried again.

use std::time::Duration;

use kube::runtime::utils::Backoff;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// 0.1 s, doubling to 1 s: an API server that comes back is to be seen at once.
#[derive(Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        Some(pause)
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {
        self.0 = FIRST;
    }
}
