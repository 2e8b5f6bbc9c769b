//! Planned moves.

pub(in crate::lease) mod handover;
pub(in crate::lease) mod rebalance;
pub(in crate::lease) mod settled;
pub(in crate::lease) mod state;

use crate::lease::transfer::state::rebalance::Improving;

/// Planned moves.
#[derive(Debug, Default)]
pub(in crate::lease) struct Transfer {
    improving: Improving,
}

impl Transfer {
    pub(in crate::lease) const fn improving_mut(&mut self) -> &mut Improving {
        &mut self.improving
    }
}
