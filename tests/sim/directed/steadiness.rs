//! Nodes that are fenced again and again.

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::session;

const ALL: [&str; 3] = ["a", "b", "c"];

/// The owner dies and comes back as another boot.
fn dies_and_returns(world: &mut World, node: &str) {
    world.kill_node(node);
    world.run(secs(5));
    world.power_on(world.hosts.id(node));
    world.run(secs(5));
    world.assert_served();
}

fn fences(world: &World, node: &str) -> u32 {
    world.store.sessions[&session(node)].record.fences
}

fn it_takes_orphans_after_all_others_until_it_has_been_steady_for_a_while() {
    let mut world = World::listening(&ALL, 12);
    for _ in 0..3 {
        dies_and_returns(&mut world, "a");
    }
    assert_eq!(fences(&world, "a"), 3);
    // Nothing came back to it; of what is orphaned now, and it would have to take half, it gets nothing.
    dies_and_returns(&mut world, "b");
    assert_eq!(world.loads(), [("c".to_owned(), 12)].into());
    // A restarted speaker is as it was.
    world.kill("a");
    world.start("a");
    world.run(secs(5));
    assert_eq!(fences(&world, "a"), 3);
    world.run(secs(610));
    assert_eq!((fences(&world, "a"), fences(&world, "b")), (0, 0));
    dies_and_returns(&mut world, "c");
    assert_eq!(world.loads(), [("a".to_owned(), 6), ("b".to_owned(), 6)].into());
}

fn it_counts_as_steady_at_once_where_somebody_says_so() {
    let mut world = World::listening(&ALL, 12);
    for _ in 0..3 {
        dies_and_returns(&mut world, "a");
    }
    world.edit_session("a", |session| session.fences = 0);
    world.run(secs(5));
    assert_eq!(fences(&world, "a"), 0);
    dies_and_returns(&mut world, "b");
    assert!(!world.owned_by("a").is_empty());
}

/// Nobody has seen all fences: a node that is dead misses those of others.
fn all_nodes_rank_alike_whatever_they_have_missed() {
    for services in [1, 4] {
        let mut world = World::listening(&ALL, services);
        for round in 0..12 {
            let owner = world.owner(1).unwrap();
            world.kill_node(&owner);
            let took = world.outage();
            assert!(took < millis(150), "{services} services, round {round}: {took:?}");
            world.run(secs(4));
            world.power_on(world.hosts.id(&owner));
            world.run(secs(4));
        }
        world.assert_served();
    }
}

pub(super) const RUNS: &[Run] = runs![
    it_takes_orphans_after_all_others_until_it_has_been_steady_for_a_while,
    it_counts_as_steady_at_once_where_somebody_says_so,
    all_nodes_rank_alike_whatever_they_have_missed,
];
