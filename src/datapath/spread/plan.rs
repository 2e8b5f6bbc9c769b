//! The change after which a table spreads what is to be spread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_core::desired::Port;
use leasehold_core::election::{Layout, Spreading};
use leasehold_crds::names::InterfaceName;
use netlink_packet_netfilter::NetfilterProtoFamily;
use pnet_base::MacAddr;

use crate::datapath::spread::chains::{Chain, Key, Reading};
use crate::datapath::tables::difference;
use crate::net::nft::family::Family;
use crate::net::rtnl::links::Links;

/// One of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// That for what comes in by a device.
    Ingress,
    /// That for packets of a family on their way through this node.
    Routing(Family),
}

impl Place {
    /// All of them, in the order in which they are brought in line.
    pub const ALL: [Self; 3] =
        [Self::Routing(Family::V4), Self::Routing(Family::V6), Self::Ingress];

    /// The family of the table.
    pub const fn tables(self) -> NetfilterProtoFamily {
        match self {
            Self::Ingress => NetfilterProtoFamily::NetDev,
            Self::Routing(family) => family.tables(),
        }
    }

    /// The families of its packets.
    pub fn families(self) -> impl Iterator<Item = Family> {
        let its = move |family: &Family| self == Self::Ingress || self == Self::Routing(*family);
        Family::ALL.into_iter().filter(its)
    }
}

/// The content of a table, as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The base chains of devices, by their name.
    pub devices: BTreeMap<String, InterfaceName>,
    /// The chains that decide by the bucket.
    pub chains: BTreeMap<String, Arc<Chain>>,
    /// The elements of sets and maps.
    pub elements: Elements,
}

/// The elements of the sets and maps of a table: all of them, or some to be added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elements {
    /// The other speakers.
    pub speakers: BTreeSet<MacAddr>,
    /// The addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Their ports.
    pub ports: BTreeSet<Port>,
    /// The chains for what clients send to an address by the interface with an index.
    pub dispatched: BTreeMap<(IpAddr, u32), String>,
    /// The chains for what is not known here.
    pub chances: BTreeMap<IpAddr, String>,
}

/// The name of the base chain of the device with this index.
fn device_chain(index: u32) -> String {
    format!("{DEVICE}{index}")
}

/// The beginning of the names of base chains of devices.
pub const DEVICE: &str = "ingress-";

impl Content {
    /// The content that `spreading` asks for in the table at `place`. Nothing is dispatched by an interface that does not
    /// exist.
    pub fn of(place: Place, spreading: &Spreading, links: &Links) -> Self {
        let mut content = Self::default();
        let mut chains = Chains::default();
        for (ip, address) in &spreading.addresses {
            let family = Family::of(*ip);
            if !place.families().any(|its| its == family) {
                continue;
            }
            let key = Key { family, by_client: address.by_client };
            let reading = Reading { key, layout: &address.layout, links };
            let device = address.interface.as_ref().and_then(|name| links.get(name));
            let elements = &mut content.elements;
            if let Some(device) = device {
                let name = chains.named(&reading, Kind::Dispatch);
                elements.dispatched.insert((*ip, device.index), name);
                if place == Place::Ingress {
                    content.devices.insert(device_chain(device.index), device.name.clone());
                }
            }
            if matches!(place, Place::Routing(_)) {
                let kind = Kind::Chance(device.map(|device| device.index));
                elements.chances.insert(*ip, chains.named(&reading, kind));
                elements.addresses.insert(*ip);
            }
            if device.is_some() || matches!(place, Place::Routing(_)) {
                elements.ports.extend(address.ports.iter().map(|port| (*ip, *port)));
            }
        }
        content.chains = chains.made;
        if !content.is_empty() {
            content.elements.speakers.clone_from(&spreading.speakers);
        }
        content
    }

    /// Whether there is to be no table.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }
}

/// A kind of chain of a layout; the second chance also of what clients send by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Dispatch,
    Chance(Option<u32>),
}

/// Chains, made once for each layout that addresses share.
#[derive(Debug, Default)]
struct Chains {
    names: BTreeMap<(*const Layout, Key, Kind), String>,
    made: BTreeMap<String, Arc<Chain>>,
}

impl Chains {
    fn named(&mut self, reading: &Reading<'_>, kind: Kind) -> String {
        let of = (std::ptr::from_ref(reading.layout), reading.key, kind);
        if let Some(name) = self.names.get(&of) {
            return name.clone();
        }
        let chain = match kind {
            Kind::Dispatch => reading.dispatch(),
            Kind::Chance(interface) => reading.chance(interface),
        };
        let name = chain.name();
        self.names.insert(of, name.clone());
        self.made.entry(name.clone()).or_insert_with(|| Arc::new(chain));
        name
    }
}

/// A table as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether all but its content is as this version makes it.
    pub intact: bool,
    /// The base chains of devices, each with its device if it is hooked there as it should be.
    pub devices: BTreeMap<String, Option<InterfaceName>>,
    /// The chains that decide by the bucket, each with the mark of its rules.
    pub chains: BTreeMap<String, u64>,
    /// The names of the sets of such chains.
    pub sets: BTreeSet<String>,
    /// The elements of the other sets.
    pub elements: Elements,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Delete it.
    Delete,
    /// Make it anew, whatever there is, with this content.
    Replace(Content),
    /// Change its content.
    Update {
        /// The content to remove.
        remove: Removal,
        /// The content to add.
        add: Content,
    },
}

/// Content to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The names of base chains of devices.
    pub devices: BTreeSet<String>,
    /// The names of chains that decide by the bucket.
    pub chains: BTreeSet<String>,
    /// The names of their sets.
    pub sets: BTreeSet<String>,
    /// Elements.
    pub elements: Elements,
}

/// Compares what is wanted with what is there. `marks` has the mark that the rules of a chain should have, and its sets.
pub fn plan(
    wanted: &Content,
    table: Option<&Table>,
    marks: impl Fn(&str, &Chain) -> (u64, BTreeSet<String>),
) -> Option<Change> {
    let table = match table {
        None if wanted.is_empty() => return None,
        Some(_) if wanted.is_empty() => return Some(Change::Delete),
        Some(table) if table.intact => table,
        Some(_) | None => return Some(Change::Replace(wanted.clone())),
    };
    let (mut remove, mut add) = (Removal::default(), Content::default());
    let mut sets = BTreeSet::new();
    for (name, chain) in &wanted.chains {
        let (mark, its) = marks(name, chain);
        match table.chains.get(name) {
            Some(known) if *known != mark || !its.is_subset(&table.sets) => {
                return Some(Change::Replace(wanted.clone()));
            }
            // Another process has removed the chain and left its sets.
            None if !its.is_disjoint(&table.sets) => {
                return Some(Change::Replace(wanted.clone()));
            }
            Some(_) => sets.extend(its),
            None => drop(add.chains.insert(name.clone(), Arc::clone(chain))),
        }
    }
    let superfluous = table.chains.keys().filter(|name| !wanted.chains.contains_key(*name));
    remove.chains.extend(superfluous.cloned());
    remove.sets = table.sets.difference(&sets).cloned().collect();
    for (name, device) in &table.devices {
        if wanted.devices.get(name) != device.as_ref() {
            remove.devices.insert(name.clone());
        }
    }
    for (name, device) in &wanted.devices {
        if table.devices.get(name).and_then(Option::as_ref) != Some(device) {
            add.devices.insert(name.clone(), device.clone());
        }
    }
    (remove.elements, add.elements) = table.elements.until(&wanted.elements);
    let nothing = remove == Removal::default() && add == Content::default();
    (!nothing).then_some(Change::Update { remove, add })
}

impl Elements {
    /// The elements to remove so that this becomes `wanted`, and those to add then: one that has changed is in both.
    fn until(&self, wanted: &Self) -> (Self, Self) {
        let (mut remove, mut add) = (Self::default(), Self::default());
        let sets = |one: &Self, other: &Self, beyond: &mut Self| {
            beyond.speakers = one.speakers.difference(&other.speakers).copied().collect();
            beyond.addresses = one.addresses.difference(&other.addresses).copied().collect();
            beyond.ports = one.ports.difference(&other.ports).copied().collect();
        };
        sets(self, wanted, &mut remove);
        sets(wanted, self, &mut add);
        let same = |one: &String, other: &String| one == other;
        (remove.dispatched, add.dispatched) =
            difference(&self.dispatched, &wanted.dispatched, same);
        (remove.chances, add.chances) = difference(&self.chances, &wanted.chances, same);
        (remove, add)
    }
}

#[cfg(test)]
pub(super) mod testing {
    use leasehold_core::election::{BUCKETS, Hop, Member, Order, SpreadAddress, Way};

    use super::*;

    pub fn mac(last: u8) -> MacAddr {
        MacAddr::new(2, 0, 0, 0, 0, last)
    }

    pub fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    pub fn spreading(rows: impl IntoIterator<Item = (IpAddr, SpreadAddress)>) -> Spreading {
        Spreading {
            addresses: rows.into_iter().collect(),
            speakers: [mac(9)].into(),
            ..Spreading::default()
        }
    }

    pub fn name(number: u8) -> InterfaceName {
        format!("eth{number}").parse().unwrap()
    }

    pub fn hop(host: u8, interface: u8) -> Hop {
        Hop { to: IpAddr::from([192, 0, 2, host]), interface: name(interface) }
    }

    /// Members with these ways, whose MAC addresses end with their positions; the orders of the first buckets.
    pub fn layout(ways: &[Way], orders: &[&[u16]]) -> Layout {
        let member =
            |(last, way): (u8, &Way)| Member { macs: [mac(last)].into(), way: way.clone() };
        let members = (0..).zip(ways).map(member).collect();
        let mut buckets: Vec<Order> =
            orders.iter().map(|order| Order::of(order.iter().copied())).collect();
        buckets.resize(usize::from(BUCKETS), Order::default());
        Layout { members, owner: Some(0), buckets: buckets.into() }
    }

    pub fn address(interface: Option<u8>, layout: &Arc<Layout>) -> SpreadAddress {
        let port = leasehold_core::desired::ServicePort {
            protocol: leasehold_core::desired::Protocol::Tcp,
            port: 80,
        };
        SpreadAddress {
            ports: Arc::new([port].into()),
            by_client: false,
            interface: interface.map(name),
            returns: None,
            layout: Arc::clone(layout),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::{SpreadAddress, Way};
    use proptest::prelude::*;

    use super::testing::{address, hop, ip, layout, mac, name, spreading};
    use super::*;
    use crate::net::rtnl::links::testing::links;

    /// The mark and the sets of a chain, as if it had one set.
    fn marks(name: &str, _: &Chain) -> (u64, BTreeSet<String>) {
        (7, [format!("{name}-set")].into())
    }

    fn ways() -> [Way; 2] {
        [Way::Here, Way::To(hop(12, 1))]
    }

    #[test]
    fn each_address_is_in_the_tables_of_its_family_and_in_that_of_devices_where_it_is_announced() {
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let shared = Arc::new(layout(&ways(), &[&[0], &[1]]));
        let by_client = SpreadAddress { by_client: true, ..address(Some(1), &shared) };
        let all = spreading([
            (ip(1), address(Some(1), &shared)),
            (ip(2), address(Some(1), &shared)),
            (ip(3), by_client),
            (ip(4), address(None, &shared)),
            (ip(5), address(Some(3), &shared)),
            (six, address(Some(2), &shared)),
        ]);
        let of = |place| Content::of(place, &all, &links([1, 2]));
        let devices = of(Place::Ingress);
        let names = [("ingress-10".to_owned(), name(1)), ("ingress-20".to_owned(), name(2))];
        assert_eq!(devices.devices, names.into());
        let its: Vec<_> = devices.elements.dispatched.keys().copied().collect();
        assert_eq!(its, [(ip(1), 10), (ip(2), 10), (ip(3), 10), (six, 20)], "eth3 is not there");
        assert_eq!(devices.chains.len(), 3, "one for addresses with the same layout");
        assert_eq!(devices.elements.ports.len(), 4);
        assert_eq!(devices.elements.chances, [].into());

        let four = of(Place::Routing(Family::V4));
        assert_eq!(four.devices, [].into());
        assert_eq!(four.elements.dispatched.len(), 3);
        let five = [1, 2, 3, 4, 5].map(ip);
        assert_eq!(four.elements.addresses, five.into());
        assert!(four.elements.chances.keys().eq(&five));
        assert_eq!(four.elements.ports.len(), 5, "also of what is not dispatched here");
        assert_eq!(four.elements.speakers, [mac(9)].into());
        assert_eq!(of(Place::Routing(Family::V6)).elements.addresses, [six].into());
        let none = Content::of(Place::Ingress, &all, &links([]));
        assert_eq!(none, Content::default(), "no interface is there");
    }

    #[test]
    fn a_table_is_there_while_there_is_something_to_spread() {
        let none = Content::default();
        let shared = Arc::new(layout(&ways(), &[&[0], &[1]]));
        let all = spreading([(ip(1), address(Some(1), &shared))]);
        let one = Content::of(Place::Ingress, &all, &links([1]));
        let table = carry_out(None, &Change::Replace(one.clone())).unwrap();
        let broken = Table { intact: false, ..table.clone() };
        let chain = one.chains.keys().next().unwrap().clone();
        let other = Table { chains: [(chain.clone(), 8)].into(), ..table.clone() };
        let bare = Table { sets: BTreeSet::new(), ..table.clone() };
        let unused = Table { chains: BTreeMap::new(), ..table.clone() };
        let replaced = Some(Change::Replace(one.clone()));
        for (name, wanted, table, expected) in [
            ("nothing", &none, None, None),
            ("the first", &one, None, replaced.clone()),
            ("no change", &one, Some(&table), None),
            ("the last is gone", &none, Some(&table), Some(Change::Delete)),
            ("of another version", &one, Some(&broken), replaced.clone()),
            ("and gone", &none, Some(&broken), Some(Change::Delete)),
            ("a chain has other rules", &one, Some(&other), replaced.clone()),
            ("a chain has no set", &one, Some(&bare), replaced.clone()),
            ("a set has no chain", &one, Some(&unused), replaced),
        ] {
            assert_eq!(plan(wanted, table, marks), expected, "{name}");
        }
    }

    #[test]
    fn a_base_chain_that_is_not_on_its_device_is_made_anew() {
        let shared = Arc::new(layout(&ways(), &[&[0], &[1]]));
        let all = spreading([(ip(1), address(Some(1), &shared))]);
        let one = Content::of(Place::Ingress, &all, &links([1]));
        let mut table = carry_out(None, &Change::Replace(one.clone())).unwrap();
        for device in [None, Some(name(7))] {
            table.devices.insert("ingress-10".to_owned(), device);
            let Some(Change::Update { remove, add }) = plan(&one, Some(&table), marks) else {
                panic!("no update")
            };
            assert_eq!(remove.devices, ["ingress-10".to_owned()].into());
            assert_eq!(add, Content { devices: one.devices.clone(), ..Content::default() });
        }
    }

    #[test]
    fn another_layout_of_an_address_leaves_other_chains_alone() {
        let first = Arc::new(layout(&ways(), &[&[0], &[1]]));
        let second = Arc::new(layout(&ways(), &[&[1], &[1]]));
        let rows = |layout: &Arc<Layout>| {
            let all =
                spreading([(ip(1), address(Some(1), &first)), (ip(2), address(Some(1), layout))]);
            Content::of(Place::Routing(Family::V4), &all, &links([1]))
        };
        let table = carry_out(None, &Change::Replace(rows(&first))).unwrap();
        let Some(Change::Update { remove, add }) = plan(&rows(&second), Some(&table), marks) else {
            panic!("no update")
        };
        assert!(remove.chains.is_empty() && remove.sets.is_empty());
        assert_eq!(add.chains.len(), 2);
        assert!(add.elements.chances.keys().eq([&ip(2)]));
        assert!(add.elements.ports.is_empty() && remove.elements.ports.is_empty());
    }

    /// The kernel refuses to remove what is not there, to add what is, and to remove a chain that something leads to. An update
    /// takes three steps.
    fn carry_out(table: Option<Table>, change: &Change) -> Option<Table> {
        let nothing = Removal::default();
        let (mut table, remove, add) = match change {
            Change::Delete => {
                assert!(table.is_some());
                return None;
            }
            Change::Replace(add) => (Table { intact: true, ..Table::default() }, &nothing, add),
            Change::Update { remove, add } => (table.unwrap(), remove, add),
        };
        for (name, chain) in &add.chains {
            let (mark, sets) = marks(name, chain);
            assert_eq!(table.chains.insert(name.clone(), mark), None);
            for set in sets {
                assert!(table.sets.insert(set));
            }
        }

        let (known, gone) = (&mut table.elements, &remove.elements);
        gone.speakers.iter().for_each(|it| assert!(known.speakers.remove(it)));
        gone.addresses.iter().for_each(|it| assert!(known.addresses.remove(it)));
        gone.ports.iter().for_each(|it| assert!(known.ports.remove(it)));
        gone.dispatched.keys().for_each(|it| assert!(known.dispatched.remove(it).is_some()));
        gone.chances.keys().for_each(|it| assert!(known.chances.remove(it).is_some()));
        remove.devices.iter().for_each(|it| assert!(table.devices.remove(it).is_some()));
        for (name, device) in &add.devices {
            assert_eq!(table.devices.insert(name.clone(), Some(device.clone())), None);
        }
        let new = &add.elements;
        new.speakers.iter().for_each(|it| assert!(known.speakers.insert(*it)));
        new.addresses.iter().for_each(|it| assert!(known.addresses.insert(*it)));
        new.ports.iter().for_each(|it| assert!(known.ports.insert(*it)));
        for (of, chain) in &new.dispatched {
            assert!(table.chains.contains_key(chain), "{chain} is not there");
            assert_eq!(known.dispatched.insert(*of, chain.clone()), None);
        }
        for (ip, chain) in &new.chances {
            assert!(table.chains.contains_key(chain), "{chain} is not there");
            assert_eq!(known.chances.insert(*ip, chain.clone()), None);
        }

        for name in &remove.chains {
            let mut leading = known.dispatched.values().chain(known.chances.values());
            assert!(leading.all(|chain| chain != name), "{name} is in use");
            assert!(table.chains.remove(name).is_some());
        }
        remove.sets.iter().for_each(|it| assert!(table.sets.remove(it)));
        Some(table)
    }

    prop_compose! {
        fn some()(
            rows in prop::collection::btree_map(
                0_u8..5, (prop::option::of(1_u8..4), 0_usize..3, any::<bool>()), 0..5,
            ),
            speakers in prop::collection::btree_set(0_u8..3, 0..3),
        ) -> Spreading {
            let layouts: [&[&[u16]]; 3] = [&[&[0]], &[&[1]], &[&[1, 0], &[0, 1]]];
            let layouts = layouts.map(|orders| Arc::new(layout(&ways(), orders)));
            let rows = rows.into_iter().map(|(last, (interface, which, by_client))| {
                (ip(last), SpreadAddress { by_client, ..address(interface, &layouts[which]) })
            });
            let speakers = speakers.into_iter().map(mac).collect();
            Spreading { addresses: rows.collect(), speakers, ..Spreading::default() }
        }
    }

    proptest! {
        #[test]
        fn one_change_is_enough(
            before in some(), after in some(), intact: bool, devices: bool, some_links: bool,
        ) {
            let place = if devices { Place::Ingress } else { Place::Routing(Family::V4) };
            let first = Content::of(place, &before, &links([1, 2]));
            let mut table = plan(&first, None, marks).and_then(|change| carry_out(None, &change));
            if let Some(table) = &mut table {
                table.intact = intact;
            }
            let there = if some_links { &[1, 2][..] } else { &[2, 3] };
            let wanted = Content::of(place, &after, &links(there.iter().copied()));
            let table = match plan(&wanted, table.as_ref(), marks) {
                Some(change) => carry_out(table, &change),
                None => table,
            };
            prop_assert_eq!(plan(&wanted, table.as_ref(), marks), None);
            let table = table.unwrap_or_default();
            prop_assert_eq!(table.elements, wanted.elements);
            prop_assert!(table.chains.keys().eq(wanted.chains.keys()));
            prop_assert!(table.devices.keys().eq(wanted.devices.keys()));
            prop_assert_eq!(table.sets.len(), wanted.chains.len());
        }
    }
}
