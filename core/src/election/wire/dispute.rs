//! Addresses of ours that another speaker announced, while the API does not say whose they are.
//!
//! * Gone: the speaker is asked whether it has the address, and yielded to if so; the frame may have been anybody's.
//!   Two may have yielded to each other: so whoever has it is asked from then on, and where nobody answers
//!   it is served again.
//! * Back: the leases decide, by an uncached read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::io::event::{Action, Target};
use crate::election::wire::Wire;
use crate::election::wire::state::dispute::{ASK, Yields};

/// How soon the next claims are read where not all could be at once.
pub(in crate::election) const REREAD_OTHERS: Duration = Duration::from_millis(20);

/// How often a claim is read anew because of what was heard, at most.
pub(in crate::election) const REREAD: Duration = Duration::from_millis(250);

impl Wire {
    pub(in crate::election) fn yields_deadline(&self, cx: &Context) -> Option<Instant> {
        let gone = cx.api_answers_until();
        let unsettled = self.yields.unsettled.values();
        let unsettled =
            unsettled.map(|question| gone.map_or(question.ask, |at| at.max(question.ask)));
        let asks = self.yields.yielded.values().map(|question| question.ask);
        cx.first_ahead(asks.chain(unsettled).chain([self.yields.reread]))
    }

    pub(in crate::election) fn advance_yielded(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.is_api_answering(now) && cx.is_informed() && cx.own().id().is_some() {
            self.reread_yielded(cx, claims, now, actions);
        } else {
            let Yields { yielded, unsettled, .. } = &mut self.yields;
            yielded.retain(|address, question| question.ask(&ASK, *address, now, actions));
            for ((address, _), question) in unsettled {
                question.ask_on(*address, now, actions);
            }
        }
        let mut unsettled = std::mem::take(&mut self.yields.unsettled);
        unsettled.retain(|(address, _), _| {
            Self::is_left_behind(cx, *address) || !claims.claims_of(*address).is_empty()
        });
        self.yields.unsettled = unsettled;
    }

    /// Whether a former process has left this address, and nothing has decided about it yet.
    pub(in crate::election) fn is_left_behind(cx: &Context, address: IpAddr) -> bool {
        !cx.own().is_settled() && cx.kernel().ours.contains_key(&address)
    }

    /// The leases decide again: what was yielded and is still ours by an uncached read is served.
    pub(in crate::election) fn reread_yielded(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let mut yielded = std::mem::take(&mut self.yields.yielded);
        let names: BTreeSet<LeaseName> =
            yielded.keys().flat_map(|address| claims.claims_of(*address)).collect();
        yielded.retain(|address, _| !claims.claims_of(*address).is_empty());
        self.yields.yielded = yielded;
        if now < self.yields.reread {
            return;
        }
        for name in names {
            let target = Target::Claim(name);
            if cx.is_pending(&target) {
                continue;
            }
            if !cx.has_room_to_read() {
                self.yields.reread = now + REREAD_OTHERS;
                return;
            }
            self.yields.reread = now + REREAD;
            cx.read(now, target, actions);
        }
    }
}
