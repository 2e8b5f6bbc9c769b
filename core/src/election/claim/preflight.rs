//! Whether this node can serve a claim: carrier, a voice on the segment, and a kernel that takes
//! the addresses.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::{DesiredClaim, OnApiOutage};
use crate::election::claim::Claims;
use crate::election::claim::state::release::{Leaving, Obstacle};
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::eligibility::HEARING;
use crate::election::io::event::{Action, Fact};

impl Claims {
    /// The interface through which this node may take an unowned claim now, if it may.
    pub(in crate::election) fn may_take(
        cx: &Context,
        now: Instant,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<(InterfaceName, MacAddr)> {
        if cx.own().is_ending()
            || cx.own().releases()
            || tenure.ineligible().is_some_and(|i| now < i.until)
        {
            return None;
        }
        let (name, interface) = cx.local_interface(claim)?;
        let hears = cx.hearing().get(name).is_some_and(|at| now.saturating_since(*at) < HEARING);
        let free = cx.address_of_a_node(claim).is_none();
        ((hears || cx.is_alone_on(name)) && free).then(|| (name.clone(), interface.mac))
    }

    /// Whether the kernel does not hold what this node owns; then the claim is given up.
    pub(in crate::election) fn check_kernel(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) -> bool {
        if cx.address_of_a_node(claim).is_some() {
            self.report_address_of_a_node(cx, name, claim, actions);
            self.exclude_self(cx, now, name);
            let leaving = Leaving::new(Obstacle::Address, "address belongs to a node");
            self.leave_claim(cx, now, name, stored, &leaving, actions);
            return true;
        }
        let alive = match claim.on_api_outage {
            OnApiOutage::Hold => !cx.own().may_have_lapsed(now),
            OnApiOutage::Drop => !cx.own().may_have_dropped(now),
        };
        let missing = claim.addresses.iter().any(|address| {
            alive && cx.is_served(*address) && !cx.kernel().ours.contains_key(address)
        });
        let present = claim
            .addresses
            .iter()
            .all(|address| cx.is_served(*address) && cx.kernel().ours.contains_key(address));
        let (generation, told) = (cx.serving().generation, cx.kernel().told);
        let Some(tenure) = self.tenures.get_mut(name) else { return false };
        tenure.note_missing(now, missing, generation, told);
        if present {
            tenure.forget_failures();
        }
        let refusal = claim.addresses.iter().find_map(|address| cx.kernel().refused.get(address));
        if tenure.missing().is_none_or(|missing| now < missing.due(refusal.is_some())) {
            return false;
        }
        let cause = refusal.cloned().unwrap_or_else(|| "address is not in the kernel".to_owned());
        Context::report(
            Fact::AddressRefused { claim: name.clone(), cause: cause.clone() },
            actions,
        );
        self.exclude_self(cx, now, name);
        self.leave_claim(cx, now, name, stored, &Leaving::new(Obstacle::Address, &cause), actions);
        true
    }

    pub(in crate::election) fn exclude_self(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
    ) {
        self.with(cx, name, |tenure| tenure.exclude_self(now));
    }

    pub(in crate::election) fn advance_not_ready(&mut self, cx: &mut Context, now: Instant) {
        if cx.not_ready_mut().advance(now) {
            self.open.note_all();
        }
    }
}
