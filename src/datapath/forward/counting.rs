//! Open connections through addresses that this node has handed over.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::net::conntrack;
use crate::net::nft::connection::Nfnetlink;
use crate::net::nft::error::NfnetlinkError;
use leasehold_core::clock::Instant;
use leasehold_core::election::OpenConnections;

/// The shortest pause between two counts.
const PAUSE: Duration = Duration::from_secs(2);
/// The part of the time that is spent on counting, at most: one in so many. All connections of the node are read.
const SHARE: u32 = 20;

/// The time of the next count.
#[derive(Debug, Default)]
pub(super) struct Counting {
    of: Arc<BTreeSet<IpAddr>>,
    next: Instant,
}

impl Counting {
    /// The time at which the connections through `addresses` are to be counted; none where there are no addresses.
    pub(super) fn due(&mut self, addresses: &Arc<BTreeSet<IpAddr>>) -> Option<Instant> {
        if *addresses != self.of {
            self.of = Arc::clone(addresses);
            self.next = Instant::default();
        }
        (!addresses.is_empty()).then_some(self.next)
    }

    /// Counts them.
    pub(super) fn count(
        &mut self,
        requests: &mut Nfnetlink,
    ) -> Result<OpenConnections, NfnetlinkError> {
        let began = clock::now();
        let counts = conntrack::count(requests, &self.of);
        let ended = clock::now();
        self.next = ended + PAUSE.max(ended.saturating_since(began) * SHARE);
        Ok(OpenConnections { through: Arc::clone(&self.of), count: counts?.values().sum() })
    }
}
