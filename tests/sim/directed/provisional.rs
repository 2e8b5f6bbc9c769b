//! What is served provisionally, and how that ends.

use super::{Run, longest_gap, millis, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::vip;
use leasehold_core::election::{Fact, Frame};

const ALL: [&str; 3] = ["a", "b", "c"];

/// Everything that `a` owns is served by others, and the API server answers nobody.
fn replaced(services: u8, replace: impl FnOnce(&mut World)) -> (World, Vec<u8>) {
    let mut world = World::listening(&ALL, services);
    let lost = world.owned_by("a");
    let since = world.now;
    world.set_api(false);
    world.run(secs(3));
    replace(&mut world);
    world.run(secs(3));
    let took = |(_, fact): &(&str, &Fact)| matches!(fact, Fact::TookProvisionally { .. });
    assert_eq!(world.facts_since(since).filter(took).count(), lost.len());
    (world, lost)
}

/// As for the addresses of an owner: they stay as long as they never lapsed.
fn addresses_that_lapsed_are_not_served_again_without_asking() {
    let (mut world, lost) = replaced(9, |world| world.cut_off("a"));
    let c = world.hosts.id("c");
    assert!(lost.iter().any(|number| world.having(vip(*number)).contains("c")));
    world.stop(c, false);
    world.run(secs(7));
    assert!(world.hosts["c"].kernel.ours.is_empty());
    world.heal_wire();
    world.run(secs(2));
    world.set_api(true);
    world.run(secs(2));
    // Its session is valid, and it renews it: what it adds then is its own.
    world.cont(c);
    world.run(secs(1));
    for number in lost {
        assert_eq!(world.having(vip(number)), ["a".to_owned()].into());
    }
    world.run(secs(20));
    world.assert_served();
}

/// The API server answers nobody, and `a` stands still for so long that what it serves lapses.
fn lapsed_without_the_api(nodes: &[&str]) -> World {
    let mut world = World::listening(nodes, 9);
    world.set_api(false);
    world.run(secs(3));
    let a = world.hosts.id("a");
    world.stop(a, false);
    world.run(secs(8));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.cont(a);
    world
}

/// There is nobody else who could serve it.
fn what_lapsed_while_its_owner_stood_still_is_served_again_also_without_the_api() {
    let mut world = lapsed_without_the_api(&["a"]);
    world.run(secs(2));
    run_answered(&mut world, secs(20));
    world.set_api(true);
    world.run(secs(10));
    world.assert_served();
}

/// It asks before it serves, so it does not answer beside them; they lose their links, and it serves again.
fn what_others_took_while_its_owner_stood_still_is_theirs_until_they_are_gone() {
    let mut world = lapsed_without_the_api(&ALL);
    let lost = world.owned_by("a");
    let end = world.now + secs(5);
    while world.step(end) {
        for number in &lost {
            assert!(!world.having(vip(*number)).contains("a"), "{}: {number}", world.now);
        }
    }
    run_answered(&mut world, secs(1));
    world.set_carrier("b", false);
    world.set_carrier("c", false);
    world.run(secs(3));
    for number in lost {
        assert!(world.having(vip(number)).contains("a"), "{number}");
    }
}

/// The owner is dead, and who served in its place has stood still.
fn what_lapsed_while_it_was_served_provisionally_is_taken_again() {
    let mut world = World::listening(&["a", "b"], 9);
    let lost = world.owned_by("a");
    world.set_api(false);
    world.run(secs(3));
    world.cut_off("a");
    world.run(secs(3));
    let b = world.hosts.id("b");
    world.stop(b, false);
    world.run(secs(8));
    assert!(world.hosts["b"].kernel.ours.is_empty());
    world.cont(b);
    world.run(secs(3));
    for number in lost {
        assert!(world.having(vip(number)).contains("b"), "{number}");
    }
}

/// Stopped between the probes and their answers, for longer than the outage.
fn a_process_that_stood_still_probes_again_before_it_serves_provisionally() {
    let mut world = World::listening(&ALL, 12);
    let theirs = world.owned_by("a");
    world.set_api(false);
    world.run(secs(3));
    world.cut_off("a");
    let probing = |world: &World| {
        let mut sent = world.frames_since(world.now - millis(2));
        sent.any(|(host, frame)| host == "c" && matches!(frame, Frame::Probe(_)))
    };
    world.run_until(probing);
    world.run(millis(21));
    let c = world.hosts.id("c");
    world.stop(c, false);
    world.heal_wire();
    world.run(secs(3));
    world.set_api(true);
    world.run(secs(10));
    world.cont(c);
    let end = world.now + secs(10);
    while world.step(end) {
        for number in &theirs {
            let mine = world.owner(*number).as_deref() == Some("c");
            assert!(mine || !world.having(vip(*number)).contains("c"), "{}: {number}", world.now);
        }
    }
    world.assert_served();
}

fn what_an_owner_that_is_back_does_not_serve_is_taken_from_it_at_once() {
    let (mut world, lost) = replaced(60, |world| world.kill_node("a"));
    world.power_on(world.hosts.id("a"));
    world.run(secs(1));
    world.set_api(true);
    // The node answers, and until its session is over each claim is a question of its own.
    world.run(secs(3));
    for number in lost {
        assert_ne!(world.owner(number).as_deref(), Some("a"), "{number}");
    }
    world.run(secs(10));
    world.assert_served();
}

/// Each of five took what it did not hear any more. They noticed in different orders, so each has
/// rankings of its own, and several think that they are the first.
fn provisional_owners_that_hear_one_another_again_do_not_outshout_each_other() {
    const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];
    for gap in [0, 100, 300] {
        let mut world = World::listening(&FIVE, 20);
        world.set_api(false);
        world.run(secs(3));
        for node in FIVE {
            world.isolate(node);
            world.run(millis(gap));
        }
        world.run(secs(5));
        let holders: Vec<usize> = (1..=20).map(|n| world.having(vip(n)).len()).collect();
        assert!(holders.iter().all(|holders| *holders > 2), "{gap}: {holders:?}");
        let healed = world.now;
        world.heal_wire();
        world.run(secs(1));
        let announced = |(_, frame): &(&str, &Frame)| matches!(frame, Frame::Announce(_));
        let frames = world.frames_since(healed).filter(announced).count();

        assert!(frames < 1000, "{gap}: {frames}");
        for number in 1..=20 {
            assert_eq!(world.having(vip(number)).len(), 1, "{gap}: {number}");
        }
        world.set_api(true);
        world.run(secs(20));
        world.assert_served();
    }
}

/// It was cut off during the outage. Its session is over only when its grace is, and nobody is there
/// whom others could tell that they have its addresses.
fn what_a_restarting_node_answers_for_again_is_left_to_it() {
    let mut world = World::listening(&ALL, 6);
    let theirs = world.owned_by("a");
    world.terminate("a");
    world.run_until(|world| world.hosts["a"].exited);
    world.set_api(false);
    world.run(secs(3));
    world.cut_off("a");
    world.run(secs(3));
    world.laws.overlap = Some(secs(5));
    world.heal_wire();
    world.run(secs(2));
    assert!(theirs.iter().all(|number| world.having(vip(*number)).len() == 2));
    world.set_api(true);
    world.run(secs(2));
    for number in theirs {
        assert_eq!(world.having(vip(number)), ["a".to_owned()].into(), "{number}");
    }
    world.start("a");
    world.run(secs(15));
    world.assert_served();
}

/// SIGTERM when the API server is back, and the leases have not decided yet.
fn a_process_that_restarts_leaves_nothing_behind_that_it_served_provisionally() {
    for after in 0..20 {
        let (mut world, lost) = replaced(12, |world| world.cut_off("a"));
        world.set_api_of("a", false);
        world.set_api(true);
        world.run(millis(after * 100));
        world.terminate("c");
        world.run_until(|world| world.hosts["c"].exited);
        for number in lost.into_iter().filter(|number| world.having(vip(*number)).contains("c")) {
            assert_eq!(world.owner(number).as_deref(), Some("c"), "{after}: {number}");
        }
        world.start("c");
        world.heal_wire();
        world.set_api_of("a", true);
        world.run(secs(20));
        world.assert_served();
    }
}

/// Its kernel removes one after the other what nobody refreshes, or all at once; the node answers.
fn what_a_node_without_a_speaker_has_let_lapse_is_taken_over_all_of_it() {
    for services in [3, 12, 60] {
        let mut world = World::listening(&ALL, services);
        let lost = world.owned_by("a");
        world.set_api(false);
        world.run(secs(3));
        world.kill("a");
        let gap = longest_gap(&mut world, secs(30));
        assert!(gap < secs(2), "{services}: {gap:?}");
        for number in lost {
            assert_eq!(world.having(vip(number)).len(), 1, "{services}: {number}");
        }
        world.start("a");
        run_answered(&mut world, secs(5));
        world.set_api(true);
        world.run(secs(20));
        world.assert_served();
    }
}

/// A restart without a follower, or one that takes too long.
fn what_a_restarting_node_has_let_lapse_is_taken_over_all_of_it() {
    let mut world = World::listening(&ALL, 12);
    world.terminate("a");
    world.run_until(|world| world.hosts["a"].exited);
    world.set_api(false);
    let gap = longest_gap(&mut world, secs(45));
    assert!(gap < secs(2), "{gap:?}");
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

/// The one that serves it dies, and the other had no link meanwhile: it listens anew, to an owner that has nothing
/// to answer with.
fn what_a_node_that_is_back_does_not_serve_is_taken_over_by_whoever_has_never_heard_it() {
    for services in [6, 40] {
        let (mut world, lost) = replaced(services, |world| world.kill_node("a"));
        world.power_on(world.hosts.id("a"));
        world.run(secs(3));
        for linked in [false, true] {
            for node in ["b", "c"] {
                world.set_carrier(node, linked);
            }
            world.run(millis(250));
        }
        world.run(secs(3));
        world.kill_node("b");
        let gap = longest_gap(&mut world, secs(20));
        assert!(gap < secs(6), "{services}: {gap:?}");
        for number in lost {
            assert_eq!(world.having(vip(number)), ["c".to_owned()].into(), "{services}: {number}");
        }
        world.set_api(true);
        world.run(secs(20));
        world.assert_served();
    }
}

/// Its node cannot be reached: whether it serves what it has cannot be told, and it does.
fn an_owner_that_was_never_heard_keeps_what_it_has_where_its_node_does_not_answer() {
    let mut world = World::listening(&ALL, 9);
    world.set_api(false);
    world.run(secs(3));
    world.set_carrier("c", false);
    world.run(millis(1));
    let (a, c) = (world.hosts.id("a"), world.hosts.id("c"));
    world.cuts.both_ways(0, a, c);
    world.set_carrier("c", true);
    let theirs = world.owned_by("a");
    world.run(secs(20));
    for number in theirs {
        assert!(!world.having(vip(number)).contains("c"), "{number}");
    }
    world.heal_wire();
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    what_a_node_that_is_back_does_not_serve_is_taken_over_by_whoever_has_never_heard_it,
    an_owner_that_was_never_heard_keeps_what_it_has_where_its_node_does_not_answer,
    what_a_node_without_a_speaker_has_let_lapse_is_taken_over_all_of_it,
    what_a_restarting_node_has_let_lapse_is_taken_over_all_of_it,
    a_process_that_stood_still_probes_again_before_it_serves_provisionally,
    what_a_restarting_node_answers_for_again_is_left_to_it,
    a_process_that_restarts_leaves_nothing_behind_that_it_served_provisionally,
    addresses_that_lapsed_are_not_served_again_without_asking,
    what_lapsed_while_its_owner_stood_still_is_served_again_also_without_the_api,
    what_others_took_while_its_owner_stood_still_is_theirs_until_they_are_gone,
    what_lapsed_while_it_was_served_provisionally_is_taken_again,
    provisional_owners_that_hear_one_another_again_do_not_outshout_each_other,
    what_an_owner_that_is_back_does_not_serve_is_taken_from_it_at_once,
];
