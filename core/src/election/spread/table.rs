//! The node of each bucket: a pure function of the nodes and their weights, so that each owner computes the same.
//!
//! Each node has an order of all buckets that depends on its name alone, and the nodes take the next free one in their
//! orders by turns (Maglev, NSDI 2016, section 3.4): equal weights differ by one bucket, and a node that comes or goes
//! moves few buckets but its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::lease::Members;
use leasehold_crds::names::NodeName;

use crate::election::io::spreading::BUCKETS;
use crate::election::placement::rank::weight;

/// The node of each bucket, as its position in the order of names.
pub(super) type Table = Arc<[u16]>;

/// The tables of sets of nodes that are in use.
#[derive(Debug, Default)]
pub(super) struct Tables {
    known: BTreeMap<Members, Table>,
    used: BTreeMap<Members, Table>,
}

impl Tables {
    /// The table of a set; empty for that without nodes.
    pub(super) fn of(&mut self, members: &Members) -> Table {
        if let Some(table) = self.used.get(members) {
            return Arc::clone(table);
        }
        let table = self.known.remove(members).unwrap_or_else(|| fill(members));
        self.used.insert(members.clone(), Arc::clone(&table));
        table
    }

    /// Forgets those that were not asked for since the last time.
    pub(super) fn forget_unused(&mut self) {
        self.known = std::mem::take(&mut self.used);
    }
}

/// The order of the buckets of one node.
struct Preference {
    next: u32,
    step: u32,
}

impl Preference {
    fn of(node: &NodeName) -> Self {
        let buckets = u64::from(BUCKETS);
        // The same on every node and in every version.
        let hash = weight(node.as_str(), "bucket");
        let (low, high) = (hash & u64::from(u32::MAX), hash >> 32);
        // Both are smaller than the number of buckets.
        let next = u32::try_from(low % buckets).unwrap_or(0);
        let step = u32::try_from(high % (buckets - 1) + 1).unwrap_or(1);
        Self { next, step }
    }
}

impl Iterator for Preference {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bucket = self.next;
        self.next = (self.next + self.step) % u32::from(BUCKETS);
        usize::try_from(bucket).ok()
    }
}

/// The number of buckets that each of these nodes has, of [`BUCKETS`], while all of them live.
pub fn shares(members: &Members) -> BTreeMap<NodeName, u16> {
    let mut shares: Vec<(NodeName, u16)> =
        members.iter().map(|(node, _)| (node.clone(), 0)).collect();
    for number in fill(members).iter() {
        if let Some((_, share)) = shares.get_mut(usize::from(*number)) {
            *share += 1;
        }
    }
    shares.into_iter().collect()
}

fn fill(members: &Members) -> Table {
    let heaviest = members.iter().map(|(_, weight)| u32::from(weight)).max().unwrap_or(0);
    if heaviest == 0 {
        return Arc::default();
    }
    let mut nodes: Vec<(Preference, u32, u32)> =
        members.iter().map(|(node, weight)| (Preference::of(node), u32::from(weight), 0)).collect();
    let mut table: Vec<Option<u16>> = vec![None; usize::from(BUCKETS)];
    let mut left = usize::from(BUCKETS);
    while left > 0 {
        for (number, (preference, weight, credit)) in (0_u16..).zip(&mut nodes) {
            *credit += *weight;
            if *credit < heaviest || left == 0 {
                continue;
            }
            *credit -= heaviest;
            // Its order has all buckets: the step and their number have no common divisor.
            let free = preference.find(|bucket| table.get(*bucket).is_some_and(Option::is_none));
            if let Some(taken) = free.and_then(|bucket| table.get_mut(bucket)) {
                *taken = Some(number);
                left -= 1;
            }
        }
    }
    table.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(nodes: impl IntoIterator<Item = (u32, u16)>) -> Members {
        let name = |number| format!("node-{number}").parse().unwrap();
        nodes.into_iter().map(|(number, weight)| (name(number), weight)).collect()
    }

    fn equal(count: u32) -> Members {
        set((0..count).map(|number| (number, 1)))
    }

    fn shares(members: &Members) -> Vec<u16> {
        super::shares(members).into_values().collect()
    }

    #[test]
    fn equal_nodes_have_equal_shares() {
        for count in [1, 2, 3, 7, 16, 100] {
            let shares = shares(&equal(count));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{count}: {shares:?}");
        }
        assert_eq!(fill(&Members::default()).len(), 0);
    }

    #[test]
    fn shares_are_proportional_to_weights() {
        let shares = shares(&set([(0, 1), (1, 2), (2, 3), (3, 4)]));
        for (share, weight) in shares.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            let wanted = f64::from(BUCKETS) * weight / 10.0;
            assert!((f64::from(*share) - wanted).abs() <= 2.0, "{shares:?}");
        }
    }

    /// The part of the buckets whose node is another one, of those whose node is in both sets.
    fn needlessly_moved(before: &Members, after: &Members) -> f64 {
        let named = |members: &Members| -> Vec<NodeName> {
            let names: Vec<&NodeName> = members.iter().map(|(node, _)| node).collect();
            fill(members).iter().map(|it| names[usize::from(*it)].clone()).collect()
        };
        let pairs: Vec<_> = named(before).into_iter().zip(named(after)).collect();
        let needless = pairs.iter().filter(|(one, other)| {
            one != other && after.weight(one) > 0 && before.weight(other) > 0
        });
        f64::from(u32::try_from(needless.count()).unwrap()) / f64::from(BUCKETS)
    }

    #[test]
    fn a_node_that_comes_or_goes_moves_few_buckets_of_others() {
        for count in 2..=16 {
            let (all, fewer) = (equal(count + 1), equal(count));
            let moved = needlessly_moved(&fewer, &all).max(needlessly_moved(&all, &fewer));
            assert!(moved < 0.15, "{count}: {moved}");
        }
    }

    #[test]
    fn the_table_is_that_of_all_versions() {
        let table = fill(&equal(3));
        let first: Vec<u16> = table.iter().take(24).copied().collect();
        assert_eq!(first, [2, 0, 2, 0, 1, 2, 2, 0, 0, 0, 1, 0, 2, 0, 0, 1, 1, 1, 2, 0, 2, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn each_bucket_has_a_node(
            weights in prop::collection::btree_map(0_u32..200, 1_u16..=100, 1..20),
        ) {
            let members = set(weights);
            let table = fill(&members);
            prop_assert_eq!(table.len(), usize::from(BUCKETS));
            let shares = shares(&members);
            prop_assert_eq!(shares.iter().sum::<u16>(), BUCKETS);
        }
    }
}
