//! The result of a conversion.

use leasehold_crds::{AnnouncementPolicy, IPAddressPool};

use super::notes::Printed;
use super::services::Tally;

/// The objects that replace MetalLB's.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The pools.
    pub pools: Vec<Printed<IPAddressPool>>,
    /// The policies, in the order in which they are tried.
    pub policies: Vec<Printed<AnnouncementPolicy>>,
    /// The notes that concern none of them.
    pub notes: Vec<String>,
    /// The Services that were looked at.
    pub tally: Tally,
}
