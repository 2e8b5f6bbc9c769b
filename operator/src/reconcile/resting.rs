//! Addresses that were freed of late: clients may still have connections to who had them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::service::ServiceRow;
use super::table::Table;
use crate::allocate::{Freed, ServiceKey};
use crate::clock::Instant;

/// For how long a freed address is given out after all others.
const REST: Duration = Duration::from_secs(60);

/// The addresses that were freed within the last minute, as far as this replica has seen.
#[derive(Debug, Default)]
pub(super) struct Resting {
    addresses: BTreeMap<IpAddr, Freed>,
}

impl Resting {
    pub(super) fn addresses(&self) -> &BTreeMap<IpAddr, Freed> {
        &self.addresses
    }

    /// Notes at `now` what `key`, which had `before`, has no longer.
    pub(super) fn note(
        &mut self,
        key: &ServiceKey,
        before: &[IpAddr],
        services: &Table<ServiceRow>,
        now: Instant,
    ) {
        let after = services.get(key).map_or(&[][..], |row| &row.present);
        for ip in before.iter().filter(|ip| !after.contains(ip)) {
            self.addresses.insert(*ip, Freed { since: now, former: key.clone() });
        }
    }

    /// Forgets at `now` what has rested for long enough.
    pub(super) fn forget(&mut self, now: Instant) {
        self.addresses.retain(|_, rest| now.saturating_sub(rest.since) < REST);
    }
}
