//! Planned moves: make before break.

use std::sync::Arc;

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Run, millis, runs, secs};
use crate::world::controls::{claim, on_claim, vip};
use crate::world::{Trouble, World};
use leasehold_core::election::Frame;

const ALL: [&str; 3] = ["a", "b", "c"];

/// Runs for `seconds` and checks after each millisecond that somebody has each address.
fn run_without_a_gap(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 1000 {
        world.run(millis(1));
        for claim in world.desired.claims.values() {
            for ip in &claim.addresses {
                assert!(!world.having(*ip).is_empty(), "{}: nobody has {ip}", world.now);
            }
        }
    }
}

fn owned_by(world: &World, node: &str) -> Vec<u8> {
    (1..=9).filter(|number| world.owner(*number).as_deref() == Some(node)).collect()
}

fn a_drained_node_hands_over_what_it_has_without_a_gap() {
    let mut world = World::settled(&ALL, 9);
    world.drain("a", true);
    run_without_a_gap(&mut world, 2);
    assert_eq!(world.loads().get("a"), None);
    world.assert_served();
    world.drain("a", false);
    run_without_a_gap(&mut world, 2);
    assert_eq!(world.loads().get("a"), None, "nothing moves back");
}

fn a_policy_that_excludes_the_node_moves_its_claims_without_a_gap() {
    let mut world = World::settled(&ALL, 9);
    let rest: BTreeSet<_> = ["b", "c"].map(|node| node.parse().unwrap()).into();
    for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
        claim.nodes = rest.clone().into();
    }
    world.publish_desired();
    run_without_a_gap(&mut world, 2);
    assert_eq!(world.loads().get("a"), None);
    world.assert_served();
}

/// It cannot name its successor, and nobody takes what it has not released.
fn a_policy_that_excludes_the_node_moves_nothing_before_that_can_be_written() {
    for before in [0, 3_000] {
        let mut world = World::listening(&ALL, 9);
        world.set_read_only(true);
        world.run(millis(before));
        let rest: BTreeSet<_> = ["b", "c"].map(|node| node.parse().unwrap()).into();
        for claim in world.desired.claims.values_mut().map(Arc::make_mut) {
            claim.nodes = rest.clone().into();
        }
        world.publish_desired();
        run_without_a_gap(&mut world, 20);
        world.set_read_only(false);
        run_without_a_gap(&mut world, 5);
        assert_eq!(world.loads().get("a"), None);
        world.assert_served();
    }
}

fn the_old_owner_removes_only_when_it_has_heard_the_announcement() {
    let mut world = World::settled(&["a", "b"], 1);
    let old = world.owner(1).unwrap();
    let new = if old == "a" { "b" } else { "a" };
    world.drain(&old, true);
    let both = RefCell::new(false);
    world.run_until(|world| {
        let have = world.having(vip(1));
        *both.borrow_mut() |= have.len() == 2;
        have == [new.to_owned()].into()
    });
    assert!(both.into_inner(), "make before break");
}

fn an_old_owner_that_hears_nothing_probes_and_takes_the_claim_back_from_a_silent_successor() {
    let mut world = World::settled(&["a", "b"], 9);
    let moving = owned_by(&world, "a");
    // The announcer says nothing, and the kernel does not add: heard before, it is silent now.
    let since = world.now;
    world.hosts.of("b").kernel.refuses = true;
    let mac = world.hosts["b"].mac;
    world.announce_from(mac, vip(200));
    world.run(millis(10));
    world.drain("a", true);
    run_without_a_gap(&mut world, 3);
    let probes = world
        .frames_since(since)
        .filter(|(host, frame)| *host == "a" && matches!(frame, Frame::Probe(_)));
    assert!(probes.count() >= 2);
    world.drain("a", false);
    run_without_a_gap(&mut world, 3);
    for number in moving {
        assert_eq!(world.owner(number).as_deref(), Some("a"));
    }
}

fn an_old_owner_that_cannot_read_whether_its_successor_took_the_claim_asks_and_yields() {
    let mut world = World::settled(&["a", "b"], 1);
    let old = world.owner(1).unwrap();
    let new = if old == "a" { "b" } else { "a" };
    // The old owner sees nothing of what is stored from here on, and soon it cannot read either.
    world.drain(&old, true);
    world.run_until(|world| world.store.claims[&claim(1)].record.successor.is_some());
    world.hosts.of(&old).watch_hung = true;
    world.run_until(|world| world.owner(1).as_deref() == Some(new));
    world.set_api(false);
    world.laws.overlap = Some(secs(5));
    world.run(secs(5));
    assert_eq!(world.having(vip(1)), [new.to_owned()].into(), "one of two owners has yielded");
    run_without_a_gap(&mut world, 20);
    world.hosts.of(&old).watch_hung = false;
    world.set_api(true);
    run_without_a_gap(&mut world, 20);
    assert_eq!(world.having(vip(1)), [new.to_owned()].into());
}

fn a_successor_that_dies_after_taking_the_claim_loses_it_again() {
    let mut world = World::settled(&["a", "b"], 1);
    let old = world.owner(1).unwrap();
    let new = if old == "a" { "b" } else { "a" };
    let mac = world.hosts[new].mac;
    world.announce_from(mac, vip(200));
    world.run(millis(10));
    world.drain(&old, true);
    world.run_until(|world| world.owner(1).as_deref() == Some(new));
    world.kill_node(new);
    run_without_a_gap(&mut world, 20);
    assert_eq!(world.owner(1), Some(old));
    world.assert_served();
}

fn a_successor_that_does_not_take_in_time_is_replaced() {
    let mut world = World::settled(&ALL, 9);
    // What b is to take never arrives.
    world.fault(Some("b"), on_claim, Trouble::Lost, 1000);
    world.drain("a", true);
    run_without_a_gap(&mut world, 6);
    assert_eq!(owned_by(&world, "a"), [0_u8; 0]);
    world.assert_served();
}

fn a_drained_node_without_a_successor_keeps_what_it_has() {
    let mut world = World::settled(&["a"], 3);
    world.hold_still();
    world.drain("a", true);
    world.run(secs(10));
    world.assert_served();
}

fn a_leaving_node_without_a_successor_removes_then_releases() {
    let mut world = World::settled(&["a"], 3);
    world.drain("a", true);
    world.terminate("a");
    world.run_until(|world| world.store.claims[&claim(1)].record.holder.is_none());
    assert!(world.having(vip(1)).is_empty());
    world.run_until(|world| world.hosts["a"].exited);
    assert_eq!(world.loads().len(), 0);
}

fn a_named_successor_is_forgotten_by_the_next_owner() {
    let mut world = World::settled(&ALL, 9);
    world.drain("a", true);
    world.run(secs(3));
    assert!(world.store.claims.values().all(|claim| claim.record.successor.is_none()));
}

pub(super) const RUNS: &[Run] = runs![
    a_drained_node_hands_over_what_it_has_without_a_gap,
    a_policy_that_excludes_the_node_moves_its_claims_without_a_gap,
    a_policy_that_excludes_the_node_moves_nothing_before_that_can_be_written,
    the_old_owner_removes_only_when_it_has_heard_the_announcement,
    an_old_owner_that_hears_nothing_probes_and_takes_the_claim_back_from_a_silent_successor,
    an_old_owner_that_cannot_read_whether_its_successor_took_the_claim_asks_and_yields,
    a_successor_that_dies_after_taking_the_claim_loses_it_again,
    a_successor_that_does_not_take_in_time_is_replaced,
    a_drained_node_without_a_successor_keeps_what_it_has,
    a_leaving_node_without_a_successor_removes_then_releases,
    a_named_successor_is_forgotten_by_the_next_owner,
];
