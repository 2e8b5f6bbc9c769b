//! The end of the process: everything stays where it is, or goes to other nodes.
//!
//! What stays has to be found by the next process, and by nobody if there is none: a host that shuts down
//! without being drained sends SIGTERM, too, and says nothing of itself. So the session is lengthened for an
//! upgrade only, which the own pod shows. Otherwise it gets a full L once more: enough for a process that is
//! started again at once, and no more than others wait for a node that lost its power.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Session, Stored};

use super::election::Election;
use super::event::{Action, Change, Follower};
use super::requests::Purpose;
use crate::clock::Instant;
use crate::desired::NodeState;

/// What a session says that was released because its node hands over everything.
pub(super) const LEFT: &str = "speaker left";
/// How often a restart looks whether planned moves are over.
const SETTLING: Duration = Duration::from_millis(20);
/// How long the end of the process may wait for the API and the kernel.
pub(super) const EXIT: Duration = Duration::from_secs(3);
/// How long it may wait for other nodes to take what this one holds.
const EXIT_MOVED: Duration = Duration::from_secs(15);

/// How the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
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

impl Election {
    pub(super) fn begin_ending(&mut self, now: Instant) {
        // A cordon may come right after the signal, and counts until the session is lengthened.
        let (Ending::Asked(asked) | Ending::Restarting { asked }) = self.own.ending else { return };
        if self.own.id.is_none() {
            self.own.ending = Ending::Left;
            return;
        }
        let node = self.desired.as_ref().and_then(|desired| desired.nodes.get(&self.config.node));
        // A kubelet that shuts its host down says first that the node is not ready.
        let stays = node == Some(&NodeState::Ready) && self.own.follower != Follower::Nobody;
        let ending = if stays {
            Ending::Restarting { asked }
        } else {
            Ending::Leaving { until: now + EXIT_MOVED }
        };
        if self.own.ending != ending {
            self.own.ending = ending;
            self.own.due = now;
        }
    }

    /// Hands the session on to the next process of this boot.
    pub(super) fn lengthen(
        &mut self,
        now: Instant,
        asked: Instant,
        stored: Arc<Stored<Session>>,
        actions: &mut Vec<Action>,
    ) {
        if now.saturating_since(asked) > EXIT {
            // No success: lifetimes stay as they are.
            self.own.ending = Ending::Restarted { until: now };
            return;
        }
        if self.is_anything_moving() {
            self.own.due = now + SETTLING;
            return;
        }
        let record = Session {
            duration_seconds: self.restart_seconds(),
            restarting: true,
            ..self.own_record(stored.record.transitions, "restarting")
        };
        let change = Change { name: self.own_name.clone(), base: Some(stored), record };
        self.write_session(now, change, Purpose::Restart, actions);
    }

    /// For how long the session goes on without this process.
    fn restart_seconds(&self) -> i32 {
        match self.own.follower {
            Follower::Expected => {
                let grace = self.config.restart_grace.max(self.lease_duration()).as_secs();
                i32::try_from(grace).unwrap_or(i32::MAX)
            }
            Follower::Unknown | Follower::Nobody => self.lease_seconds(),
        }
    }

    /// Releases the session once others have taken, or nobody will take, what it held.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        stored: Arc<Stored<Session>>,
        actions: &mut Vec<Action>,
    ) {
        let Ending::Leaving { until } = self.own.ending else { return };
        let held = self.tenures.values().any(|tenure| tenure.mine);
        let yielding = self.tenures.values().any(|tenure| tenure.yielding.is_some());
        if (!held && !yielding) || now >= until {
            self.release_session(now, stored, LEFT, actions);
        } else if now >= self.own.due {
            let transitions = stored.record.transitions;
            self.put_session(now, Some(stored), transitions, "leaving", actions);
        }
    }

    pub(super) fn release_session(
        &mut self,
        now: Instant,
        stored: Arc<Stored<Session>>,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let record = Session {
            holder: None,
            transitions: self.next_transitions(),
            restarting: false,
            cause: cause.to_owned(),
            duration_seconds: self.lease_seconds(),
            ..stored.record.clone()
        };
        let change = Change { name: self.own_name.clone(), base: Some(stored), record };
        self.write_session(now, change, Purpose::ReleaseSession, actions);
    }
}
