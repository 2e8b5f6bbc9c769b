//! Who owns which address where pools overlap.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::range::{Family, IpRange};

use super::Pool;

/// A part of a pool that an earlier pool owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The earlier pool.
    pub owner: String,
    /// What both hold.
    pub shared: IpRange,
}

/// All pools without their overlaps: each address has at most one owner, the earliest pool (by
/// creation, then by name) that lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Territory {
    /// Disjoint ranges by their first address, with their owner.
    ranges: BTreeMap<IpAddr, (IpRange, String)>,
    pools: BTreeMap<String, Domain>,
}

/// What one pool owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) auto_assign: bool,
    pub(super) overlaps: Vec<Overlap>,
    /// Ascending and disjoint.
    pub(super) v4: Vec<IpRange>,
    pub(super) v6: Vec<IpRange>,
}

impl Domain {
    pub(super) fn ranges(&self, family: Family) -> &[IpRange] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The number of addresses of `family`; saturates.
    pub(super) fn size(&self, family: Family) -> u128 {
        self.ranges(family).iter().fold(0, |sum, range| sum.saturating_add(range.len()))
    }
}

impl Territory {
    /// Divides the addresses among `pools`.
    pub fn new(pools: &BTreeMap<String, Pool>) -> Self {
        let mut territory = Self::default();
        let mut by_age: Vec<_> = pools.iter().collect();
        by_age.sort_by_key(|(name, pool)| (pool.created, *name));
        for (name, pool) in by_age {
            territory.settle(name, pool);
        }
        territory
    }

    /// The pool that owns `ip`.
    pub fn owner(&self, ip: IpAddr) -> Option<&str> {
        let (_, (range, owner)) = self.ranges.range(..=ip).next_back()?;
        range.contains(ip).then_some(owner)
    }

    /// What `pool` shares with earlier pools.
    pub fn overlaps(&self, pool: &str) -> &[Overlap] {
        self.pools.get(pool).map_or(&[], |domain| &domain.overlaps)
    }

    /// The pools by name.
    pub(super) fn domains(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.pools.iter().map(|(name, domain)| (name.as_str(), domain))
    }

    pub(super) fn domain(&self, pool: &str) -> Option<&Domain> {
        self.pools.get(pool)
    }

    fn settle(&mut self, name: &str, pool: &Pool) {
        let mut domain = Domain { auto_assign: pool.auto_assign, ..Domain::default() };
        for entry in &pool.ranges {
            let mut free = vec![*entry];
            for (taken, owner) in self.overlapping(entry) {
                free = free.iter().flat_map(|range| range.without(&taken)).collect();
                if owner != name
                    && let Some(shared) = taken.intersection(entry)
                {
                    domain.overlaps.push(Overlap { owner, shared });
                }
            }
            for range in free {
                self.ranges.insert(range.first(), (range, name.to_owned()));
                match range.family() {
                    Family::V4 => domain.v4.push(range),
                    Family::V6 => domain.v6.push(range),
                }
            }
        }
        domain.v4.sort();
        domain.v6.sort();
        self.pools.insert(name.to_owned(), domain);
    }

    /// The ranges that share an address with `entry`, ascending.
    fn overlapping(&self, entry: &IpRange) -> Vec<(IpRange, String)> {
        let mut found: Vec<_> = self
            .ranges
            .range(..=entry.last())
            .rev()
            .map(|(_, settled)| settled)
            .take_while(|(range, _)| range.overlaps(entry))
            .cloned()
            .collect();
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(pools: &[(&str, i64, &[&str])]) -> BTreeMap<String, Pool> {
        pools
            .iter()
            .map(|(name, created, entries)| {
                let ranges = entries.iter().map(|entry| entry.parse().unwrap()).collect();
                ((*name).to_owned(), Pool { created: *created, ranges, auto_assign: true })
            })
            .collect()
    }

    fn shown(territory: &Territory) -> Vec<String> {
        territory.ranges.values().map(|(range, owner)| format!("{range} {owner}")).collect()
    }

    #[test]
    fn the_earlier_pool_owns_what_two_pools_list() {
        let territory = Territory::new(&pools(&[
            ("early", 1, &["10.0.0.10-10.0.0.20", "10.0.0.40-10.0.0.50"]),
            ("late", 2, &["10.0.0.0/26", "2001:db8::/64"]),
        ]));
        assert_eq!(
            shown(&territory),
            [
                "10.0.0.0-10.0.0.9 late",
                "10.0.0.10-10.0.0.20 early",
                "10.0.0.21-10.0.0.39 late",
                "10.0.0.40-10.0.0.50 early",
                "10.0.0.51-10.0.0.63 late",
                "2001:db8::-2001:db8::ffff:ffff:ffff:ffff late",
            ]
        );
        let shared = territory.overlaps("late").iter().map(|o| o.shared.to_string());
        assert_eq!(shared.collect::<Vec<_>>(), ["10.0.0.10-10.0.0.20", "10.0.0.40-10.0.0.50"]);
        assert!(territory.overlaps("early").is_empty());
        assert_eq!(territory.owner("10.0.0.20".parse().unwrap()), Some("early"));
        assert_eq!(territory.owner("10.0.0.21".parse().unwrap()), Some("late"));
        assert_eq!(territory.owner("10.0.0.64".parse().unwrap()), None);
    }

    #[test]
    fn pools_of_one_age_go_by_name_and_repetition_within_a_pool_is_no_overlap() {
        let territory = Territory::new(&pools(&[
            ("b", 1, &["10.0.0.0/30"]),
            ("a", 1, &["10.0.0.0/31", "10.0.0.0/31", "10.0.0.1-10.0.0.1"]),
        ]));
        assert_eq!(shown(&territory), ["10.0.0.0-10.0.0.1 a", "10.0.0.2-10.0.0.3 b"]);
        assert!(territory.overlaps("a").is_empty());
        assert_eq!(territory.domain("a").unwrap().size(Family::V4), 2);
    }

    #[test]
    fn the_whole_of_ipv6_costs_nothing() {
        let territory = Territory::new(&pools(&[("all", 1, &["::/0"])]));
        assert_eq!(territory.domain("all").unwrap().size(Family::V6), u128::MAX);
        assert_eq!(territory.owner("ffff::1".parse().unwrap()), Some("all"));
    }
}
