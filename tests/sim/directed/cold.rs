//! Cold starts: claims that nobody has, and speakers that come.

use super::{Run, millis, run_answered, runs, secs};
use crate::world::World;
use crate::world::controls::claim;

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Nodes without a speaker, and services that the operator has listed.
fn cold(services: u8) -> World {
    let mut world = World::empty(0);
    world.laws.overlap = Some(millis(270));
    for name in FIVE {
        world.add_host(name, name);
    }
    world.add_services_with(
        1,
        services,
        leasehold_core::desired::Detection::default(),
        leasehold_core::desired::OnApiOutage::Hold,
    );
    world.run(secs(1));
    assert!(world.store.claims.contains_key(&claim(1)));
    world
}

fn assert_even(world: &World, what: &str) {
    let loads = world.loads();
    let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
    assert!(loads.len() == FIVE.len() && most - least <= 1, "{what}: {loads:?}");
}

fn a_cold_start_spreads_what_nobody_has() {
    for services in [10, 43] {
        for gap in [0, 1, 5, 10, 50, 100, 200] {
            let mut world = cold(services);
            let since = world.now;
            for name in FIVE {
                world.start(name);
                world.run(millis(gap));
            }
            world.outage();
            let took = world.now.saturating_since(since);
            assert!(took < millis(1500), "{gap} ms: {took:?}");
            world.run_to(since + secs(10));
            world.assert_served();
            assert_even(&world, &format!("{services} services, {gap} ms"));
        }
    }
}

fn of_five_nodes_that_come_one_by_one_each_has_its_share_after_a_minute() {
    for gap in [secs(1), secs(3), secs(12)] {
        let mut world = cold(10);
        world.start("a");
        world.run(secs(2));
        let since = world.now;
        for name in &FIVE[1..] {
            run_answered(&mut world, gap);
            world.start(name);
        }
        run_answered(&mut world, secs(15));
        assert_even(&world, &format!("{gap:?}"));
        world.assert_served();
        // And nothing more.
        let moves = |world: &World| {
            world.store.claims.values().map(|it| it.record.transitions).sum::<i32>()
        };
        let before = moves(&world);
        run_answered(&mut world, secs(90));
        assert_eq!(moves(&world), before, "{:?}", world.now.saturating_since(since));
    }
}

fn what_was_given_out_a_minute_ago_stays_where_it_is() {
    let mut world = cold(10);
    world.start("a");
    world.run(secs(65));
    world.hold_still();
    for name in &FIVE[1..] {
        world.start(name);
    }
    world.run(secs(90));
    assert_eq!(world.loads(), [("a".to_owned(), 10)].into());
}

fn what_is_evened_out_is_within_the_moves_of_a_minute() {
    let mut world = cold(100);
    for claim in world.desired.claims.values_mut().map(std::sync::Arc::make_mut) {
        claim.failback.moves_per_minute = 6;
    }
    world.publish_desired();
    world.start("a");
    world.run(secs(3));
    for name in &FIVE[1..] {
        world.start(name);
    }
    run_answered(&mut world, secs(50));
    assert_eq!(world.loads().get("a"), Some(&94));
}

fn one_speaker_of_five_serves_all_after_a_second() {
    let mut world = cold(10);
    let since = world.now;
    world.start("a");
    world.outage();
    let took = world.now.saturating_since(since);
    assert!((secs(1)..millis(1500)).contains(&took), "{took:?}");
    world.run(secs(1));
    assert_eq!(world.loads(), [("a".to_owned(), 10)].into());
}

fn the_only_node_waits_for_nobody() {
    let mut world = World::empty(0);
    world.add_host("a", "a");
    world.add_services(1, 10);
    world.run(secs(1));
    let since = world.now;
    world.start("a");
    world.outage();
    let took = world.now.saturating_since(since);
    assert!(took < millis(400), "{took:?}");
}

/// Of those that left nothing is awaited, of those that are cordoned neither.
fn a_node_that_has_left_or_takes_nothing_is_not_awaited() {
    let mut world = World::new(&["a", "b", "c"]);
    world.set_state("c", leasehold_core::desired::NodeState::Draining);
    // Its speaker ends for good.
    for name in ["b", "a"] {
        world.leave(name);
        world.run(secs(2));
    }
    world.add_services(1, 6);
    world.run(secs(1));
    let since = world.now;
    world.start("a");
    world.outage();
    let took = world.now.saturating_since(since);
    assert!(took < millis(400), "{took:?}");
}

fn an_established_node_waits_for_no_window() {
    let mut outages = Vec::new();
    for joins in [false, true] {
        let mut world = World::empty(0);
        world.laws.overlap = Some(millis(270));
        for name in FIVE {
            world.add_host(name, name);
        }
        for name in &FIVE[..4] {
            world.start(name);
        }
        world.run(secs(1));
        world.add_services_with(
            1,
            8,
            leasehold_core::desired::Detection::default(),
            leasehold_core::desired::OnApiOutage::Hold,
        );
        world.run(secs(6));
        world.assert_served();
        if joins {
            world.start("e");
        }
        world.run(millis(300));
        world.kill_node("a");
        outages.push(world.outage());
    }
    assert!(outages[1] < millis(180), "{outages:?}");
}

/// Nor a new service while one is new.
fn a_service_that_comes_with_a_node_is_served_at_once() {
    for after in [0, 5, 10, 20, 50, 300] {
        let mut world = World::empty(0);
        for name in FIVE {
            world.add_host(name, name);
        }
        for name in &FIVE[..3] {
            world.start(name);
        }
        world.run(secs(2));
        world.add_services(1, 6);
        world.run(secs(3));
        world.start("e");
        world.run(millis(after));
        world.add_services(7, 12);
        let took = world.outage();
        assert!(took < millis(300), "{after} ms: {took:?}");
    }
}

fn a_restarted_speaker_waits_for_no_window() {
    let mut world = World::empty(0);
    world.add_host("a", "a");
    world.add_host("b", "b");
    world.start("a");
    world.run(secs(2));
    world.add_services(1, 2);
    world.run(secs(1));
    world.kill("a");
    world.run(secs(1));
    world.start("a");
    world.run(millis(20));
    world.add_services(3, 4);
    let took = world.outage();
    assert!(took < millis(120), "{took:?}");
}

/// The power of all nodes comes back, or the control plane does.
fn power_that_comes_back_leaves_nothing_on_one_node() {
    for gap in [0, 30, 200] {
        let mut world = World::listening(&FIVE, 10);
        for name in FIVE {
            world.kill_node(name);
        }
        world.run(secs(30));
        let since = world.now;
        for id in 0..FIVE.len() {
            world.power_on(id);
            world.run(millis(gap));
        }
        world.outage();
        let took = world.now.saturating_since(since);
        assert!(took < secs(8), "{gap} ms: {took:?}");
        world.run_to(since + secs(10));
        world.assert_served();
        assert_even(&world, &format!("{gap} ms"));
    }
}

fn a_control_plane_that_comes_back_to_new_speakers_leaves_nothing_on_one_node() {
    let mut world = cold(10);
    world.set_api(false);
    for name in FIVE {
        world.start(name);
    }
    world.run(secs(10));
    let since = world.now;
    world.set_api(true);
    world.outage();
    let took = world.now.saturating_since(since);
    assert!(took < secs(5), "{took:?}");
    world.run(secs(10));
    world.assert_served();
    assert_even(&world, "together");
}

pub(super) const RUNS: &[Run] = runs![
    a_cold_start_spreads_what_nobody_has,
    of_five_nodes_that_come_one_by_one_each_has_its_share_after_a_minute,
    what_was_given_out_a_minute_ago_stays_where_it_is,
    what_is_evened_out_is_within_the_moves_of_a_minute,
    one_speaker_of_five_serves_all_after_a_second,
    the_only_node_waits_for_nobody,
    a_node_that_has_left_or_takes_nothing_is_not_awaited,
    an_established_node_waits_for_no_window,
    a_service_that_comes_with_a_node_is_served_at_once,
    a_restarted_speaker_waits_for_no_window,
    power_that_comes_back_leaves_nothing_on_one_node,
    a_control_plane_that_comes_back_to_new_speakers_leaves_nothing_on_one_node,
];
