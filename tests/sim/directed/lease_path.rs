//! The lease path: a silent node is fenced, its claims are taken, and it comes back.

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, session, vip};
use leasehold_core::election::{Target, Write};

const ALL: [&str; 4] = ["a", "b", "c", "d"];

fn a_dead_node_is_fenced_once_and_its_claims_are_taken_evenly() {
    let mut world = World::settled(&ALL, 40);
    let since = world.now;
    world.kill_node("a");
    let took = world.run_until(|world| {
        world.loads().values().sum::<usize>() == 40 && !world.loads().contains_key("a")
    });
    assert!((millis(3300)..millis(6000)).contains(&took), "{took:?}");
    world.run(secs(2));
    world.assert_served();
    assert_eq!(world.fences("a", since).len(), 1);
    let loads = world.loads();
    let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
    assert!(most - least <= 1, "{loads:?}");
}

fn two_dead_nodes_leave_nothing_unowned() {
    let mut world = World::settled(&ALL, 40);
    world.kill_node("a");
    world.kill_node("b");
    world.run(secs(12));
    world.assert_served();
}

fn a_killed_speaker_leaves_its_addresses_to_the_kernel_until_others_have_them() {
    let mut world = World::settled(&ALL, 8);
    // The kernel keeps what a hung or killed owner had for 2.03 s at most.
    world.laws.overlap = Some(millis(2030));
    world.kill("a");
    world.run(secs(12));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.assert_served();
}

fn a_fenced_node_removes_then_acquires_and_does_not_win_its_orphans_back() {
    let mut world = World::settled(&ALL, 8);
    let owned: Vec<u8> = (1..=8).filter(|n| world.owner(*n).as_deref() == Some("a")).collect();
    world.cut_off("a");
    world.set_api_of("a", false);
    world.run(secs(12));
    assert_eq!(world.loads().get("a"), None);
    // It could not know, and holds on.
    assert!(!world.hosts["a"].kernel.ours.is_empty());
    let since = world.now;
    world.set_api_of("a", true);
    let acquired = |world: &World| {
        let stored = &world.store.sessions[&session("a")];
        stored.record.holder.is_some()
    };
    world.run_until(acquired);
    assert!(world.hosts["a"].kernel.ours.is_empty(), "first remove, then acquire");
    world.run(secs(20));
    world.heal_wire();
    world.run(secs(5));
    world.assert_served();
    for number in owned {
        assert_ne!(world.owner(number).as_deref(), Some("a"), "{}", vip(number));
    }
    let took = |write: &crate::world::Committed| {
        write.at >= since && write.host == "a" && matches!(write.write, Write::Claim(_))
    };
    assert!(!world.committed.iter().any(took));
}

fn an_owner_without_the_api_yields_to_those_who_took_over() {
    let mut world = World::settled(&ALL, 8);
    world.set_api_of("a", false);
    world.run(secs(12));
    assert_eq!(world.loads().get("a"), None);
    world.assert_served();
}

fn old_owners_that_answer_are_told_until_they_know() {
    let mut world = World::settled(&["a", "b"], 4);
    world.laws.overlap = Some(secs(60));
    world.set_api_of("a", false);
    world.set_carrier("a", false);
    // Down with its links, it cannot answer; its kernel still has the addresses.
    let since = world.now;
    world.run(secs(10));
    let asks = world.frames_since(since).filter(|(host, frame)| {
        *host == "b" && matches!(frame, leasehold_core::election::Frame::Ask(_, _))
    });
    assert!(asks.count() > 50);
    world.set_api_of("a", true);
    world.set_carrier("a", true);
    world.run(secs(2));
    let since = world.now;
    world.run(secs(2));
    assert_eq!(world.frames_since(since).count(), 0, "nobody asks any more");
    world.assert_served();
}

fn a_lost_carrier_removes_the_addresses_and_releases_the_session_with_one_write() {
    let mut world = World::settled(&ALL, 16);
    let since = world.now;
    world.set_carrier("a", false);
    let released = |world: &World| world.store.sessions[&session("a")].record.holder.is_none();
    let took = world.run_until(released);
    assert!(took < millis(20), "{took:?}");
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.run(secs(1));
    assert_eq!(world.fences("a", since).len(), 0);
    assert_eq!(world.loads().get("a"), None);
    let by_a = world.committed.iter().filter(|write| write.at >= since && write.host == "a");
    assert!(by_a.clone().all(|write| matches!(write.write, Write::Session(_))));
    world.set_carrier("a", true);
    world.run(secs(5));
    world.assert_served();
    assert_eq!(world.loads().get("a"), None, "nothing moves back");
    world.add_services(17, 20);
    world.run(secs(2));
    assert!(world.loads().contains_key("a"), "it takes part again");
}

fn a_lone_claim_on_a_lost_carrier_moves_too() {
    let mut world = World::settled(&["a", "b", "c"], 3);
    let number = (1..=3).find(|n| world.owner(*n).as_deref() == Some("a")).unwrap();
    world.set_carrier("a", false);
    world.run(secs(2));
    assert_ne!(world.owner(number).as_deref(), Some("a"));
    world.assert_served();
}

fn a_node_that_hears_nobody_takes_nothing_while_others_live() {
    let mut world = World::settled(&["a", "b", "c"], 6);
    world.cut_off("a");
    world.run(secs(4));
    let before = world.loads()["a"];
    world.add_services(7, 12);
    world.run(secs(5));
    assert_eq!(world.loads()["a"], before);
    world.assert_served();
}

/// A lease that somebody deletes is vacant at once: others do not wait until its owner, which can have
/// been stopped only just now, has not renewed for L.
fn a_lease_that_is_deleted_while_its_owner_is_stopped_goes_to_another() {
    let mut world = World::settled(&["a", "b", "c"], 3);
    let number = (1..=3).find(|n| world.owner(*n).as_deref() == Some("a")).unwrap();
    world.run(secs(20));
    world.laws.overlap = None;
    world.stop(world.hosts.id("a"), false);
    world.delete(&Target::Claim(claim(number)));
    world.run(secs(4));
    assert_ne!(world.owner(number).as_deref(), Some("a"));
    assert_eq!(world.having(vip(number)).len(), 2);
    world.run(secs(4));
    world.assert_served();
}

/// Without a router, and with no link anywhere: there is nothing that a law could ask for.
fn where_no_node_has_a_link_nobody_serves_until_one_is_back() {
    let mut world = World::listening(&["a", "b"], 4);
    world.router = false;
    world.laws.overlap = None;
    world.set_carrier("b", false);
    world.run(secs(1));
    world.set_carrier("a", false);
    world.run(secs(60));
    assert!((1..=4).all(|number| world.having(vip(number)).is_empty()));
    world.set_carrier("a", true);
    world.run(secs(10));
    assert!((1..=4).all(|number| world.is_answered(vip(number))));
}

pub(super) const RUNS: &[Run] = runs![
    a_dead_node_is_fenced_once_and_its_claims_are_taken_evenly,
    two_dead_nodes_leave_nothing_unowned,
    a_killed_speaker_leaves_its_addresses_to_the_kernel_until_others_have_them,
    a_fenced_node_removes_then_acquires_and_does_not_win_its_orphans_back,
    an_owner_without_the_api_yields_to_those_who_took_over,
    old_owners_that_answer_are_told_until_they_know,
    a_lost_carrier_removes_the_addresses_and_releases_the_session_with_one_write,
    a_lone_claim_on_a_lost_carrier_moves_too,
    a_node_that_hears_nobody_takes_nothing_while_others_live,
    a_lease_that_is_deleted_while_its_owner_is_stopped_goes_to_another,
    where_no_node_has_a_link_nobody_serves_until_one_is_back,
];
