//! Claims that this node serves without a lease write while the API server does not answer.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::io::event::{Action, Fact};

/// The time after another node served an address until this node probes for it again.
pub(in crate::election) const SERVED_BY_ANOTHER: Duration = Duration::from_secs(5);

impl Claims {
    /// No other host answered: serves the claim provisionally.
    pub(in crate::election) fn serve_provisionally(
        &self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(provisional) = tenure.provisional().cloned() else { return };
        let until = now + cx.lifetime();
        cx.own_mut().keep_until(until);
        let Some(owner) = provisional.story.from else { return };
        Context::report(Fact::TookProvisionally { claim: name.clone(), owner }, actions);
    }

    /// Another serves it: this node waits.
    pub(in crate::election) fn withdraw_provisional(
        &mut self,
        cx: &mut Context,
        now: Instant,
        name: &LeaseName,
    ) {
        self.end_provisional(cx, name, now + SERVED_BY_ANOTHER);
    }

    pub(in crate::election) fn end_provisional(
        &mut self,
        cx: &mut Context,
        name: &LeaseName,
        retry: Instant,
    ) {
        self.with(cx, name, |tenure| tenure.end_provisional(retry));
    }

    /// What is served without a claim is not left behind: until the next process is there, nobody would
    /// yield it to its owner.
    pub(in crate::election) fn end_all_provisional(&mut self, cx: &mut Context, now: Instant) {
        let provisional = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|tenure| tenure.provisional().is_some())
        };
        let names: Vec<LeaseName> = self.open.iter().filter(provisional).cloned().collect();
        for name in names {
            self.end_provisional(cx, &name, now);
        }
    }

    /// What the kernel has let lapse, or does not take, is nobody's again: while this process stood
    /// still its owner may have come back, or another may have taken it.
    pub(in crate::election) fn end_lapsed_provisional(&mut self, cx: &mut Context, now: Instant) {
        if !cx.api().is_unsettled() || cx.kernel().applied < cx.serving().generation {
            return;
        }
        let lapsed = |name: &&LeaseName| {
            let Some(stored) = cx.claims().get(*name) else { return false };
            self.serves_provisionally(name)
                && stored.record.addresses.iter().any(|address| {
                    cx.is_served(*address) && !cx.kernel().ours.contains_key(address)
                })
        };
        let names: Vec<LeaseName> = self.open.iter().filter(lapsed).cloned().collect();
        for name in names {
            let addresses = cx.claims().get(&name).map(|stored| &stored.record.addresses);
            let refused = |address| cx.kernel().refused.contains_key(address);
            if addresses.is_some_and(|addresses| addresses.iter().any(refused)) {
                self.exclude_self(cx, now, &name);
            }
            self.end_provisional(cx, &name, now);
        }
    }

    /// Whether the owner is back and about to serve again.
    pub(in crate::election) fn is_returning(&self, name: &LeaseName) -> bool {
        let provisional = self.tenures.get(name).and_then(|tenure| tenure.provisional());
        provisional.is_some_and(|provisional| provisional.returned.is_some())
    }

    /// Whether this node serves an unowned claim already: it asks for it before all others.
    pub(in crate::election) fn serves_provisionally(&self, name: &LeaseName) -> bool {
        self.tenures
            .get(name)
            .is_some_and(|tenure| tenure.provisional().is_some() && tenure.probing().is_none())
    }
}
