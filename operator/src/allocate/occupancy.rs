//! Occupancy: the addresses of services that a plan leaves out, because no decision about others changes
//! theirs.
//!
//! Of ten thousand services nearly all have the addresses that they request, from a pool that would give
//! them out again, and share them with no other service. They keep those whatever is decided about the
//! others. A plan reads their addresses only, and its cost is that of the others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::pool_map::PoolMap;
use super::types::ServiceKey;
use super::usage::Tally;

/// The addresses of services that a plan leaves out. Each of these has its addresses alone, under the claim
/// that is named after it.
#[derive(Clone, Debug, Default)]
pub struct Occupancy {
    holders: BTreeMap<IpAddr, ServiceKey>,
    tally: Tally,
}

impl Occupancy {
    /// The service that has `ip`.
    pub fn holder(&self, ip: IpAddr) -> Option<&ServiceKey> {
        self.holders.get(&ip)
    }

    /// The number of occupied addresses of each pool.
    pub(super) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The addresses from `ip` on, ascending.
    pub(super) fn from(&self, ip: IpAddr) -> impl Iterator<Item = IpAddr> + use<'_> {
        self.holders.range(ip..).map(|(ip, _)| *ip)
    }

    /// Adds a service with its addresses, which no other service has.
    pub fn insert(&mut self, key: &ServiceKey, addresses: &[IpAddr], pool_map: &PoolMap) {
        for &ip in addresses {
            self.holders.insert(ip, key.clone());
            self.tally.add(ip, pool_map);
        }
    }

    /// Undoes [`Occupancy::insert`] with the same pool map.
    pub fn remove(&mut self, addresses: &[IpAddr], pool_map: &PoolMap) {
        for ip in addresses {
            self.holders.remove(ip);
            self.tally.remove(*ip, pool_map);
        }
    }

    /// Takes out all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
