//! The view that the tenant gives back.

use std::sync::Arc;

use leasehold_core::election::{Forwarding, OpenConnections};

/// The forwarding that is in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// The last one for which all was done that could be.
    pub applied: Option<Arc<Forwarding>>,
    /// The number of addresses in the tables.
    pub addresses: usize,
    /// The connections that are open through addresses that this node has handed over, once they are counted.
    pub open: Option<OpenConnections>,
    /// Why it is not as it should be, if so.
    pub failure: Option<String>,
}
