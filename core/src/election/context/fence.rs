//! Fences: the writes that end the session of an owner that has failed.
//!
//! Whatever says that an owner has failed does so by [`Evidence`]: the wire, on which it does not answer, or its session
//! Lease, which it does not renew. Here evidence becomes a fence, and nowhere else. A fence makes no owner: it makes all
//! claims of the session unowned.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{EvidenceKind, Reason, Session, Silenced, Stored};

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::session_reads::UNSTEADY;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::{Action, Change, Write};

/// The largest number of fences that is counted.
const MOST_FENCES: u32 = UNSTEADY * 2;

/// Whether this record ends a session by a fence: it was not released.
pub(in crate::election) fn is_fence(record: &Session) -> bool {
    record.holder.is_none() && Reason::is_fence(&record.cause)
}

/// What says that an owner has failed.
#[derive(Clone, Debug)]
pub(in crate::election) struct Evidence {
    session: Arc<Stored<Session>>,
    kind: EvidenceKind,
    first: Instant,
    finding: String,
}

impl Evidence {
    /// The owner of this session has failed: `finding` says what was observed, and `first` is the time of the first
    /// sign of it.
    pub(in crate::election) const fn new(
        session: Arc<Stored<Session>>,
        kind: EvidenceKind,
        first: Instant,
        finding: String,
    ) -> Self {
        Self { session, kind, first, finding }
    }

    /// The record that ends the session: with it all its claims are unowned, for good.
    fn fence(&self, by: &str, lasted: Duration) -> Session {
        let record = &self.session.record;
        let node = record.holder.as_ref().map(ToString::to_string).unwrap_or_default();
        let (by, finding) = (by.to_owned(), self.finding.clone());
        Session {
            holder: None,
            transitions: record.transitions.saturating_add(1),
            restarting: false,
            fences: record.fences.saturating_add(1).min(MOST_FENCES),
            silence: Some(Silenced { evidence: self.kind, lasted }),
            cause: Reason::Fenced { node, by, finding }.to_string(),
            forwarded_connections: None,
            ..record.clone()
        }
    }
}

impl Context {
    /// Writes the fence that follows from this evidence.
    pub(in crate::election) fn fence(
        &mut self,
        now: Instant,
        evidence: Evidence,
        actions: &mut Vec<Action>,
    ) {
        let lasted = now.saturating_since(evidence.first);
        let record = evidence.fence(self.config.node.as_str(), lasted);
        let name = evidence.session.name.clone();
        let change = Change { name, base: Some(evidence.session), record };
        self.write(now, Write::Session(change), Purpose::Fence, actions);
    }
}
