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

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::lease::claim::state::cold_start::Joining;
use crate::lease::claim::state::former::Former;
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

    /// Counts a new ownership, and returns its number.
    pub(in crate::lease) const fn next_ownership(&mut self) -> u64 {
        self.ownerships += 1;
        self.ownerships
    }

    pub(in crate::lease) const fn tenures(&self) -> &Tenures {
        &self.tenures
    }

    /// Begins to follow a claim, unless it is followed already.
    pub(in crate::lease) fn begin(&mut self, now: Instant, name: &LeaseName) {
        self.tenures.begin(now, name);
    }

    /// Keeps those of the previous owners of a claim that have not shown that they observed their loss.
    pub(in crate::lease) fn retain_untold(
        &mut self,
        name: &LeaseName,
        unaware: impl FnMut(&mut Former) -> bool,
    ) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            tenure.retain_untold(unaware);
        }
    }

    /// Follows a claim no longer.
    pub(in crate::lease) fn forget(&mut self, name: &LeaseName) {
        self.tenures.remove(name);
    }
}
