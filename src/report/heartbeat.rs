//! The liveness of the threads that decide and that hold addresses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::Instant;

/// The longest interval between two signs of life of a thread.
pub const BEAT: Duration = Duration::from_secs(1);
/// Without a sign for so long it is stuck. On a busy machine it may be late by seconds.
const STUCK: Duration = Duration::from_secs(10);

/// When a thread turned last, in milliseconds since the boot. Zero: it has not begun.
#[derive(Debug, Default)]
pub struct Heartbeat(AtomicU64);

impl Heartbeat {
    /// The thread turns.
    pub fn beat(&self, now: Instant) {
        let millis = u64::try_from(now.since_boot().as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    /// For how long it has not turned, if that is too long.
    fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let last = self.0.load(Ordering::Relaxed);
        let silent = now.saturating_since(Instant::from_boot(Duration::from_millis(last)));
        (last != 0 && silent >= STUCK).then_some(silent)
    }
}

/// Those without which the speaker is of no use.
#[derive(Debug, Default)]
pub struct Heartbeats {
    /// The thread of the core, which decides.
    pub core: Heartbeat,
    /// The thread that tells the kernel and the wire.
    pub kernel: Heartbeat,
}

impl Heartbeats {
    /// The response of `/livez`: an error names the threads that are stuck.
    pub fn liveness(&self, now: Instant) -> Result<(), String> {
        let threads = [("core", &self.core), ("kernel", &self.kernel)];
        let stuck = threads.into_iter().filter_map(|(name, heartbeat)| {
            let silent = heartbeat.stuck_for(now)?;
            Some(format!("the thread `{name}` has not made progress for {} s\n", silent.as_secs()))
        });
        let stuck: String = stuck.collect();
        if stuck.is_empty() { Ok(()) } else { Err(stuck) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_begun_and_does_not_turn_is_named_and_one_that_turns_again_is_not() {
        let at = |second| Instant::from_boot(Duration::from_secs(second));
        let heartbeats = Heartbeats::default();
        // Neither has begun: another speaker has the host.
        assert_eq!(heartbeats.liveness(at(100)), Ok(()));
        heartbeats.core.beat(at(100));
        heartbeats.kernel.beat(at(103));
        assert_eq!(heartbeats.liveness(at(109)), Ok(()));
        let core = "the thread `core` has not made progress for 11 s\n";
        assert_eq!(heartbeats.liveness(at(111)), Err(core.to_owned()));
        let both = "the thread `core` has not made progress for 13 s\n\
                    the thread `kernel` has not made progress for 10 s\n";
        assert_eq!(heartbeats.liveness(at(113)), Err(both.to_owned()));
        heartbeats.core.beat(at(113));
        heartbeats.kernel.beat(at(113));
        assert_eq!(heartbeats.liveness(at(122)), Ok(()));
    }
}
