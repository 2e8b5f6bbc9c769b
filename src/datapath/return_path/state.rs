//! The view that the tenant gives back.

use std::collections::BTreeSet;

use leasehold_crds::names::InterfaceName;

use crate::datapath::return_path::plan::Wanted;

/// The return paths that are in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// The addresses for which all was done that could be, each with its interface.
    pub applied: Wanted,
    /// The interfaces, each with whether IPv6, whose gateway the table `main` does not name.
    pub without_gateway: BTreeSet<(InterfaceName, bool)>,
    /// Why it is not as it should be, if so.
    pub failure: Option<String>,
    /// Everything is removed, because no process follows.
    pub removed: bool,
}
