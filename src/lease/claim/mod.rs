//! The claims: settling, taking, holding and giving up.

pub(in crate::lease) mod acquire;
pub(in crate::lease) mod addresses;
pub(in crate::lease) mod cold_start;
pub(in crate::lease) mod interface;
pub(in crate::lease) mod manual;
pub(in crate::lease) mod preflight;
pub(in crate::lease) mod probe;
pub(in crate::lease) mod provisional;
pub(in crate::lease) mod proxy_rules;
pub(in crate::lease) mod reconcile;
pub(in crate::lease) mod refresh;
pub(in crate::lease) mod release;
pub(in crate::lease) mod state;
pub(in crate::lease) mod transition;
pub(in crate::lease) mod unowned;
pub(in crate::lease) mod worklist;

use crate::lease::claim::state::cold_start::Joining;
use crate::lease::claim::state::refresh::Refresh;
use crate::lease::claim::state::tenure::Tenures;
use crate::lease::claim::state::worklist::Open;

/// The claims of which this node knows or does anything.
#[derive(Debug, Default)]
pub(in crate::lease) struct Claims {
    tenures: Tenures,
    open: Open,
    refresh: Refresh,
    joining: Joining,
    ownerships: u64,
}

impl Claims {
    pub(in crate::lease) const fn joining(&self) -> &Joining {
        &self.joining
    }

    pub(in crate::lease) const fn open(&self) -> &Open {
        &self.open
    }

    pub(in crate::lease) const fn open_mut(&mut self) -> &mut Open {
        &mut self.open
    }

    pub(in crate::lease) const fn ownerships(&self) -> u64 {
        self.ownerships
    }

    pub(in crate::lease) const fn ownerships_mut(&mut self) -> &mut u64 {
        &mut self.ownerships
    }

    pub(in crate::lease) const fn tenures(&self) -> &Tenures {
        &self.tenures
    }

    pub(in crate::lease) const fn tenures_mut(&mut self) -> &mut Tenures {
        &mut self.tenures
    }
}
