//! The change after which the table protects the addresses of this node.
//!
//! * An address is protected while it is served or left in the kernel, unless its policy says
//!   otherwise.
//! * What the cluster's objects do not say, because they are not known yet or its Service is gone,
//!   the table remembers: its ports stay as they are.
//! * A protected address has a lifetime of its own, far longer than the address on the interface: what
//!   a speaker that never comes back has left ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::desired::{Reach, ServicePort};

/// Lifetime of the protection of an address, unless it is renewed.
pub const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// It is renewed when this is left. No address on an interface has a longer lifetime.
pub const RENEWAL: Duration = Duration::from_secs(10 * 60);

/// The elements of the table, as they are or as they should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elements {
    /// The protected addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The ports of these addresses that may be reached.
    pub ports: BTreeSet<(IpAddr, ServicePort)>,
}

impl Elements {
    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }
}

/// The table as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether all but its elements is as this version makes it.
    pub intact: bool,
    /// The protected addresses, and for how much longer.
    pub addresses: BTreeMap<IpAddr, Duration>,
    /// The ports of these addresses that may be reached.
    pub ports: BTreeSet<(IpAddr, ServicePort)>,
}

impl Table {
    /// The elements of the table.
    pub fn elements(&self) -> Elements {
        Elements { addresses: self.addresses.keys().copied().collect(), ports: self.ports.clone() }
    }

    /// Shortens the lifetimes by the time that has passed.
    pub fn age(&mut self, passed: Duration) {
        for left in self.addresses.values_mut() {
            *left = left.saturating_sub(passed);
        }
    }

    fn add(&mut self, elements: &Elements) {
        self.addresses.extend(elements.addresses.iter().map(|ip| (*ip, LIFETIME)));
        self.ports.extend(&elements.ports);
    }
}

/// A change of the table, done as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Delete it.
    Delete,
    /// Make it anew, whatever there is, with these elements.
    Replace(Elements),
    /// Change its elements: what is in both is renewed.
    Update {
        /// The elements to remove.
        remove: Elements,
        /// The elements to add or renew.
        add: Elements,
    },
}

impl Change {
    /// The table after the change.
    pub fn applied_to(&self, table: Option<Table>) -> Option<Table> {
        match self {
            Self::Delete => None,
            Self::Replace(elements) => {
                let mut table = Table { intact: true, ..Table::default() };
                table.add(elements);
                Some(table)
            }
            Self::Update { remove, add } => table.map(|mut table| {
                table.addresses.retain(|ip, _| !remove.addresses.contains(ip));
                table.ports.retain(|port| !remove.ports.contains(port));
                table.add(add);
                table
            }),
        }
    }
}

/// The change to make now, and the time of the next plan if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The change, if one is needed.
    pub change: Option<Change>,
    /// Without a change: the time during which nothing has to be renewed.
    pub rest: Option<Duration>,
}

/// The elements that protect `addresses`, the served ones and those left in the kernel. `reach` is the state of
/// the cluster's objects, once it is known.
pub fn wanted(
    addresses: &BTreeSet<IpAddr>,
    reach: Option<&BTreeMap<IpAddr, Reach>>,
    table: Option<&Table>,
) -> Elements {
    let mut wanted = Elements::default();
    let mut remembered = BTreeSet::new();
    for ip in addresses {
        match reach.and_then(|reach| reach.get(ip)) {
            Some(Reach::Only(ports)) => {
                wanted.addresses.insert(*ip);
                wanted.ports.extend(ports.iter().map(|port| (*ip, *port)));
            }
            None if table.is_some_and(|table| table.addresses.contains_key(ip)) => {
                remembered.insert(*ip);
            }
            Some(Reach::Everything) | None => {}
        }
    }
    let ports = table.iter().flat_map(|table| &table.ports);
    wanted.ports.extend(ports.filter(|(ip, _)| remembered.contains(ip)));
    wanted.addresses.extend(remembered);
    wanted
}

/// Compares what is wanted with what is there.
pub fn plan(wanted: &Elements, table: Option<&Table>) -> Plan {
    let change = |change| Plan { change: Some(change), rest: None };
    let table = match table {
        None if wanted.is_empty() => return Plan::default(),
        Some(_) if wanted.is_empty() => return change(Change::Delete),
        Some(table) if table.intact => table,
        Some(_) | None => return change(Change::Replace(wanted.clone())),
    };
    let mut update = (Elements::default(), Elements::default());
    let (remove, add) = (&mut update.0, &mut update.1);
    let mut rest: Option<Duration> = None;
    for (ip, left) in &table.addresses {
        let stays = wanted.addresses.contains(ip);
        let due = *left <= RENEWAL;
        if !stays || due {
            remove.addresses.insert(*ip);
        }
        if stays && due {
            add.addresses.insert(*ip);
        }
        let left = left.saturating_sub(RENEWAL);
        rest = Some(rest.map_or(left, |rest| rest.min(left)));
    }
    let missing = wanted.addresses.iter().filter(|ip| !table.addresses.contains_key(ip));
    add.addresses.extend(missing);
    remove.ports.extend(table.ports.difference(&wanted.ports));
    add.ports.extend(wanted.ports.difference(&table.ports));
    let (remove, add) = update;
    if remove.is_empty() && add.is_empty() {
        Plan { change: None, rest }
    } else {
        change(Change::Update { remove, add })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use leasehold_core::desired::Protocol;

    const FRESH: Duration = LIFETIME;
    const DUE: Duration = Duration::from_secs(599);

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn tcp(port: u16) -> ServicePort {
        ServicePort { protocol: Protocol::Tcp, port }
    }

    fn elements(addresses: &[u8], ports: &[(u8, u16)]) -> Elements {
        Elements {
            addresses: addresses.iter().map(|last| ip(*last)).collect(),
            ports: ports.iter().map(|(last, port)| (ip(*last), tcp(*port))).collect(),
        }
    }

    fn table(addresses: &[(u8, Duration)], ports: &[(u8, u16)]) -> Table {
        let of = |(last, left): &(u8, Duration)| (ip(*last), *left);
        Table {
            intact: true,
            addresses: addresses.iter().map(of).collect(),
            ports: elements(&[], ports).ports,
        }
    }

    fn reach(rows: &[(u8, Option<&[u16]>)]) -> BTreeMap<IpAddr, Reach> {
        let of =
            |ports: &[u16]| Reach::Only(Arc::new(ports.iter().map(|port| tcp(*port)).collect()));
        rows.iter().map(|(last, ports)| (ip(*last), ports.map_or(Reach::Everything, of))).collect()
    }

    #[test]
    fn an_address_is_protected_by_what_the_cluster_says_or_else_as_the_table_remembers() {
        let known = reach(&[(1, Some(&[80])), (2, None), (9, Some(&[443]))]);
        let remembered =
            table(&[(1, FRESH), (2, FRESH), (3, FRESH)], &[(1, 8080), (3, 53), (4, 1)]);
        let all: BTreeSet<IpAddr> = (1..=4).map(ip).collect();
        for (name, reach, table, expected) in [
            ("nothing is known", None, None, elements(&[], &[])),
            (
                "the cluster is not known yet",
                None,
                Some(&remembered),
                elements(&[1, 2, 3], &[(1, 8080), (3, 53)]),
            ),
            ("without a table", Some(&known), None, elements(&[1], &[(1, 80)])),
            (
                "both: the service of the third is gone, nobody knows of the fourth",
                Some(&known),
                Some(&remembered),
                elements(&[1, 3], &[(1, 80), (3, 53)]),
            ),
        ] {
            assert_eq!(wanted(&all, reach, table), expected, "{name}");
        }
        assert_eq!(wanted(&BTreeSet::new(), Some(&known), Some(&remembered)), Elements::default());
    }

    #[test]
    fn rows() {
        let (one, two) = (elements(&[1], &[(1, 80)]), elements(&[1, 2], &[(1, 80), (2, 53)]));
        let none = Elements::default();
        let fresh = table(&[(1, FRESH)], &[(1, 80)]);
        let broken = Table { intact: false, ..fresh.clone() };
        let update = |remove: &Elements, add: &Elements| {
            Some(Change::Update { remove: remove.clone(), add: add.clone() })
        };
        for (name, wanted, table, expected) in [
            ("nothing to protect", &none, None, None),
            ("the first address", &one, None, Some(Change::Replace(one.clone()))),
            ("as it should be", &one, Some(fresh.clone()), None),
            (
                "another address",
                &two,
                Some(fresh.clone()),
                update(&none, &elements(&[2], &[(2, 53)])),
            ),
            ("another port", &elements(&[1], &[(1, 443)]), Some(fresh.clone()), {
                update(&elements(&[], &[(1, 80)]), &elements(&[], &[(1, 443)]))
            }),
            (
                "an address less",
                &one,
                Some(table(&[(1, FRESH), (2, FRESH)], &[(1, 80), (2, 53), (2, 54)])),
                update(&elements(&[2], &[(2, 53), (2, 54)]), &none),
            ),
            ("the last address", &none, Some(fresh), Some(Change::Delete)),
            ("changed by somebody", &one, Some(broken.clone()), Some(Change::Replace(one.clone()))),
            ("changed by somebody, and not needed", &none, Some(broken), Some(Change::Delete)),
            (
                "due",
                &two,
                Some(table(&[(1, DUE), (2, FRESH)], &[(1, 80), (2, 53)])),
                update(&elements(&[1], &[]), &elements(&[1], &[])),
            ),
            (
                "ports of an address whose protection has run out",
                &two,
                Some(table(&[(1, FRESH)], &[(1, 80), (2, 53), (2, 99)])),
                update(&elements(&[], &[(2, 99)]), &elements(&[2], &[])),
            ),
        ] {
            assert_eq!(plan(wanted, table.as_ref()).change, expected, "{name}");
        }
        let two_left =
            table(&[(1, FRESH), (2, RENEWAL + Duration::from_secs(7))], &[(1, 80), (2, 53)]);
        assert_eq!(plan(&two, Some(&two_left)).rest, Some(Duration::from_secs(7)));
    }

    /// The kernel refuses to remove what is not there.
    fn carry_out(table: Option<Table>, change: &Change) -> Option<Table> {
        if let Change::Update { remove, .. } = change {
            let table = table.as_ref().unwrap();
            for ip in &remove.addresses {
                assert!(table.addresses.contains_key(ip), "{ip} is not there to be removed");
            }
            for port in &remove.ports {
                assert!(table.ports.contains(port), "{port:?} is not there to be removed");
            }
        }
        change.applied_to(table)
    }

    prop_compose! {
        fn some_table()(
            intact: bool,
            addresses in prop::collection::btree_map(0_u8..6, 0_u64..1_200, 0..6),
            ports in prop::collection::btree_set((0_u8..6, 80_u16..83), 0..8),
        ) -> Table {
            let addresses: Vec<_> =
                addresses.iter().map(|(last, left)| (*last, Duration::from_secs(*left))).collect();
            Table { intact, ..table(&addresses, &ports.into_iter().collect::<Vec<_>>()) }
        }
    }

    prop_compose! {
        fn some_elements()(
            ports in prop::collection::btree_map(
                0_u8..6, prop::collection::btree_set(80_u16..83, 0..3), 0..6,
            ),
        ) -> Elements {
            let addresses: Vec<u8> = ports.keys().copied().collect();
            let ports = ports.iter().flat_map(|(last, ports)| ports.iter().map(|port| (*last, *port)));
            elements(&addresses, &ports.collect::<Vec<_>>())
        }
    }

    #[test]
    fn what_is_done_again_lives_anew_and_the_rest_grows_old() {
        let known = table(&[(1, DUE), (2, FRESH), (3, FRESH)], &[(1, 80), (2, 53), (3, 99)]);
        let (remove, add) = (elements(&[1, 3], &[(3, 99)]), elements(&[1, 4], &[(4, 81)]));
        let mut after = Change::Update { remove, add }.applied_to(Some(known)).unwrap();
        after.age(Duration::from_secs(60));
        let left = FRESH.saturating_sub(Duration::from_secs(60));
        assert_eq!(after, table(&[(1, left), (2, left), (4, left)], &[(1, 80), (2, 53), (4, 81)]));
        after.age(LIFETIME);
        assert!(after.addresses.values().all(Duration::is_zero));
    }

    proptest! {
        #[test]
        fn one_change_is_enough(
            table in prop::option::of(some_table()), wanted in some_elements(),
        ) {
            let protected = |table: &Option<Table>, ip: &IpAddr| {
                table.as_ref().is_some_and(|table| table.addresses.contains_key(ip))
            };
            let after = match plan(&wanted, table.as_ref()).change {
                Some(change) => carry_out(table.clone(), &change),
                None => table.clone(),
            };
            prop_assert_eq!(plan(&wanted, after.as_ref()).change, None);
            let held = after.as_ref().map(Table::elements).unwrap_or_default();
            prop_assert_eq!(&held, &wanted);
            for ip in &wanted.addresses {
                prop_assert!(protected(&after, ip));
            }
            let soon = after.iter().flat_map(|table| table.addresses.values());
            prop_assert!(soon.min().is_none_or(|left| *left > RENEWAL));
        }
    }
}
