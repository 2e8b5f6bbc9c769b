//! Cold starts: what nobody has is given out once those who may have it are there.
//!
//! Power comes back, the control plane does, or Leasehold is installed beside Services that exist: whoever had
//! its session first would rank itself alone, and take everything. So for a moment after its session begins
//! a speaker leaves claims alone that it has seen nobody lose, while a node that may take them has no
//! session yet. All know the same Nodes and sessions: they begin together when the last one is there.

use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Reason};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::claim::Claims;
use crate::election::claim::addresses::lists;
use crate::election::claim::state::cold_start::Origin;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;

/// The longest time after the beginning of its session for which a speaker waits for others.
pub(in crate::election) const JOIN: Duration = Duration::from_secs(1);

/// The same once it sees that anything has an owner: somebody waits no longer, or the cluster is up. It is
/// long enough to see who has joined, and shorter than a step of the ranking.
pub(in crate::election) const BEGUN: Duration = Duration::from_millis(50);

impl Claims {
    /// The own session has begun.
    pub(in crate::election) fn begin_joining(&mut self, now: Instant) {
        self.joining.begun = Some(now);
        self.joining.until = Some(now + JOIN);
        for (_, tenure) in self.tenures.iter_mut() {
            tenure.set_origin(Origin::Unknown);
        }
    }

    /// Something has an owner.
    pub(in crate::election) fn note_owned(&mut self, now: Instant) {
        if let Some(until) = &mut self.joining.until
            && now + BEGUN < *until
        {
            *until = now + BEGUN;
            self.open.note_waiting();
        }
    }

    /// Follows who has joined, and notes what is nobody's and what of that waits.
    pub(in crate::election) fn follow_joining(
        &mut self,
        cx: &mut Context,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
    ) {
        if self.joining.until.take_if(|until| now >= *until).is_some() {
            self.joining.absent.clear();
        }
        if self.joining.until.is_some() {
            let absent = desired.nodes.iter().filter(|(_, state)| state.takes());
            let absent = absent.map(|(node, _)| node).filter(|node| Self::is_awaited(cx, node));
            self.joining.absent = absent.cloned().collect();
        }
        for name in names {
            let new = |tenure: &&Tenure| tenure.last().is_none() && tenure.unowned().is_none();
            let Some(tenure) = self.tenures.get(name).filter(new) else { continue };
            let listed = cx.claims().get(name).zip(desired.claims.get(name));
            let Some((_, claim)) = listed.filter(|(stored, claim)| lists(stored, claim)) else {
                continue;
            };
            let origin = if self.awaits_others(tenure, claim) {
                Origin::Awaiting
            } else {
                tenure.origin().max(Origin::Nobodys)
            };
            self.with(cx, name, |tenure| tenure.set_origin(origin));
        }
    }

    /// Whether `node` may be about to join: it has no session, and did not say that it leaves.
    pub(in crate::election) fn is_awaited(cx: &Context, node: &NodeName) -> bool {
        *node != cx.config().node
            && cx.sessions().get(node.as_str()).is_none_or(|stored| {
                stored.record.holder.is_none() && !Reason::is_departure(&stored.record.cause)
            })
    }

    /// Whether a claim without an owner is left alone until others have joined.
    pub(in crate::election) fn awaits_others(&self, tenure: &Tenure, claim: &DesiredClaim) -> bool {
        tenure.last().is_none() && self.joining.absent.iter().any(|node| claim.nodes.contains(node))
    }

    /// Until when at the latest.
    pub(in crate::election) const fn joined_by(&self) -> Option<Instant> {
        self.joining.until
    }
}
