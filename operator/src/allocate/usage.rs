//! The usage of pools.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::range::Family;

use super::pool_map::PoolMap;

/// The usage of a pool, per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// IPv4 addresses that services hold.
    pub assigned_v4: u128,
    /// IPv4 addresses that are free.
    pub available_v4: u128,
    /// IPv6 addresses that services hold.
    pub assigned_v6: u128,
    /// IPv6 addresses that are free.
    pub available_v6: u128,
}

/// The number of addresses of one family of one pool that are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    held: u128,
    /// Those of them, and of blocked addresses, that the pool does not exclude.
    offered: u128,
}

/// The number of addresses of each pool that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pools: BTreeMap<String, [Count; 2]>,
}

impl Tally {
    /// Counts `ip` as held.
    pub(super) fn add(&mut self, ip: IpAddr, pool_map: &PoolMap) {
        self.count(ip, pool_map, |count, offered| {
            count.held += 1;
            count.offered += offered;
        });
    }

    /// Undoes [`Tally::add`].
    pub(super) fn remove(&mut self, ip: IpAddr, pool_map: &PoolMap) {
        self.count(ip, pool_map, |count, offered| {
            count.held = count.held.saturating_sub(1);
            count.offered = count.offered.saturating_sub(offered);
        });
    }

    /// Counts `ip` as not free, although no service holds it.
    pub(super) fn block(&mut self, ip: IpAddr, pool_map: &PoolMap) {
        self.count(ip, pool_map, |count, offered| count.offered += offered);
    }

    fn count(&mut self, ip: IpAddr, pool_map: &PoolMap, change: impl Fn(&mut Count, u128)) {
        let Some(pool) = pool_map.owner(ip) else { return };
        let offered = u128::from(pool_map.offers(ip));
        if !self.pools.contains_key(pool) {
            self.pools.insert(pool.to_owned(), Default::default());
        }
        let Some([v4, v6]) = self.pools.get_mut(pool) else { return };
        change(if Family::of(ip) == Family::V4 { v4 } else { v6 }, offered);
    }

    /// The usage of each pool.
    pub(super) fn usage(&self, pool_map: &PoolMap) -> BTreeMap<String, Usage> {
        let usage = pool_map.domains().map(|(name, domain)| {
            let [v4, v6] = self.pools.get(name).copied().unwrap_or_default();
            let usage = Usage {
                assigned_v4: v4.held,
                available_v4: domain.offered(Family::V4).saturating_sub(v4.offered),
                assigned_v6: v6.held,
                available_v6: domain.offered(Family::V6).saturating_sub(v6.offered),
            };
            (name.to_owned(), usage)
        });
        usage.collect()
    }
}
