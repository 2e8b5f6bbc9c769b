//! Planned moves.

pub(in crate::election) mod handover;
pub(in crate::election) mod rebalance;
pub(in crate::election) mod settled;
pub(in crate::election) mod state;

use crate::election::transfer::state::rebalance::Improving;

/// Planned moves.
#[derive(Debug, Default)]
pub(in crate::election) struct Transfer {
    improving: Improving,
}

impl Transfer {
    pub(in crate::election) const fn improving_mut(&mut self) -> &mut Improving {
        &mut self.improving
    }
}
