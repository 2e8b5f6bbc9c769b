//! Requests to the API server that have not been answered, and why they were sent.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::{Action, RequestId, Target, Write};

impl Context {
    pub(in crate::election) fn write(
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

    pub(in crate::election) fn read(
        &mut self,
        now: Instant,
        target: Target,
        actions: &mut Vec<Action>,
    ) {
        self.read_for(now, target, Purpose::Read, actions);
    }

    pub(in crate::election) fn read_for(
        &mut self,
        now: Instant,
        target: Target,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let request = self.request(now, target.clone(), purpose);
        actions.push(Action::Read { request, target });
    }

    pub(in crate::election) fn request(
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
    pub(in crate::election) fn is_pending(&self, target: &Target) -> bool {
        self.requests
            .values()
            .any(|pending| pending.target == *target && pending.purpose != Purpose::Confirm)
    }

    /// Whether a claim is being read because its owner is silent.
    pub(in crate::election) fn is_confirming(&self, claim: &LeaseName) -> bool {
        self.requests.values().any(|pending| {
            pending.purpose == Purpose::Confirm
                && matches!(&pending.target, Target::Claim(name) if name == claim)
        })
    }
}
