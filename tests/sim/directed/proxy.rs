//! Nodes whose kube-proxy is silent or late.

use std::sync::Arc;

use leasehold_core::desired::Proxied;
use leasehold_core::election::Fact;

use super::{Run, millis, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, vip};

const ALL: [&str; 3] = ["a", "b", "c"];

/// All hosts have a kube-proxy.
fn proxied(services: u8) -> World {
    let mut world = World::settled(&ALL, services);
    world.give_proxies();
    world.run(secs(2));
    world
}

fn silence(world: &mut World, name: &str, silent: bool) {
    let id = world.hosts.id(name);
    world.set_proxy_silent(id, silent);
}

fn late(world: &mut World, late: bool) {
    for id in 0..world.hosts.len() {
        world.set_rules_late(id, late);
    }
}

fn load(world: &World, node: &str) -> usize {
    world.loads().get(node).copied().unwrap_or(0)
}

fn a_node_whose_kube_proxy_died_gives_away_what_it_has_and_takes_nothing() {
    let mut world = proxied(9);
    silence(&mut world, "a", true);
    world.hold_still();
    world.run(secs(14));
    world.laws.still = None;
    run_answered(&mut world, secs(4));
    assert_eq!(load(&world, "a"), 0);
    world.kill_node("b");
    world.run(secs(6));
    assert_eq!((load(&world, "a"), load(&world, "c")), (0, 9));
    world.add_services(10, 12);
    world.run(secs(2));
    assert_eq!(load(&world, "a"), 0);
    // It lives again.
    silence(&mut world, "a", false);
    world.run(secs(2));
    world.add_services(13, 15);
    world.run(secs(2));
    assert_eq!(load(&world, "a"), 3);
    world.assert_served();
}

fn a_kube_proxy_that_restarts_moves_nothing() {
    let mut world = proxied(9);
    world.hold_still();
    for node in ALL {
        silence(&mut world, node, true);
        world.run(secs(14));
        silence(&mut world, node, false);
        world.run(secs(5));
    }
}

fn where_all_kube_proxies_are_silent_it_is_as_if_none_was() {
    let mut world = proxied(9);
    world.hold_still();
    for node in ALL {
        silence(&mut world, node, true);
        world.run(secs(1));
    }
    world.run(secs(60));
    world.laws.still = None;
    world.kill_node("b");
    world.run(secs(6));
    assert_eq!(load(&world, "a") + load(&world, "c"), 9);
    assert!(load(&world, "a").abs_diff(load(&world, "c")) <= 1);
    world.assert_served();
}

fn what_no_other_node_can_take_goes_to_one_whose_kube_proxy_is_silent() {
    let mut world = proxied(3);
    silence(&mut world, "a", true);
    silence(&mut world, "b", true);
    world.run(secs(5));
    world.kill_node("c");
    world.run(secs(6));
    world.assert_served();
}

fn a_new_address_waits_for_its_rules_and_not_for_long() {
    let mut world = proxied(1);
    late(&mut world, true);
    world.add_services(2, 2);
    world.run(millis(1500));
    assert!(world.owner(2).is_some(), "the claim is taken at once");
    assert!(world.having(vip(2)).is_empty());
    late(&mut world, false);
    world.run(millis(50));
    assert_eq!(world.having(vip(2)), world.owner(2).into_iter().collect());
    let told = |world: &World| {
        world.facts.iter().filter(|(.., fact)| matches!(fact, Fact::RulesLate { .. })).count()
    };
    assert_eq!(told(&world), 0);

    late(&mut world, true);
    world.add_services(3, 3);
    world.run(millis(2900));
    assert!(world.having(vip(3)).is_empty());
    world.run(millis(300));
    assert_eq!(world.having(vip(3)), world.owner(3).into_iter().collect());
    assert_eq!(told(&world), 1);
    world.assert_served();
}

fn where_the_policy_says_so_nothing_waits_for_rules_nor_leaves_a_silent_kube_proxy() {
    let mut world = proxied(3);
    late(&mut world, true);
    silence(&mut world, "a", true);
    for number in 4..=6 {
        let asked = world.claimed(
            number,
            vip(number),
            crate::world::controls::lease_only(),
            leasehold_core::desired::OnApiOutage::Hold,
        );
        let by = leasehold_core::desired::ServiceProxy::None;
        let asked = leasehold_core::desired::DesiredClaim {
            proxied: Proxied { by, ..Proxied::default() },
            ..asked
        };
        world.desired.claims.insert(claim(number), asked.into());
    }
    world.publish_desired();
    world.run(millis(200));
    for number in 4..=6 {
        assert_eq!(world.having(vip(number)).len(), 1, "{number}");
    }
    world.run(secs(30));
    assert_eq!(load(&world, "a"), 1, "one of its two had another policy");
    world.assert_served();
}

/// The only pod of a service goes from `a` to `b`; that on `a` terminates and serves on.
fn followed() -> World {
    let mut world = proxied(1);
    goes_to(&mut world, "a");
    world.run(secs(3));
    assert_eq!(world.owner(1).as_deref(), Some("a"));
    late(&mut world, true);
    goes_to(&mut world, "b");
    world
}

fn goes_to(world: &mut World, node: &str) {
    go_to(world, &[node]);
}

fn go_to(world: &mut World, nodes: &[&str]) {
    let asked = Arc::make_mut(world.desired.claims.get_mut(&claim(1)).unwrap());
    asked.proxied.health_checks = [30_001].into();
    asked.nodes = Arc::new(nodes.iter().map(|node| node.parse().unwrap()).collect());
    world.publish_desired();
}

fn what_follows_its_pods_is_served_where_they_were_until_the_rules_are_where_they_are() {
    let mut world = followed();
    run_answered(&mut world, secs(5));
    assert_eq!(world.having(vip(1)), ["a".to_owned()].into());
    late(&mut world, false);
    run_answered(&mut world, millis(300));
    assert_eq!(world.having(vip(1)), ["b".to_owned()].into());
}

fn what_follows_its_pods_does_not_wait_for_rules_for_ever() {
    let mut world = followed();
    run_answered(&mut world, millis(9800));
    assert_eq!(world.owner(1).as_deref(), Some("a"));
    run_answered(&mut world, millis(700));
    assert_eq!(world.owner(1).as_deref(), Some("b"));
    world.assert_served();
}

fn what_follows_its_pods_again_waits_for_no_node_that_they_have_left() {
    let mut world = followed();
    run_answered(&mut world, secs(2));
    let id = world.hosts.id("c");
    world.set_rules_late(id, false);
    goes_to(&mut world, "c");
    run_answered(&mut world, millis(500));
    assert_eq!(world.owner(1).as_deref(), Some("c"));
    // Back to where it was just on its way to.
    goes_to(&mut world, "b");
    run_answered(&mut world, secs(2));
    late(&mut world, false);
    run_answered(&mut world, millis(300));
    assert_eq!(world.owner(1).as_deref(), Some("b"));
}

fn what_follows_its_pods_waits_for_no_node_that_has_died() {
    let mut world = followed();
    go_to(&mut world, &["b", "c"]);
    run_answered(&mut world, millis(500));
    let named = world.store.claims[&claim(1)].record.successor.clone().unwrap().node;
    let other = if named.as_str() == "b" { "c" } else { "b" };
    let id = world.hosts.id(other);
    world.set_rules_late(id, false);
    world.kill_node(named.as_str());
    // Its session has run out by then, and the wait for its rules has not.
    run_answered(&mut world, secs(8));
    assert_eq!(world.owner(1).as_deref(), Some(other));
    world.assert_served();
}

fn what_a_dead_owner_had_waits_for_no_rules() {
    let mut world = World::listening(&ALL, 3);
    world.give_proxies();
    world.run(secs(2));
    late(&mut world, true);
    let owner = world.owner(1).unwrap();
    world.kill_node(&owner);
    world.run(millis(400));
    assert_eq!(world.having(vip(1)).len(), 1);
    world.assert_served();
}

fn nobody_moves_an_address_by_hand_to_where_kube_proxy_is_silent() {
    let mut world = proxied(1);
    let owner = world.owner(1).unwrap();
    let to = ALL.into_iter().find(|node| *node != owner).unwrap();
    silence(&mut world, to, true);
    world.run(secs(4));
    world.edit_claim(1, |claim| claim.move_to = Some(to.parse().unwrap()));
    run_answered(&mut world, secs(1));
    assert_eq!(world.owner(1), Some(owner));
    let refused = |(_, _, fact): &&(_, String, Fact)| matches!(fact, Fact::MoveRefused { cause, .. } if cause.contains("kube-proxy"));
    assert_eq!(world.facts.iter().filter(refused).count(), 1);
}

pub(super) const RUNS: &[Run] = runs![
    a_node_whose_kube_proxy_died_gives_away_what_it_has_and_takes_nothing,
    a_kube_proxy_that_restarts_moves_nothing,
    where_all_kube_proxies_are_silent_it_is_as_if_none_was,
    what_no_other_node_can_take_goes_to_one_whose_kube_proxy_is_silent,
    a_new_address_waits_for_its_rules_and_not_for_long,
    where_the_policy_says_so_nothing_waits_for_rules_nor_leaves_a_silent_kube_proxy,
    what_follows_its_pods_is_served_where_they_were_until_the_rules_are_where_they_are,
    what_follows_its_pods_does_not_wait_for_rules_for_ever,
    what_follows_its_pods_again_waits_for_no_node_that_they_have_left,
    what_follows_its_pods_waits_for_no_node_that_has_died,
    what_a_dead_owner_had_waits_for_no_rules,
    nobody_moves_an_address_by_hand_to_where_kube_proxy_is_silent,
];
