//! How much of each pool is in use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::range::Family;

use super::{State, Territory};

/// How much of a pool is in use, per family.
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

/// How many addresses of one family of one pool are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    held: u128,
    /// Those that the pool does not leave out.
    offered: u128,
}

/// How many addresses of each pool are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pools: BTreeMap<String, [Count; 2]>,
}

impl Tally {
    /// Counts `ip` as held.
    pub(super) fn add(&mut self, ip: IpAddr, territory: &Territory) {
        self.count(ip, territory, |count, offered| {
            count.held += 1;
            count.offered += offered;
        });
    }

    /// Undoes [`Tally::add`].
    pub(super) fn remove(&mut self, ip: IpAddr, territory: &Territory) {
        self.count(ip, territory, |count, offered| {
            count.held = count.held.saturating_sub(1);
            count.offered = count.offered.saturating_sub(offered);
        });
    }

    /// Counts `ip` as not free, although no service holds it.
    fn block(&mut self, ip: IpAddr, territory: &Territory) {
        self.count(ip, territory, |count, offered| count.offered += offered);
    }

    fn count(&mut self, ip: IpAddr, territory: &Territory, change: impl Fn(&mut Count, u128)) {
        let Some(pool) = territory.owner(ip) else { return };
        let offered = u128::from(territory.offers(ip));
        if !self.pools.contains_key(pool) {
            self.pools.insert(pool.to_owned(), Default::default());
        }
        let Some([v4, v6]) = self.pools.get_mut(pool) else { return };
        change(if Family::of(ip) == Family::V4 { v4 } else { v6 }, offered);
    }
}

/// The usage of each pool while services hold `held` beside those that are settled.
pub(super) fn usage(
    state: &State<'_>,
    held: impl Iterator<Item = IpAddr>,
    is_held: impl Fn(IpAddr) -> bool,
) -> BTreeMap<String, Usage> {
    let territory = state.territory;
    let mut tally = state.settled.tally.clone();
    for ip in held {
        tally.add(ip, territory);
    }
    let nodes = state.nodes.keys().filter(|ip| !state.foreign.contains_key(ip));
    for ip in nodes.chain(state.foreign.keys()).filter(|ip| !is_held(**ip)) {
        tally.block(*ip, territory);
    }
    let usage = territory.domains().map(|(name, domain)| {
        let [v4, v6] = tally.pools.get(name).copied().unwrap_or_default();
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
