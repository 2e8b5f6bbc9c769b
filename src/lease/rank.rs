//! Who takes which orphan: a pure function that every speaker computes alike.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

/// A claim without an owner.
#[derive(Clone, Debug)]
pub struct Orphan<'a> {
    /// Its name.
    pub name: &'a LeaseName,
    /// How many addresses it brings.
    pub addresses: usize,
    /// Who may take it.
    pub candidates: Vec<&'a NodeName>,
    /// Who takes it only after all others had their turn: the owner whose session ended, and nodes
    /// that are fenced again and again.
    pub last: Vec<&'a NodeName>,
}

/// For each orphan its candidates, the first to act first.
///
/// The orphans are placed jointly, in the order of their names: each goes to the candidate with the
/// fewest addresses (`loads`, and what was placed before), ties by rendezvous hash of (claim,
/// node). So a node's orphans spread over all survivors.
pub fn rank(
    orphans: &[Orphan<'_>],
    loads: &BTreeMap<NodeName, usize>,
) -> BTreeMap<LeaseName, Vec<NodeName>> {
    let mut loads: BTreeMap<&NodeName, usize> = loads.iter().map(|(n, load)| (n, *load)).collect();
    let mut ordered: Vec<&Orphan<'_>> = orphans.iter().collect();
    ordered.sort_by_key(|orphan| orphan.name);
    let mut ranking = BTreeMap::new();
    for orphan in ordered {
        let mut candidates = orphan.candidates.clone();
        candidates.sort_by_cached_key(|node| {
            let load = loads.get(node).copied().unwrap_or(0);
            let last = orphan.last.contains(node);
            (last, load, std::cmp::Reverse(weight(orphan.name.as_str(), node.as_str())), *node)
        });
        if let Some(first) = candidates.first() {
            *loads.entry(first).or_default() += orphan.addresses;
        }
        ranking.insert(orphan.name.clone(), candidates.into_iter().cloned().collect());
    }
    ranking
}

/// The rendezvous weight of a pair of names: the same on every node and in every version.
pub fn weight(first: &str, second: &str) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    first.hash(&mut hasher);
    second.hash(&mut hasher);
    // FNV alone leaves the upper bits of short names alike; the finaliser of SplitMix64 spreads
    // them.
    let mut value = hasher.finish();
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a: std's default hasher may differ between versions of Rust.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(i: usize) -> NodeName {
        format!("node-{i}").parse().unwrap()
    }

    fn claims(n: usize) -> Vec<LeaseName> {
        (0..n).map(|i| LeaseName::claim("web", &format!("service-{i}"))).collect()
    }

    fn firsts(ranking: &BTreeMap<LeaseName, Vec<NodeName>>) -> BTreeMap<NodeName, usize> {
        let mut count = BTreeMap::new();
        for candidates in ranking.values() {
            *count.entry(candidates[0].clone()).or_default() += 1;
        }
        count
    }

    #[test]
    fn a_hundred_orphans_spread_evenly_over_the_survivors() {
        let names = claims(100);
        let nodes: Vec<NodeName> = (0..3).map(node).collect();
        let orphans: Vec<Orphan<'_>> = names
            .iter()
            .map(|name| Orphan {
                name,
                addresses: 1,
                candidates: nodes.iter().collect(),
                last: Vec::new(),
            })
            .collect();
        let loads = BTreeMap::from([(node(0), 10)]);
        let count = firsts(&rank(&orphans, &loads));
        let mut totals = [count[&node(0)] + 10, count[&node(1)], count[&node(2)]];
        totals.sort_unstable();
        assert_eq!(totals, [36, 37, 37]);
    }

    #[test]
    fn the_last_owner_comes_after_all_others() {
        let name = LeaseName::claim("web", "shop");
        let nodes: Vec<NodeName> = (0..4).map(node).collect();
        for last in &nodes {
            let orphan = Orphan {
                name: &name,
                addresses: 1,
                candidates: nodes.iter().collect(),
                last: vec![last],
            };
            assert_eq!(rank(&[orphan], &BTreeMap::new())[&name].last(), Some(last));
        }
    }

    #[test]
    fn the_weight_is_the_same_for_ever() {
        assert_eq!(weight("web.shop", "node-1"), 2_157_732_032_518_808_234);
    }

    proptest! {
        #[test]
        fn the_order_of_the_input_does_not_matter(
            n in 1usize..40,
            nodes in 1usize..6,
            seed in any::<u64>(),
        ) {
            let names = claims(n);
            let nodes: Vec<NodeName> = (0..nodes).map(node).collect();
            let orphans: Vec<Orphan<'_>> = names
                .iter()
                .map(|name| Orphan { name, addresses: 1, candidates: nodes.iter().collect(), last: Vec::new() })
                .collect();
            let mut shuffled = orphans.clone();
            shuffled.sort_by_key(|orphan| weight(orphan.name.as_str(), &seed.to_string()));
            for orphan in &mut shuffled {
                orphan.candidates.reverse();
            }
            prop_assert_eq!(
                rank(&orphans, &BTreeMap::new()),
                rank(&shuffled, &BTreeMap::new())
            );
        }
    }
}
