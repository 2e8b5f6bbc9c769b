//! Links that are lost for a while, and addresses of links that are set anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_crds::lease::LeaseName;

use super::{Run, longest_gap, millis, run_answered, runs, secs};
use crate::world::controls::vip;
use crate::world::{Down, Own, World};

const ALL: [&str; 3] = ["a", "b", "c"];

fn transitions(world: &World) -> BTreeMap<LeaseName, i32> {
    let claims = world.store.claims.iter();
    claims.map(|(name, stored)| (name.clone(), stored.record.transitions)).collect()
}

/// Only `node` may have what it has.
fn nowhere_else(world: &mut World, node: &str) {
    for number in world.owned_by(node) {
        let claim = world.desired.claims.get_mut(&crate::world::controls::claim(number));
        if let Some(claim) = claim.map(Arc::make_mut) {
            claim.nodes = Arc::new([node.parse().unwrap()].into());
        }
    }
    world.publish_desired();
    world.run(secs(1));
}

fn lost_for_a_moment(away: impl Fn(&mut World, bool), elsewhere: bool) {
    for lost in [1, 50, 100, 400, 2_000] {
        let mut world = World::listening(&ALL, 9);
        if !elsewhere {
            nowhere_else(&mut world, "a");
        }
        let (before, theirs) = (transitions(&world), world.owned_by("a"));
        away(&mut world, true);
        world.run(secs(3));
        world.set_carrier("a", false);
        world.run(millis(lost));
        world.set_carrier("a", true);
        let gap = longest_gap(&mut world, secs(20));
        assert!(gap < secs(2), "{lost} ms: {gap:?}");
        for number in theirs {
            assert_eq!(world.having(vip(number)).len(), 1, "{lost} ms: {number}");
        }
        away(&mut world, false);
        world.run(secs(20));
        assert_eq!(transitions(&world), before, "{lost} ms");
        world.assert_served();
    }
}

fn without_the_api_server_a_link_that_is_lost_for_a_moment_leaves_nothing_dark() {
    lost_for_a_moment(|world, away| world.set_down(away.then_some(Down::Silent)), true);
    lost_for_a_moment(|world, away| world.set_down(away.then_some(Down::Refusing)), true);
    lost_for_a_moment(World::set_read_only, true);
}

fn without_the_api_server_what_no_other_node_may_have_is_served_when_the_link_is_back() {
    lost_for_a_moment(|world, away| world.set_down(away.then_some(Down::Silent)), false);
    lost_for_a_moment(World::set_read_only, false);
}

/// It carries the way to the API server, too.
fn a_switch_that_starts_anew_moves_nothing() {
    let mut world = World::listening(&ALL, 9);
    let (before, loads) = (transitions(&world), world.loads());
    world.set_api(false);
    for node in ALL {
        world.set_carrier(node, false);
    }
    world.run(secs(30));
    for node in ALL {
        world.set_carrier(node, true);
        world.run(millis(20));
    }
    let gap = longest_gap(&mut world, secs(5));
    assert!(gap < secs(1), "{gap:?}");
    world.set_api(true);
    run_answered(&mut world, secs(20));
    assert_eq!((transitions(&world), world.loads()), (before, loads));
    world.assert_served();
}

/// The same, and then another node has taken what it has.
fn what_another_serves_by_then_is_left_to_it_until_the_api_server_is_back() {
    let mut world = World::listening(&ALL, 9);
    let theirs = world.owned_by("a");
    world.set_api(false);
    world.run(secs(3));
    world.set_carrier("a", false);
    world.run(secs(5));
    world.set_carrier("a", true);
    run_answered(&mut world, secs(10));
    for number in &theirs {
        let have = world.having(vip(*number));
        assert!(have.len() == 1 && !have.contains("a"), "{number}: {have:?}");
    }
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

/// As `nmcli` and others do it: the old one is taken off first.
fn a_node_whose_only_address_is_set_anew_keeps_what_it_has() {
    for pause in [1, 100, 700] {
        let mut world = World::listening(&ALL, 9);
        let before = transitions(&world);
        let id = world.hosts.id("a");
        world.hosts[id].nics[0].own = Own::None;
        world.set_carrier("a", true);
        run_answered(&mut world, millis(pause));
        world.hosts[id].nics[0].own = Own::OfSubnet;
        world.set_carrier("a", true);
        run_answered(&mut world, secs(10));
        assert_eq!(transitions(&world), before, "{pause} ms");
        world.assert_served();
    }
}

fn a_node_that_has_no_address_any_more_gives_up_what_it_has() {
    let mut world = World::listening(&ALL, 9);
    world.hosts.of("a").nics[0].own = Own::None;
    world.set_carrier("a", true);
    world.run(secs(4));
    assert_eq!(world.owned_by("a"), Vec::<u8>::new());
    world.assert_served();
}

/// The kernel takes them again, and no other node may have them.
fn without_the_api_server_what_the_kernel_refused_for_a_while_is_served_again() {
    let mut world = World::listening(&ALL, 9);
    nowhere_else(&mut world, "a");
    let theirs = world.owned_by("a");
    let id = world.hosts.id("a");
    world.set_api(false);
    world.run(secs(3));
    world.hosts[id].kernel.refuses = true;
    world.hosts[id].kernel.ours.clear();
    world.settle(id);
    world.run(secs(3));
    assert!(theirs.iter().all(|number| world.having(vip(*number)).is_empty()));
    world.hosts[id].kernel.refuses = false;
    world.run(secs(31));
    for number in theirs {
        assert_eq!(world.having(vip(number)), ["a".to_owned()].into(), "{number}");
    }
    world.set_api(true);
    world.run(secs(10));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    without_the_api_server_a_link_that_is_lost_for_a_moment_leaves_nothing_dark,
    without_the_api_server_what_no_other_node_may_have_is_served_when_the_link_is_back,
    a_switch_that_starts_anew_moves_nothing,
    what_another_serves_by_then_is_left_to_it_until_the_api_server_is_back,
    a_node_whose_only_address_is_set_anew_keeps_what_it_has,
    a_node_that_has_no_address_any_more_gives_up_what_it_has,
    without_the_api_server_what_the_kernel_refused_for_a_while_is_served_again,
];
