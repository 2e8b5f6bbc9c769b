//! A set of a few addresses.

use std::net::IpAddr;

use serde::Serialize;

/// A set of addresses, in order, without room for more: nearly every claim has one or two, and the node of a
/// `BTreeSet` takes a dozen times their size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AddressSet(Box<[IpAddr]>);

impl AddressSet {
    /// The addresses, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, IpAddr> {
        self.0.iter()
    }

    /// The number of addresses.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest.
    pub fn first(&self) -> Option<&IpAddr> {
        self.0.first()
    }

    /// Whether `address` is among them.
    pub fn contains(&self, address: &IpAddr) -> bool {
        self.0.binary_search(address).is_ok()
    }

    /// Whether all are among `others`.
    pub fn is_subset(&self, others: &Self) -> bool {
        self.iter().all(|address| others.contains(address))
    }

    /// Whether none is among `others`.
    pub fn is_disjoint(&self, others: &Self) -> bool {
        self.intersection(others).next().is_none()
    }

    /// Those that are not among `others`.
    pub fn difference<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a IpAddr> {
        self.iter().filter(|address| !others.contains(address))
    }

    /// Those that are among `others`, too.
    pub fn intersection<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a IpAddr> {
        self.iter().filter(|address| others.contains(address))
    }

    /// Keeps those of which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&IpAddr) -> bool) {
        let mut addresses = std::mem::take(&mut self.0).into_vec();
        addresses.retain(|address| keep(address));
        self.0 = addresses.into_boxed_slice();
    }
}

impl FromIterator<IpAddr> for AddressSet {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self(addresses.into_boxed_slice())
    }
}

impl Extend<IpAddr> for AddressSet {
    fn extend<T: IntoIterator<Item = IpAddr>>(&mut self, addresses: T) {
        let known = std::mem::take(&mut self.0);
        *self = known.into_iter().chain(addresses).collect();
    }
}

impl<const COUNT: usize> From<[IpAddr; COUNT]> for AddressSet {
    fn from(addresses: [IpAddr; COUNT]) -> Self {
        addresses.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a AddressSet {
    type Item = &'a IpAddr;
    type IntoIter = std::slice::Iter<'a, IpAddr>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for AddressSet {
    type Item = IpAddr;
    type IntoIter = std::vec::IntoIter<IpAddr>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
        prop::collection::vec((0..6_u8).prop_map(|last| IpAddr::from([192, 0, 2, last])), 0..6)
    }

    proptest! {
        #[test]
        fn it_is_what_a_set_is(one in addresses(), other in addresses()) {
            let sets = |all: &[IpAddr]| -> (AddressSet, BTreeSet<IpAddr>) {
                (all.iter().copied().collect(), all.iter().copied().collect())
            };
            let (mut few, mut set) = sets(&one);
            let (other_few, other_set) = sets(&other);
            prop_assert!(few.iter().eq(set.iter()));
            prop_assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
            prop_assert_eq!(few.first(), set.first());
            prop_assert!(other.iter().all(|ip| few.contains(ip) == set.contains(ip)));
            prop_assert_eq!(few.is_subset(&other_few), set.is_subset(&other_set));
            prop_assert_eq!(few.is_disjoint(&other_few), set.is_disjoint(&other_set));
            prop_assert!(few.difference(&other_few).eq(set.difference(&other_set)));
            prop_assert!(few.intersection(&other_few).eq(set.intersection(&other_set)));
            prop_assert_eq!(few == other_few, set == other_set);
            few.extend(other.iter().copied());
            set.extend(other.iter().copied());
            prop_assert!(few.iter().eq(set.iter()));
            few.retain(|ip| other_few.contains(ip));
            prop_assert_eq!(few, other_few);
        }
    }
}
