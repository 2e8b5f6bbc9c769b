//! The claims: settling, taking, holding and giving up.

pub(in crate::election) mod acquire;
pub(in crate::election) mod addresses;
pub(in crate::election) mod cold_start;
pub(in crate::election) mod interface;
pub(in crate::election) mod manual;
pub(in crate::election) mod members;
pub(in crate::election) mod preflight;
pub(in crate::election) mod probe;
pub(in crate::election) mod provisional;
pub(in crate::election) mod proxy_rules;
pub(in crate::election) mod reconcile;
pub(in crate::election) mod refresh;
pub(in crate::election) mod release;
pub(in crate::election) mod state;
pub(in crate::election) mod transition;
pub(in crate::election) mod unowned;
pub(in crate::election) mod worklist;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::election::claim::state::cold_start::Joining;
use crate::election::claim::state::former::Former;
use crate::election::claim::state::refresh::Refresh;
use crate::election::claim::state::tenure::Tenures;
use crate::election::claim::state::worklist::Open;

/// The claims of which this node knows or does anything.
#[derive(Debug, Default)]
pub(in crate::election) struct Claims {
    tenures: Tenures,
    open: Open,
    refresh: Refresh,
    joining: Joining,
    ownerships: u64,
}

impl Claims {
    pub(in crate::election) const fn joining(&self) -> &Joining {
        &self.joining
    }

    pub(in crate::election) const fn open(&self) -> &Open {
        &self.open
    }

    pub(in crate::election) const fn open_mut(&mut self) -> &mut Open {
        &mut self.open
    }

    /// Counts a new ownership, and returns its number.
    pub(in crate::election) const fn next_ownership(&mut self) -> u64 {
        self.ownerships += 1;
        self.ownerships
    }

    pub(in crate::election) const fn tenures(&self) -> &Tenures {
        &self.tenures
    }

    /// Begins to follow a claim, unless it is followed already.
    pub(in crate::election) fn begin(&mut self, now: Instant, name: &LeaseName) {
        self.tenures.begin(now, name);
    }

    /// Keeps those of the previous owners of a claim that have not shown that they observed their loss.
    pub(in crate::election) fn retain_untold(
        &mut self,
        name: &LeaseName,
        unaware: impl FnMut(&mut Former) -> bool,
    ) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            tenure.retain_untold(unaware);
        }
    }

    /// Follows a claim no longer.
    pub(in crate::election) fn forget(&mut self, name: &LeaseName) {
        self.tenures.remove(name);
    }
}
