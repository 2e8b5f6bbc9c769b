//! The turn of refreshes, and how many writes and reads of claims may be in flight.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::refresh::IN_FLIGHT;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::event::{Action, Target};

/// After how long a claim is asked for again where the API server had no time for that: few are asked for at
/// once by then.
pub(in crate::election) const THROTTLED: Duration = Duration::from_millis(250);

impl Claims {
    pub(in crate::election) fn has_room(&self, cx: &Context) -> bool {
        let writing = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose != Purpose::Read
        };
        cx.requests().values().filter(writing).count() < self.refresh.allowed.unwrap_or(IN_FLIGHT)
    }

    /// The claim after `last`, in the order of names and round again, whose tenure is such a one.
    pub(in crate::election) fn next_in_turn(
        &self,
        last: Option<&LeaseName>,
        such: impl Fn(&Tenure) -> bool,
    ) -> Option<LeaseName> {
        let mut fitting = self.tenures.iter().filter(|(_, tenure)| such(tenure));
        let mut again = fitting.clone();
        let next = fitting.find(|(name, _)| last.is_none_or(|last| *name > last));
        next.or_else(|| again.next()).map(|(name, _)| name.clone())
    }

    pub(in crate::election) fn refresh_in_turn(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if now < self.refresh.due {
            return;
        }
        self.refresh.due = now + cx.refresh_interval();
        let unowned =
            self.tenures.values().any(|tenure| tenure.unowned().is_some() && !tenure.is_mine());
        if unowned || cx.own().is_ending() || !cx.is_api_answering(now) {
            return;
        }
        // How long a change took is to be known soon.
        let untold = self.next_in_turn(None, |tenure| tenure.is_mine() && tenure.took().is_some());
        let last = self.refresh.last.as_ref();
        let Some(name) =
            untold.or_else(|| self.next_in_turn(last, super::state::tenure::Tenure::is_mine))
        else {
            return;
        };
        self.refresh.last = Some(name.clone());
        let steady = self
            .tenures
            .get(&name)
            .is_some_and(|t| t.leaving().is_none() && t.handover().is_none());
        let stored = cx.claims().get(&name).filter(|stored| cx.owner(stored) == Owner::Me).cloned();
        let asked = cx.desired_claim(&name).is_some();
        let (Some(stored), true, true) = (stored, asked, steady) else { return };
        if !cx.is_pending(&Target::Claim(name.clone())) {
            let record = self.held_record(cx, &stored);
            Self::put_claim(cx, now, &name, Some(stored), record, Purpose::Refresh, actions);
        }
    }
}
