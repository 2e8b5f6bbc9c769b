//! Connections after planned moves: where packets go that the owner does not know.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::desired::NodeState;

use super::{Run, runs, secs};
use crate::dice::Dice;
use crate::world::World;
use crate::world::controls::vip;

const ALL: [&str; 3] = ["a", "b", "c"];

/// Three hosts and one address, on the first of `order`.
fn owned_by(first: &str) -> World {
    let mut world = World::listening(&ALL, 1);
    move_to(&mut world, first);
    // The time of what was forwarded before is over.
    world.run(secs(601));
    assert_eq!(world.way(vip(1)), [first]);
    world
}

/// A planned move to `node`.
fn move_to(world: &mut World, node: &str) {
    let others = || ALL.into_iter().filter(|other| *other != node);
    for state in [NodeState::Draining, NodeState::Ready] {
        for other in others() {
            world.desired.nodes.insert(other.parse().unwrap(), state);
        }
        world.publish_desired();
        world.run(secs(3));
        assert_eq!(world.owner(1).as_deref(), Some(node), "it did not move");
    }
}

fn after_a_move_the_former_owner_is_sent_what_is_not_known_for_ten_minutes() {
    let mut world = owned_by("a");
    move_to(&mut world, "b");
    assert_eq!(world.way(vip(1)), ["b", "a"]);
    world.run(secs(590));
    assert_eq!(world.way(vip(1)), ["b", "a"]);
    world.run(secs(15));
    assert_eq!(world.way(vip(1)), ["b"]);
}

fn after_any_moves_all_former_owners_are_on_the_way_the_last_one_first() {
    let mut world = owned_by("a");
    for (to, way) in [
        ("b", ["b", "a"].as_slice()),
        ("c", &["c", "b", "a"]),
        ("a", &["a", "c", "b"]),
        ("c", &["c", "a", "b"]),
        ("b", &["b", "c", "a"]),
    ] {
        move_to(&mut world, to);
        assert_eq!(world.way(vip(1)), way);
    }
    world.run(secs(601));
    assert_eq!(world.way(vip(1)), ["b"]);
    let named = world.store.valid_claims().flat_map(|claim| &claim.former).count();
    assert_eq!(named, 0, "the lease goes on to name former owners");
}

/// Whoever has heard of which moves.
fn no_client_is_reset_while_the_address_moves() {
    for seed in 0..20 {
        let mut world = owned_by("a");
        world.dice = Dice::new(seed);
        world.jitter = true;
        let mut before = vec!["a"];
        for to in ["b", "a", "b", "c", "a", "c", "b", "a"] {
            let others = || ALL.into_iter().filter(|other| *other != to);
            for state in [NodeState::Draining, NodeState::Ready] {
                for other in others() {
                    world.desired.nodes.insert(other.parse().unwrap(), state);
                }
                world.publish_desired();
                let end = world.now + secs(3);
                while world.step(end) {
                    world.assert_unbroken(vip(1), &before);
                }
            }
            assert_eq!(world.owner(1).as_deref(), Some(to), "it did not move");
            if !before.contains(&to) {
                before.push(to);
            }
        }
    }
}

fn where_the_policy_says_so_nothing_is_forwarded() {
    let mut world = World::listening(&ALL, 1);
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.connection_handover = Duration::ZERO;
    }
    world.publish_desired();
    for node in ["a", "b", "c"] {
        move_to(&mut world, node);
        assert_eq!(world.way(vip(1)), [node]);
    }
}

fn after_a_failure_nothing_is_forwarded_to_the_node_that_failed() {
    let mut world = owned_by("a");
    world.kill_node("a");
    world.run(secs(10));
    let owner = world.owner(1).unwrap();
    assert_eq!(world.way(vip(1)), [owner.as_str()]);
    let id = world.hosts.id("a");
    world.power_on(id);
    world.run(secs(10));
    assert_eq!(world.way(vip(1)), [owner.as_str()]);
}

fn a_former_owner_that_dies_is_passed_over() {
    for dies in ["b", "c"] {
        let mut world = owned_by("a");
        move_to(&mut world, "b");
        move_to(&mut world, "c");
        world.kill_node(dies);
        world.run(secs(10));
        let way: BTreeSet<&str> = world.way(vip(1)).into_iter().collect();
        let others: BTreeSet<&str> = ALL.into_iter().filter(|name| *name != dies).collect();
        assert_eq!(way, others, "{dies} has died");
    }
}

fn what_is_forwarded_to_a_node_that_dies_ends_after_seconds() {
    for leaves in [false, true] {
        let mut world = owned_by("a");
        if leaves {
            world.leave("a");
            world.run(secs(300));
        } else {
            move_to(&mut world, "b");
        }
        let owner = world.owner(1).unwrap();
        assert_eq!(world.way(vip(1)), [owner.as_str(), "a"], "its kernel lives");
        let id = world.hosts.id("a");
        world.power_off(id);
        world.run(secs(4));
        let host = &world.hosts[world.hosts.id(&owner)];
        let mut onward = host.kernel.forwarding.onward.values();
        assert!(onward.all(|onward| onward.to.is_none()), "leaves: {leaves}");
    }
}

fn a_process_that_follows_another_goes_on_forwarding() {
    let mut world = owned_by("a");
    move_to(&mut world, "b");
    world.terminate("b");
    world.run(secs(2));
    world.start("b");
    world.run(secs(5));
    assert_eq!(world.owner(1).as_deref(), Some("b"));
    assert_eq!(world.way(vip(1)), ["b", "a"]);
    move_to(&mut world, "c");
    assert_eq!(world.way(vip(1)), ["c", "b", "a"]);
    world.kill("b");
    world.run(secs(1));
    world.start("b");
    world.run(secs(5));
    assert_eq!(world.way(vip(1)), ["c", "b", "a"]);
    world.run(secs(601));
    assert_eq!(world.way(vip(1)), ["c"]);
}

/// Each step leads to a node whose last tenure is older, whatever a node has not heard of.
fn a_node_that_hears_nothing_of_moves_is_no_part_of_a_circle() {
    for deaf in ALL {
        let mut world = owned_by("a");
        move_to(&mut world, "b");
        move_to(&mut world, "c");
        let id = world.hosts.id(deaf);
        world.hosts[id].watch_hung = true;
        for node in ["a", "b", "c", "b", "a"] {
            if node != deaf && world.owner(1).as_deref() != Some(deaf) {
                move_to(&mut world, node);
                assert_eq!(world.way(vip(1)).first(), Some(&node));
            }
        }
    }
}

pub(super) const RUNS: &[Run] = runs![
    after_a_move_the_former_owner_is_sent_what_is_not_known_for_ten_minutes,
    after_any_moves_all_former_owners_are_on_the_way_the_last_one_first,
    no_client_is_reset_while_the_address_moves,
    a_former_owner_that_dies_is_passed_over,
    where_the_policy_says_so_nothing_is_forwarded,
    after_a_failure_nothing_is_forwarded_to_the_node_that_failed,
    what_is_forwarded_to_a_node_that_dies_ends_after_seconds,
    a_process_that_follows_another_goes_on_forwarding,
    a_node_that_hears_nothing_of_moves_is_no_part_of_a_circle,
];
