//! A timer that wakes within microseconds, on the clock that decisions use. tokio's own rounds up
//! to milliseconds, four times per silence.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::net::frames::socket::readable;
use leasehold_core::clock::Instant;

/// Disarms, where it is a deadline.
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A `timerfd`.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    deadline: Option<Instant>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = readable(timerfd_create(TimerfdClockId::Boottime, flags)?)?;
        Ok(Self { descriptor, deadline: None })
    }

    /// Wakes at `deadline`, at once if that has passed; never, if there is none.
    pub(super) fn set(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.deadline == deadline {
            return Ok(());
        }
        let at = deadline.map_or(NEVER, |deadline| {
            let since_boot = deadline.since_boot();
            Timespec {
                tv_sec: i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: since_boot.subsec_nanos().into(),
            }
        });
        let once = Itimerspec { it_interval: NEVER, it_value: at };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        self.deadline = deadline;
        Ok(())
    }

    /// Waits until the deadline.
    pub(super) async fn expired(&self) -> io::Result<()> {
        self.descriptor.readable().await.map(|mut guard| guard.clear_ready())
    }
}
