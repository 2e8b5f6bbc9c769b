//! Requests to the API server that have not been answered, and why they were sent.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::lease::context::Context;
use crate::lease::io::event::{Action, RequestId, Target, Write};

/// A request that has not been answered.
#[derive(Clone, Debug)]
pub(in crate::lease) struct Pending {
    pub(in crate::lease) target: Target,
    pub(in crate::lease) sent: Instant,
    pub(in crate::lease) purpose: Purpose,
}

/// Why a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lease) enum Purpose {
    /// To know what is stored.
    Read,
    /// To know whether the store still names an owner that does not answer.
    Confirm,
    /// To acquire, adopt or renew the own session.
    Renew,
    /// To lengthen the own session over a restart.
    Restart,
    /// To end the own session.
    ReleaseSession,
    /// To end another's session.
    Fence,
    /// To become a claim's owner.
    Take,
    /// To say that a claim is still held, or to whom it is handed over.
    Refresh,
    /// To give a claim up.
    Release,
}

impl Purpose {
    pub(in crate::lease) const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Confirm)
    }
}

impl Context {
    pub(in crate::lease) fn write(
        &mut self,
        now: Instant,
        write: Write,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let target = match &write {
            Write::Session(change) => Target::Session(change.name.clone()),
            Write::Claim(change) => Target::Claim(change.name.clone()),
        };
        let request = self.request(now, target, purpose);
        actions.push(Action::Write { request, write });
    }

    pub(in crate::lease) fn read(
        &mut self,
        now: Instant,
        target: Target,
        actions: &mut Vec<Action>,
    ) {
        self.read_for(now, target, Purpose::Read, actions);
    }

    pub(in crate::lease) fn read_for(
        &mut self,
        now: Instant,
        target: Target,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let request = self.request(now, target.clone(), purpose);
        actions.push(Action::Read { request, target });
    }

    pub(in crate::lease) fn request(
        &mut self,
        now: Instant,
        target: Target,
        purpose: Purpose,
    ) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.requests.insert(request, Pending { target, sent: now, purpose });
        request
    }

    /// Whether a request on `target` is under way. A look at a claim whose owner is silent stands in
    /// nobody's way.
    pub(in crate::lease) fn is_pending(&self, target: &Target) -> bool {
        self.requests
            .values()
            .any(|pending| pending.target == *target && pending.purpose != Purpose::Confirm)
    }

    /// Whether a claim is being read because its owner is silent.
    pub(in crate::lease) fn is_confirming(&self, claim: &LeaseName) -> bool {
        self.requests.values().any(|pending| {
            pending.purpose == Purpose::Confirm
                && matches!(&pending.target, Target::Claim(name) if name == claim)
        })
    }
}
