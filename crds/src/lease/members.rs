//! The nodes that packets for the addresses of a claim are spread over.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::names::NodeName;

/// The most changes that a claim names.
pub const CHANGES: usize = 16;

/// The largest weight of a node.
pub const MAX_WEIGHT: u16 = 100;

/// A set of nodes, each with its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members(BTreeMap<NodeName, u16>);

impl Members {
    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nodes with their weights.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeName, u16)> {
        self.0.iter().map(|(node, weight)| (node, *weight))
    }

    /// The weight of a node; 0 if it is not in the set.
    pub fn weight(&self, node: &NodeName) -> u16 {
        self.0.get(node).copied().unwrap_or(0)
    }

    /// The nodes that the predicate holds for.
    #[must_use]
    pub fn filtered(&self, such: impl Fn(&NodeName) -> bool) -> Self {
        self.iter().filter(|(node, _)| such(node)).map(|(node, it)| (node.clone(), it)).collect()
    }

    /// The change that turns this set back into `before`.
    pub fn change_back_to(&self, before: &Self) -> MemberChange {
        let differing = before.iter().filter(|(node, weight)| self.weight(node) != *weight);
        let gone = self.0.keys().filter(|node| before.weight(node) == 0);
        let weights = differing.map(|(node, weight)| (node.clone(), weight));
        MemberChange(weights.chain(gone.map(|node| (node.clone(), 0))).collect())
    }

    /// The set before each of these changes, the last one first.
    pub fn before<'a>(&self, changes: &'a [MemberChange]) -> impl Iterator<Item = Self> + 'a {
        let mut set = self.clone();
        changes.iter().map(move |MemberChange(change)| {
            for (node, weight) in change {
                if *weight == 0 {
                    set.0.remove(node);
                } else {
                    set.0.insert(node.clone(), *weight);
                }
            }
            set.clone()
        })
    }
}

impl FromIterator<(NodeName, u16)> for Members {
    fn from_iter<T: IntoIterator<Item = (NodeName, u16)>>(members: T) -> Self {
        let members = members.into_iter().filter(|(_, weight)| *weight > 0);
        Self(members.map(|(node, weight)| (node, weight.min(MAX_WEIGHT))).collect())
    }
}

/// A change of a set of nodes: the weight before of each node whose weight it changed, 0 of one that it added.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberChange(BTreeMap<NodeName, u16>);

/// A node and its weight, as a list in an annotation has it: `node` stands for `node=1`.
pub(super) struct Weighted(pub(super) NodeName, pub(super) u16);

impl fmt::Display for Weighted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            1 => write!(f, "{}", self.0),
            weight => write!(f, "{}={weight}", self.0),
        }
    }
}

impl FromStr for Weighted {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (node, weight) = text.split_once('=').unwrap_or((text, "1"));
        let weight = weight.parse().map_err(|_| ())?;
        Ok(Self(node.parse().map_err(|_| ())?, weight))
            .and_then(|it| if it.1 <= MAX_WEIGHT { Ok(it) } else { Err(()) })
    }
}

impl fmt::Display for MemberChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, weight)) in self.0.iter().enumerate() {
            let separator = if index > 0 { " " } else { "" };
            write!(f, "{separator}{}", Weighted(node.clone(), *weight))?;
        }
        Ok(())
    }
}

impl FromStr for MemberChange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let weights = text.split(' ').map(|item| {
            let Weighted(node, weight) = item.parse()?;
            Ok((node, weight))
        });
        weights.collect::<Result<_, ()>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Members {
        let items = text.split(',').filter(|item| !item.is_empty());
        items.map(|item| item.parse().unwrap()).map(|Weighted(node, it)| (node, it)).collect()
    }

    #[test]
    fn a_change_leads_back() {
        for (before, after, text) in [
            ("n1,n2", "n1,n2,n3", "n3=0"),
            ("n1,n2,n3", "n1,n3", "n2"),
            ("n1=2,n2", "n1,n2=3", "n1=2 n2"),
            ("n1", "n2,n3", "n1 n2=0 n3=0"),
        ] {
            let (before, after) = (members(before), members(after));
            let change = after.change_back_to(&before);
            assert_eq!(change.to_string(), text);
            assert_eq!(text.parse(), Ok(change.clone()));
            assert_eq!(after.before(&[change]).collect::<Vec<_>>(), [before]);
        }
    }

    #[test]
    fn changes_are_followed_the_last_one_first() {
        let changes = ["n4=0", "n3 n4", "n1=2"].map(|text| text.parse().unwrap());
        let sets: Vec<_> = members("n1,n4").before(&changes).collect();
        assert_eq!(sets, ["n1", "n1,n3,n4", "n1=2,n3,n4"].map(members));
    }

    #[test]
    fn a_change_that_cannot_be_read_is_none() {
        for text in ["", "n1=x", "n1=101", "n1  n2", "N_1"] {
            assert_eq!(text.parse::<MemberChange>(), Err(()), "{text}");
        }
    }
}
