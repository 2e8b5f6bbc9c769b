//! Questions about the interface that carries a claim.

use std::time::Duration;

use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::lease::claim::state::Tenure;
use crate::lease::context::Context;
use crate::lease::placement::interface::Segment;

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

    /// The interface that fits a claim of this node better than the one that carries it.
    pub(in crate::lease) fn better_interface(
        &self,
        tenure: &Tenure,
        claim: &DesiredClaim,
    ) -> Option<&InterfaceName> {
        let present = tenure.interface.as_ref()?;
        let (best, link) = self.local_interface(claim)?;
        let worth = Segment::of((best, link)).worth(claim);
        let carries = self.interfaces.get_key_value(present).filter(|(_, link)| link.carrier);
        if carries.is_some() && self.readdressed.is_some() {
            return None;
        }
        let present_worth = carries.and_then(|carrying| Segment::of(carrying).worth(claim));
        (best != present && present_worth < worth).then_some(best)
    }

    /// Whether the interface that carries what this node owns has no carrier.
    pub(in crate::lease) fn has_lost_carrier(&self, tenure: &Tenure) -> bool {
        let Some(name) = &tenure.interface else { return false };
        let carries = self.interfaces.get(name).is_some_and(|interface| interface.carrier);
        !carries || self.bared.contains_key(name) && self.is_deleted(name)
    }

    /// Whether none of this node's interfaces can carry `claim` now.
    pub(in crate::lease) fn is_uncarried(&self, claim: &DesiredClaim) -> bool {
        let uncarried = || self.local_interface(claim).is_none();
        self.readdressed.is_none() && !self.interfaces.is_empty() && uncarried()
    }
}
