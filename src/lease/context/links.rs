//! Questions about the interface that carries a claim.

use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::lease::context::Context;

/// For how long a subnet or a default route has to be as it is before anything moves for it.
pub(in crate::lease) const SETTLED: Duration = Duration::from_secs(1);

impl Context {
    pub(in crate::lease) fn readdressed_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.readdressed.map(|at| at + SETTLED))
    }

    /// Whether a link of which nothing is said any more is gone, with what was served on it.
    pub(in crate::lease) fn is_deleted(&self, name: &InterfaceName) -> bool {
        let mut ours = self.kernel.ours.values();
        !self.all_interfaces.contains_key(name) && !ours.any(|served| served.interface == *name)
    }
}
