//! Evidence and disputes on the segment.

pub(in crate::lease) mod conflict;
pub(in crate::lease) mod dispute;
pub(in crate::lease) mod stale_owners;
pub(in crate::lease) mod state;
pub(in crate::lease) mod suspicion;
pub(in crate::lease) mod watchlist;

use crate::lease::wire::state::conflict::Conflicts;
use crate::lease::wire::state::dispute::Yields;
use crate::lease::wire::state::stale_owners::OldOwners;
use crate::lease::wire::state::suspicion::Silences;
use crate::lease::wire::state::watchlist::Listening;

/// Evidence and disputes on the segment.
#[derive(Debug, Default)]
pub(in crate::lease) struct Wire {
    conflicts: Conflicts,
    yields: Yields,
    silences: Silences,
    listening: Listening,
    old_owners: OldOwners,
}

impl Wire {
    pub(in crate::lease) const fn conflicts(&self) -> &Conflicts {
        &self.conflicts
    }

    pub(in crate::lease) const fn conflicts_mut(&mut self) -> &mut Conflicts {
        &mut self.conflicts
    }

    pub(in crate::lease) const fn listening(&self) -> &Listening {
        &self.listening
    }

    pub(in crate::lease) const fn old_owners(&self) -> &OldOwners {
        &self.old_owners
    }

    pub(in crate::lease) const fn old_owners_mut(&mut self) -> &mut OldOwners {
        &mut self.old_owners
    }

    pub(in crate::lease) const fn silences_mut(&mut self) -> &mut Silences {
        &mut self.silences
    }

    pub(in crate::lease) const fn yields(&self) -> &Yields {
        &self.yields
    }

    pub(in crate::lease) const fn yields_mut(&mut self) -> &mut Yields {
        &mut self.yields
    }
}
