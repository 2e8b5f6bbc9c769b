//! Claims: spread, taken once, repaired by their holder, given up.

use std::sync::Arc;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Run, millis, runs, secs};
use crate::world::controls::{claim, on_claim, session, vip};
use crate::world::{Trouble, World};
use leasehold_core::election::{Fact, Target, Write};

const ALL: [&str; 3] = ["a", "b", "c"];

fn assert_even(loads: &BTreeMap<String, usize>, nodes: usize) {
    let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
    assert!(loads.len() == nodes && most - least <= 1, "{loads:?}");
}

fn new_services_spread_evenly_over_all_nodes() {
    let world = World::settled(&ALL, 100);
    assert_even(&world.loads(), 3);
}

fn services_that_come_one_by_one_spread_evenly_too() {
    let mut world = World::new(&ALL);
    for number in 1..=12 {
        world.add_services(number, number);
        world.run(millis(300));
    }
    world.run(secs(1));
    assert_even(&world.loads(), 3);
    world.assert_served();
}

fn at_most_four_claim_writes_are_in_flight() {
    let mut world = World::new(&["a", "b"]);
    world.add_services(1, 200);
    world.run(secs(5));
    world.assert_served();
    for host in world.hosts.iter() {
        assert_eq!(host.most_claim_writes, 4);
    }
}

fn throttling_reduces_the_writes_in_flight() {
    let mut world = World::new(&["a"]);
    world.fault(None, on_claim, Trouble::Throttled, 4);
    world.add_services(1, 40);
    world.run(millis(100));
    let host = world.hosts.of("a");
    host.most_claim_writes = host.claim_writes;
    world.run(millis(10));
    assert!(world.hosts["a"].most_claim_writes < 4);
    world.run(secs(5));
    world.assert_served();
}

fn a_takeover_for_which_the_api_server_had_no_time_is_tried_again_soon() {
    let took = |throttled| {
        let mut world = World::settled(&["a", "b"], 1);
        let owner = world.owner(1).unwrap();
        let other = if owner == "a" { "b" } else { "a" };
        world.fault(Some(other), on_claim, Trouble::Throttled, throttled);
        world.kill_node(&owner);
        world.run_until(|world| world.owner(1).as_deref() == Some(other))
    };
    let (asked, once) = (took(0), took(1));
    assert!(once.saturating_sub(asked) < millis(350), "{once:?} for {asked:?}");
}

/// An API server that has no time again and again is as good as none.
fn an_address_for_which_the_api_server_has_no_time_is_served_without_it() {
    let mut world = World::settled(&["a", "b"], 1);
    let owner = world.owner(1).unwrap();
    let other = if owner == "a" { "b" } else { "a" };
    let served = |world: &World| world.having(vip(1)).contains(other);
    world.fault(Some(other), on_claim, Trouble::Throttled, 3);
    world.kill_node(&owner);
    let took = world.run_until(served);
    assert!(took < secs(6), "{took:?}");
    assert_eq!(world.owner(1), None);
    world.run_until(|world| world.owner(1).as_deref() == Some(other));
}

fn claims_are_refreshed_in_turn() {
    let mut world = World::settled(&["a"], 5);
    let since = world.now;
    world.run(secs(15));
    let mut refreshed: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for write in world.committed.iter().filter(|write| write.at >= since) {
        if let Write::Claim(change) = &write.write {
            let at = write.at.saturating_since(since);
            refreshed.entry(change.name.to_string()).or_default().push(at);
        }
    }
    assert_eq!(refreshed.len(), 5);
    for (name, times) in refreshed {
        assert_eq!(times.len(), 2, "{name}: {times:?}");
        let pause = times[1].saturating_sub(times[0]);
        assert!((millis(7400)..=millis(7700)).contains(&pause), "{name}: {pause:?}");
    }
}

fn a_deleted_claim_is_created_again_by_its_holder_and_nothing_moves() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    let owners: Vec<_> = (1..=6).map(|number| world.owner(number)).collect();
    for number in 1..=6 {
        world.delete(&Target::Claim(claim(number)));
    }
    world.run(secs(10));
    assert_eq!(owners, (1..=6).map(|number| world.owner(number)).collect::<Vec<_>>());
    world.assert_served();
}

fn a_deleted_session_is_created_again_while_the_api_server_is_slow_and_nothing_moves() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    // Longer than the steps by which others would act.
    world.server.latency = (millis(400), millis(500));
    for node in ALL {
        world.delete(&Target::Session(session(node)));
        world.run(secs(6));
    }
    world.assert_served();
}

fn a_claim_edited_without_making_another_owner_valid_is_repaired_by_its_holder() {
    let edits: [fn(&mut leasehold_crds::lease::Claim); 5] = [
        |claim| claim.holder = None,
        |claim| claim.transitions -= 1,
        |claim| claim.session = None,
        |claim| claim.holder = Some("nobody".parse().unwrap()),
        // A node that lives, but not under this session.
        |claim| claim.session.as_mut().unwrap().transitions -= 1,
    ];
    for (row, edit) in edits.into_iter().enumerate() {
        let mut world = World::settled(&ALL, 3);
        let (owner, highest) = (world.owner(1), world.store.claims[&claim(1)].record.transitions);
        world.hold_still();
        world.edit_claim(1, edit);
        world.run(secs(10));
        assert_eq!(world.owner(1), owner, "row {row}");
        assert!(world.store.claims[&claim(1)].record.transitions > highest, "row {row}");
        world.assert_served();
    }
}

fn a_take_that_is_not_answered_leads_to_one_owner() {
    for trouble in [
        Trouble::Lost,
        Trouble::AnswerLost,
        Trouble::Late(millis(1600)),
        Trouble::Late(millis(3000)),
    ] {
        let mut world = World::new(&ALL);
        world.fault(None, on_claim, trouble, 1);
        world.add_services(1, 1);
        world.run(secs(10));
        world.assert_served();
    }
}

fn a_late_take_of_a_deleted_claim_changes_nothing() {
    let mut world = World::settled(&ALL, 1);
    let owner = world.owner(1).unwrap();
    world.fault(Some(&owner), on_claim, Trouble::Late(secs(4)), 1);
    // The refresh is on its way when the claim is deleted.
    world.run(secs(3));
    world.hold_still();
    world.delete(&Target::Claim(claim(1)));
    world.run(secs(10));
    assert_eq!(world.owner(1), Some(owner));
    world.assert_served();
}

fn a_late_watch_does_not_flip_ownership() {
    let mut world = World::settled(&ALL, 6);
    for host in world.hosts.iter_mut() {
        host.watch_delay = millis(400);
    }
    world.add_services(7, 12);
    world.run(secs(4));
    world.assert_served();
    let claimed = |(_, fact): &(&str, &Fact)| matches!(fact, Fact::Claimed { .. });
    assert_eq!(world.facts_since(world.now - secs(4)).filter(claimed).count(), 6);
}

fn an_address_that_is_no_longer_asked_for_goes_from_the_kernel_before_its_claim_is_released() {
    let mut world = World::settled(&ALL, 3);
    world.desired.claims.remove(&claim(1));
    world.publish_desired();
    let released = |world: &World| world.store.claims[&claim(1)].record.holder.is_none();
    world.run_until(released);
    assert!(world.having(vip(1)).is_empty());
    world.run(secs(3));
    world.assert_served();
}

fn a_claim_lists_a_new_address_before_it_is_served() {
    let mut world = World::settled(&ALL, 3);
    let owner = world.owner(1);
    let desired = Arc::make_mut(world.desired.claims.get_mut(&claim(1)).unwrap());
    desired.addresses = [vip(77)].into();
    world.publish_desired();
    world.run_until(|world| !world.having(vip(77)).is_empty());
    assert!(world.store.claims[&claim(1)].record.addresses.contains(&vip(77)));
    assert!(world.having(vip(1)).is_empty());
    world.run(secs(3));
    world.assert_served();
    assert_eq!(world.owner(77), owner);
}

fn an_owner_whose_kernel_refuses_the_address_gives_it_up_and_waits_longer_each_time() {
    let mut world = World::new(&["a", "b"]);
    for host in world.hosts.iter_mut() {
        host.kernel.refuses = true;
    }
    let since = world.now;
    world.add_services(1, 1);
    world.run(secs(200));
    let mut refused: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for (at, host, fact) in &world.facts {
        if let Fact::AddressRefused { cause, .. } = fact {
            assert_eq!(cause, "operation not permitted");
            refused.entry(host.clone()).or_default().push(at.saturating_since(since));
        }
    }
    assert_eq!(refused.len(), 2, "both try");
    for (host, times) in refused {
        let pauses: Vec<u64> =
            times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs()).collect();
        assert!(pauses.len() >= 2, "{host}: {times:?}");
        assert!((30..40).contains(&pauses[0]), "{host}: {pauses:?}");
        assert!((60..75).contains(&pauses[1]), "{host}: {pauses:?}");
    }
    for host in world.hosts.iter_mut() {
        host.kernel.refuses = false;
    }
    world.run(secs(400));
    world.assert_served();
}

fn another_node_takes_what_one_kernel_refuses() {
    let mut world = World::new(&ALL);
    world.hosts.of("a").kernel.refuses = true;
    world.add_services(1, 9);
    world.run(secs(10));
    world.assert_served();
    assert_eq!(world.loads().get("a"), None);
}

fn an_address_of_the_node_itself_is_never_claimed_for_long_and_stays() {
    let mut world = World::new(&["a", "b"]);
    for name in ["a", "b"] {
        world.hosts.of(name).kernel.foreign.insert(vip(1));
    }
    world.add_services(1, 1);
    world.run(secs(20));
    assert_eq!(world.owner(1), None);
    let conflict = |(_, fact): &(&str, &Fact)| matches!(fact, Fact::AddressConflict { .. });
    assert!(world.facts_since(world.now - secs(20)).any(|fact| conflict(&fact)));
    for host in world.hosts.iter() {
        assert!(host.kernel.foreign.contains(&vip(1)) && host.kernel.ours.is_empty());
    }
}

fn the_address_of_a_node_is_never_claimed() {
    let mut world = World::new(&["a", "b"]);
    let taken = world.hosts["a"].address;
    world.add_services(1, 1);
    world.run(secs(1));
    Arc::make_mut(world.desired.claims.get_mut(&claim(1)).unwrap()).addresses = [taken].into();
    world.publish_desired();
    world.run(secs(5));
    assert!(world.having(taken).is_empty() && world.owner(1).is_none());
    assert!(!world.committed.iter().any(|write| {
        matches!(&write.write, Write::Claim(change)
            if change.record.holder.is_some() && change.record.addresses.contains(&taken))
    }));
    let reports = world.facts.iter().filter(
        |(_, _, fact)| matches!(fact, Fact::AddressConflict { address, .. } if *address == taken),
    );
    assert!((1..=2).contains(&reports.count()), "once per node");
}

/// Of two nodes on a segment without a router, the link of the one that answered is gone.
fn a_node_that_is_alone_on_the_segment_takes_what_nobody_else_can_have() {
    let mut world = World::listening(&["a", "b"], 4);
    world.router = false;
    let allow = |world: &mut World, nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| node.parse().unwrap()).collect();
        Arc::make_mut(world.desired.claims.get_mut(&claim(1)).unwrap()).nodes =
            std::sync::Arc::new(nodes);
        world.publish_desired();
        world.run(secs(5));
    };
    allow(&mut world, &["b"]);
    assert_eq!(world.owner(1).as_deref(), Some("b"));
    world.set_carrier("b", false);
    world.run(secs(5));
    assert_eq!(world.owner(1), None);
    allow(&mut world, &["a", "b"]);
    assert_eq!(world.owner(1).as_deref(), Some("a"));
}

pub(super) const RUNS: &[Run] = runs![
    new_services_spread_evenly_over_all_nodes,
    a_node_that_is_alone_on_the_segment_takes_what_nobody_else_can_have,
    services_that_come_one_by_one_spread_evenly_too,
    at_most_four_claim_writes_are_in_flight,
    throttling_reduces_the_writes_in_flight,
    a_takeover_for_which_the_api_server_had_no_time_is_tried_again_soon,
    an_address_for_which_the_api_server_has_no_time_is_served_without_it,
    claims_are_refreshed_in_turn,
    a_deleted_claim_is_created_again_by_its_holder_and_nothing_moves,
    a_deleted_session_is_created_again_while_the_api_server_is_slow_and_nothing_moves,
    a_claim_edited_without_making_another_owner_valid_is_repaired_by_its_holder,
    a_take_that_is_not_answered_leads_to_one_owner,
    a_late_take_of_a_deleted_claim_changes_nothing,
    a_late_watch_does_not_flip_ownership,
    an_address_that_is_no_longer_asked_for_goes_from_the_kernel_before_its_claim_is_released,
    a_claim_lists_a_new_address_before_it_is_served,
    an_owner_whose_kernel_refuses_the_address_gives_it_up_and_waits_longer_each_time,
    another_node_takes_what_one_kernel_refuses,
    an_address_of_the_node_itself_is_never_claimed_for_long_and_stays,
    the_address_of_a_node_is_never_claimed,
];
