//! Claims at which the next pass need not look.

use leasehold_crds::lease::{Claim, LeaseName, Stored};

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::transfer::Transfer;

impl Transfer {
    /// Keeps of the claims that were looked at those that the next pass has to look at again.
    pub(in crate::election) fn close_settled(
        &self,
        cx: &Context,
        claims: &mut Claims,
        now: Instant,
        looked_at: &[LeaseName],
        desired: &Desired,
    ) {
        for name in looked_at {
            let claim = desired.claim(name);
            if self.is_settled(cx, claims, now, name, claim) {
                claims.open_mut().close(name);
            } else if let Some(what) = claims.waits_for(cx, now, name, claim) {
                claims.open_mut().wait(name, what);
            }
        }
        debug_assert_eq!(
            self.overlooked(cx, claims, now, desired),
            None,
            "it is neither settled nor open"
        );
    }

    /// A claim that is not settled and at which the next pass would not look: there is none.
    pub(in crate::election) fn overlooked<'a>(
        &'a self,
        cx: &'a Context,
        claims: &'a Claims,
        now: Instant,
        desired: &Desired,
    ) -> Option<&'a LeaseName> {
        let mut closed =
            cx.claims().iter().map(|(name, _)| name).filter(|name| !claims.open().contains(name));
        closed.find(|name| !self.is_settled(cx, claims, now, name, desired.claim(name)))
    }

    pub(in crate::election) fn is_settled(
        &self,
        cx: &Context,
        claims: &Claims,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
    ) -> bool {
        let stored = cx.claims().get(name);
        let Some(tenure) = claims.tenures().get(name) else {
            return claim.is_none() && stored.is_none_or(|stored| !cx.is_in_doubt(stored));
        };
        let (Some(stored), Some(claim)) = (stored, claim) else { return false };
        let idle = !tenure.must_read()
            && tenure.retry() <= now
            && tenure.yielding().is_none()
            && tenure.provisional().is_none()
            && tenure.probing().is_none()
            && tenure.unowned().is_none()
            && tenure.handover().is_none()
            && stored.record.successor.is_none()
            && !cx.forsaken().contains_key(name);
        idle && match cx.owner(stored) {
            Owner::Me => self.is_served_as_asked(cx, claims, name, tenure, stored, claim),
            Owner::Other(_) => !tenure.is_mine() && !cx.is_in_doubt(stored),
            Owner::Nobody => false,
        }
    }

    pub(in crate::election) fn is_served_as_asked(
        &self,
        cx: &Context,
        claims: &Claims,
        name: &LeaseName,
        tenure: &Tenure,
        stored: &Stored<Claim>,
        claim: &DesiredClaim,
    ) -> bool {
        let has = |address| cx.is_served(address) && cx.kernel().ours.contains_key(&address);
        let stays = cx
            .desired()
            .is_some_and(|desired| self.must_move(cx, claims, name, claim, desired).is_none());
        tenure.is_mine()
            && tenure.leaving().is_none()
            && tenure.missing().is_none()
            && tenure.ineligible().is_none()
            && stays
            && claims.is_interface_told(cx, stored)
            && Claims::are_members_told(tenure, stored)
            && Claims::better_interface(cx, tenure, claim).is_none()
            && stored.record.addresses == claim.addresses
            && stored.record.services == claim.services
            && claim.addresses.iter().all(|address| has(*address))
    }
}
