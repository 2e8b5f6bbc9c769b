//! What people ask for by annotations of leases: that a claim moves to a node, that a node owns
//! nothing, that a speaker logs more. Nobody needs more rights for it than to edit leases.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::NodeName;

use super::election::Election;
use super::event::{Action, Fact, Target};
use super::requests::Purpose;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, NodeState};

/// What a claim says of why it moves.
pub(super) const BY_HAND: &str = "moved by hand";

impl Election {
    /// What the speaker is to log instead of what it was started with.
    pub fn log_filter(&self) -> Option<&str> {
        self.sessions.get(&self.own_name)?.record.log.as_deref()
    }

    /// The state of a node, as its Node says it and people ask for it.
    pub(super) fn state_of(&self, node: &NodeName, desired: &Desired) -> Option<NodeState> {
        let state = *desired.nodes.get(node)?;
        let drained = || self.live_session(node).is_some_and(|stored| stored.record.drain);
        Some(match state {
            NodeState::Ready | NodeState::NotReady | NodeState::Cordoned if drained() => {
                NodeState::Draining
            }
            state => state,
        })
    }

    /// To which other node people want this claim of ours to go.
    pub(super) fn asked_to(&self, name: &LeaseName) -> Option<&NodeName> {
        let to = self.claims.get(name)?.record.move_to.as_ref()?;
        (*to != self.config.node).then_some(to)
    }

    /// Withdraws what people asked for where it cannot be done, or is done. Whether it does.
    pub(super) fn refuse_move(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Arc<Stored<Claim>>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(to) = stored.record.move_to.clone() else { return false };
        let Some(tenure) = self.tenures.get(name) else { return false };
        let unwilling = || !self.candidates(claim, desired).contains(&&to);
        let late = tenure.excluded.get(&to).is_some_and(|until| now < *until);
        let cause = if to == self.config.node {
            None
        } else if desired.nodes.contains_key(&to) && late {
            Some(format!("{to} was asked to and did not"))
        } else if unwilling() {
            Some(format!("{to} cannot take it now"))
        } else if self.is_proxy_silent(&to, claim)
            && !self.is_proxy_silent(&self.config.node, claim)
        {
            Some(format!("the kube-proxy of {to} does not answer"))
        } else {
            return false;
        };
        let pending = self.is_pending(&Target::Claim(name.clone()));
        if pending || !self.has_room() || now < tenure.retry {
            return true;
        }
        if let Some(cause) = cause {
            Self::report(Fact::MoveRefused { claim: name.clone(), node: to, cause }, actions);
        }
        self.with(name, |tenure| tenure.handover = None);
        let record = Claim { move_to: None, successor: None, ..stored.record.clone() };
        self.put_claim(now, name, Some(Arc::clone(stored)), record, Purpose::Refresh, actions);
        true
    }
}
