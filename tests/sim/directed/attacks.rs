//! Scenarios that broke an earlier protocol, each by its number: the API server and the leases.

use std::sync::Arc;

use leasehold_core::desired::{DesiredClaim, Detection, OnApiOutage};
use leasehold_core::election::{Fact, Target, Write};
use leasehold_crds::lease::SessionId;

use super::{Run, millis, run_answered, runs, secs};
use crate::world::controls::{claim, lease_only, on_claim, on_session, session, vip};
use crate::world::{Down, Trouble, World};

const ALL: [&str; 4] = ["a", "b", "c", "d"];

fn s01_the_api_returns() {
    for (away, down) in [(60, Down::Silent), (60, Down::Refusing), (7, Down::Silent)] {
        let mut world = World::listening(&ALL, 9);
        world.hold_still();
        let since = world.now;
        world.set_down(Some(down));
        world.run(secs(away));
        world.set_down(None);
        world.run(secs(30));
        world.assert_served();
        assert!(ALL.iter().all(|node| world.fences(node, since).is_empty()));
    }
}

fn s01_the_api_stalls_for_writes_alone_and_what_was_queued_comes_late() {
    let mut world = World::listening(&ALL, 9);
    world.hold_still();
    let since = world.now;
    world.fault(None, on_session, Trouble::Late(secs(12)), 40);
    world.fault(None, on_claim, Trouble::Late(secs(9)), 40);
    world.run(secs(20));
    world.clear_faults();
    world.run(secs(30));
    world.assert_served();
    assert!(ALL.iter().all(|node| world.fences(node, since).is_empty()));
}

fn s04_two_claims_for_one_address() {
    // The address of a deleted service goes to another; one speaker knows of neither.
    for stale in ALL {
        for number in 1..=3 {
            let mut world = World::listening(&ALL, 3);
            world.hosts.of(stale).watch_delay = secs(4);
            let late = |name: &str| if name == stale { secs(4) } else { millis(2) };
            let freed = world.desired.claims.remove(&claim(number)).unwrap();
            let mut freed = DesiredClaim::clone(&freed);
            world.publish_desired_to(late);
            world.run_until(|world| world.store.claims[&claim(number)].record.holder.is_none());
            freed.services = vec!["web/s009".to_owned()];
            world.desired.claims.insert(claim(9), freed.into());
            world.publish_desired_to(late);
            world.run(secs(20));
            world.assert_served();
        }
    }
}

fn s04_an_address_changes_its_claim_while_it_is_served() {
    // As if the operator had recorded it before the old owner gave it up.
    for stale in ALL {
        let mut world = World::listening(&ALL, 3);
        let late = |name: &str| if name == stale { secs(4) } else { millis(2) };
        for (from, to) in [(1, 9), (9, 8), (8, 1)] {
            world.hosts.of(stale).watch_delay = secs(4);
            let moved = world.desired.claims.remove(&claim(from)).unwrap();
            world.desired.claims.insert(claim(to), moved);
            world.publish_desired_to(late);
            world.run(secs(1));
        }
        world.run(secs(20));
        world.assert_served();
    }
}

fn s04_the_operator_is_away() {
    // Whoever holds a claim whose lease was deleted needs no operator to hold it.
    let mut world = World::listening(&ALL, 3);
    world.set_operator(false);
    world.hold_still();
    for number in 1..=3 {
        world.delete(&Target::Claim(claim(number)));
        world.run(secs(2));
    }
    assert!((1..=3).all(|number| world.having(vip(number)).len() == 1));
    // What is new waits for it.
    let claimed = world.claimed(4, vip(4), Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(4), claimed.into());
    world.publish_desired();
    world.run(secs(5));
    assert!(world.having(vip(4)).is_empty());
    world.set_operator(true);
    world.run(secs(5));
    world.assert_served();
}

fn s04_a_deleted_lease_while_its_address_goes_to_another_claim() {
    // The owner sees the deletion, and not yet that nothing asks for its claim any more.
    for stale in ALL {
        for number in 1..=3 {
            let mut world = World::listening(&ALL, 3);
            let moved = world.desired.claims.remove(&claim(number)).unwrap();
            world.desired.claims.insert(claim(9), moved);
            world.publish_desired_to(|name| if name == stale { secs(3) } else { millis(2) });
            world.delete(&Target::Claim(claim(number)));
            world.run(secs(20));
            world.assert_served();
        }
    }
}

/// The claim `number` asks for a second address, and only its owner and `stale` may have it; what it asked for
/// before, for a claim of a new service.
fn second_address(world: &mut World, number: u8, owner: &str, stale: &str) -> DesiredClaim {
    let nodes = [owner, stale].map(|node| node.parse().unwrap());
    let new = DesiredClaim {
        services: vec!["web/s009".to_owned()],
        ..DesiredClaim::clone(&world.desired.claims[&claim(number)])
    };
    let both = Arc::make_mut(world.desired.claims.get_mut(&claim(number)).unwrap());
    both.nodes = Arc::new(nodes.into());
    both.addresses.extend([vip(11)]);
    world.publish_desired();
    world.run(secs(2));
    new
}

/// It keeps only that, and the first one is asked for by the `new` claim: `stale` does not see it for long.
fn first_address_goes(world: &mut World, number: u8, new: DesiredClaim, stale: &str) {
    let both = Arc::make_mut(world.desired.claims.get_mut(&claim(number)).unwrap());
    both.addresses = [vip(11)].into();
    world.desired.claims.insert(claim(9), new.into());
    world.publish_desired_to(|name| if name == stale { secs(30) } else { millis(2) });
}

/// Each owner of a claim dies in turn, and each other node takes it, once `before` has been done in the world.
fn each_is_taken(before: impl Fn(&mut World, u8, &str, &str)) {
    for stale in ALL {
        for number in 1..=3 {
            let mut world = World::listening(&ALL, 3);
            let owner = world.owner(number).unwrap();
            if owner == stale {
                continue;
            }
            before(&mut world, number, &owner, stale);
            world.kill_node(&owner);
            world.run(secs(4));
            let holder = world.store.claims[&claim(number)].record.holder.clone();
            assert_eq!(holder.map(|holder| holder.to_string()).as_deref(), Some(stale));
            world.run(secs(40));
            world.assert_served();
        }
    }
}

fn s04_a_claim_is_taken_by_who_has_not_seen_that_its_address_is_anothers() {
    // Of two addresses of its service one is listed by the claim of a new service now.
    each_is_taken(|world, number, owner, stale| {
        let new = second_address(world, number, owner, stale);
        first_address_goes(world, number, new, stale);
        world.run(secs(4));
    });
}

fn s04_a_claim_is_taken_by_who_sees_late_that_another_lists_its_address() {
    // As before, and neither is the list of either claim seen in time: its conflict has the taker read the lease.
    each_is_taken(|world, number, owner, stale| {
        let third = ALL.into_iter().find(|name| *name != owner && *name != stale).unwrap();
        let mut new = second_address(world, number, owner, stale);
        new.nodes = Arc::new([third.parse().unwrap()].into());
        let id = world.hosts.id(stale);
        world.hosts.iter_mut().nth(id).unwrap().watch_delay = secs(1);
        first_address_goes(world, number, new, stale);
        world.run_until(|world| world.having(vip(number)) == [third.to_owned()].into());
    });
}

fn s05_one_name_two_hosts() {
    let mut world = World::listening(&["a", "b"], 6);
    world.add_host("a2", "a");
    world.laws.overlap = Some(secs(3));
    world.start("a2");
    world.run(secs(20));
    assert!(world.hosts["a2"].kernel.ours.is_empty(), "the first keeps its name");
    world.assert_served();
    // The first stands still for long enough to lose it, and comes back.
    world.pause(0);
    world.run(secs(30));
    world.resume(0);
    world.run(secs(2));
    assert!(world.hosts["a"].kernel.ours.is_empty() || world.hosts["a2"].kernel.ours.is_empty());
    world.run(secs(20));
    for number in 1..=6 {
        assert_eq!(world.having(vip(number)).len(), 1);
    }
}

fn s06_a_vip_equals_a_nodes_address() {
    let mut world = World::listening(&ALL, 3);
    let taken = world.hosts["a"].address;
    let claimed = world.claimed(4, taken, Detection::default(), OnApiOutage::Hold);
    world.desired.claims.insert(claim(4), claimed.into());
    world.publish_desired();
    world.run(secs(60));
    assert!(world.having(taken).is_empty());
    let conflict =
        |fact: &Fact| matches!(fact, Fact::AddressConflict { address, .. } if *address == taken);
    assert!(world.facts.iter().any(|(_, _, fact)| conflict(fact)));
}

fn s07_a_read_only_api() {
    let mut world = World::listening(&ALL, 9);
    world.hold_still();
    world.set_read_only(true);
    world.run(secs(90));
    world.set_read_only(false);
    world.run(secs(30));
    world.assert_served();
    for trouble in [Trouble::Throttled, Trouble::Refused] {
        world.fault(None, |_| true, trouble, 1_000_000);
        world.run(secs(60));
        world.clear_faults();
        world.run(secs(30));
        world.assert_served();
    }
}

fn s08_stopped_at_a_bad_moment() {
    for moment in 0..25_u64 {
        let mut world = World::listening(&["a", "b", "c"], 6);
        world.laws.overlap = Some(millis(2030));
        world.run(millis(moment * 70));
        world.stop(0, false);
        run_answered(&mut world, secs(30));
        assert!(world.hosts["a"].kernel.ours.is_empty());
        world.cont(0);
        run_answered(&mut world, secs(20));
        world.assert_served();
    }
}

fn s08_stopped_at_a_bad_moment_with_drop() {
    for moment in 0..25_u64 {
        let mut world = World::new(&["a", "b", "c"]);
        world.add_services_with(1, 6, lease_only(), OnApiOutage::Drop);
        world.run(secs(6) + millis(moment * 70));
        world.assert_served();
        world.laws.overlap = Some(millis(0));
        world.stop(0, moment % 2 == 0);
        world.run(secs(30));
        world.cont(0);
        world.run(secs(20));
        world.assert_served();
    }
}

fn s08_stopped_when_answers_are_late() {
    for moment in 0..25_u64 {
        for outage in [OnApiOutage::Hold, OnApiOutage::Drop] {
            let mut world = World::new(&["a", "b", "c"]);
            world.add_services_with(1, 6, lease_only(), outage);
            world.run(secs(6) + millis(moment * 70));
            world.server.answers_late = millis(1400);
            world.run(secs(12));
            world.assert_served();
            let most = if outage == OnApiOutage::Drop { 0 } else { 2030 };
            world.laws.overlap = Some(millis(most));
            world.stop(0, false);
            // Who replaces it is answered at once.
            world.server.answers_late = millis(0);
            world.run(secs(30));
            world.cont(0);
            world.run(secs(20));
            world.assert_served();
        }
    }
}

fn s08_stopped_beyond_its_lifetimes_and_without_the_api() {
    for halfway in [false, true] {
        let mut world = World::listening(&["a", "b", "c"], 6);
        world.laws.overlap = Some(millis(2030));
        world.stop(0, halfway);
        world.run(secs(20));
        assert!(world.hosts["a"].kernel.ours.is_empty());
        world.set_api_of("a", false);
        // It cannot know that it lost everything; but its addresses have lapsed.
        world.laws.overlap = Some(millis(5));
        world.cont(0);
        run_answered(&mut world, secs(30));
        world.set_api_of("a", true);
        run_answered(&mut world, secs(20));
        world.assert_served();
    }
}

fn s13_a_restart_goes_wrong() {
    // The lengthening write is lost: lifetimes stay as they are.
    let mut world = World::listening(&["a", "b", "c"], 6);
    world.laws.overlap = Some(millis(2030));
    world.fault(Some("a"), on_session, Trouble::Lost, 100);
    world.terminate("a");
    world.run_until(|world| world.hosts["a"].exited);
    assert!(world.hosts["a"].kernel.ours.values().all(|held| held.ends < world.now + secs(7)));
    world.clear_faults();
    run_answered(&mut world, secs(30));
    world.assert_served();
    // It never comes back: after its grace others serve.
    let mut world = World::listening(&["a", "b", "c"], 6);
    world.laws.overlap = Some(millis(2030));
    world.terminate("a");
    run_answered(&mut world, secs(60));
    assert_eq!(world.loads().get("a"), None);
    // It dies meanwhile: the wire says so.
    let mut world = World::listening(&["a", "b", "c"], 6);
    world.terminate("a");
    world.run(secs(10));
    world.kill_node("a");
    let took = world.outage();
    assert!(took < millis(400), "{took:?}");
    // The node boots: that is no upgrade.
    let mut world = World::listening(&["a", "b", "c"], 6);
    world.terminate("a");
    world.run(secs(1));
    world.kill_node("a");
    world.run(secs(20));
    world.power_on(0);
    world.run(secs(20));
    world.assert_served();
}

fn s14_released_and_acquired_with_the_same_number() {
    let mut world = World::listening(&["a"], 3);
    let held: Vec<SessionId> =
        world.store.claims.values().filter_map(|claim| claim.record.session.clone()).collect();
    world.drain("a", true);
    world.run(millis(100));
    // Nobody takes what it has; its releases are lost, its session's is not.
    world.fault(Some("a"), on_claim, Trouble::Refused, 100);
    world.terminate("a");
    world.run_until(|world| world.store.live(&session("a")).is_none());
    world.run(secs(20));
    world.clear_faults();
    let released = world.store.sessions[&session("a")].record.transitions;
    world.drain("a", false);
    world.start("a");
    world.run(secs(10));
    world.assert_served();
    let now = world.store.live(&session("a")).unwrap();
    assert!(now.transitions > released, "acquiring adds one");
    assert!(!held.contains(&now));
    assert!(held.iter().all(|before| before.transitions < released), "releasing adds one");
}

fn s15_leases_deleted_and_edited_by_hand() {
    let mut world = World::listening(&ALL, 8);
    world.hold_still();
    for number in 1..=8 {
        world.delete(&Target::Claim(claim(number)));
        world.run(millis(700));
    }
    for node in ALL {
        world.delete(&Target::Session(session(node)));
        world.run(secs(3));
    }
    for number in 1..=8 {
        world.edit_claim(number, |claim| claim.transitions -= 1);
        world.run(millis(700));
    }
    for node in ALL {
        world.edit_session(node, |session| session.holder = None);
        world.run(secs(3));
    }
    // A Node that is missing for a moment.
    let facts = world.desired.nodes.remove(&"b".parse().unwrap()).unwrap();
    world.publish_desired();
    world.run(secs(2));
    world.desired.nodes.insert("b".parse().unwrap(), facts);
    world.publish_desired();
    world.run(secs(20));
    world.assert_served();
}

fn s16_many_nodes_and_services() {
    let names: Vec<String> = (0..24).map(|number| format!("node-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::listening(&names, 100);
    let since = world.now;
    world.run(secs(30));
    let mut sessions = 0;
    let mut claims = 0;
    for committed in world.committed.iter().filter(|committed| committed.at >= since) {
        match committed.write {
            Write::Session(_) => sessions += 1,
            Write::Claim(_) => claims += 1,
        }
    }
    // p is max(1.5 s, N/10 s), R a third of max(5 s, N/10 s).
    assert!(claims <= 24 * 30 * 10 / 24 + 24, "{claims}");
    assert!(sessions <= 24 * 30 * 3 / 5 + 24, "{sessions}");
    assert!(world.hosts.iter().all(|host| host.most_claim_writes <= 4));
}

fn s21_a_hung_watch_and_living_writes() {
    let mut world = World::listening(&["a", "b", "c"], 6);
    world.laws.overlap = Some(secs(3));
    world.hosts.of("a").watch_hung = true;
    world.run(secs(4));
    let number = world.owned_by("a")[0];
    let to = world.store.live(&session("b")).unwrap();
    let mac = world.hosts["b"].mac;
    world.edit_claim(number, |claim| {
        claim.holder = Some("b".parse().unwrap());
        claim.transitions += 1;
        claim.mac = Some(mac);
        claim.session = Some(to);
    });
    world.run(secs(3));
    assert!(!world.having(vip(number)).contains("a"));
    world.assert_served();
}

fn s23_restarted_before_the_lists_are_in() {
    let mut world = World::listening(&ALL, 9);
    world.hold_still();
    world.set_api(false);
    world.run(secs(10));
    world.kill("a");
    world.run(secs(1));
    world.start("a");
    world.run(secs(60));
    world.set_api(true);
    world.run(secs(30));
    world.assert_served();
    world.kill("b");
    world.run(millis(500));
    // Reached by everybody else.
    world.start("b");
    world.set_api_of("b", false);
    world.run(millis(1200));
    world.set_api_of("b", true);
    world.run(secs(10));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    s01_the_api_returns,
    s01_the_api_stalls_for_writes_alone_and_what_was_queued_comes_late,
    s04_two_claims_for_one_address,
    s04_an_address_changes_its_claim_while_it_is_served,
    s04_the_operator_is_away,
    s04_a_deleted_lease_while_its_address_goes_to_another_claim,
    s04_a_claim_is_taken_by_who_has_not_seen_that_its_address_is_anothers,
    s04_a_claim_is_taken_by_who_sees_late_that_another_lists_its_address,
    s05_one_name_two_hosts,
    s06_a_vip_equals_a_nodes_address,
    s07_a_read_only_api,
    s08_stopped_at_a_bad_moment,
    s08_stopped_at_a_bad_moment_with_drop,
    s08_stopped_when_answers_are_late,
    s08_stopped_beyond_its_lifetimes_and_without_the_api,
    s13_a_restart_goes_wrong,
    s14_released_and_acquired_with_the_same_number,
    s15_leases_deleted_and_edited_by_hand,
    s16_many_nodes_and_services,
    s21_a_hung_watch_and_living_writes,
    s23_restarted_before_the_lists_are_in,
];
