//! Old owners that are back before the API server is: whoever has their addresses now tells them.

use std::time::Duration;

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, vip};
use leasehold_core::election::{Fact, Frame, Target};

const ALL: [&str; 3] = ["a", "b", "c"];
/// How long two may have an address: at first, and when the old owner is asked less often.
const FRESH: Duration = millis(60);
const LATER: Duration = millis(150);

/// Everything that `a` had is on others; it hears nothing of that and holds.
fn replaced(services: u8) -> World {
    let mut world = World::listening(&ALL, services);
    assert!(!world.owned_by("a").is_empty());
    world.set_api_of("a", false);
    world.cut_off("a");
    world.run(secs(1));
    assert!(world.owned_by("a").is_empty());
    world
}

/// `a` is back on the wire, and neither it nor those who have its addresses reach the API server.
fn is_told_within(world: &mut World, bound: Duration) {
    assert!(!world.hosts["a"].kernel.ours.is_empty());
    world.laws.overlap = Some(bound);
    world.heal_wire();
    world.run(secs(20));
    world.laws.overlap = Some(millis(270));
    world.set_api(true);
    world.set_api_of("a", true);
    for name in ALL {
        let id = world.hosts.id(name);
        if !world.hosts[id].powered {
            world.power_on(id);
        }
    }
    world.run(secs(30));
    world.assert_served();
}

/// Somebody deletes the Node of a machine that is cut off and runs on.
fn an_old_owner_is_told_also_when_its_node_was_deleted() {
    let mut world = replaced(9);
    world.desired.nodes.remove(&"a".parse().unwrap());
    world.publish_desired();
    world.run(secs(10));
    is_told_within(&mut world, LATER);
}

/// By then it is asked once a second.
fn an_old_owner_that_was_away_for_long_is_told_once_it_is_heard() {
    let mut world = replaced(9);
    world.run(secs(700));
    world.set_api(false);
    world.run(secs(10));
    is_told_within(&mut world, millis(1_100));
}

fn an_old_owner_is_told_by_who_took_over_from_who_took_over_from_it() {
    let mut world = replaced(9);
    world.kill_node("b");
    world.run(secs(2));
    world.set_api(false);
    world.run(secs(10));
    is_told_within(&mut world, FRESH);
}

fn an_old_owner_is_told_by_whom_its_successor_has_handed_over_to() {
    let mut world = replaced(9);
    world.drain("b", true);
    world.run(secs(5));
    assert!(world.owned_by("b").is_empty());
    world.set_api(false);
    world.run(secs(90));
    is_told_within(&mut world, LATER);
}

fn an_old_owner_is_told_by_who_took_over_provisionally_from_its_successor() {
    let mut world = replaced(9);
    world.run(secs(5));
    world.set_api(false);
    world.run(secs(10));
    world.kill_node("b");
    world.run(secs(3));
    is_told_within(&mut world, FRESH);
}

fn an_old_owner_is_told_by_a_process_that_did_not_see_the_takeover() {
    for services in [3, 9, 60] {
        for (wait, bound) in [(secs(10), FRESH), (secs(90), LATER)] {
            let mut world = replaced(services);
            world.run(secs(2));
            for name in ["b", "c"] {
                world.kill(name);
                world.hosts.of(name).record = None;
                world.run(millis(200));
                world.start(name);
            }
            world.run(secs(10));
            world.set_api(false);
            world.run(wait);
            is_told_within(&mut world, bound);
        }
    }
}

fn an_old_owner_is_told_by_processes_that_start_without_the_api_server() {
    for services in [3, 9, 37] {
        let mut world = replaced(services);
        world.set_api(false);
        world.run(secs(1));
        for name in ["b", "c"] {
            world.kill(name);
            world.run(millis(200));
            world.start(name);
        }
        world.run(secs(10));
        is_told_within(&mut world, LATER);
    }
}

/// It is heard, again and again, before it hears anybody.
fn an_old_owner_that_did_not_hear_is_told_as_soon_as_it_does() {
    for wait in 0..10 {
        let mut world = replaced(9);
        let [a, b, c] = ALL.map(|name| world.hosts.id(name));
        world.laws.overlap = Some(secs(10));
        world.run(secs(10));
        world.heal_wire();
        world.run(secs(2));
        assert!(world.hosts["a"].kernel.ours.is_empty());
        // It asks whether those to whom it yielded have the addresses, and hears nothing.
        world.cuts.one_way(0, b, a);
        world.cuts.one_way(0, c, a);
        world.laws.dirty = true;
        world.run_until(|world| !world.hosts["a"].kernel.ours.is_empty());
        world.run(secs(1));
        world.run(millis(wait * 100));
        is_told_within(&mut world, LATER);
    }
}

fn a_node_that_was_fenced_and_is_dead_costs_one_question_per_turn() {
    let mut world = replaced(60);
    world.run(secs(70));
    for name in ["b", "c"] {
        let since = world.now;
        world.run(secs(1));
        let asks =
            |(host, frame): &(&str, &Frame)| *host == name && matches!(frame, Frame::Ask(_, _));
        // One of what was taken from it, and whether it is there again.
        let count = world.frames_since(since).filter(asks).count();
        assert!((10..=21).contains(&count), "{count}");
    }
}

fn an_old_owner_is_told_of_what_somebody_deleted_or_edited() {
    let edits: [fn(&mut World, u8); 3] = [
        |world, number| world.edit_claim(number, |claim| claim.holder = None),
        |world, number| world.edit_claim(number, |claim| claim.session = None),
        |world, number| world.delete(&Target::Claim(claim(number))),
    ];
    for edit in edits {
        let mut world = World::settled(&ALL, 3);
        let number = world.owned_by("a")[0];
        // For so long it takes the API server to answer.
        world.laws.overlap = Some(millis(4500));
        world.set_api_of("a", false);
        edit(&mut world, number);
        // For so long an owner that does not renew is waited for.
        world.run(millis(3500));
        assert_ne!(world.owner(number).as_deref(), Some("a"));
        world.set_api(false);
        world.run(secs(10));
        assert!(!world.having(vip(number)).contains("a"));
        world.set_api(true);
        world.set_api_of("a", true);
        world.run(secs(20));
        world.assert_served();
    }
}

/// What is announced against the owner is answered each time: an answer may have been lost.
fn an_owner_tells_a_speaker_that_it_is_the_owner_each_time_it_has_to() {
    let mut world = World::listening(&ALL, 9);
    world.run(secs(5));
    let (b, c) = (world.hosts.id("b"), world.hosts.id("c"));
    world.set_api_of("c", false);
    world.run(secs(3));
    // What b says does not arrive at c; what c says arrives at b.
    world.cuts.one_way(0, b, c);
    world.laws.dirty = true;
    let since = world.now;
    world.run(secs(4));
    let took =
        |(host, fact): (&str, &Fact)| host == "c" && matches!(fact, Fact::TookProvisionally { .. });
    assert!(world.facts_since(since).any(took));
    world.laws.overlap = Some(millis(60));
    world.heal_wire();
    world.run(secs(5));
    world.set_api_of("c", true);
    world.run(secs(20));
    world.assert_served();
}

fn a_speaker_is_known_by_a_link_that_was_down_when_the_api_server_went_away() {
    let mut world = World::settled(&ALL, 9);
    world.set_carrier("a", false);
    world.run(secs(2));
    world.set_api_of("b", false);
    world.run(secs(1));
    world.set_carrier("a", true);
    world.laws.overlap = Some(millis(60));
    let lost = world.owned_by("b");
    world.run(secs(10));
    assert!(lost.iter().any(|number| world.owner(*number).as_deref() == Some("a")));
    for number in lost {
        assert!(!world.having(vip(number)).contains("b"));
    }
    world.set_api_of("b", true);
    world.run(secs(20));
    world.assert_served();
}

/// Known by what its session says of links that are down: it is seen by nobody who started since.
fn an_owner_without_the_api_yields_to_a_speaker_whose_link_was_down_when_it_started() {
    let mut world = World::settled(&ALL, 6);
    let lost = world.owned_by("a");
    world.set_carrier("c", false);
    world.run(secs(3));
    world.set_carrier("b", false);
    world.run(secs(1));
    world.kill("a");
    world.start("a");
    world.run(secs(2));
    world.set_api_of("a", false);
    world.run(millis(100));
    world.set_carrier("b", true);
    world.set_carrier("c", true);
    world.laws.overlap = Some(millis(270));
    world.run(secs(20));
    for number in lost {
        assert!(!world.having(vip(number)).contains("a"), "{number}");
    }
    world.set_api_of("a", true);
    world.run(secs(10));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    an_owner_without_the_api_yields_to_a_speaker_whose_link_was_down_when_it_started,
    an_old_owner_is_told_by_who_took_over_from_who_took_over_from_it,
    an_old_owner_that_was_away_for_long_is_told_once_it_is_heard,
    an_old_owner_is_told_also_when_its_node_was_deleted,
    an_old_owner_is_told_by_whom_its_successor_has_handed_over_to,
    an_old_owner_is_told_by_who_took_over_provisionally_from_its_successor,
    an_old_owner_is_told_by_a_process_that_did_not_see_the_takeover,
    an_old_owner_is_told_by_processes_that_start_without_the_api_server,
    an_old_owner_that_did_not_hear_is_told_as_soon_as_it_does,
    a_node_that_was_fenced_and_is_dead_costs_one_question_per_turn,
    an_old_owner_is_told_of_what_somebody_deleted_or_edited,
    an_owner_tells_a_speaker_that_it_is_the_owner_each_time_it_has_to,
    a_speaker_is_known_by_a_link_that_was_down_when_the_api_server_went_away,
];
