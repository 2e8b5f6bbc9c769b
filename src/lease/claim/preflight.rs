//! Whether this node can serve a claim: carrier, a voice on the segment, and a kernel that takes
//! the addresses.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::desired::{DesiredClaim, OnApiOutage};
use crate::lease::claim::Claims;
use crate::lease::claim::release::{Leaving, Reason};
use crate::lease::context::Context;
use crate::lease::io::event::{Action, Fact};

/// How long after the claim an address that the kernel refuses is tried.
pub(in crate::lease) const REFUSED: Duration = Duration::from_millis(200);

/// How long after the kernel was told to add an address it must be seen there.
pub(in crate::lease) const SEEN: Duration = Duration::from_secs(1);

/// How long after the claim the kernel must have been told: on a node that is busy beyond measure, or that
/// adds a thousand at once, that takes some time.
pub(in crate::lease) const TOLD: Duration = Duration::from_secs(5);

/// How long a node that could not serve is not eligible; doubles each time.
pub(in crate::lease) const INELIGIBLE: Duration = Duration::from_secs(30);

pub(in crate::lease) const INELIGIBLE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(in crate::lease) struct Ineligible {
    pub(in crate::lease) until: Instant,
    pub(in crate::lease) backoff: Duration,
}

/// An address is to be in the kernel and is not.
#[derive(Clone, Copy, Debug)]
pub(in crate::lease) struct Missing {
    pub(in crate::lease) since: Instant,
    /// What was served then, and when the kernel was known to have been told that.
    pub(in crate::lease) generation: u64,
    pub(in crate::lease) told: Option<Instant>,
}

impl Missing {
    /// When the claim is given up if nothing changes.
    pub(in crate::lease) fn due(&self, refused: bool) -> Instant {
        if refused {
            return self.since + REFUSED;
        }
        self.told.map_or(self.since + TOLD, |told| told + SEEN)
    }

    /// The same, whether the kernel refuses it or not.
    pub(in crate::lease) fn deadlines(&self) -> [Instant; 2] {
        [self.due(true), self.due(false)]
    }
}

impl Claims {
    /// Whether the kernel does not hold what this node owns; then the claim is given up.
    pub(in crate::lease) fn check_kernel(
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
            let leaving = Leaving::new(Reason::Address, "address belongs to a node");
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
        tenure.missing = missing.then(|| {
            let first = Missing { since: now, generation, told: None };
            let missing = tenure.missing.unwrap_or(first);
            let told = (told >= missing.generation).then_some(now);
            Missing { told: missing.told.or(told), ..missing }
        });
        if present {
            tenure.ineligible = None;
        }
        let refusal = claim.addresses.iter().find_map(|address| cx.kernel().refused.get(address));
        if tenure.missing.is_none_or(|missing| now < missing.due(refusal.is_some())) {
            return false;
        }
        let cause = refusal.cloned().unwrap_or_else(|| "address is not in the kernel".to_owned());
        Context::report(
            Fact::AddressRefused { claim: name.clone(), cause: cause.clone() },
            actions,
        );
        self.exclude_self(cx, now, name);
        self.leave_claim(cx, now, name, stored, &Leaving::new(Reason::Address, &cause), actions);
        true
    }

    pub(in crate::lease) fn exclude_self(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
    ) {
        self.with(cx, name, |tenure| {
            let backoff = tenure
                .ineligible
                .as_ref()
                .map_or(INELIGIBLE, |i| (i.backoff * 2).min(INELIGIBLE_MAX));
            tenure.ineligible = Some(Ineligible { until: now + backoff, backoff });
        });
    }

    pub(in crate::lease) fn advance_not_ready(&mut self, cx: &mut Context, now: Instant) {
        if cx.not_ready_mut().advance(now) {
            self.open.note_all();
        }
    }
}
