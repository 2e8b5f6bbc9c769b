//! Evidence and disputes on the segment.

pub(in crate::election) mod conflict;
pub(in crate::election) mod departed;
pub(in crate::election) mod dispute;
pub(in crate::election) mod down;
pub(in crate::election) mod stale_owners;
pub(in crate::election) mod state;
pub(in crate::election) mod suspicion;
pub(in crate::election) mod watchlist;

use crate::election::wire::departed::Departed;
use crate::election::wire::state::conflict::Conflicts;
use crate::election::wire::state::dispute::Yields;
use crate::election::wire::state::down::Falls;
use crate::election::wire::state::stale_owners::OldOwners;
use crate::election::wire::state::suspicion::Silences;
use crate::election::wire::state::watchlist::Listening;

/// Evidence and disputes on the segment.
#[derive(Debug, Default)]
pub(in crate::election) struct Wire {
    conflicts: Conflicts,
    yields: Yields,
    silences: Silences,
    listening: Listening,
    old_owners: OldOwners,
    falls: Falls,
    departed: Departed,
}

impl Wire {
    pub(in crate::election) const fn conflicts(&self) -> &Conflicts {
        &self.conflicts
    }

    pub(in crate::election) const fn conflicts_mut(&mut self) -> &mut Conflicts {
        &mut self.conflicts
    }

    pub(in crate::election) const fn listening(&self) -> &Listening {
        &self.listening
    }

    pub(in crate::election) const fn old_owners(&self) -> &OldOwners {
        &self.old_owners
    }

    pub(in crate::election) const fn old_owners_mut(&mut self) -> &mut OldOwners {
        &mut self.old_owners
    }

    pub(in crate::election) const fn silences_mut(&mut self) -> &mut Silences {
        &mut self.silences
    }

    pub(in crate::election) const fn yields(&self) -> &Yields {
        &self.yields
    }

    pub(in crate::election) const fn yields_mut(&mut self) -> &mut Yields {
        &mut self.yields
    }
}
