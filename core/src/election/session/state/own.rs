//! The state of the own session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Session, SessionId, Stored};

use crate::clock::Instant;
use crate::election::io::config::{Config, KERNEL_GRACE};
use crate::election::io::event::Follower;

/// The time for which the end of the process may wait for the API server and the kernel.
pub(in crate::election) const EXIT: Duration = Duration::from_secs(3);

/// The time for which it may wait for other nodes to take what this one holds.
pub(in crate::election) const EXIT_MOVED: Duration = Duration::from_secs(15);

/// The way in which the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::election) enum Ending {
    /// Not asked to.
    No,
    /// Asked to at this time.
    Asked(Instant),
    /// Everything stays: the session is being lengthened.
    Restarting { asked: Instant },
    /// Everything stays: the kernel is being told. At the latest then.
    Restarted { until: Instant },
    /// Everything goes to other nodes. At the latest then.
    Leaving { until: Instant },
    /// The session is released.
    Left,
    /// Said so.
    Done,
}

/// By how much clocks may differ in rate over L, and how long a removal may take.
pub(in crate::election) const MARGIN: Duration = Duration::from_millis(500);

/// By how much the kernel removes an address late at most (net/ipv4/devinet.c: lifetimes are checked
/// in whole seconds).
pub(in crate::election) const KERNEL_LATE: Duration = Duration::from_millis(1030);

/// The kernel is told whole seconds, rounded down: by so much it may be earlier than it is to be.
pub(in crate::election) const KERNEL_EARLY: Duration = Duration::from_secs(1);

/// The shortest lease, in seconds: what a policy has dropped in an outage lapses earlier than what is held, in
/// whole seconds, and with a shorter one before it is renewed.
pub const LEAST_LEASE: u64 = 4;

/// The session of this speaker.
#[expect(clippy::struct_excessive_bools, reason = "each says one thing, and all combine")]
#[derive(Debug)]
pub(in crate::election) struct OwnSession {
    /// The tenure that this process holds.
    pub(in crate::election::session) id: Option<SessionId>,
    /// When the last answered renewal was sent.
    pub(in crate::election::session) answered: Option<Instant>,
    /// The silence of others counts from here at the earliest: while own renewals are not answered,
    /// theirs may not be either.
    pub(in crate::election::session) counting_since: Instant,
    /// The end of the kernel lifetime of all addresses.
    pub(in crate::election::session) kernel_until: Instant,
    /// L of the last answered renewal.
    pub(in crate::election::session) renewed_for: Duration,
    /// The number of recent fences of this node, and the beginning of their count.
    pub(in crate::election::session) fences: u32,
    pub(in crate::election::session) steady_since: Instant,
    /// The watch does not deliver own renewals.
    pub(in crate::election::session) watch_void: bool,
    /// The whole session is to be released: the carrier of all its claims is lost.
    pub(in crate::election::session) release: bool,
    /// The session of a former process of this boot.
    pub(in crate::election::session) continued: Option<SessionId>,
    /// The decision whether a former process's session goes on has been made.
    pub(in crate::election::session) settled: bool,
    pub(in crate::election::session) due: Instant,
    /// The last write was refused or throttled: the next waits until it is due.
    pub(in crate::election::session) refused: bool,
    /// It was not answered.
    pub(in crate::election::session) unanswered: bool,
    pub(in crate::election::session) must_read: bool,
    pub(in crate::election::session) hold_due: Instant,
    pub(in crate::election::session) list_due: Instant,
    /// What was held lapsed while this process stood still, and its session goes on, since when: others may
    /// have it until the store was listed anew.
    pub(in crate::election::session) stood_still: Option<Instant>,
    pub(in crate::election::session) echoes: VecDeque<(Arc<str>, Instant)>,
    pub(in crate::election::session) ending: Ending,
    /// Whether another process follows this one, as far as is known.
    pub(in crate::election::session) follower: Follower,
}

impl OwnSession {
    pub(in crate::election) fn new(
        now: Instant,
        continued: Option<SessionId>,
        config: &Config,
    ) -> Self {
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

    /// The tenure that this process holds.
    pub(in crate::election) const fn id(&self) -> Option<&SessionId> {
        self.id.as_ref()
    }

    /// When the last answered renewal was sent.
    pub(in crate::election) const fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// Whether the last renewal was not answered.
    pub(in crate::election) const fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    pub(in crate::election) const fn ending(&self) -> Ending {
        self.ending
    }

    /// Whether the whole session is to be released: the carrier of all its claims is lost.
    pub(in crate::election) const fn releases(&self) -> bool {
        self.release
    }

    pub(in crate::election) const fn set_release(&mut self, release: bool) {
        self.release = release;
    }

    /// Whether what is held has lapsed, and is not served before others were asked.
    pub(in crate::election) const fn stands_still(&self) -> bool {
        self.stood_still.is_some()
    }

    /// The end of the kernel lifetime of all addresses.
    pub(in crate::election) const fn kernel_until(&self) -> Instant {
        self.kernel_until
    }

    /// The kernel keeps all addresses until then at least.
    pub(in crate::election) fn keep_until(&mut self, until: Instant) {
        self.kernel_until = self.kernel_until.max(until);
    }

    /// Until when addresses are served that are dropped when the session is not renewed.
    pub(in crate::election) fn renewed_until(&self) -> Instant {
        self.answered.map_or(Instant::default(), |sent| sent + self.renewed_for - MARGIN)
    }

    /// The end of their kernel lifetime. The kernel is told whole seconds, rounded down, and is late
    /// by up to [`KERNEL_LATE`].
    pub(in crate::election) fn dropped_at(&self) -> Instant {
        self.renewed_until() - KERNEL_LATE
    }

    /// Whether the kernel may have let the addresses lapse: while this process stood still, another
    /// may have taken them.
    pub(in crate::election) fn may_have_lapsed(&self, now: Instant) -> bool {
        now + KERNEL_EARLY >= self.kernel_until
    }

    /// The same of addresses that are dropped.
    pub(in crate::election) fn may_have_dropped(&self, now: Instant) -> bool {
        now + KERNEL_EARLY >= self.dropped_at()
    }

    pub(in crate::election) const fn is_settled(&self) -> bool {
        self.settled
    }

    pub(in crate::election) fn terminate(&mut self, now: Instant, follower: Follower) {
        self.follower = self.follower.max(follower);
        if matches!(self.ending, Ending::No) {
            self.ending = Ending::Asked(now);
        }
    }

    /// The node hands over everything that it holds.
    pub(in crate::election) const fn is_leaving(&self) -> bool {
        matches!(self.ending, Ending::Leaving { .. })
    }

    /// Everything stays where it is: what is about to move stays as well.
    pub(in crate::election) const fn is_restarting(&self) -> bool {
        matches!(self.ending, Ending::Restarting { .. } | Ending::Restarted { .. })
    }

    /// Nothing may be taken any more.
    pub(in crate::election) const fn is_ending(&self) -> bool {
        !matches!(self.ending, Ending::No)
    }

    /// The watch delivered a session: was it one of our renewals?
    pub(in crate::election) fn echoed(&mut self, stored: &Stored<Session>) {
        if let Some(at) =
            self.echoes.iter().position(|(version, _)| *version == stored.resource_version)
        {
            self.echoes.drain(..=at);
            self.watch_void = false;
        }
    }

    /// The lease was deleted: it is created again at once, before others take what it held.
    pub(in crate::election) const fn deleted(&mut self, now: Instant) {
        if self.id.is_some() {
            self.due = now;
        }
    }

    /// Whether the process may end now. `kept`: the kernel keeps what is to be kept for as long as
    /// it is to be kept; `clear`: nothing is held and the kernel has nothing.
    pub(in crate::election) fn may_exit(&mut self, now: Instant, kept: bool, clear: bool) -> bool {
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

    /// The shortest time within which a renewal must be answered.
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
