//! The marks, rules and routes by which answers from addresses leave by the interfaces that carry these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_core::desired::ReturnPath;
use leasehold_core::election::{ServedVip, Serving, Spreading};
use leasehold_crds::names::InterfaceName;

use crate::datapath::return_path::numbers::{
    ANSWERING, COMING, END, GOING_ON, MASK, Number, SOURCE, SOURCES, is_ours, is_table, numbers,
};
use crate::net::rtnl::links::Links;
use crate::net::rtnl::routing::{Route, RouteRow, Routing, Rule, RuleRow, Then};

/// The addresses whose answers leave by the interface that carries them, each with that.
pub type Wanted = BTreeMap<IpAddr, InterfaceName>;

/// An address in the tables: the index of its interface, and the number of that.
pub type Content = BTreeMap<IpAddr, (u32, Number)>;

/// The state in which the kernel is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The addresses.
    pub content: Content,
    /// The rules.
    pub rules: BTreeSet<Rule>,
    /// The routes.
    pub routes: BTreeSet<Route>,
    /// The interfaces that look up the sources of IPv4 packets with their mark.
    pub marked: BTreeSet<InterfaceName>,
    /// The interfaces, each with whether IPv6, that have no gateway.
    pub without_gateway: BTreeSet<(InterfaceName, bool)>,
    /// The interfaces for which there is no number.
    pub without_number: BTreeSet<InterfaceName>,
}

impl Target {
    /// The state for these addresses. Those on an interface that does not exist are left out. `before` has the numbers
    /// that interfaces had.
    pub fn of(
        wanted: &Wanted,
        links: &Links,
        before: &BTreeMap<u32, Number>,
        routing: &Routing,
    ) -> Self {
        let mut target = Self::default();
        let index = |name: &InterfaceName| links.get(name).map(|link| link.index);
        let indices: BTreeSet<u32> = wanted.values().filter_map(index).collect();
        let (numbers, without) = numbers(&indices, before, routing);
        let name = |index: &u32| links.by_index(*index).map(|link| link.name.clone());
        target.without_number = without.iter().filter_map(name).collect();
        for (ip, interface) in wanted {
            let Some(index) = index(interface) else { continue };
            let Some(number) = numbers.get(&index) else { continue };
            target.content.insert(*ip, (index, *number));
            target.rules.extend(rules(ip.is_ipv6(), interface, *number));
            if ip.is_ipv4() {
                target.marked.insert(interface.clone());
            }
            let routes = routes(*ip, index, *number, routing);
            if !routes.iter().any(|route| route.to.prefix_len() == 0) {
                target.without_gateway.insert((interface.clone(), ip.is_ipv6()));
            }
            target.routes.extend(routes);
        }
        target
    }
}

/// The rules for addresses of a family on an interface.
///
/// The kernel looks up the way of a packet as of one that came by its interface, and the way back to its source as of one
/// that comes by the interface where the packet goes on; both with the mark. So what has come in by the interface of its
/// address goes on as ever, and its source is looked up in the table of the interface. What pods answer goes on by that
/// table; where sources are looked up with marks on all interfaces (`net.ipv4.conf.all.src_valid_mark`) that of a pod is
/// found by its own route.
fn rules(ipv6: bool, interface: &InterfaceName, number: Number) -> [Rule; 5] {
    let rule = |priority, mark: Option<u32>, then| Rule {
        ipv6,
        priority,
        mark: mark.map(|mark| (mark, MASK)),
        interface: None,
        then,
    };
    let on_it = |rule| Rule { interface: Some(interface.to_string()), ..rule };
    let (coming, answering) = (Some(number.coming()), Some(number.answering()));
    let lookup = Then::Lookup(number.table());
    [
        on_it(rule(GOING_ON, coming, Then::Goto(END))),
        rule(COMING, coming, lookup),
        on_it(rule(SOURCES, answering, Then::LookupSpecific(SOURCE))),
        rule(ANSWERING, answering, lookup),
        rule(END, None, Then::Nothing),
    ]
}

/// The routes of the table of an interface, for the family of `ip`: of those in the table `main` by that interface the
/// best to each destination.
fn routes(ip: IpAddr, index: u32, number: Number, routing: &Routing) -> Vec<Route> {
    let by_it = |row: &&RouteRow| {
        let Route { table, to, interface, .. } = &row.route;
        let own_address = row.by_kernel && to.prefix_len() == to.max_prefix_len();
        let family = ip.is_ipv6() == matches!(to, IpNet::V6(_));
        *table == SOURCE && *interface == index && family && !own_address && !is_of_link(to)
    };
    let mut best: BTreeMap<IpNet, &Route> = BTreeMap::new();
    for row in routing.routes.iter().filter(by_it) {
        let known = best.entry(row.route.to).or_insert(&row.route);
        *known = (*known).min(&row.route);
    }
    best.into_values().map(|route| Route { table: number.table(), ..route.clone() }).collect()
}

/// Whether the destination is the same on each link.
fn is_of_link(to: &IpNet) -> bool {
    match to {
        IpNet::V4(to) => to.addr().is_link_local(),
        IpNet::V6(to) => to.addr().is_unicast_link_local() || to.addr().is_multicast(),
    }
}

/// The rules and routes to add and to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The routes to add, a gateway's subnet before it.
    pub add_routes: Vec<Route>,
    /// The rules to add.
    pub add_rules: Vec<Rule>,
    /// The rules to remove.
    pub remove_rules: Vec<RuleRow>,
    /// The routes to remove.
    pub remove_routes: Vec<Route>,
}

/// Compares what the kernel is to have with what it has.
pub fn plan(target: &Target, routing: &Routing) -> Change {
    let mut rules = target.rules.clone();
    let mut change = Change::default();
    for row in routing.rules.iter().filter(|row| is_ours(row)) {
        // One that is there twice is removed once.
        if !rules.remove(&row.rule) {
            change.remove_rules.push(row.clone());
        }
    }
    change.add_rules = rules.into_iter().collect();
    let ours = |row: &&RouteRow| row.ours && is_table(row.route.table);
    let there: BTreeSet<&Route> =
        routing.routes.iter().filter(ours).map(|row| &row.route).collect();
    change.remove_routes =
        there.iter().filter(|it| !target.routes.contains(**it)).map(|it| (*it).clone()).collect();
    let mut add: Vec<Route> =
        target.routes.iter().filter(|it| !there.contains(*it)).cloned().collect();
    add.sort_by_key(|route| route.gateway.is_some());
    change.add_routes = add;
    change
}

/// A change of a table of `nf_tables`, done as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Delete it.
    Delete,
    /// Make it anew, whatever there is, with this content.
    Replace(Content),
    /// Change its content.
    Update {
        /// The addresses to remove.
        remove: Content,
        /// The addresses to add: one that has changed is in both.
        add: Content,
    },
}

/// A table of `nf_tables` as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Whether all but its content is as this version makes it.
    pub intact: bool,
    /// The addresses.
    pub content: Content,
}

/// Compares the content that a table is to have with the table.
pub fn marking(wanted: &Content, table: Option<&Table>) -> Option<Marking> {
    let table = match table {
        None if wanted.is_empty() => return None,
        Some(_) if wanted.is_empty() => return Some(Marking::Delete),
        Some(table) if table.intact => table,
        Some(_) | None => return Some(Marking::Replace(wanted.clone())),
    };
    let beyond = |one: &Content, other: &Content| -> Content {
        let differs = |(ip, place): &(&IpAddr, &(u32, Number))| other.get(*ip) != Some(*place);
        one.iter().filter(differs).map(|(ip, place)| (*ip, *place)).collect()
    };
    let (remove, add) = (beyond(&table.content, wanted), beyond(wanted, &table.content));
    (!remove.is_empty() || !add.is_empty()).then_some(Marking::Update { remove, add })
}

/// The interface by which answers from an address are to leave, if that is for us to see to.
pub(super) fn symmetric(vip: &ServedVip) -> Option<&InterfaceName> {
    match vip.return_path {
        ReturnPath::Symmetric => vip.attachment.interface(),
        ReturnPath::Default => None,
    }
}

/// The addresses whose return path is asked for. `left` are those in the tables: until the state of the cluster is known
/// what a former process has left stays, and then those that are not served any more and of which it `stays`. Clients
/// of spread addresses are answered by each node.
pub fn wanted(
    serving: &Serving,
    spreading: Option<&Spreading>,
    left: &Content,
    stays: impl Fn(&IpAddr) -> bool,
    links: &Links,
) -> Wanted {
    let name = |index| links.by_index(index).map(|link| link.name.clone());
    let known = left.iter().filter(|(ip, _)| {
        if serving.complete {
            !serving.vips.contains_key(*ip) && stays(ip)
        } else {
            !serving.yielded.contains(*ip)
        }
    });
    let mut wanted: Wanted =
        known.filter_map(|(ip, (index, _))| Some((*ip, name(*index)?))).collect();
    // Those whose clients this node answers for another that has the address.
    let spread = spreading.iter().flat_map(|spreading| &spreading.addresses);
    let spread = spread.filter(|(ip, _)| !serving.vips.contains_key(*ip));
    wanted.extend(spread.filter_map(|(ip, address)| Some((*ip, address.returns.clone()?))));
    let its = serving.vips.iter();
    wanted.extend(its.filter_map(|(ip, vip)| Some((*ip, symmetric(vip)?.clone()))));
    wanted
}

#[cfg(test)]
mod tests {
    use leasehold_core::clock::Instant;
    use leasehold_core::desired::Announcement;
    use leasehold_core::election::Attachment;
    use proptest::prelude::*;

    use super::*;
    use crate::datapath::return_path::numbers::{ANSWERS, COUNT};
    use crate::net::rtnl::links::testing::links;
    use crate::net::rtnl::routing::MAIN;

    fn name(number: u32) -> InterfaceName {
        format!("eth{number}").parse().unwrap()
    }

    fn ip(number: u32, last: u8) -> IpAddr {
        if last.is_multiple_of(2) {
            IpAddr::from([198, 51, u8::try_from(number).unwrap(), last])
        } else {
            format!("fd00:{number}::{last}").parse().unwrap()
        }
    }

    fn route(table: u32, to: &str, number: u32, gateway: Option<&str>, metric: u32) -> RouteRow {
        let route = Route {
            table,
            to: to.parse().unwrap(),
            metric,
            interface: number * 10,
            gateway: gateway.map(|ip| ip.parse().unwrap()),
            onlink: false,
        };
        RouteRow { route, ours: table != MAIN, by_kernel: gateway.is_none() }
    }

    /// The table `main` of a node with these links, each with a gateway of IPv4.
    fn main(numbers: impl IntoIterator<Item = u32>) -> Routing {
        let of = |number: u32| {
            let gateway = format!("198.51.{number}.254");
            [
                route(MAIN, &format!("198.51.{number}.0/24"), number, None, 0),
                route(MAIN, &format!("fd00:{number}::/64"), number, None, 256),
                route(MAIN, &format!("fd00:{number}::9/128"), number, None, 256),
                route(MAIN, "fe80::/64", number, None, 256),
                route(MAIN, "0.0.0.0/0", number, Some(&gateway), number),
                route(MAIN, "0.0.0.0/0", number, Some(&format!("198.51.{number}.1")), 9_000),
            ]
        };
        Routing { rules: Vec::new(), routes: numbers.into_iter().flat_map(of).collect() }
    }

    /// Carries out a change.
    fn carry_out(routing: &mut Routing, change: &Change) {
        for route in &change.add_routes {
            let routes = &routing.routes;
            assert!(routes.iter().all(|row| row.route != *route), "{route:?} is there");
            let row = RouteRow { route: route.clone(), ours: true, by_kernel: false };
            routing.routes.push(row);
        }
        routing.rules.extend(change.add_rules.iter().cloned().map(RuleRow::of));
        for row in &change.remove_rules {
            let place = routing.rules.iter().position(|it| it == row).expect("is not there");
            routing.rules.remove(place);
        }
        routing.routes.retain(|row| !(row.ours && change.remove_routes.contains(&row.route)));
    }

    fn numbers_in(target: &Target) -> BTreeMap<u32, Number> {
        target.content.values().copied().collect()
    }

    #[test]
    fn the_table_of_an_interface_has_the_best_routes_of_main_by_it_and_no_others() {
        let wanted: Wanted = [(ip(1, 2), name(1)), (ip(1, 3), name(1))].into();
        let target = Target::of(&wanted, &links([1, 2]), &BTreeMap::new(), &main([1, 2]));
        let number = Number::new(1).unwrap();
        let table = number.table();
        let expected = [
            route(table, "198.51.1.0/24", 1, None, 0),
            route(table, "0.0.0.0/0", 1, Some("198.51.1.254"), 1),
            route(table, "fd00:1::/64", 1, None, 256),
        ];
        assert_eq!(target.routes, expected.into_iter().map(|row| row.route).collect());
        assert_eq!(target.without_gateway, [(name(1), true)].into());
        assert_eq!(target.marked, [name(1)].into());
        let change = plan(&target, &main([1, 2]));
        let last = change.add_routes.last().and_then(|route| route.gateway);
        assert!(last.is_some(), "the subnet of a gateway comes first: {:?}", change.add_routes);
    }

    #[test]
    fn what_another_program_uses_is_left_to_it() {
        let wanted: Wanted = [(ip(1, 2), name(1))].into();
        let foreign = |mark: Option<(u32, u32)>, then| {
            let rule = Rule { ipv6: false, priority: 99, mark, interface: None, then };
            let mut row = RuleRow::of(rule);
            row.ours = false;
            row
        };
        let number = |figure| Number::new(figure).unwrap();
        let other_table = Then::Lookup(99);
        let first = number(1);
        for (what, row, expected) in [
            ("another table", foreign(None, other_table), Some(1)),
            ("its table", foreign(None, Then::Lookup(first.table())), Some(2)),
            ("other bits", foreign(Some((0x4000, 0x4000)), other_table), Some(1)),
            ("a whole mark", foreign(Some((0x200, u32::MAX)), other_table), Some(1)),
            ("its mark", foreign(Some((first.coming(), MASK)), other_table), Some(2)),
            ("its other mark", foreign(Some((first.answering(), u32::MAX)), other_table), Some(2)),
            ("all marks of answers", foreign(Some((ANSWERS, ANSWERS)), other_table), None),
        ] {
            let mut routing = main([1]);
            routing.rules.push(row.clone());
            let target = Target::of(&wanted, &links([1]), &BTreeMap::new(), &routing);
            let figure = target.content.get(&ip(1, 2)).map(|(_, number)| number.get());
            assert_eq!(figure, expected, "{what}");
            assert_eq!(target.without_number.is_empty(), expected.is_some(), "{what}");
            assert!(!plan(&target, &routing).remove_rules.contains(&row), "{what}");
        }
        let mut routing = main([1]);
        let mut row = route(first.table(), "10.0.0.0/8", 1, None, 0);
        row.ours = false;
        routing.routes.push(row);
        let target = Target::of(&wanted, &links([1]), &BTreeMap::new(), &routing);
        assert_eq!(target.content.get(&ip(1, 2)), Some(&(10, number(2))), "a foreign route");
        assert!(plan(&target, &routing).remove_routes.is_empty());
    }

    #[test]
    fn until_the_cluster_is_known_what_a_former_process_left_stays() {
        let number = Number::new(1).unwrap();
        let left: Content = [(ip(1, 2), (10, number)), (ip(1, 4), (10, number))].into();
        let served = ServedVip {
            claim: "default.web".parse().unwrap(),
            attachment: Attachment::OnLink { interface: name(2) },
            until: Instant::default(),
            ownership: 0,
            announcement: Announcement::default(),
            return_path: ReturnPath::Symmetric,
        };
        let by_default = ServedVip { return_path: ReturnPath::Default, ..served.clone() };
        let mut serving = Serving {
            vips: [(ip(1, 2), by_default), (ip(2, 2), served)].into(),
            yielded: [ip(1, 4)].into(),
            ..Serving::default()
        };
        let links = links([1, 2]);
        let expected: Wanted = [(ip(1, 2), name(1)), (ip(2, 2), name(2))].into();
        let wanted =
            |serving: &Serving, stays: bool| wanted(serving, None, &left, |_| stays, &links);
        assert_eq!(wanted(&serving, false), expected);
        serving.complete = true;
        assert_eq!(wanted(&serving, false), [(ip(2, 2), name(2))].into());
        // Of one that was handed over; the other one is served, by the routes of the node.
        let expected: Wanted = [(ip(1, 4), name(1)), (ip(2, 2), name(2))].into();
        assert_eq!(wanted(&serving, true), expected);
    }

    prop_compose! {
        /// Addresses on some of eighteen links: more than there are numbers.
        fn some_wanted()(
            rows in prop::collection::btree_map(1_u32..19, prop::collection::btree_set(2_u8..6, 1..3), 0..18),
        ) -> Wanted {
            let of = |(number, lasts): (&u32, &BTreeSet<u8>)| -> Vec<_> {
                lasts.iter().map(|last| (ip(*number, *last), name(*number))).collect()
            };
            rows.iter().flat_map(of).collect()
        }
    }

    proptest! {
        #[test]
        fn one_change_is_enough_and_numbers_stay(first in some_wanted(), second in some_wanted()) {
            let links = links(1..19);
            let mut routing = main(1..19);
            let nothing = routing.clone();
            let mut before = BTreeMap::new();
            for wanted in [&first, &second, &first, &Wanted::new()] {
                let target = Target::of(wanted, &links, &before, &routing);
                let change = plan(&target, &routing);
                carry_out(&mut routing, &change);
                prop_assert_eq!(plan(&target, &routing), Change::default());
                let after = numbers_in(&target);
                let distinct: BTreeSet<_> = after.values().collect();
                prop_assert_eq!(distinct.len(), after.len());
                for (index, number) in &after {
                    prop_assert!(before.get(index).is_none_or(|known| known == number));
                }
                let count = wanted.values().collect::<BTreeSet<_>>().len();
                prop_assert_eq!(after.len(), count.min(COUNT.into()));
                prop_assert_eq!(target.without_number.len(), count.saturating_sub(COUNT.into()));
                before = after;
            }
            prop_assert_eq!(routing, nothing);
        }

        #[test]
        fn one_transaction_is_enough(first in some_wanted(), second in some_wanted(), intact: bool) {
            let content = |wanted: &Wanted| {
                Target::of(wanted, &links(1..19), &BTreeMap::new(), &main(1..19)).content
            };
            let (known, wanted) = (content(&first), content(&second));
            let table = (!known.is_empty()).then_some(Table { intact, content: known });
            let after = match marking(&wanted, table.as_ref()) {
                None => table,
                Some(Marking::Delete) => None,
                Some(Marking::Replace(content)) => Some(Table { intact: true, content }),
                Some(Marking::Update { remove, add }) => {
                    let mut table = table.unwrap();
                    for (ip, place) in &remove {
                        prop_assert_eq!(table.content.remove(ip), Some(*place));
                    }
                    for (ip, place) in add {
                        prop_assert_eq!(table.content.insert(ip, place), None);
                    }
                    Some(table)
                }
            };
            prop_assert_eq!(marking(&wanted, after.as_ref()), None);
            prop_assert_eq!(after.map(|table| table.content).unwrap_or_default(), wanted);
        }
    }
}
