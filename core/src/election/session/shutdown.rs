//! The end of the process: everything stays where it is, or goes to other nodes.
//!
//! What stays has to be found by the next process, and by nobody if there is none: a host that shuts down
//! without being drained sends SIGTERM, too, and says nothing of itself. So the session is lengthened for an
//! upgrade only, which the own pod shows. Otherwise it gets a full L once more: enough for a process that is
//! started again at once, and no more than others wait for a node that lost its power.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Reason, Session, Stored};

use crate::clock::Instant;
use crate::desired::NodeState;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::{Action, Change, Follower};
use crate::election::session::Sessions;
use crate::election::session::state::own::{EXIT, EXIT_MOVED, Ending};
use crate::election::transfer::Transfer;
use crate::election::wire::Wire;

/// The interval in which a restart looks whether planned moves have ended.
pub(in crate::election) const SETTLING: Duration = Duration::from_millis(20);

impl Sessions {
    pub(in crate::election) fn begin_ending(cx: &mut Context, now: Instant) {
        // A cordon may come right after the signal, and counts until the session is lengthened.
        let (Ending::Asked(asked) | Ending::Restarting { asked }) = cx.own().ending else { return };
        if cx.own().id.is_none() {
            cx.own_mut().ending = Ending::Left;
            return;
        }
        let node = cx.desired().and_then(|desired| desired.nodes.get(&cx.config().node));
        // A kubelet that shuts its host down says first that the node is not ready.
        let stays = node == Some(&NodeState::Ready) && cx.own().follower != Follower::Nobody;
        let ending = if stays {
            Ending::Restarting { asked }
        } else {
            Ending::Leaving { until: now + EXIT_MOVED }
        };
        if cx.own().ending != ending {
            cx.own_mut().ending = ending;
            cx.own_mut().due = now;
        }
    }

    /// Hands the session on to the next process of this boot.
    pub(in crate::election) fn lengthen(
        cx: &mut Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
        asked: Instant,
        stored: Arc<Stored<Session>>,
        actions: &mut Vec<Action>,
    ) {
        if now.saturating_since(asked) > EXIT {
            // No success: lifetimes stay as they are.
            cx.own_mut().ending = Ending::Restarted { until: now };
            return;
        }
        if Transfer::is_anything_moving(cx, claims) {
            cx.own_mut().due = now + SETTLING;
            return;
        }
        let record = Session {
            duration_seconds: Self::restart_seconds(cx),
            restarting: true,
            ..Self::own_record(cx, wire, stored.record.transitions, Reason::Restarting.to_string())
        };
        let change = Change { name: cx.own_name().clone(), base: Some(stored), record };
        Self::write_session(cx, now, change, Purpose::Restart, actions);
    }

    /// For how long the session goes on without this process.
    pub(in crate::election) fn restart_seconds(cx: &Context) -> i32 {
        match cx.own().follower {
            Follower::Expected => {
                let grace = cx.config().restart_grace.max(cx.lease_duration()).as_secs();
                i32::try_from(grace).unwrap_or(i32::MAX)
            }
            Follower::Unknown | Follower::Nobody => cx.lease_seconds(),
        }
    }

    /// Releases the session once others have taken, or nobody will take, what it held.
    pub(in crate::election) fn leave(
        cx: &mut Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
        stored: Arc<Stored<Session>>,
        actions: &mut Vec<Action>,
    ) {
        let Ending::Leaving { until } = cx.own().ending else { return };
        let held =
            claims.tenures().values().any(super::super::claim::state::tenure::Tenure::is_mine);
        let yielding = claims.tenures().values().any(|tenure| tenure.yielding().is_some());
        if (!held && !yielding) || now >= until {
            Self::release_session(cx, now, stored, &Reason::Left, actions);
        } else if now >= cx.own().due {
            let transitions = stored.record.transitions;
            Self::put_session(cx, wire, now, Some(stored), transitions, Reason::Leaving, actions);
        }
    }

    pub(in crate::election) fn release_session(
        cx: &mut Context,
        now: Instant,
        stored: Arc<Stored<Session>>,
        reason: &Reason,
        actions: &mut Vec<Action>,
    ) {
        let record = Session {
            holder: None,
            transitions: Self::next_transitions(cx),
            restarting: false,
            cause: reason.to_string(),
            duration_seconds: cx.lease_seconds(),
            forwarded_connections: None,
            ..stored.record.clone()
        };
        let change = Change { name: cx.own_name().clone(), base: Some(stored), record };
        Self::write_session(cx, now, change, Purpose::ReleaseSession, actions);
    }
}
