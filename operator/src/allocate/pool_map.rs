//! The pool map: the pool that owns each address, also where pools overlap.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::pool::Sharing;
use leasehold_crds::range::{Family, IpRange};

use super::scope::Scope;
use super::types::Created;
use super::unusable::{Unusable, Why};

/// A pool, as far as its entries can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Decides which of two overlapping pools owns the addresses: the earlier.
    pub created: Created,
    /// The entries.
    pub ranges: Vec<IpRange>,
    /// The rules by which it gives them to services.
    pub rules: Rules,
}

/// The rules by which a pool gives addresses to services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether services that name neither an address nor a pool are served from here.
    pub auto_assign: bool,
    /// Whether it excludes IPv4 addresses that end in `.0` or `.255`.
    pub avoid_buggy: bool,
    /// Whether it gives out nothing more.
    pub disabled: bool,
    /// The services that may share an address.
    pub sharing: Sharing,
    /// The services that it admits, and its place among the pools.
    pub scope: Scope,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            auto_assign: true,
            avoid_buggy: false,
            disabled: false,
            sharing: Sharing::default(),
            scope: Scope::default(),
        }
    }
}

impl Rules {
    /// Whether the pool does not exclude `ip`, which is one of its own.
    pub(super) fn offers(&self, ip: IpAddr) -> bool {
        !(self.avoid_buggy && is_buggy(ip))
    }
}

/// Whether some old equipment treats `ip` as a network or broadcast address.
fn is_buggy(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if matches!(ip.octets(), [.., 0 | 255]))
}

/// The number of addresses of `range` that end in `.0` or `.255`.
fn buggy(range: &IpRange) -> u128 {
    let (IpAddr::V4(first), IpAddr::V4(last)) = (range.first(), range.last()) else { return 0 };
    let (first, last) = (u128::from(first.to_bits()), u128::from(last.to_bits()));
    // Numbers below `end` with this last octet.
    let ending = |end: u128, octet: u128| (end + 255 - octet) / 256;
    let within = |octet| ending(last + 1, octet) - ending(first, octet);
    within(0) + within(255)
}

/// A part of a pool that an earlier pool owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The earlier pool.
    pub owner: String,
    /// The addresses that both contain.
    pub shared: IpRange,
}

/// All pools without their overlaps: each address has at most one owner, the earliest pool (by creation,
/// then by name) that contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMap {
    /// Disjoint ranges by their first address, with their owner.
    ranges: BTreeMap<IpAddr, (IpRange, String)>,
    pools: BTreeMap<String, Domain>,
    /// The pools in the order in which they are tried for services that ask for none.
    order: Vec<String>,
    unusable: Unusable,
}

/// The addresses that one pool owns, and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) rules: Rules,
    overlaps: Vec<Overlap>,
    /// The addresses that a host can use, ascending and disjoint.
    v4: Vec<IpRange>,
    v6: Vec<IpRange>,
    /// The other addresses that it owns.
    unusable: Vec<(IpRange, Why)>,
}

impl Domain {
    /// The addresses of `family` that it owns and a host can use, ascending and disjoint.
    pub(super) fn ranges(&self, family: Family) -> &[IpRange] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The number of addresses of `family` that a host can use; saturates.
    pub(super) fn size(&self, family: Family) -> u128 {
        self.ranges(family).iter().fold(0, |sum, range| sum.saturating_add(range.len()))
    }

    /// The number of those that it does not exclude; saturates.
    pub(super) fn offered(&self, family: Family) -> u128 {
        let left_out: u128 = match family {
            Family::V4 if self.rules.avoid_buggy => self.v4.iter().map(buggy).sum(),
            _ => 0,
        };
        self.size(family).saturating_sub(left_out)
    }
}

impl PoolMap {
    /// Divides the addresses among `pools`.
    pub fn new(pools: &BTreeMap<String, Pool>, unusable: Unusable) -> Self {
        let mut pool_map = Self { unusable, ..Self::default() };
        let mut by_age: Vec<_> = pools.iter().collect();
        by_age.sort_by_key(|(name, pool)| (pool.created, *name));
        for (name, pool) in by_age {
            pool_map.add(name, pool);
        }
        let mut order: Vec<_> =
            pools.iter().map(|(name, pool)| (pool.rules.scope.rank(), name)).collect();
        order.sort();
        pool_map.order = order.into_iter().map(|(_, name)| name.clone()).collect();
        pool_map
    }

    /// The pool that owns `ip`.
    pub fn owner(&self, ip: IpAddr) -> Option<&str> {
        let (_, (range, owner)) = self.ranges.range(..=ip).next_back()?;
        range.contains(ip).then_some(owner)
    }

    /// The pool that owns `ip`, with its domain.
    pub(super) fn holder(&self, ip: IpAddr) -> Option<(&str, &Domain)> {
        let owner = self.owner(ip)?;
        Some((owner, self.pools.get(owner)?))
    }

    /// The reason for which no host can use `ip`, if none can.
    pub(super) fn unusable(&self, ip: IpAddr) -> Option<Why> {
        self.unusable.why(ip)
    }

    /// Whether a pool that owns `ip` offers it.
    pub(super) fn offers(&self, ip: IpAddr) -> bool {
        self.unusable(ip).is_none()
            && self.holder(ip).is_some_and(|(_, domain)| domain.rules.offers(ip))
    }

    /// The ranges of `pool` that no host can use, with the reason.
    pub fn unusable_of(&self, pool: &str) -> &[(IpRange, Why)] {
        self.pools.get(pool).map_or(&[], |domain| &domain.unusable)
    }

    /// The parts of `pool` that belong to earlier pools.
    pub fn overlaps(&self, pool: &str) -> &[Overlap] {
        self.pools.get(pool).map_or(&[], |domain| &domain.overlaps)
    }

    /// The pools by name.
    pub(super) fn domains(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.pools.iter().map(|(name, domain)| (name.as_str(), domain))
    }

    /// The pools in the order in which they are tried.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.order.iter().filter_map(|name| Some((name.as_str(), self.pools.get(name)?)))
    }

    /// The addresses and rules of one pool.
    pub(super) fn domain(&self, pool: &str) -> Option<&Domain> {
        self.pools.get(pool)
    }

    /// Adds a pool, without the addresses that earlier ones own.
    fn add(&mut self, name: &str, pool: &Pool) {
        let mut domain = Domain { rules: pool.rules.clone(), ..Domain::default() };
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
                let mut usable = vec![range];
                for (taken, why) in self.unusable.within(range) {
                    domain.unusable.push((taken, why));
                    usable = usable.iter().flat_map(|part| part.without(&taken)).collect();
                }
                match range.family() {
                    Family::V4 => domain.v4.extend(usable),
                    Family::V6 => domain.v6.extend(usable),
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
            .map(|(_, owned)| owned)
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
                ((*name).to_owned(), Pool { created: *created, ranges, rules: Rules::default() })
            })
            .collect()
    }

    fn shown(pool_map: &PoolMap) -> Vec<String> {
        pool_map.ranges.values().map(|(range, owner)| format!("{range} {owner}")).collect()
    }

    #[test]
    fn the_earlier_pool_owns_what_two_pools_list() {
        let pool_map = PoolMap::new(
            &pools(&[
                ("early", 1, &["10.0.0.10-10.0.0.20", "10.0.0.40-10.0.0.50"]),
                ("late", 2, &["10.0.0.0/26", "2001:db8::/64"]),
            ]),
            Unusable::default(),
        );
        assert_eq!(
            shown(&pool_map),
            [
                "10.0.0.0-10.0.0.9 late",
                "10.0.0.10-10.0.0.20 early",
                "10.0.0.21-10.0.0.39 late",
                "10.0.0.40-10.0.0.50 early",
                "10.0.0.51-10.0.0.63 late",
                "2001:db8::-2001:db8::ffff:ffff:ffff:ffff late",
            ]
        );
        let shared = pool_map.overlaps("late").iter().map(|o| o.shared.to_string());
        assert_eq!(shared.collect::<Vec<_>>(), ["10.0.0.10-10.0.0.20", "10.0.0.40-10.0.0.50"]);
        assert!(pool_map.overlaps("early").is_empty());
        assert_eq!(pool_map.owner("10.0.0.20".parse().unwrap()), Some("early"));
        assert_eq!(pool_map.owner("10.0.0.21".parse().unwrap()), Some("late"));
        assert_eq!(pool_map.owner("10.0.0.64".parse().unwrap()), None);
    }

    #[test]
    fn pools_of_one_age_go_by_name_and_repetition_within_a_pool_is_no_overlap() {
        let pool_map = PoolMap::new(
            &pools(&[
                ("b", 1, &["10.0.0.0/30"]),
                ("a", 1, &["10.0.0.0/31", "10.0.0.0/31", "10.0.0.1-10.0.0.1"]),
            ]),
            Unusable::default(),
        );
        assert_eq!(shown(&pool_map), ["10.0.0.0-10.0.0.1 a", "10.0.0.2-10.0.0.3 b"]);
        assert!(pool_map.overlaps("a").is_empty());
        assert_eq!(pool_map.domain("a").unwrap().size(Family::V4), 2);
    }

    #[test]
    fn the_whole_of_ipv6_costs_nothing() {
        let pool_map = PoolMap::new(&pools(&[("all", 1, &["::/0"])]), Unusable::default());
        let reserved = 2 + (1 << 32) + (1 << 118) + (1 << 120);
        assert_eq!(pool_map.domain("all").unwrap().size(Family::V6), u128::MAX - (reserved - 1));
        assert_eq!(pool_map.owner("ffff::1".parse().unwrap()), Some("all"));
    }

    #[test]
    fn what_no_host_can_have_is_owned_and_not_given_out() {
        let nodes = ["10.0.0.2/24", "10.0.0.3/24", "10.0.9.2/24"].map(|net| net.parse().unwrap());
        let unusable = Unusable::new(nodes.into_iter());
        let entries = ["10.0.0.0/29", "10.0.0.254-10.0.1.1", "127.0.0.1-128.0.0.1"];
        let pool_map = PoolMap::new(&pools(&[("lan", 1, &entries)]), unusable);
        let domain = pool_map.domain("lan").unwrap();
        let shown = |ranges: &[IpRange]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown(domain.ranges(Family::V4)),
            [
                "10.0.0.1-10.0.0.7",
                "10.0.0.254-10.0.0.254",
                "10.0.1.0-10.0.1.1",
                "128.0.0.0-128.0.0.1"
            ]
        );
        assert_eq!(domain.offered(Family::V4), 12);
        assert_eq!(pool_map.owner("10.0.0.255".parse().unwrap()), Some("lan"));
        let said = pool_map.unusable_of("lan").iter().map(|(range, why)| format!("{range} {why}"));
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                "10.0.0.0-10.0.0.0 the network address of the nodes' subnet 10.0.0.0/24",
                "10.0.0.255-10.0.0.255 the broadcast address of the nodes' subnet 10.0.0.0/24",
                "127.0.0.1-127.255.255.255 reserved: loopback",
            ]
        );
    }

    #[test]
    fn addresses_that_are_left_out_are_counted_without_looking_at_each() {
        for entry in [
            "10.0.0.0/24",
            "10.0.0.0/22",
            "10.0.0.1-10.0.0.254",
            "10.0.0.255-10.0.1.0",
            "10.0.0.0-10.0.0.0",
            "10.0.0.255-10.0.0.255",
            "10.0.0.17-10.0.3.200",
            "0.0.0.0/20",
            "255.255.250.0-255.255.255.255",
            "2001:db8::/120",
        ] {
            let range: IpRange = entry.parse().unwrap();
            let counted = range.addresses().filter(|ip| is_buggy(*ip)).count();
            assert_eq!(buggy(&range), u128::try_from(counted).unwrap(), "{entry}");
        }
        assert_eq!(buggy(&"0.0.0.0/0".parse().unwrap()), 1 << 25);
    }
}
