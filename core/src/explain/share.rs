//! The shares of nodes in the clients of a claim that is spread.

use std::cmp::Reverse;
use std::fmt;

use leasehold_crds::lease::Members;
use leasehold_crds::names::NodeName;
use serde::Serialize;

use crate::election::{BUCKETS, shares};

/// The share of a node in the buckets of a claim, while all nodes of its set live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// The node.
    pub node: NodeName,
    /// Its weight.
    pub weight: u16,
    /// The number of its buckets, of [`BUCKETS`].
    pub buckets: u16,
    /// The same in whole percents, which add up to 100 over all nodes.
    pub percent: u16,
}

impl Share {
    /// The shares of the nodes of a set, in the order of their names.
    pub fn of(members: &Members) -> Vec<Self> {
        let buckets = u32::from(BUCKETS);
        let share = |(node, share): (NodeName, u16)| {
            let hundredfold = u32::from(share) * 100;
            let percent = u16::try_from(hundredfold / buckets).unwrap_or(100);
            let weight = members.weight(&node);
            (Self { node, weight, buckets: share, percent }, hundredfold % buckets)
        };
        let mut shares: Vec<(Self, u32)> = shares(members).into_iter().map(share).collect();
        let whole: u16 = shares.iter().map(|(share, _)| share.percent).sum();
        let missing = usize::from(100_u16.saturating_sub(whole));
        // The method of the largest remainder; the first by name of equal ones.
        shares.sort_by_key(|(_, remainder)| Reverse(*remainder));
        for (share, _) in shares.iter_mut().take(missing) {
            share.percent += 1;
        }
        let mut shares: Vec<Self> = shares.into_iter().map(|(share, _)| share).collect();
        shares.sort_by(|one, other| one.node.cmp(&other.node));
        shares
    }

    /// Shares as a list in words; empty without any.
    pub fn listed(shares: &[Self]) -> String {
        shares.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} %", self.node, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::explain;

    fn set(nodes: impl IntoIterator<Item = (u32, u16)>) -> Members {
        let name = |number| format!("node-{number}").parse().unwrap();
        nodes.into_iter().map(|(number, weight)| (name(number), weight)).collect()
    }

    #[test]
    fn shares_in_words_are_whole_percents_by_name() {
        let rows: [(&[(u32, u16)], &str); 5] = [
            (&[], ""),
            (&[(1, 1)], "node-1 100 %"),
            (&[(1, 1), (2, 1), (3, 1)], "node-1 34 %, node-2 33 %, node-3 33 %"),
            (&[(1, 1), (2, 3)], "node-1 25 %, node-2 75 %"),
            (
                &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)],
                "node-1 17 %, node-2 17 %, node-3 17 %, node-4 17 %, node-5 16 %, node-6 16 %",
            ),
        ];
        for (nodes, words) in rows {
            assert_eq!(explain::shares(&set(nodes.iter().copied())), words);
        }
    }

    #[test]
    fn the_largest_remainder_is_rounded_up_wherever_it_stands() {
        let shares = Share::of(&set([(1, 3), (2, 2), (3, 1)]));
        let all: Vec<_> =
            shares.iter().map(|it| (it.node.as_str(), it.weight, it.buckets, it.percent)).collect();
        let expected = [("node-1", 3, 511, 50), ("node-2", 2, 340, 33), ("node-3", 1, 170, 17)];
        assert_eq!(all, expected);
    }

    proptest! {
        #[test]
        fn percents_add_up_and_are_within_one_of_the_share(
            nodes in proptest::collection::btree_map(0_u32..300, 1_u16..20, 1..150),
        ) {
            let shares = Share::of(&set(nodes));
            prop_assert_eq!(shares.iter().map(|share| share.percent).sum::<u16>(), 100);
            prop_assert!(shares.is_sorted_by_key(|share| &share.node));
            for share in &shares {
                let exact = f64::from(share.buckets) * 100.0 / f64::from(BUCKETS);
                prop_assert!((exact - f64::from(share.percent)).abs() < 1.0, "{:?}", share);
            }
        }
    }
}
