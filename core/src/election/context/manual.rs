//! Requests of administrators by annotations of Leases.

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

use crate::desired::{Desired, NodeState};
use crate::election::context::Context;

impl Context {
    /// What the speaker is to log instead of what it was started with.
    pub(in crate::election) fn log_filter(&self) -> Option<&str> {
        self.sessions.get(&self.own_name)?.record.log.as_deref()
    }

    /// The state of a node, as its Node says it and people ask for it.
    pub(in crate::election) fn state_of(
        &self,
        node: &NodeName,
        desired: &Desired,
    ) -> Option<NodeState> {
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
    pub(in crate::election) fn asked_to(&self, name: &LeaseName) -> Option<&NodeName> {
        let to = self.claims.get(name)?.record.move_to.as_ref()?;
        (*to != self.config.node).then_some(to)
    }
}
