//! Addresses that are spread over nodes: which node has a client, and keeps it, whatever happens.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::desired::{NodeState, SpreadOver};
use leasehold_core::election::{BUCKETS, DataPathView};

use super::{Run, millis, runs, secs};
use crate::dice::Dice;
use crate::world::World;
use crate::world::controls::vip;
use crate::world::spread::{End, sample};

const ALL: [&str; 4] = ["a", "b", "c", "d"];

/// The Services have endpoints on these nodes, each with its weight, and are spread over them.
fn set_endpoints(world: &mut World, nodes: &[(&str, u16)]) {
    let members = nodes.iter().map(|(node, weight)| (node.parse().unwrap(), *weight)).collect();
    let over = SpreadOver { members: Arc::new(members), ..SpreadOver::default() };
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.spread = Some(over.clone());
    }
    world.publish_desired();
}

fn equal(nodes: &[&'static str]) -> Vec<(&'static str, u16)> {
    nodes.iter().map(|node| (*node, 1)).collect()
}

/// Four hosts, and one address that is spread over these nodes.
fn spread_over(nodes: &[&'static str]) -> World {
    let mut world = World::listening(&ALL, 1);
    set_endpoints(&mut world, &equal(nodes));
    world.run(secs(3));
    world
}

/// The names of the hosts on which new connections begin.
fn begins_on(world: &World) -> BTreeSet<&str> {
    world.begun(vip(1)).iter().map(|(_, id)| world.hosts[*id].name.as_str()).collect()
}

/// No client gets a reset until `end`; then all are known where they began, but those that began on one of `gone`.
fn assert_kept(world: &mut World, begun: &[(u16, usize)], gone: &[&str], seconds: u64) {
    let left = |world: &World| -> Vec<(u16, usize)> {
        let lives = |id: usize| !gone.contains(&world.hosts[id].name.as_str());
        begun.iter().copied().filter(|(_, id)| lives(*id)).collect()
    };
    let end = world.now + secs(seconds);
    while world.step(end) {
        for (bucket, end) in world.ends(vip(1), &left(world)) {
            let ways = world.ways(vip(1), bucket, begun);
            assert_ne!(end, End::Reset, "{}: {ways}", world.now);
        }
    }
    let ends = world.ends(vip(1), &left(world));
    assert!(!ends.is_empty(), "nobody has the address");
    for (bucket, end) in ends {
        assert_eq!(end, End::Known, "{}: {}", world.now, world.ways(vip(1), bucket, begun));
    }
}

fn each_client_has_one_of_the_nodes_with_endpoints_whoever_the_owner_is() {
    for nodes in [&["a", "b", "c"][..], &["b"], &["c", "d"]] {
        let mut world = spread_over(nodes);
        assert_eq!(begins_on(&world), nodes.iter().copied().collect());
        let begun = world.begun(vip(1));
        for owner in ALL {
            for other in ALL.into_iter().filter(|other| *other != owner) {
                world.desired.nodes.insert(other.parse().unwrap(), NodeState::Draining);
            }
            world.desired.nodes.insert(owner.parse().unwrap(), NodeState::Ready);
            world.publish_desired();
            assert_kept(&mut world, &begun, &[], 3);
            assert_eq!(world.owner(1).as_deref(), Some(owner));
            assert_eq!(world.begun(vip(1)), begun, "{owner} chooses otherwise");
        }
    }
}

fn shares_follow_weights() {
    let mut world = spread_over(&["a", "b"]);
    set_endpoints(&mut world, &[("a", 1), ("b", 3)]);
    world.run(secs(2));
    let at = world.hosts.id("b");
    let share = (0..BUCKETS).filter(|it| world.begins_at(vip(1), *it) == Some(at)).count();
    assert!(share.abs_diff(usize::from(BUCKETS) * 3 / 4) <= 2, "{share} of {BUCKETS}");
}

fn connections_outlive_their_owner() {
    for jitter in [false, true] {
        let mut world = spread_over(&["a", "b", "c"]);
        world.jitter = jitter;
        let begun = world.begun(vip(1));
        let owner = world.owner(1).unwrap();
        world.kill_node(&owner);
        assert_kept(&mut world, &begun, &[&owner], 10);
        assert!(!begins_on(&world).contains(owner.as_str()));
    }
}

fn a_node_that_dies_gets_no_new_connection_within_two_hundred_milliseconds() {
    for api in [true, false] {
        let mut world = spread_over(&ALL);
        world.set_api(api);
        world.run(millis(200));
        let owner = world.owner_of(vip(1)).unwrap();
        let dead = ALL.into_iter().find(|name| *name != owner).unwrap();
        let begun = world.begun(vip(1));
        world.kill_node(dead);
        let (start, end) = (world.now, world.now + secs(10));
        let id = world.hosts.id(dead);
        while world.begun(vip(1)).len() < sample().count() && world.step(end) {}
        let took = world.now.saturating_since(start);
        assert!(took <= millis(200), "with the API server: {api}: after {took:?}");
        assert_kept(&mut world, &begun, &[dead], 10);
        world.power_on(id);
        world.set_api(true);
        let begun = world.begun(vip(1));
        assert_kept(&mut world, &begun, &[], 10);
        assert!(begins_on(&world).contains(dead), "it is back");
    }
}

fn nodes_that_come_and_go_end_no_connection() {
    for seed in 0..10 {
        let mut world = spread_over(&["a", "b"]);
        world.dice = Dice::new(seed);
        world.jitter = seed > 0;
        for nodes in [&["a", "b", "c"][..], &["b", "c"], &["b", "c", "d"], &["a", "d"]] {
            let begun = world.begun(vip(1));
            set_endpoints(&mut world, &equal(nodes));
            assert_kept(&mut world, &begun, &[], 5);
            assert_eq!(begins_on(&world), nodes.iter().copied().collect());
        }
    }
}

fn connections_of_two_changes_ago_are_kept_for_ten_minutes() {
    let mut world = spread_over(&["a", "b"]);
    let begun = world.begun(vip(1));
    for nodes in [&["a", "b", "c"][..], &["a", "b", "c", "d"]] {
        set_endpoints(&mut world, &equal(nodes));
        assert_kept(&mut world, &begun, &[], 3);
    }
    world.run(secs(590));
    assert_kept(&mut world, &begun, &[], 1);
    world.run(secs(20));
    let claims = world.store.valid_claims().collect::<Vec<_>>();
    assert!(claims.iter().all(|it| it.former_members.is_empty() && it.members.iter().count() == 4));
}

fn connections_outlive_a_change_of_the_policy_and_back() {
    let mut world = World::listening(&ALL, 1);
    let owner = world.owner(1).unwrap();
    let begun = vec![(7_u16, world.hosts.id(&owner))];
    set_endpoints(&mut world, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    assert_kept(&mut world, &begun, &[], 5);
    let begun = world.begun(vip(1));
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.spread = None;
    }
    world.publish_desired();
    world.run(secs(5));
    let owner = world.owner(1).unwrap();
    for (bucket, at) in begun.iter().filter(|(_, at)| world.hosts[*at].name != owner) {
        let way = world.way(vip(1));
        assert!(way.contains(&world.hosts[*at].name.as_str()), "bucket {bucket}: {way:?}");
    }
}

fn a_process_that_follows_another_goes_on_spreading() {
    for killed in [false, true] {
        for node in ALL {
            let mut world = spread_over(&["a", "b", "c"]);
            let begun = world.begun(vip(1));
            if killed {
                world.kill(node);
            } else {
                world.terminate(node);
            }
            assert_kept(&mut world, &begun, &[], 1);
            world.start(node);
            assert_kept(&mut world, &begun, &[], 5);
            assert_eq!(world.begun(vip(1)), begun);
        }
    }
}

/// The kernel of a host refuses the rules for spreading, or does so no longer.
fn set_failing(world: &mut World, node: &str, failing: bool) {
    let id = world.hosts.id(node);
    world.set_data_path(id, DataPathView { failing, ..DataPathView::default() });
}

fn members(world: &World) -> BTreeSet<String> {
    let claims = world.store.valid_claims();
    claims.flat_map(|claim| claim.members.iter().map(|(node, _)| node.to_string())).collect()
}

fn a_node_that_cannot_spread_is_no_member_and_owns_only_where_it_has_an_endpoint() {
    let mut world = spread_over(&["a", "b", "c"]);
    for node in ["a", "b", "c"] {
        world.desired.nodes.insert(node.parse().unwrap(), NodeState::Draining);
    }
    world.publish_desired();
    world.run(secs(3));
    assert_eq!(world.owner(1).as_deref(), Some("d"));
    for node in ["a", "b", "c"] {
        world.desired.nodes.insert(node.parse().unwrap(), NodeState::Ready);
    }
    world.publish_desired();
    let begun = world.begun(vip(1));
    // For a moment only.
    set_failing(&mut world, "d", true);
    assert_kept(&mut world, &begun, &[], 3);
    set_failing(&mut world, "d", false);
    assert_kept(&mut world, &begun, &[], 10);
    assert_eq!(world.owner(1).as_deref(), Some("d"));
    set_failing(&mut world, "d", true);
    assert_kept(&mut world, &begun, &[], 10);
    let owner = world.owner(1).unwrap();
    assert_ne!(owner, "d");
    let other = ["a", "b", "c"].into_iter().find(|node| *node != owner).unwrap();
    set_failing(&mut world, other, true);
    assert_kept(&mut world, &begun, &[], 10);
    let rest: BTreeSet<&str> = ["a", "b", "c"].into_iter().filter(|it| *it != other).collect();
    assert_eq!(begins_on(&world), rest);
    // Neither is an owner when the present one dies.
    world.kill_node(&owner);
    world.run(secs(3));
    let left = rest.iter().copied().filter(|node| *node != owner).collect::<BTreeSet<_>>();
    assert!(world.owner(1).as_deref().is_some_and(|owner| left.contains(owner) || owner == other));
    set_failing(&mut world, other, false);
    world.run(secs(61));
    assert_eq!(members(&world), left.into_iter().chain([other]).map(str::to_owned).collect());
}

fn where_kube_proxy_is_replaced_an_owner_has_an_endpoint_and_spreads_nothing() {
    let mut world = spread_over(&["b", "c"]);
    let replaced = DataPathView { has_replacement: true, ..DataPathView::default() };
    for id in 0..ALL.len() {
        world.set_data_path(id, replaced);
    }
    world.run(secs(10));
    let owner = world.owner(1).unwrap();
    assert!(["b", "c"].contains(&owner.as_str()), "{owner} has no endpoint");
    assert_eq!(begins_on(&world), [owner.as_str()].into());
    world.kill_node(&owner);
    world.run(secs(2));
    let next = world.owner(1).unwrap();
    assert!(["b", "c"].contains(&next.as_str()) && next != owner, "after {owner}: {next}");
    assert_eq!(begins_on(&world), [next.as_str()].into());
    // A process that follows does not forget it.
    world.kill(&next);
    world.start(&next);
    world.run(secs(20));
    assert_eq!(world.owner(1), Some(next.clone()));
    assert_eq!(begins_on(&world), [next.as_str()].into());
    // Where there is no endpoint, none is missed.
    set_endpoints(&mut world, &[]);
    world.hold_still();
    world.run(secs(10));
    world.laws.still = None;
    set_endpoints(&mut world, &equal(&["b", "c"]));
    world.run(secs(5));
    assert_eq!(begins_on(&world), [next.as_str()].into());
    // Something that answers as kube-proxy does says that nothing is replaced.
    world.give_proxies();
    world.power_on(world.hosts.id(&owner));
    world.run(secs(70));
    assert_eq!(begins_on(&world), ["b", "c"].into());
}

fn a_node_whose_packets_have_another_size_is_no_member() {
    let mut world = spread_over(&["a", "b", "c"]);
    let owner = world.owner(1).unwrap();
    let other = ["a", "b", "c"].into_iter().find(|node| *node != owner).unwrap();
    world.set_mtu(world.hosts.id(other), 9_000);
    world.run(secs(2));
    assert!(!members(&world).contains(other));
    assert_eq!(begins_on(&world).len(), 2);
}

pub(super) const RUNS: &[Run] = runs![
    each_client_has_one_of_the_nodes_with_endpoints_whoever_the_owner_is,
    shares_follow_weights,
    connections_outlive_their_owner,
    a_node_that_dies_gets_no_new_connection_within_two_hundred_milliseconds,
    nodes_that_come_and_go_end_no_connection,
    connections_of_two_changes_ago_are_kept_for_ten_minutes,
    connections_outlive_a_change_of_the_policy_and_back,
    a_process_that_follows_another_goes_on_spreading,
    a_node_that_cannot_spread_is_no_member_and_owns_only_where_it_has_an_endpoint,
    where_kube_proxy_is_replaced_an_owner_has_an_endpoint_and_spreads_nothing,
    a_node_whose_packets_have_another_size_is_no_member,
];
