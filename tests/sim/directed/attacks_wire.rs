//! Scenarios that broke an earlier protocol, each by its number: the segments and what is heard
//! there.

use leasehold_core::desired::{Detection, OnApiOutage};
use leasehold_core::election::{Fact, Frame};
use pnet_base::MacAddr;

use super::{Run, millis, run_answered, runs, secs};
use crate::world::controls::{claim, vip};
use crate::world::{Down, World};

const ALL: [&str; 4] = ["a", "b", "c", "d"];

fn s02_the_cut_node_takes_its_services_back() {
    for hosts in [2, 3, 4] {
        let mut world = World::listening(&ALL[..hosts], 9);
        world.laws.overlap = Some(millis(60));
        let lost = world.owned_by("a");
        world.cut_off("a");
        world.run(millis(300));
        run_answered(&mut world, secs(60));
        for number in &lost {
            assert_ne!(world.owner(*number).as_deref(), Some("a"), "of {hosts}");
        }
        world.heal_wire();
        run_answered(&mut world, secs(20));
        world.assert_served();
    }
}

fn s02_two_nodes_are_cut_and_reach_the_api() {
    let mut world = World::listening(&ALL, 12);
    world.cut_off("a");
    world.cut_off("b");
    world.run(millis(900));
    run_answered(&mut world, secs(60));
    world.heal_wire();
    world.run(secs(20));
    world.assert_served();
}

fn s03_one_service_deleted_and_the_node_stays() {
    let mut world = World::listening(&ALL, 12);
    world.run(secs(5));
    for host in world.hosts.iter_mut() {
        host.watch_delay = millis(160);
    }
    let since = world.now;
    for number in 1..=10 {
        let owner = world.owner(number).unwrap();
        // Its own watch is quick; the pollers' are not.
        world.hosts.of(&owner).watch_delay = millis(2);
        world.desired.claims.remove(&claim(number));
        world.publish_desired_to(|name| millis(if name == owner { 2 } else { 160 }));
        world.run(secs(2));
        world.hosts.of(&owner).watch_delay = millis(160);
    }
    world.assert_served();
    assert!(ALL.iter().all(|node| world.fences(node, since).is_empty()));
}

fn s09_the_old_owner_heals_late() {
    // Isolated on both links, holding all the time.
    let mut world = World::listening(&ALL, 8);
    world.laws.overlap = Some(millis(60));
    world.cut_off("a");
    world.set_api_of("a", false);
    world.run(secs(60));
    assert!(!world.hosts["a"].kernel.ours.is_empty());
    world.heal_wire();
    run_answered(&mut world, secs(5));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.set_api_of("a", true);
    run_answered(&mut world, secs(20));
    world.assert_served();
    // All its clocks stood still for longer than a kernel lifetime.
    world.pause(1);
    world.run(secs(40));
    world.resume(1);
    run_answered(&mut world, secs(20));
    world.assert_served();
}

fn s09_a_healed_partition_leaves_two_owners_for_a_moment_only() {
    let mut world = World::listening(&ALL, 8);
    world.laws.overlap = Some(millis(60));
    for one in [0, 1] {
        for other in [2, 3, crate::world::ROUTER] {
            world.cuts.both_ways(0, one, other);
        }
    }
    world.laws.dirty = true;
    // Where the clients are nobody can know: what the other half has they cannot reach.
    world.run(secs(12));
    world.heal_wire();
    world.run(millis(100));
    run_answered(&mut world, secs(20));
    world.assert_served();
}

fn s10_the_successor_dies_in_between() {
    for name in ["b", "c"] {
        let mut world = World::listening(&["a", "b", "c"], 9);
        let moving = world.owned_by("a");
        world.drain("a", true);
        let to = |world: &World| moving.iter().any(|n| world.owner(*n).as_deref() == Some(name));
        world.run_until(to);
        let its: Vec<_> =
            world.owned_by(name).into_iter().filter(|n| !moving.contains(n)).collect();
        world.kill_node(name);
        // What it had before is lost for a while; what it was about to get is not.
        for claim in its {
            world.desired.claims.remove(&crate::world::controls::claim(claim));
        }
        world.publish_desired();
        run_answered(&mut world, secs(20));
        world.drain("a", false);
        world.run(secs(20));
        world.assert_served();
    }
}

fn s11_the_owner_cannot_announce() {
    let mut world = World::new(&["a", "b"]);
    world.hosts.of("a").kernel.refuses = true;
    world.add_services_with(1, 4, Detection::default(), OnApiOutage::Hold);
    world.run(secs(2));
    for number in 1..=4 {
        assert_eq!(world.owner(number).as_deref(), Some("b"));
    }
    world.assert_served();
    let refused = |fact: &(&str, &Fact)| matches!(fact.1, Fact::AddressRefused { .. });
    assert!(world.facts_since(leasehold_core::clock::Instant::default()).any(|f| refused(&f)));
}

fn s12_provisional_and_back() {
    for (down, hosts) in [(Down::Silent, 4), (Down::Refusing, 4), (Down::Silent, 3)] {
        let mut world = World::listening(&ALL[..hosts], 8);
        world.laws.overlap = Some(millis(270));
        world.set_down(Some(down));
        world.run(secs(20));
        world.kill_node("a");
        let took = world.outage();
        assert!(took < millis(350), "{down:?}: {took:?}");
        run_answered(&mut world, secs(60));
        world.set_down(None);
        run_answered(&mut world, secs(20));
        world.assert_served();
    }
}

fn s12_the_owner_and_the_api_die_at_once() {
    let mut world = World::listening(&ALL, 8);
    world.laws.overlap = Some(millis(270));
    world.run(millis(800));
    world.kill_node("b");
    world.set_down(Some(Down::Silent));
    let took = world.outage();
    assert!(took < secs(1), "{took:?}");
    world.run(millis(500));
    run_answered(&mut world, secs(60));
    world.set_down(None);
    run_answered(&mut world, secs(20));
    world.assert_served();
}

/// Its session was fenced, and the claim was being taken: nobody knows whether it was.
fn s12_the_api_dies_between_fence_and_claim() {
    for (down, most) in [(Down::Silent, secs(3)), (Down::Refusing, secs(2))] {
        for after in (60..180).step_by(2) {
            let mut world = World::listening(&ALL, 8);
            world.laws.overlap = Some(millis(270));
            world.run(millis(800));
            world.kill_node("b");
            world.run(millis(after));
            world.set_down(Some(down));
            let took = world.outage();
            assert!(took < most, "{down:?} after {after} ms: {took:?}");
            run_answered(&mut world, secs(30));
            world.set_down(None);
            run_answered(&mut world, secs(20));
            world.assert_served();
        }
    }
}

fn s12_the_dead_owner_is_back_before_the_api() {
    let mut world = World::listening(&ALL, 8);
    world.set_down(Some(Down::Silent));
    world.run(secs(20));
    world.cut_off("a");
    world.run(secs(20));
    world.laws.overlap = Some(millis(270));
    world.heal_wire();
    run_answered(&mut world, secs(10));
    world.set_down(None);
    run_answered(&mut world, secs(20));
    world.assert_served();
}

fn s17_two_nodes_and_no_gateway() {
    let mut world = World::new(&["a", "b"]);
    world.router = false;
    world.add_services_with(1, 6, Detection::default(), OnApiOutage::Hold);
    world.run(secs(8));
    world.assert_served();
    let since = world.now;
    let blind = |fact: &Fact| matches!(fact, Fact::WireBlind { blind: true, .. });
    assert!(world.facts.iter().any(|(_, _, fact)| blind(fact)));
    // Either may be the one that is deaf; neither is dead.
    world.cut_off("a");
    world.run(secs(30));
    assert!(world.fences("a", since).is_empty() && world.fences("b", since).is_empty());
    world.heal_wire();
    world.run(secs(5));
    world.assert_served();
}

fn s18_two_segments_and_one_session() {
    let mut world = World::empty(0);
    world.laws.overlap = Some(millis(270));
    for name in ["a", "b", "c"] {
        world.add_host_on(name, name, 2);
    }
    for id in 0..3 {
        world.start_host(id);
    }
    world.run(secs(1));
    for number in 1..=12 {
        let address = std::net::IpAddr::from([10, u8::from(number > 6), 0, number]);
        let claimed = world.claimed(number, address, Detection::default(), OnApiOutage::Hold);
        world.desired.claims.insert(claim(number), claimed.into());
    }
    world.publish_desired();
    world.run(secs(8));
    world.assert_served();
    let since = world.now;
    let owners = |world: &World| (1..=6).map(|n| world.owner(n)).collect::<Vec<_>>();
    let before = owners(&world);
    assert!(before.contains(&Some("a".to_owned())));
    world.cuts.off(1, 0);
    world.laws.dirty = true;
    world.run(millis(900));
    run_answered(&mut world, secs(30));
    assert!(world.fences("a", since).is_empty(), "fine elsewhere");
    assert_eq!(before, owners(&world), "the other segment is not concerned");
    world.heal_wire();
    run_answered(&mut world, secs(10));
    world.assert_served();
}

fn s19_one_way_loss() {
    let mut world = World::listening(&ALL, 8);
    world.laws.overlap = Some(secs(100));
    world.cuts.one_way(0, 0, 1);
    world.laws.dirty = true;
    world.run(secs(10));
    let since = world.now;
    world.run(secs(120));
    let claimed = |fact: &(&str, &Fact)| matches!(fact.1, Fact::Claimed { .. });
    assert_eq!(world.facts_since(since).filter(claimed).count(), 0, "for ever");
    world.heal_wire();
    world.run(secs(10));
    world.assert_served();
}

fn s19_port_isolation_and_filtered_arp_take_nothing_over() {
    for filtered in [false, true] {
        let mut world = World::listening(&ALL, 8);
        if filtered {
            world.cuts.deaf(0, 0);
        } else {
            for one in 0..4 {
                for other in 0..4 {
                    world.cuts.one_way(0, one, other);
                }
            }
        }
        world.laws.dirty = true;
        // Who was heard before may be taken over once.
        world.run(secs(20));
        let since = world.now;
        world.run(secs(120));
        let claimed = |fact: &(&str, &Fact)| matches!(fact.1, Fact::Claimed { .. });
        assert_eq!(world.facts_since(since).filter(claimed).count(), 0, "filtered: {filtered}");
        world.heal_wire();
        world.run(secs(20));
        world.assert_served();
    }
}

fn s20_five_reboots_in_a_row() {
    let mut world = World::listening(&ALL, 12);
    for _ in 0..5 {
        world.kill_node("a");
        world.run(millis(500));
        run_answered(&mut world, secs(10));
        world.power_on(0);
        run_answered(&mut world, secs(15));
    }
    world.kill_node("b");
    let took = world.outage();
    assert!(took < millis(400), "{took:?}");
}

fn s22_three_of_five_die() {
    let mut world = World::listening(&["a", "b", "c", "d", "e"], 20);
    for name in ["a", "c", "e"] {
        world.kill_node(name);
    }
    world.run(millis(700));
    run_answered(&mut world, secs(20));
    world.assert_served();
    // What one was to take that turned out to be dead as well is placed again.
    let loads = world.loads();
    assert!(loads.values().all(|load| (5..=15).contains(load)), "{loads:?}");
}

fn s24_a_stranger_has_the_address() {
    let stranger = MacAddr::new(2, 9, 9, 9, 9, 9);
    let mut world = World::listening(&ALL, 3);
    world.hold_still();
    let since = world.now;
    for _ in 0..600 {
        world.announce_from(stranger, vip(1));
        world.run(millis(100));
    }
    let defences =
        world.frames_since(since).filter(|(_, frame)| **frame == Frame::Announce(vip(1)));
    // One in ten seconds, and the usual refresh.
    assert!((3..=8).contains(&defences.count()));
    let conflict = |fact: &(&str, &Fact)| matches!(fact.1, Fact::AddressConflict { .. });
    assert_eq!(world.facts_since(since).filter(conflict).count(), 1);
    // One that somebody else has already is not taken.
    world.laws.still = None;
    world.strangers.insert(vip(9), stranger);
    world.add_services_with(9, 9, Detection::default(), OnApiOutage::Hold);
    world.run(secs(20));
    assert!(world.having(vip(9)).is_empty());
}

pub(super) const RUNS: &[Run] = runs![
    s02_the_cut_node_takes_its_services_back,
    s02_two_nodes_are_cut_and_reach_the_api,
    s03_one_service_deleted_and_the_node_stays,
    s09_the_old_owner_heals_late,
    s09_a_healed_partition_leaves_two_owners_for_a_moment_only,
    s10_the_successor_dies_in_between,
    s11_the_owner_cannot_announce,
    s12_provisional_and_back,
    s12_the_owner_and_the_api_die_at_once,
    s12_the_api_dies_between_fence_and_claim,
    s12_the_dead_owner_is_back_before_the_api,
    s17_two_nodes_and_no_gateway,
    s18_two_segments_and_one_session,
    s19_one_way_loss,
    s19_port_isolation_and_filtered_arp_take_nothing_over,
    s20_five_reboots_in_a_row,
    s22_three_of_five_die,
    s24_a_stranger_has_the_address,
];
