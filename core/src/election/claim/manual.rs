//! Requests of users by annotations of Leases: that a claim moves to a node, that a node owns
//! nothing, that a speaker logs more. Nobody needs more rights for it than to edit leases.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::state::requests::Purpose;
use crate::election::io::event::{Action, Fact, Target};

impl Claims {
    /// Withdraws what people asked for where it cannot be done, or is done. Whether it does.
    pub(in crate::election) fn refuse_move(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(to) = stored.record.move_to.clone() else { return false };
        let Some(tenure) = self.tenures.get(name) else { return false };
        let unwilling = || !cx.candidates(claim, desired).contains(&&to);
        let late = tenure.excluded().get(&to).is_some_and(|until| now < *until);
        let cause = if to == cx.config().node {
            None
        } else if desired.nodes.contains_key(&to) && late {
            Some(format!("{to} was asked to and did not"))
        } else if unwilling() {
            Some(format!("{to} cannot take it now"))
        } else if cx.is_proxy_silent(&to, claim) && !cx.is_proxy_silent(&cx.config().node, claim) {
            Some(format!("the kube-proxy of {to} does not answer"))
        } else {
            return false;
        };
        let pending = cx.is_pending(&Target::Claim(name.clone()));
        if pending || !self.has_room(cx) || now < tenure.retry() {
            return true;
        }
        if let Some(cause) = cause {
            Context::report(Fact::MoveRefused { claim: name.clone(), node: to, cause }, actions);
        }
        self.with(cx, name, Tenure::end_handover);
        let record = Claim { move_to: None, successor: None, ..stored.record.clone() };
        Self::put_claim(cx, now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
        true
    }
}
