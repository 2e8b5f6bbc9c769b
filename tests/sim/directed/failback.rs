//! Claims that go to better nodes while their owners live.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::desired::{Failback, FailbackMode};

use super::{Run, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::vip;

const ALL: [&str; 3] = ["a", "b", "c"];

/// All claims may go to better nodes; these are preferred.
fn ask(world: &mut World, mode: FailbackMode, preferred: &[&str]) {
    let failback = Failback { mode, delay: secs(10), ..Failback::default() };
    let weights = preferred.iter().map(|node| (node.parse().unwrap(), 10));
    let preference = Arc::new(weights.collect());
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.preference = Arc::clone(&preference);
        claim.failback = failback;
    }
    world.publish_desired();
}

fn loads(world: &World) -> [usize; 3] {
    ALL.map(|node| world.loads().get(node).copied().unwrap_or(0))
}

/// How many claims name a successor.
fn moving(world: &World) -> usize {
    let claims = world.store.claims.values();
    claims.filter(|stored| stored.record.successor.is_some()).count()
}

/// Runs for so long; everything is answered for, and one claim moves at a time.
fn run_calmly(world: &mut World, duration: Duration) {
    let end = world.now + duration;
    while world.now < end {
        run_answered(world, Duration::from_millis(1));
        assert!(moving(world) <= 1, "{}: two claims move at once", world.now);
    }
}

fn what_a_preferred_node_could_have_goes_there_after_the_delay_one_claim_after_another() {
    let mut world = World::settled(&ALL, 9);
    assert_eq!(loads(&world), [3, 3, 3]);
    ask(&mut world, FailbackMode::Preferred, &["b"]);
    run_calmly(&mut world, secs(9));
    assert_eq!(loads(&world), [3, 3, 3], "the delay is not over");
    run_calmly(&mut world, secs(30));
    assert_eq!(loads(&world), [0, 9, 0]);
    // A death moves all of it; when the node is back, it has to stay for a while.
    world.kill_node("b");
    world.run(secs(10));
    assert_eq!(loads(&world).iter().sum::<usize>(), 9);
    let b = world.hosts.id("b");
    world.power_on(b);
    world.run(secs(5));
    assert_eq!(loads(&world).get(1), Some(&0));
    run_calmly(&mut world, secs(60));
    assert_eq!(loads(&world), [0, 9, 0]);
    world.assert_served();
}

fn without_failback_preferred_nodes_get_what_is_new_or_lost_and_nothing_else() {
    let mut world = World::settled(&ALL, 9);
    ask(&mut world, FailbackMode::Never, &["b"]);
    world.hold_still();
    run_calmly(&mut world, secs(60));
    assert_eq!(loads(&world), [3, 3, 3]);
    world.laws.still = None;
    world.kill_node("a");
    world.run(secs(5));
    assert_eq!(loads(&world), [0, 6, 3]);
}

fn a_node_that_has_two_more_than_another_gives_one_away() {
    let mut world = World::settled(&ALL, 9);
    ask(&mut world, FailbackMode::Balance, &[]);
    world.drain("c", true);
    run_answered(&mut world, secs(5));
    assert_eq!(loads(&world).get(2), Some(&0));
    world.drain("c", false);
    run_calmly(&mut world, secs(9));
    assert_eq!(loads(&world).get(2), Some(&0), "the delay is not over");
    run_calmly(&mut world, secs(30));
    assert_eq!(loads(&world), [3, 3, 3]);
    world.hold_still();
    run_calmly(&mut world, secs(60));
    world.assert_served();
}

fn no_more_goes_within_a_minute_than_the_policy_allows() {
    let mut world = World::settled(&ALL, 9);
    ask(&mut world, FailbackMode::Preferred, &["b"]);
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.failback.moves_per_minute = 2;
    }
    world.publish_desired();
    run_calmly(&mut world, secs(50));
    assert_eq!(loads(&world).get(1), Some(&5));
    run_calmly(&mut world, secs(60));
    assert_eq!(loads(&world).get(1), Some(&7));
}

fn a_preferred_node_that_does_not_serve_what_it_is_given_costs_nothing() {
    let mut world = World::settled(&["a", "b"], 4);
    let mac = world.hosts["b"].mac;
    world.announce_from(mac, vip(200));
    world.hosts.of("b").kernel.refuses = true;
    ask(&mut world, FailbackMode::Preferred, &["b"]);
    run_answered(&mut world, secs(60));
    assert!(world.loads().get("a").is_some_and(|load| *load >= 2));
}

/// The owner knows of a policy that the other does not know of yet.
fn nodes_that_know_different_policies_do_not_throw_a_claim_to_and_fro() {
    let mut world = World::settled(&["a", "b"], 1);
    // They look for the next move at different times.
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.failback.mode = FailbackMode::Preferred;
    }
    world.publish_desired_to(|host| Duration::from_millis(if host == "a" { 500 } else { 0 }));
    world.run(secs(1));
    let moves = |world: &World| world.store.claims.values().next().unwrap().record.transitions;
    ask(&mut world, FailbackMode::Preferred, &["b"]);
    world.run(secs(15));
    assert_eq!(world.owner(1).as_deref(), Some("b"));
    let before = moves(&world);
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.preference = Arc::new([("a".parse().unwrap(), 10)].into());
    }
    world.publish_desired_to(|host| if host == "a" { secs(8) } else { Duration::ZERO });
    run_answered(&mut world, secs(8));
    let thrown = moves(&world) - before;
    assert!((2..=16).contains(&thrown), "{thrown} moves in 8 s");
    run_answered(&mut world, secs(4));
    assert_eq!(world.owner(1).as_deref(), Some("a"));
    world.assert_served();
}

/// Each node takes it now and then, finds a printer there, and gives it up.
fn an_address_that_nobody_can_have_keeps_nothing_else_where_it_is() {
    let mut world = World::settled(&ALL, 9);
    ask(&mut world, FailbackMode::Balance, &[]);
    world.kill_node("a");
    world.run(secs(10));
    world.strangers.insert(vip(10), pnet_base::MacAddr::new(2, 9, 9, 9, 9, 9));
    world.add_services(10, 10);
    world.run(secs(10));
    assert_eq!(world.owner(10), None);
    world.power_on(world.hosts.id("a"));
    world.run(secs(60));
    assert_eq!(loads(&world), [3, 3, 3]);
    assert_eq!(world.owner(10), None);
}

fn nothing_goes_while_the_api_server_is_gone() {
    let mut world = World::settled(&ALL, 9);
    ask(&mut world, FailbackMode::Preferred, &["b"]);
    run_calmly(&mut world, secs(5));
    world.set_api(false);
    world.hold_still();
    run_calmly(&mut world, secs(60));
    assert_eq!(loads(&world), [3, 3, 3]);
    world.laws.still = None;
    world.set_api(true);
    run_calmly(&mut world, secs(60));
    assert_eq!(loads(&world), [0, 9, 0]);
}

pub(super) const RUNS: &[Run] = runs![
    what_a_preferred_node_could_have_goes_there_after_the_delay_one_claim_after_another,
    without_failback_preferred_nodes_get_what_is_new_or_lost_and_nothing_else,
    a_node_that_has_two_more_than_another_gives_one_away,
    no_more_goes_within_a_minute_than_the_policy_allows,
    a_preferred_node_that_does_not_serve_what_it_is_given_costs_nothing,
    nodes_that_know_different_policies_do_not_throw_a_claim_to_and_fro,
    an_address_that_nobody_can_have_keeps_nothing_else_where_it_is,
    nothing_goes_while_the_api_server_is_gone,
];
