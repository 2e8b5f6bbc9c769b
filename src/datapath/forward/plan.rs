//! The change after which a table sends on what is to be sent on.
//!
//! Each element has an end, which the kernel is told once: it is not renewed, and what a speaker that never comes back
//! has left is gone in time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::Forwarding;
use pnet_base::MacAddr;

use crate::datapath::tables::difference;
use crate::net::nft::family::Family;
use crate::net::rtnl::links::Links;

/// The greatest difference between two ends of an element that counts as none: the kernel counts from when it is told.
pub const SLACK: Duration = Duration::from_secs(1);

/// The owner of an address before this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// An address of its own.
    pub to: IpAddr,
    /// The index of the interface on which it is met.
    pub interface: u32,
    /// The end of the forwarding.
    pub until: Instant,
}

/// The elements of the table of a family: all of them, or some to be added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The addresses, each with its end.
    pub addresses: BTreeMap<IpAddr, Instant>,
    /// The addresses that this node has, each with its end.
    pub owned: BTreeMap<IpAddr, Instant>,
    /// The owners before.
    pub former: BTreeMap<IpAddr, Former>,
    /// Those that have owned an address after this node, each with its end.
    pub later: BTreeMap<(IpAddr, MacAddr), Instant>,
    /// Those that have owned it before, and its successor, each with its end.
    pub others: BTreeMap<(IpAddr, MacAddr), Instant>,
    /// The addresses whose noted UDP flows are forwarded, each with its end.
    pub flowing: BTreeMap<IpAddr, Instant>,
    /// The addresses whose unknown UDP flows are those of the owner before, each with its end.
    pub fresh: BTreeMap<IpAddr, Instant>,
    /// The other speakers.
    pub speakers: BTreeSet<MacAddr>,
}

impl Content {
    /// The content that `forwarding` asks for in the table of `family`. No address has an owner before where the
    /// interface on which that is met does not exist.
    pub fn of(family: Family, forwarding: &Forwarding, links: &Links, now: Instant) -> Self {
        let mut content = Self::default();
        let its = forwarding.onward.iter();
        for (ip, onward) in its.filter(|(ip, onward)| family.has(**ip) && now < onward.until) {
            let until = onward.until;
            content.addresses.insert(*ip, until);
            content.owned.extend(onward.owned.then_some((*ip, until)));
            let hop = onward.to.as_ref().filter(|hop| family.has(hop.to));
            let met = hop.and_then(|hop| Some((hop.to, links.get(&hop.interface)?.index)));
            let former = met.map(|(to, interface)| Former { to, interface, until });
            content.former.extend(former.map(|former| (*ip, former)));
            let of = |macs: &BTreeSet<MacAddr>| -> Vec<_> {
                macs.iter().map(|mac| ((*ip, *mac), until)).collect()
            };
            content.later.extend(of(&onward.later));
            content.others.extend(of(&onward.others));
            content.flowing.extend(onward.flows.then_some((*ip, until)));
            let flows = onward.flows_until.map(|flows_until| flows_until.min(until));
            content.fresh.extend(flows.filter(|end| now < *end).map(|end| (*ip, end)));
        }
        if !content.addresses.is_empty() {
            content.speakers.clone_from(&forwarding.speakers);
        }
        content
    }

    /// Drops the elements that have ended.
    pub fn end(&mut self, now: Instant) {
        self.addresses.retain(|_, end| now < *end);
        self.owned.retain(|_, end| now < *end);
        self.former.retain(|_, former| now < former.until);
        self.later.retain(|_, end| now < *end);
        self.others.retain(|_, end| now < *end);
        self.flowing.retain(|_, end| now < *end);
        self.fresh.retain(|_, end| now < *end);
    }

    /// The elements to remove so that this becomes `wanted`, and those to add then: one that has changed is in both.
    fn until(&self, wanted: &Self) -> (Self, Self) {
        let same = |one: &Former, other: &Former| {
            (one.to, one.interface) == (other.to, other.interface)
                && at_once(&one.until, &other.until)
        };
        let (mut remove, mut add) = (Self::default(), Self::default());
        let addresses = difference(&self.addresses, &wanted.addresses, at_once);
        (remove.addresses, add.addresses) = addresses;
        (remove.owned, add.owned) = difference(&self.owned, &wanted.owned, at_once);
        (remove.former, add.former) = difference(&self.former, &wanted.former, same);
        (remove.later, add.later) = difference(&self.later, &wanted.later, at_once);
        (remove.others, add.others) = difference(&self.others, &wanted.others, at_once);
        (remove.flowing, add.flowing) = difference(&self.flowing, &wanted.flowing, at_once);
        (remove.fresh, add.fresh) = difference(&self.fresh, &wanted.fresh, at_once);
        remove.speakers = self.speakers.difference(&wanted.speakers).copied().collect();
        add.speakers = wanted.speakers.difference(&self.speakers).copied().collect();
        (remove, add)
    }

    /// Its elements whose keys are not among those of `removed`, and those that replace one of them.
    pub fn new_and_changed(&self, removed: &Self) -> [Self; 2] {
        let [addresses, changed_addresses] = by_key(&self.addresses, &removed.addresses);
        let [owned, changed_owned] = by_key(&self.owned, &removed.owned);
        let [former, changed_former] = by_key(&self.former, &removed.former);
        let [later, changed_later] = by_key(&self.later, &removed.later);
        let [others, changed_others] = by_key(&self.others, &removed.others);
        let [flowing, changed_flowing] = by_key(&self.flowing, &removed.flowing);
        let [fresh, changed_fresh] = by_key(&self.fresh, &removed.fresh);
        let speakers = self.speakers.clone();
        let new = Self { addresses, owned, former, later, others, flowing, fresh, speakers };
        let changed = Self {
            addresses: changed_addresses,
            owned: changed_owned,
            former: changed_former,
            later: changed_later,
            others: changed_others,
            flowing: changed_flowing,
            fresh: changed_fresh,
            speakers: BTreeSet::new(),
        };
        [new, changed]
    }
}

fn by_key<K: Clone + Ord, V: Clone>(
    all: &BTreeMap<K, V>,
    removed: &BTreeMap<K, V>,
) -> [BTreeMap<K, V>; 2] {
    let (changed, new) = all.clone().into_iter().partition(|(key, _)| removed.contains_key(key));
    [new, changed]
}

/// Whether these ends count as the same.
fn at_once(one: &Instant, other: &Instant) -> bool {
    one.saturating_since(*other).max(other.saturating_since(*one)) <= SLACK
}

/// A table as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether all but its content is as this version makes it.
    pub intact: bool,
    /// Its elements; the flows, which packets add, are not among them.
    pub content: Content,
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
        /// The elements to remove.
        remove: Content,
        /// The elements to add.
        add: Content,
    },
}

/// Compares what is wanted with what is there.
pub fn plan(wanted: &Content, table: Option<&Table>) -> Option<Change> {
    let table = match table {
        None if wanted.addresses.is_empty() => return None,
        Some(_) if wanted.addresses.is_empty() => return Some(Change::Delete),
        Some(table) if table.intact => table,
        Some(_) | None => return Some(Change::Replace(wanted.clone())),
    };
    let (remove, add) = table.content.until(wanted);
    let none = Content::default();
    (remove != none || add != none).then_some(Change::Update { remove, add })
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::{Hop, Onward};
    use leasehold_crds::names::InterfaceName;
    use proptest::prelude::*;

    use super::*;
    use crate::net::rtnl::links::testing::links;

    fn at(seconds: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(1_000 + seconds))
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr::new(2, 0, 0, 0, 0, last)
    }

    fn name(number: u8) -> InterfaceName {
        format!("eth{number}").parse().unwrap()
    }

    fn onward(to: IpAddr, interface: u8, until: u64) -> Onward {
        Onward {
            to: Some(Hop { to, interface: name(interface) }),
            owned: true,
            later: BTreeSet::new(),
            others: BTreeSet::new(),
            flows: true,
            flows_until: None,
            until: at(until),
        }
    }

    fn forwarding(onward: impl IntoIterator<Item = (IpAddr, Onward)>) -> Forwarding {
        Forwarding {
            onward: onward.into_iter().collect(),
            speakers: [mac(9)].into(),
            ..Forwarding::default()
        }
    }

    fn content(forwarding: &Forwarding, now: u64) -> Content {
        Content::of(Family::V4, forwarding, &links([1, 2]), at(now))
    }

    #[test]
    fn each_address_is_in_the_table_of_its_family_until_its_end() {
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let mut moved = onward(ip(11), 1, 60);
        moved.later.insert(mac(3));
        moved.others.insert(mac(4));
        moved.flows_until = Some(at(10));
        let all = forwarding([
            (ip(1), moved),
            (ip(2), onward(ip(12), 3, 60)),
            (ip(3), onward(six, 1, 60)),
            (six, onward("fe80::11".parse().unwrap(), 2, 60)),
        ]);
        let four = content(&all, 0);
        let former = Former { to: ip(11), interface: 10, until: at(60) };
        assert_eq!(
            four.former,
            [(ip(1), former)].into(),
            "no interface, and the address of another family"
        );
        assert_eq!(four.later, [((ip(1), mac(3)), at(60))].into());
        assert_eq!(four.others, [((ip(1), mac(4)), at(60))].into());
        let ips = [ip(1), ip(2), ip(3)].map(|ip| (ip, at(60)));
        assert_eq!((four.addresses, four.owned), (ips.into(), ips.into()));
        assert_eq!(four.flowing, ips.into());
        assert_eq!(four.fresh, [(ip(1), at(10))].into());
        assert_eq!(four.speakers, [mac(9)].into());
        assert_eq!(content(&all, 10).fresh, [].into(), "flows count no longer");
        assert_eq!(content(&all, 60), Content::default(), "ended");
        let of_six = Content::of(Family::V6, &all, &links([2]), at(0));
        assert_eq!(of_six.former.get(&six).map(|former| former.interface), Some(20));
    }

    #[test]
    fn a_table_is_there_while_there_is_something_to_send_on() {
        let none = Content::default();
        let one = content(&forwarding([(ip(1), onward(ip(11), 1, 60))]), 0);
        let table = Table { intact: true, content: one.clone() };
        let broken = Table { intact: false, ..table.clone() };
        for (name, wanted, table, expected) in [
            ("nothing", &none, None, None),
            ("the first", &one, None, Some(Change::Replace(one.clone()))),
            ("no change", &one, Some(&table), None),
            ("the last is gone", &none, Some(&table), Some(Change::Delete)),
            ("of another version", &one, Some(&broken), Some(Change::Replace(one.clone()))),
            ("and gone", &none, Some(&broken), Some(Change::Delete)),
        ] {
            assert_eq!(plan(wanted, table), expected, "{name}");
        }
    }

    #[test]
    fn an_element_is_put_anew_where_its_value_or_its_end_has_changed() {
        let one = |interface, until: Instant| {
            let former = Former { to: ip(11), interface, until };
            let addresses = [(ip(1), until)].into();
            Content { addresses, former: [(ip(1), former)].into(), ..Content::default() }
        };
        let table = Table { intact: true, content: one(10, at(60)) };
        let half = Duration::from_millis(500);
        assert_eq!(plan(&one(10, at(60) + half), Some(&table)), None);
        assert_eq!(plan(&one(10, at(60) - half), Some(&table)), None);
        for changed in [one(10, at(90)), one(10, at(30))] {
            let update = Change::Update { remove: table.content.clone(), add: changed.clone() };
            assert_eq!(plan(&changed, Some(&table)), Some(update));
        }
        let only = |content: Content| Content { addresses: BTreeMap::new(), ..content };
        let changed = one(20, at(60));
        let (remove, add) = (only(table.content.clone()), only(changed.clone()));
        assert_eq!(plan(&changed, Some(&table)), Some(Change::Update { remove, add }));
    }

    /// The kernel refuses to remove what is not there, and to add what is.
    fn carry_out(table: Option<Table>, change: &Change) -> Option<Table> {
        let mut content = Content::default();
        match change {
            Change::Delete => {
                assert!(table.is_some());
                return None;
            }
            Change::Replace(all) => put(&mut content, all),
            Change::Update { remove, add } => {
                content = table.unwrap().content;
                let [new, changed] = add.new_and_changed(remove);
                put(&mut content, &new);
                remove.former.keys().for_each(|it| assert!(content.former.remove(it).is_some()));
                remove.later.keys().for_each(|it| assert!(content.later.remove(it).is_some()));
                let (others, owned) = (&mut content.others, &mut content.owned);
                remove.others.keys().for_each(|it| assert!(others.remove(it).is_some()));
                remove.owned.keys().for_each(|it| assert!(owned.remove(it).is_some()));
                let (addresses, flowing) = (&mut content.addresses, &mut content.flowing);
                remove.flowing.keys().for_each(|it| assert!(flowing.remove(it).is_some()));
                remove.addresses.keys().for_each(|it| assert!(addresses.remove(it).is_some()));
                remove.fresh.keys().for_each(|it| assert!(content.fresh.remove(it).is_some()));
                remove.speakers.iter().for_each(|it| assert!(content.speakers.remove(it)));
                put(&mut content, &changed);
            }
        }
        Some(Table { intact: true, content })
    }

    /// The kernel refuses to add what is there.
    fn put(content: &mut Content, add: &Content) {
        for (ip, former) in &add.former {
            assert_eq!(content.former.insert(*ip, former.clone()), None);
        }
        for (owner, end) in &add.later {
            assert_eq!(content.later.insert(*owner, *end), None);
        }
        for (owner, end) in &add.others {
            assert_eq!(content.others.insert(*owner, *end), None);
        }
        for (ip, end) in &add.owned {
            assert_eq!(content.owned.insert(*ip, *end), None);
        }
        for (ip, end) in &add.flowing {
            assert_eq!(content.flowing.insert(*ip, *end), None);
        }
        for (ip, end) in &add.addresses {
            assert_eq!(content.addresses.insert(*ip, *end), None);
        }
        for (ip, end) in &add.fresh {
            assert_eq!(content.fresh.insert(*ip, *end), None);
        }
        add.speakers.iter().for_each(|mac| assert!(content.speakers.insert(*mac)));
    }

    prop_compose! {
        fn some()(
            rows in prop::collection::btree_map(
                0_u8..5,
                (11_u8..13, 1_u8..4, prop::collection::btree_set(1_u8..4, 0..3), 0_u64..40, 0_u64..80),
                0..5,
            ),
            speakers in prop::collection::btree_set(1_u8..5, 0..4),
        ) -> Forwarding {
            let onward = rows.into_iter().map(|(last, (to, interface, later, flows, until))| {
                let later: BTreeSet<MacAddr> = later.into_iter().map(mac).collect();
                let others = later.iter().copied().skip(1).collect();
                let (flows_until, owned) = (Some(at(flows)), flows % 2 == 0);
                let onward = onward(ip(to), interface, until);
                (ip(last), Onward { later, others, owned, flows: !owned, flows_until, ..onward })
            });
            let speakers = speakers.into_iter().map(mac).collect();
            Forwarding { onward: onward.collect(), speakers, ..Forwarding::default() }
        }
    }

    proptest! {
        #[test]
        fn one_change_is_enough(before in some(), after in some(), passed in 0_u64..80, intact: bool) {
            let first = content(&before, 0);
            let mut table = plan(&first, None).and_then(|change| carry_out(None, &change));
            if let Some(table) = &mut table {
                prop_assert_eq!(&table.content, &first);
                table.intact = intact;
                table.content.end(at(passed));
            }
            let wanted = content(&after, passed);
            let table = match plan(&wanted, table.as_ref()) {
                Some(change) => carry_out(table, &change),
                None => table,
            };
            prop_assert_eq!(plan(&wanted, table.as_ref()), None);
            // Ends apart from which no element is put anew.
            let mut there = table.unwrap_or_default().content;
            for (ip, former) in &mut there.former {
                former.until = wanted.former[ip].until;
            }
            for (owner, end) in &mut there.later {
                *end = wanted.later[owner];
            }
            for (owner, end) in &mut there.others {
                *end = wanted.others[owner];
            }
            let all = there.addresses.iter_mut().chain(&mut there.owned);
            for (ip, end) in all.chain(&mut there.flowing) {
                *end = wanted.addresses[ip];
            }
            for (ip, end) in &mut there.fresh {
                *end = wanted.fresh[ip];
            }
            prop_assert_eq!(there, wanted);
        }
    }
}
