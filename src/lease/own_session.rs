//! What this process knows of its own session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Session, SessionId, Stored};

use super::election::{Config, KERNEL_GRACE};
use super::ending::Ending;
use super::event::Follower;
use crate::clock::Instant;

/// By how much clocks may differ in rate over L, and how long a removal may take.
const MARGIN: Duration = Duration::from_millis(500);
/// By how much the kernel removes an address late at most (net/ipv4/devinet.c: lifetimes are checked
/// in whole seconds).
const KERNEL_LATE: Duration = Duration::from_millis(1030);
/// The kernel is told whole seconds, rounded down: by so much it may be earlier than it is to be.
const KERNEL_EARLY: Duration = Duration::from_secs(1);
/// The shortest lease, in seconds: what a policy has dropped in an outage lapses earlier than what is held, in
/// whole seconds, and with a shorter one before it is renewed.
pub const LEAST_LEASE: u64 = 4;

/// The session of this speaker.
#[expect(clippy::struct_excessive_bools, reason = "each says one thing, and all combine")]
#[derive(Debug)]
pub(super) struct OwnSession {
    /// The tenure that this process holds.
    pub(super) id: Option<SessionId>,
    /// When the last answered renewal was sent.
    pub(super) answered: Option<Instant>,
    /// The silence of others counts from here at the earliest: while own renewals are not answered,
    /// theirs may not be either.
    pub(super) counting_since: Instant,
    /// The end of the kernel lifetime of all addresses.
    pub(super) kernel_until: Instant,
    /// L of the last answered renewal.
    pub(super) renewed_for: Duration,
    /// How often this node was fenced lately, and since when it counts that.
    pub(super) fences: u32,
    pub(super) steady_since: Instant,
    /// The watch does not deliver own renewals.
    pub(super) watch_void: bool,
    /// The whole session is to be released: the carrier of all its claims is lost.
    pub(super) release: bool,
    /// What a former process of this boot held.
    pub(super) continued: Option<SessionId>,
    /// The decision whether a former process's session goes on has been made.
    pub(super) settled: bool,
    pub(super) due: Instant,
    /// The last write was refused or throttled: the next waits until it is due.
    pub(super) refused: bool,
    /// It was not answered.
    pub(super) unanswered: bool,
    pub(super) must_read: bool,
    pub(super) hold_due: Instant,
    pub(super) list_due: Instant,
    /// What was held lapsed while this process stood still, and its session goes on, since when: others may
    /// have it until the store was listed anew.
    pub(super) stood_still: Option<Instant>,
    pub(super) echoes: VecDeque<(Arc<str>, Instant)>,
    pub(super) ending: Ending,
    /// Whether another process follows this one, as far as is known.
    pub(super) follower: Follower,
}

impl OwnSession {
    pub(super) fn new(now: Instant, continued: Option<SessionId>, config: &Config) -> Self {
        Self {
            id: None,
            answered: None,
            counting_since: now,
            kernel_until: if continued.is_some() {
                now + config.lease_duration + KERNEL_GRACE
            } else {
                now
            },
            renewed_for: config.lease_duration,
            fences: 0,
            steady_since: now,
            watch_void: false,
            release: false,
            continued,
            settled: false,
            due: now,
            refused: false,
            unanswered: false,
            must_read: false,
            hold_due: now + config.lease_duration / 3,
            list_due: now,
            stood_still: None,
            echoes: VecDeque::new(),
            ending: Ending::No,
            follower: Follower::Unknown,
        }
    }

    /// Until when addresses are served that are dropped when the session is not renewed.
    pub(super) fn renewed_until(&self) -> Instant {
        self.answered.map_or(Instant::default(), |sent| sent + self.renewed_for - MARGIN)
    }

    /// The end of their kernel lifetime. The kernel is told whole seconds, rounded down, and is late
    /// by up to [`KERNEL_LATE`].
    pub(super) fn dropped_at(&self) -> Instant {
        self.renewed_until() - KERNEL_LATE
    }

    /// Whether the kernel may have let the addresses lapse: while this process stood still, another
    /// may have taken them.
    pub(super) fn may_have_lapsed(&self, now: Instant) -> bool {
        now + KERNEL_EARLY >= self.kernel_until
    }

    /// The same of addresses that are dropped.
    pub(super) fn may_have_dropped(&self, now: Instant) -> bool {
        now + KERNEL_EARLY >= self.dropped_at()
    }

    pub(super) const fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn terminate(&mut self, now: Instant, follower: Follower) {
        self.follower = self.follower.max(follower);
        if matches!(self.ending, Ending::No) {
            self.ending = Ending::Asked(now);
        }
    }

    /// The node hands over everything that it holds.
    pub(super) const fn is_leaving(&self) -> bool {
        matches!(self.ending, Ending::Leaving { .. })
    }

    /// Everything stays where it is: what is about to move stays as well.
    pub(super) const fn is_restarting(&self) -> bool {
        matches!(self.ending, Ending::Restarting { .. } | Ending::Restarted { .. })
    }

    /// Nothing may be taken any more.
    pub(super) const fn is_ending(&self) -> bool {
        !matches!(self.ending, Ending::No)
    }

    /// The watch delivered a session: was it one of our renewals?
    pub(super) fn echoed(&mut self, stored: &Stored<Session>) {
        if let Some(at) =
            self.echoes.iter().position(|(version, _)| *version == stored.resource_version)
        {
            self.echoes.drain(..=at);
            self.watch_void = false;
        }
    }

    /// The lease was deleted: it is created again at once, before others take what it held.
    pub(super) const fn deleted(&mut self, now: Instant) {
        if self.id.is_some() {
            self.due = now;
        }
    }

    /// Whether the process may end now. `kept`: the kernel keeps what is to be kept for as long as
    /// it is to be kept; `clear`: nothing is held and the kernel has nothing.
    pub(super) fn may_exit(&mut self, now: Instant, kept: bool, clear: bool) -> bool {
        let done = match self.ending {
            Ending::Restarted { until } => kept || now >= until,
            Ending::Left => clear || self.kernel_until <= now,
            Ending::No
            | Ending::Asked(_)
            | Ending::Restarting { .. }
            | Ending::Leaving { .. }
            | Ending::Done => false,
        };
        if done {
            self.ending = Ending::Done;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a renewal may take to be answered, at the least.
    const ANSWERED: Duration = Duration::from_millis(500);

    /// From the sending of a renewal on, the kernel keeps what is dropped for `kept`; the next one is due after
    /// `renewed`.
    fn dropped(lease: u64) -> (Duration, Duration) {
        let lease = Duration::from_secs(lease);
        let kept = lease.saturating_sub(MARGIN + KERNEL_LATE).as_secs();
        (Duration::from_secs(kept), lease / 3)
    }

    #[test]
    fn what_is_dropped_in_an_outage_is_renewed_before_it_lapses() {
        for lease in LEAST_LEASE..=60 {
            let (kept, renewed) = dropped(lease);
            assert!(kept >= renewed + ANSWERED, "{lease} s: {kept:?}, {renewed:?}");
        }
        let (kept, renewed) = dropped(LEAST_LEASE - 1);
        assert!(kept <= renewed, "a shorter one would do: {kept:?}, {renewed:?}");
    }
}
