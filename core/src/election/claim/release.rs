//! Claims that are being given up: first the addresses go, then the claim.
//!
//! What has not been given up stays where the reason is gone. Without the API server it cannot be given up, and
//! nobody else may be able to serve it: a link that was lost for a moment would leave it dark for as long as the
//! API server is away. Meanwhile it may have become another's, or another may serve it: with the API server an
//! uncached read says so, and without it the segment, as it does before anything is served provisionally.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::release::Obstacle;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::{Action, Target};

impl Claims {
    /// Keeps what was to be given up for a reason that is gone.
    pub(in crate::election) fn keep_what_may_stay(
        &mut self,
        cx: &mut Context,
        now: Instant,
        names: &[LeaseName],
        actions: &mut Vec<Action>,
    ) {
        let leaving =
            |name: &&LeaseName| self.tenures.get(name).is_some_and(|it| it.leaving().is_some());
        let names: Vec<LeaseName> = names.iter().filter(leaving).cloned().collect();
        for name in &names {
            let gone = self.is_reason_gone(cx, now, name);
            self.with(cx, name, |tenure| tenure.note_reason(now, gone));
            let ours = || cx.claims().get(name).is_some_and(|it| cx.owner(it) == Owner::Me);
            if !gone || !ours() || Self::is_being_released(cx, name) {
                continue;
            }
            if !cx.is_api_answering(now) {
                self.stay_without_api(cx, now, name, actions);
                continue;
            }
            let target = Target::Claim(name.clone());
            let reads =
                || self.tenures.get(name).is_some_and(super::state::tenure::Tenure::must_read);
            if cx.has_room_to_read() && !cx.is_pending(&target) && !reads() {
                cx.read(now, target, actions);
            }
        }
    }

    /// Whether what speaks against this node having the claim is gone.
    pub(in crate::election) fn is_reason_gone(
        &self,
        cx: &Context,
        now: Instant,
        name: &LeaseName,
    ) -> bool {
        let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.is_mine()) else {
            return false;
        };
        let (Some(leaving), Some(claim)) = (tenure.leaving(), cx.desired_claim(name)) else {
            return false;
        };
        let eligible = || tenure.ineligible().is_none_or(|it| now >= it.until);
        let serves = match leaving.reason {
            // What is asked for again is there.
            Obstacle::Link | Obstacle::Unasked => true,
            Obstacle::Address => eligible() && cx.address_of_a_node(claim).is_none(),
            Obstacle::Asked => false,
        };
        serves && !cx.own().is_ending() && !Self::has_lost_carrier(cx, tenure)
    }

    /// Whether a release is under way that may be carried out.
    pub(in crate::election) fn is_being_released(cx: &Context, name: &LeaseName) -> bool {
        cx.requests().values().any(|pending| match pending.purpose {
            Purpose::Release => pending.target == Target::Claim(name.clone()),
            Purpose::ReleaseSession => true,
            _ => false,
        })
    }

    /// Its lease was read after the reason was gone, and names this node.
    pub(in crate::election) fn stay_as_read(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
    ) {
        let leaving = self.tenures.get(name).and_then(|tenure| tenure.leaving());
        let over = leaving.and_then(|leaving| leaving.over);
        let ours = cx.claims().get(name).is_some_and(|stored| cx.owner(stored) == Owner::Me);
        let fresh = pending.purpose == Purpose::Read && over.is_some_and(|at| pending.sent >= at);
        if fresh && ours && self.is_reason_gone(cx, now, name) {
            self.stay(cx, name);
        }
    }

    /// Keeps the claim without the API server, after probes: a host that serves it meanwhile answers.
    pub(in crate::election) fn stay_without_api(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let interface = self.tenures.get(name).and_then(|tenure| tenure.interface().cloned());
        let stored = cx.claims().get(name).cloned();
        let (Some(interface), Some(stored)) = (interface, stored) else { return };
        self.stay(cx, name);
        self.probe_on(cx, now, name, &interface, &stored.record.addresses, actions);
    }

    pub(in crate::election) fn stay(&mut self, cx: &mut Context, name: &LeaseName) {
        self.ownerships += 1;
        let ownership = self.ownerships;
        self.with(cx, name, |tenure| tenure.stay(ownership));
    }
}
