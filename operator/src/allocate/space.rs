//! What is free while a plan is being made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::range::{Family, IpRange};

use super::{Failure, ServiceKey, State, Usage};

/// The addresses during one plan. What is taken stays taken until the plan is complete.
pub(super) struct Space<'a> {
    state: &'a State<'a>,
    taken: BTreeMap<IpAddr, &'a ServiceKey>,
    /// Addresses in the status of services that lose them, with their claims. Nobody else gets them
    /// before the status says so.
    leaving: BTreeMap<IpAddr, &'a str>,
    cursors: BTreeMap<(&'a str, Family), Cursor<'a>>,
}

/// How far the search for the lowest free address of a pool has come. It never goes back: during a
/// plan nothing becomes free.
struct Cursor<'a> {
    ranges: &'a [IpRange],
    next: Option<IpAddr>,
    /// The first address that was passed over because it is still being given up.
    releasing: Option<(IpAddr, &'a str)>,
}

impl<'a> Cursor<'a> {
    fn new(ranges: &'a [IpRange]) -> Self {
        Self { ranges, next: ranges.first().map(IpRange::first), releasing: None }
    }

    fn advance(&mut self) {
        let (Some(ip), Some((range, rest))) = (self.next, self.ranges.split_first()) else {
            return;
        };
        self.next = range.next_after(ip);
        if self.next.is_none() {
            self.ranges = rest;
            self.next = rest.first().map(IpRange::first);
        }
    }
}

impl<'a> Space<'a> {
    pub(super) fn new(state: &'a State<'a>) -> Self {
        let (taken, leaving, cursors) = Default::default();
        Self { state, taken, leaving, cursors }
    }

    pub(super) fn is_taken(&self, ip: IpAddr) -> bool {
        self.taken.contains_key(&ip)
    }

    pub(super) fn take(&mut self, ip: IpAddr, service: &'a ServiceKey) {
        self.taken.insert(ip, service);
    }

    pub(super) fn leave(&mut self, ip: IpAddr, claim: &'a str) {
        self.leaving.insert(ip, claim);
    }

    /// What keeps the service with the claim `own` from getting `ip`.
    pub(super) fn obstacle(&self, ip: IpAddr, own: &str) -> Option<Failure> {
        if let Some(owner) = self.taken.get(&ip) {
            return Some(Failure::InUse { address: ip, owner: owner.to_string() });
        }
        if let Some(owner) = self.state.foreign.get(&ip) {
            return Some(Failure::InUse { address: ip, owner: owner.to_string() });
        }
        if let Some(node) = self.state.nodes.get(&ip) {
            return Some(Failure::OfNode { address: ip, node: node.clone() });
        }
        let claim = self.claims(ip).find(|claim| *claim != own)?;
        Some(Failure::Releasing { address: ip, claim: claim.to_owned() })
    }

    /// An address of `pool` that only the claim `own` lists; it is not taken yet.
    pub(super) fn listed(&self, own: &str, pool: &str, family: Family) -> Option<IpAddr> {
        let only_own = |claims: &BTreeSet<String>| claims.iter().all(|claim| claim == own);
        let claimed = self.state.claimed.iter().filter(|(_, claims)| only_own(claims));
        let mut own_pool = claimed.map(|(ip, _)| *ip).filter(|ip| {
            Family::of(*ip) == family && self.state.territory.owner(*ip) == Some(pool)
        });
        own_pool.find(|ip| self.obstacle(*ip, own).is_none())
    }

    /// The lowest address of `pool` that is free; it is not taken yet.
    pub(super) fn lowest(&mut self, pool: &'a str, family: Family) -> Option<IpAddr> {
        let mut cursor = self.cursors.remove(&(pool, family)).unwrap_or_else(|| {
            Cursor::new(self.state.territory.domain(pool).map_or(&[], |d| d.ranges(family)))
        });
        while let Some(ip) = cursor.next {
            if !self.is_used(ip) {
                match self.claims(ip).next() {
                    None => break,
                    Some(claim) => cursor.releasing = cursor.releasing.or(Some((ip, claim))),
                }
            }
            cursor.advance();
        }
        let found = cursor.next;
        self.cursors.insert((pool, family), cursor);
        found
    }

    /// An address of `pool` that becomes free soon, after [`Space::lowest`] found none.
    pub(super) fn releasing(&self, pool: &str, family: Family) -> Option<Failure> {
        let (address, claim) = self.cursors.get(&(pool, family))?.releasing?;
        Some(Failure::Releasing { address, claim: claim.to_owned() })
    }

    /// How much of each pool is in use.
    pub(super) fn usage(&self) -> BTreeMap<String, Usage> {
        let territory = self.state.territory;
        let mut usage: BTreeMap<&str, Usage> = territory
            .domains()
            .map(|(name, domain)| {
                let (available_v4, available_v6) =
                    (domain.size(Family::V4), domain.size(Family::V6));
                (name, Usage { available_v4, available_v6, ..Usage::default() })
            })
            .collect();
        let foreign = self.state.foreign.keys().chain(self.state.nodes.keys());
        let mut used: BTreeMap<IpAddr, u128> = foreign.map(|ip| (*ip, 0)).collect();
        used.extend(self.taken.keys().map(|ip| (*ip, 1)));
        for (ip, assigned) in used {
            let Some(pool) = territory.owner(ip).and_then(|pool| usage.get_mut(pool)) else {
                continue;
            };
            match Family::of(ip) {
                Family::V4 => {
                    pool.assigned_v4 += assigned;
                    pool.available_v4 = pool.available_v4.saturating_sub(1);
                }
                Family::V6 => {
                    pool.assigned_v6 += assigned;
                    pool.available_v6 = pool.available_v6.saturating_sub(1);
                }
            }
        }
        usage.into_iter().map(|(name, usage)| (name.to_owned(), usage)).collect()
    }

    /// Whether `ip` stays in use, not only for the moment.
    fn is_used(&self, ip: IpAddr) -> bool {
        self.taken.contains_key(&ip)
            || self.state.nodes.contains_key(&ip)
            || self.state.foreign.contains_key(&ip)
    }

    /// The claims that still list `ip`.
    fn claims(&self, ip: IpAddr) -> impl Iterator<Item = &'a str> + use<'a> {
        let leaving = self.leaving.get(&ip).copied();
        let listed = self.state.claimed.get(&ip).into_iter().flatten().map(String::as_str);
        leaving.into_iter().chain(listed)
    }
}
