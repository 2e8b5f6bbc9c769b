//! Nodes that are down, and who sees it, how soon.

use std::time::Duration;

use leasehold_core::desired::OnApiOutage;

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::lease_only;

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// Four hosts of which the first owns an address: the others own nothing.
fn one_owner() -> (World, String) {
    let world = World::listening(&NODES, 1);
    let owner = world.owner_of(crate::world::controls::vip(1)).unwrap();
    (world, owner)
}

fn seen(world: &World, by: &str, node: &str) -> bool {
    let host = world.hosts.iter().find(|host| host.name == by).unwrap();
    host.down.nodes.contains(&node.parse().unwrap())
}

fn lost(world: &World, by: &str, node: &str) -> bool {
    let host = world.hosts.iter().find(|host| host.name == by).unwrap();
    host.down.lost.contains(&node.parse().unwrap())
}

/// How long it takes until all of these see that `node` is down, or is not.
fn until_seen(world: &mut World, by: &[&str], node: &str, down: bool) -> Duration {
    let start = world.now;
    let end = start + secs(30);
    while by.iter().any(|name| seen(world, name, node) != down) {
        assert!(world.step(end), "{by:?} have not seen {node} within 30 s");
    }
    world.now.saturating_since(start)
}

fn others<'a>(than: &str) -> Vec<&'a str> {
    NODES.into_iter().filter(|name| *name != than).collect()
}

fn a_dead_node_is_seen_down_by_all_whether_it_owned_anything_or_not() {
    let (_, owner) = one_owner();
    for dead in NODES {
        let (mut world, _) = one_owner();
        world.kill_node(dead);
        let took = until_seen(&mut world, &others(dead), dead, true);
        let what = if dead == owner { "the owner" } else { "a node that owns nothing" };
        assert!(took <= millis(200), "{what} is seen down after {took:?}");
        assert!(others(dead).iter().all(|name| !lost(&world, name, dead)));
        world.run(secs(3));
        assert!(others(dead).iter().all(|name| lost(&world, name, dead)), "its connections end");
    }
}

fn without_the_api_server_a_dead_node_is_seen_down_as_soon() {
    for dead in NODES {
        let (mut world, _) = one_owner();
        world.set_api(false);
        world.run(secs(1));
        world.kill_node(dead);
        let took = until_seen(&mut world, &others(dead), dead, true);
        assert!(took <= millis(200), "{dead} is seen down after {took:?}");
        world.run(secs(10));
        assert!(others(dead).iter().all(|name| seen(&world, name, dead)), "{dead} is up again");
    }
}

fn those_who_do_not_poll_a_dead_node_learn_of_it_by_its_fence() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::listening(&all, 1);
    let owner = world.owner_of(crate::world::controls::vip(1)).unwrap();
    let dead = all.iter().copied().find(|name| *name != owner).unwrap();
    world.kill_node(dead);
    let others: Vec<&str> = all.into_iter().filter(|name| *name != dead).collect();
    let took = until_seen(&mut world, &others, dead, true);
    assert!(took <= millis(230), "all have seen it after {took:?}");
}

fn a_node_that_is_back_is_no_longer_down() {
    let (mut world, owner) = one_owner();
    let dead = others(&owner)[0];
    world.kill_node(dead);
    world.run(secs(4));
    let id = world.hosts.id(dead);
    world.power_on(id);
    world.kill(dead);
    world.run(secs(1));
    assert!(seen(&world, &owner, dead), "its kernel answers, and its pods do not run");
    world.start(dead);
    let took = until_seen(&mut world, &others(dead), dead, false);
    assert!(took <= secs(2), "it was seen after {took:?}");
}

fn a_node_whose_speaker_hangs_is_down_when_its_session_has_ended_and_its_connections_go_on() {
    let (mut world, owner) = one_owner();
    let id = world.hosts.id(&owner);
    // What it has it has for its lifetime.
    world.laws.overlap = Some(secs(3));
    world.stop(id, false);
    until_seen(&mut world, &others(&owner), &owner, true);
    world.run(secs(30));
    assert!(others(&owner).iter().all(|name| seen(&world, name, &owner)));
    assert!(others(&owner).iter().all(|name| !lost(&world, name, &owner)), "it answers");
    world.cont(id);
    until_seen(&mut world, &others(&owner), &owner, false);
}

fn a_process_that_has_listened_to_nobody_yet_ends_no_connection() {
    let (mut world, owner) = one_owner();
    let (dead, late) = (others(&owner)[0], others(&owner)[1]);
    world.kill(late);
    world.kill_node(dead);
    world.run(secs(4));
    let id = world.hosts.id(dead);
    world.power_on(id);
    world.kill(dead);
    // It knows of the fence, and cannot begin a session.
    world.set_read_only(true);
    world.start(late);
    world.run(secs(4));
    world.set_read_only(false);
    for _ in 0..50 {
        world.run(millis(100));
        assert!(!lost(&world, late, dead), "its kernel answers");
    }
}

fn a_node_that_leaves_is_down_when_it_is_shut_down_and_not_before() {
    for leaving in NODES {
        let (mut world, _) = one_owner();
        world.leave(leaving);
        world.run(secs(20));
        assert!(others(leaving).iter().all(|name| !seen(&world, name, leaving)));
        let id = world.hosts.id(leaving);
        world.power_off(id);
        let took = until_seen(&mut world, &others(leaving), leaving, true);
        assert!(took <= millis(200), "it was seen after {took:?}");
        // Until then Kubernetes has said what its pods are good for.
        world.run(secs(120));
        assert!(others(leaving).iter().all(|name| !seen(&world, name, leaving)));
    }
}

fn where_the_wire_does_not_count_a_dead_node_is_down_when_its_session_has_ended() {
    let mut world = World::new(&NODES);
    world.add_services_with(1, 1, lease_only(), OnApiOutage::Hold);
    world.run(secs(4));
    let owner = world.owner_of(crate::world::controls::vip(1)).unwrap();
    let dead = others(&owner)[0];
    world.kill_node(dead);
    let took = until_seen(&mut world, &others(dead), dead, true);
    assert!((secs(3)..secs(8)).contains(&took), "it was seen after {took:?}");
}

fn kubernetes_is_believed_when_it_has_said_for_long_that_a_node_is_ready() {
    let (mut world, owner) = one_owner();
    let dead = others(&owner)[0];
    world.kill_node(dead);
    world.run(secs(110));
    assert!(seen(&world, &owner, dead));
    world.run(secs(20));
    assert!(!seen(&world, &owner, dead));
    // It says that it is not.
    let dead = others(&owner)[1];
    world.kill_node(dead);
    world.set_state(dead, leasehold_core::desired::NodeState::NotReady);
    world.run(secs(200));
    assert!(seen(&world, &owner, dead));
}

pub(super) const RUNS: &[Run] = runs![
    a_dead_node_is_seen_down_by_all_whether_it_owned_anything_or_not,
    without_the_api_server_a_dead_node_is_seen_down_as_soon,
    those_who_do_not_poll_a_dead_node_learn_of_it_by_its_fence,
    a_node_that_is_back_is_no_longer_down,
    a_node_whose_speaker_hangs_is_down_when_its_session_has_ended_and_its_connections_go_on,
    a_process_that_has_listened_to_nobody_yet_ends_no_connection,
    a_node_that_leaves_is_down_when_it_is_shut_down_and_not_before,
    where_the_wire_does_not_count_a_dead_node_is_down_when_its_session_has_ended,
    kubernetes_is_believed_when_it_has_said_for_long_that_a_node_is_ready,
];
