//! The state of data paths, and the nodes that can spread packets over others.

use leasehold_crds::lease::DataPathState;
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::context::Context;
use crate::election::io::data_path::DataPathView;
use crate::election::placement::eligibility::can_lead;

impl Context {
    pub(in crate::election) const fn note_data_path(&mut self, view: DataPathView) {
        self.data_path.view = view;
    }

    /// Judges the state of this node; whether another one counts now.
    pub(in crate::election) fn advance_data_path(&mut self, now: Instant) -> bool {
        let before = self.data_path.is_known().then(|| self.data_path.state());
        self.data_path.advance(now, self.proxy.view.is_kube_proxy)
            && self.data_path.state() != before.unwrap_or_else(|| self.data_path_said())
    }

    pub(in crate::election) fn data_path_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.data_path.due())
    }

    /// The state of this node that its session is to say: of a process that has just begun, that which the last one said.
    pub(in crate::election) fn data_path(&self) -> Option<DataPathState> {
        if self.data_path.is_known() {
            return self.data_path.state();
        }
        self.data_path_said()
    }

    fn data_path_said(&self) -> Option<DataPathState> {
        self.sessions.get(self.own_name.as_str())?.record.data_path
    }

    /// Whether packets can be spread by a live node, and over it.
    pub(in crate::election) fn spreads(&self, node: &NodeName) -> bool {
        if *node == self.config.node {
            return self.data_path().is_none_or(DataPathState::spreads);
        }
        self.live_session(node).is_some_and(|stored| stored.record.spreads())
    }

    /// Whether packets that come to this node for the addresses of `claim` reach endpoints.
    pub(in crate::election) fn leads(&self, claim: &DesiredClaim) -> bool {
        let own = self.node();
        can_lead(claim, own, self.spreads(own))
    }
}
