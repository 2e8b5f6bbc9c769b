//! A pass over the claims that are not settled.

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::claim::acquire::Acquire;
use crate::election::claim::state::tenure::Tenure;
use crate::election::engine::Election;
use crate::election::io::event::{Action, Target};
use crate::election::outage::state::turn::Outage;
use crate::election::transfer::Transfer;

impl Election {
    pub(in crate::election) fn advance_claims(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(desired) = self.cx.shared_desired() else { return };
        let names = self.claims.open_claims(&mut self.cx, now);
        for name in &names {
            // A claim that nobody asks for is looked at as long as it is ours to give up.
            let ours = || self.cx.claims().get(name).is_some_and(|stored| self.cx.names_us(stored));
            if desired.claims.contains_key(name) || ours() {
                self.claims.begin(now, name);
            }
        }
        self.claims.touch_counting(&mut self.cx, &names, actions);
        for name in &names {
            self.handovers.note_holder(&self.cx, &self.claims, now, name);
            self.wire.note_holder(&mut self.cx, &mut self.claims, name);
            let given_out = self.claims.settle_owner(&mut self.cx, now, name, actions);
            if given_out.seen {
                self.transfer.improving_mut().note_given_out(now);
            }
            if given_out.taken {
                self.transfer.improving_mut().note_given_out(now);
            }
            self.spreads.note(&self.cx, &mut self.claims, now, name);
            self.claims.tell_served(&mut self.cx, now, name, actions);
        }
        self.claims.give_up_listed(&self.cx, &names);
        if self.cx.own().id().is_some() {
            self.cx.resolve_doubts(now, &names, actions);
            self.claims.rank_unowned(&mut self.cx, now, &names, &desired);
            for name in &names {
                if let Some(claim) = desired.claims.get(name) {
                    self.claims.keep_interface(&mut self.cx, now, name, claim);
                }
            }
            self.claims.keep_link(&mut self.cx, now, &names);
            self.claims.keep_what_may_stay(&mut self.cx, now, &names, actions);
            for name in &names {
                self.pursue(now, name, &desired, actions);
            }
            while self.claims.has_room(&self.cx)
                && let Some(name) = self.claims.open_mut().next_for_room()
            {
                self.pursue(now, &name, &desired, actions);
            }
            self.transfer.improve(&self.cx, &mut self.claims, now, &desired);
            self.transfer.advance_handovers(
                &mut self.cx,
                &mut self.claims,
                now,
                &names,
                &desired,
                actions,
            );
            for name in &names {
                self.handovers.note_successor(&self.claims, name);
            }
            self.claims.refresh_in_turn(&mut self.cx, now, actions);
        }
        self.claims.touch_counting(&mut self.cx, &names, actions);
        for name in &names {
            let ours = self.cx.claims().get(name).is_some_and(|stored| self.cx.names_us(stored));
            let kept = |tenure: &Tenure| tenure.is_mine() || tenure.yielding().is_some() || ours;
            if !desired.claims.contains_key(name)
                && !self.claims.tenures().get(name).is_some_and(kept)
            {
                self.claims.forget(name);
                self.cx.claims_mut().prune(name);
            }
        }
        self.transfer.close_settled(&self.cx, &mut self.claims, now, &names, &desired);
    }

    /// Does what is due about one claim.
    pub(in crate::election) fn pursue(
        &mut self,
        now: Instant,
        name: &LeaseName,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let claim = desired.claim(name);
        let pending = self.cx.is_pending(&Target::Claim(name.clone()));
        if let Some(claim) = claim.filter(|_| self.claims.is_blocked(name, pending)) {
            let acquire = self.claims.outlive_outage(&mut self.cx, now, name, claim, actions);
            self.acquire(now, name, claim, acquire, desired, actions);
        }
        let acquire = self.claims.advance_claim(&mut self.cx, now, name, claim, pending, actions);
        if let Some(claim) = claim {
            self.acquire(now, name, claim, acquire, desired, actions);
        }
    }

    pub(in crate::election) fn acquire(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        acquire: Option<Acquire>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        match acquire {
            Some(Acquire::Succeed(stored)) => {
                Transfer::succeed(
                    &mut self.cx,
                    &mut self.claims,
                    now,
                    name,
                    claim,
                    &stored,
                    desired,
                    actions,
                );
            }
            Some(Acquire::Provisionally(stored)) => {
                Outage::take_provisionally(
                    &mut self.cx,
                    &mut self.claims,
                    &mut self.wire,
                    now,
                    name,
                    claim,
                    stored.as_deref(),
                    actions,
                );
            }
            None => {}
        }
    }
}
