//! The quarantine of addresses that were freed recently: clients may still have connections to the former
//! Service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::allocate::{Freed, ServiceKey};
use crate::clock::Instant;

/// The time for which a freed address is given out after all others.
const QUARANTINE: Duration = Duration::from_secs(60);

/// The addresses that were freed within the last minute, as far as this replica has seen.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    addresses: BTreeMap<IpAddr, Freed>,
}

impl Quarantine {
    pub(super) const fn addresses(&self) -> &BTreeMap<IpAddr, Freed> {
        &self.addresses
    }

    /// Notes at `now` the addresses that `key` had `before` and does not have `after`.
    pub(super) fn note(
        &mut self,
        key: &ServiceKey,
        before: &[IpAddr],
        after: &[IpAddr],
        now: Instant,
    ) {
        for ip in before.iter().filter(|ip| !after.contains(ip)) {
            self.addresses.insert(*ip, Freed { since: now, former: key.clone() });
        }
    }

    /// Ends at `now` the quarantine of addresses that were freed long enough ago.
    pub(super) fn forget(&mut self, now: Instant) {
        self.addresses.retain(|_, freed| now.saturating_sub(freed.since) < QUARANTINE);
    }
}
