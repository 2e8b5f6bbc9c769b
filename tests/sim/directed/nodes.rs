//! What the state of a node does to its addresses.

use std::sync::Arc;

use leasehold_core::desired::{Failback, FailbackMode, NodeState, Silence};

use super::{Run, millis, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::vip;

const ALL: [&str; 3] = ["a", "b", "c"];

fn load(world: &World, node: &str) -> usize {
    world.loads().get(node).copied().unwrap_or(0)
}

fn a_cordoned_node_keeps_what_it_has_and_takes_nothing() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    world.set_state("a", NodeState::Cordoned);
    world.run(secs(20));
    world.laws.still = None;
    world.kill_node("b");
    world.run(secs(5));
    assert_eq!((load(&world, "a"), load(&world, "c")), (3, 6));
    world.assert_served();
    // Pods begin to leave it.
    world.set_state("a", NodeState::Draining);
    run_answered(&mut world, secs(3));
    assert_eq!((load(&world, "a"), load(&world, "c")), (0, 9));
}

fn where_the_policy_says_so_a_cordoned_node_gives_at_once_what_it_has() {
    let mut world = World::settled(&ALL, 9);
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.drain_on_cordon = claim.services != ["web/s001"];
    }
    let held: Vec<u8> =
        (1..=9).filter(|number| world.owner(*number).as_deref() == Some("a")).collect();
    world.set_state("a", NodeState::Cordoned);
    run_answered(&mut world, secs(3));
    assert_eq!(load(&world, "a"), usize::from(held.contains(&1)));
    world.assert_served();
}

fn a_node_that_stays_unready_gives_to_those_that_are_ready() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    world.set_state("a", NodeState::NotReady);
    world.run(secs(9));
    world.laws.still = None;
    run_answered(&mut world, secs(4));
    assert_eq!(load(&world, "a"), 0);
    world.set_state("a", NodeState::Ready);
    world.hold_still();
    world.run(secs(20));
}

fn nodes_that_are_late_all_at_once_and_come_back_one_by_one_keep_everything() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    for node in ALL {
        world.set_state(node, NodeState::NotReady);
        world.run(secs(1));
    }
    world.run(secs(60));
    for node in ALL {
        world.set_state(node, NodeState::Ready);
        world.run(secs(4));
    }
    world.run(secs(30));
}

fn what_no_other_node_can_take_goes_to_one_that_is_not_ready() {
    let mut world = World::settled(&ALL, 9);
    for node in ["a", "b"] {
        world.set_state(node, NodeState::NotReady);
    }
    world.run(secs(3));
    let taken = load(&world, "a") + load(&world, "b");
    world.kill_node("c");
    world.run(secs(5));
    assert_eq!(load(&world, "a") + load(&world, "b"), 9);
    assert!(taken < 9);
    world.assert_served();
}

fn a_node_whose_network_is_not_set_up_gives_what_it_has_unless_nobody_takes_it() {
    let mut world = World::settled(&ALL, 9);
    world.set_state("a", NodeState::NetworkUnavailable);
    run_answered(&mut world, secs(3));
    assert_eq!(load(&world, "a"), 0);
    for node in ["b", "c"] {
        world.set_state(node, NodeState::NetworkUnavailable);
    }
    run_answered(&mut world, secs(20));
    world.assert_served();
}

fn services_without_an_endpoint_are_announced_by_nobody_and_say_so() {
    let mut world = World::settled(&ALL, 3);
    let nodes = world.desired.claims.values().next().unwrap().nodes.clone();
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.nodes = std::sync::Arc::default();
        claim.silence = Some(Silence::NoEndpoint);
    }
    world.publish_desired();
    world.run(secs(2));
    for stored in world.store.claims.values() {
        assert_eq!(stored.record.holder, None);
        let cause = &stored.record.cause;
        assert!(cause.ends_with(": its Services have no endpoint"), "{cause}");
    }
    assert!(world.having(vip(1)).is_empty());
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.nodes = nodes.clone();
        claim.silence = None;
    }
    world.publish_desired();
    world.run(secs(2));
    world.assert_served();
}

fn what_a_policy_that_cannot_be_read_governs_stays_with_its_owners_and_goes_to_nobody() {
    let mut world = World::settled(&ALL, 3);
    let nodes = world.desired.claims.values().next().unwrap().nodes.clone();
    let owners = |world: &World| (1..=3).map(|number| world.owner(number)).collect::<Vec<_>>();
    let before = owners(&world);
    let hold = |world: &mut World, held: bool| {
        for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
            claim.nodes = if held { Arc::default() } else { nodes.clone() };
            claim.held = held;
        }
        world.publish_desired();
    };
    hold(&mut world, true);
    world.hold_still();
    world.set_state("a", NodeState::Draining);
    world.run(secs(20));
    assert_eq!(owners(&world), before);
    world.assert_served();
    world.laws.still = None;

    world.set_state("a", NodeState::Ready);
    world.kill_node("a");
    world.run(secs(20));
    assert_eq!((load(&world, "b"), load(&world, "c")), (1, 1));
    hold(&mut world, false);
    world.run(secs(5));
    world.assert_served();
}

/// The one node to which failback has a claim sent cannot take it; the owner is drained, and the next successor takes it.
fn a_drained_node_waits_for_no_node_that_failback_chose() {
    let mut world = World::settled(&ALL, 3);
    let failback =
        Failback { mode: FailbackMode::Preferred, delay: secs(2), ..Failback::default() };
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.failback = failback;
        claim.preference = std::sync::Arc::new([("b".parse().unwrap(), 10)].into());
    }
    // What b is to take never arrives.
    world.fault(Some("b"), crate::world::controls::on_claim, crate::world::Trouble::Lost, 1000);
    world.publish_desired();
    let giving = |world: &World| {
        let mut claims = world.store.claims.values();
        let claim = claims.find(|claim| claim.record.successor.is_some())?;
        claim.record.holder.clone()
    };
    world.run_until(|world| giving(world).is_some());
    let owner = giving(&world).unwrap();
    world.drain(owner.as_str(), true);
    // For as long as a successor has to take a claim.
    for _ in 0..3_500 {
        world.run(millis(1));
        if load(&world, owner.as_str()) == 0 {
            break;
        }
    }
    assert_eq!(load(&world, owner.as_str()), 0, "3.5 s later");
    run_answered(&mut world, secs(1));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    a_cordoned_node_keeps_what_it_has_and_takes_nothing,
    where_the_policy_says_so_a_cordoned_node_gives_at_once_what_it_has,
    a_node_that_stays_unready_gives_to_those_that_are_ready,
    nodes_that_are_late_all_at_once_and_come_back_one_by_one_keep_everything,
    what_no_other_node_can_take_goes_to_one_that_is_not_ready,
    a_node_whose_network_is_not_set_up_gives_what_it_has_unless_nobody_takes_it,
    services_without_an_endpoint_are_announced_by_nobody_and_say_so,
    what_a_policy_that_cannot_be_read_governs_stays_with_its_owners_and_goes_to_nobody,
    a_drained_node_waits_for_no_node_that_failback_chose,
];
