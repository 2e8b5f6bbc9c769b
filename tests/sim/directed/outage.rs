//! The API server away, read-only, or its watch hung: nothing moves without a cause.

use leasehold_crds::lease::SessionId;

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, session, vip};
use leasehold_core::desired::{Detection, OnApiOutage};
use leasehold_core::election::{Fact, Target};

const ALL: [&str; 3] = ["a", "b", "c"];

fn an_api_server_that_is_away_for_a_minute_and_returns_moves_nothing() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    let (before, since) = (world.loads(), world.now);
    world.set_api(false);
    world.run(secs(60));
    world.set_api(true);
    world.run(secs(30));
    assert_eq!(world.loads(), before);
    for node in ALL {
        assert_eq!(world.fences(node, since).len(), 0);
    }
    world.assert_served();
}

fn outages_of_any_length_move_nothing() {
    for length in (1..=14).map(|n| millis(n * 700)) {
        let mut world = World::settled(&ALL, 6);
        world.hold_still();
        let before = world.loads();
        world.set_api(false);
        world.run(length);
        world.set_api(true);
        world.run(secs(20));
        assert_eq!(world.loads(), before, "{length:?}");
        world.assert_served();
    }
}

/// Addresses that lapsed as they should are no reason to give up their claim.
fn outages_of_any_length_move_nothing_also_where_addresses_are_dropped() {
    for length in (1..=49).map(|n| millis(n * 200)) {
        let mut world = World::new(&ALL);
        world.add_services_with(1, 6, Detection::default(), OnApiOutage::Drop);
        world.run(secs(6));
        world.assert_served();
        let (before, since) = (world.loads(), world.now);
        world.set_api(false);
        world.run(length);
        world.set_api(true);
        world.run(secs(20));
        assert_eq!(world.loads(), before, "{length:?}");
        let refused = |(_, fact): &(&str, &Fact)| matches!(fact, Fact::AddressRefused { .. });
        assert_eq!(world.facts_since(since).filter(refused).count(), 0, "{length:?}");
        world.assert_served();
    }
}

fn a_read_only_api_server_moves_nothing_and_the_addresses_stay() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    let before = world.loads();
    world.set_read_only(true);
    world.run(secs(90));
    world.set_read_only(false);
    world.run(secs(30));
    assert_eq!(world.loads(), before);
    world.assert_served();
}

fn a_speaker_that_restarts_while_the_api_is_read_only_keeps_what_it_has() {
    let mut world = World::settled(&ALL, 9);
    world.hold_still();
    let before = world.loads();
    world.set_read_only(true);
    world.run(secs(3));
    world.kill("a");
    world.run(millis(500));
    world.start("a");
    world.run(secs(60));
    world.set_read_only(false);
    world.run(secs(30));
    assert_eq!(world.loads(), before);
    world.assert_served();
}

fn what_is_edited_while_the_api_is_read_only_is_repaired_when_it_can_be_written() {
    let mut world = World::settled(&ALL, 9);
    world.set_read_only(true);
    world.run(secs(3));
    world.edit_claim(1, |claim| claim.transitions -= 1);
    world.delete(&Target::Claim(claim(2)));
    world.edit_session("a", |session| session.holder = None);
    world.delete(&Target::Session(session("b")));
    world.hold_still();
    world.run(secs(60));
    world.laws.still = None;
    world.set_read_only(false);
    world.run(secs(30));
    world.assert_served();
}

fn a_carrier_that_is_lost_while_the_api_is_read_only_leaves_nothing_in_the_kernel() {
    let mut world = World::settled(&ALL, 9);
    world.set_read_only(true);
    world.run(secs(3));
    world.set_carrier("a", false);
    world.run(secs(20));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.set_read_only(false);
    world.run(secs(10));
    world.assert_served();
}

fn without_the_api_server_an_address_is_yielded_to_a_speaker_that_announces_it_and_has_it() {
    let mut world = World::settled(&ALL, 9);
    let number = world.owned_by("a")[0];
    let mac = world.hosts["b"].mac;
    world.set_api(false);
    world.run(secs(10));
    assert!(world.having(vip(number)).contains("a"));
    world.hosts.of("b").kernel.foreign.insert(vip(number));
    world.announce_from(mac, vip(number));
    world.run(millis(10));
    assert!(!world.having(vip(number)).contains("a"));
    world.run(secs(5));
    assert!(!world.having(vip(number)).contains("a"));
    world.hosts.of("b").kernel.foreign.clear();
    world.run(secs(2));
    assert!(world.having(vip(number)).contains("a"), "nobody else has it any more");
    world.set_api(true);
    // Until the leases are known again the announcement counts; once they are, they do.
    world.run(secs(10));
    world.assert_served();
}

/// Anybody can send a frame in a speaker's name.
fn without_the_api_server_an_address_is_not_yielded_to_a_speaker_that_does_not_have_it() {
    let mut world = World::settled(&ALL, 9);
    let mac = world.hosts["b"].mac;
    world.set_api(false);
    world.run(secs(10));
    world.hold_still();
    for number in world.owned_by("a") {
        world.announce_from(mac, vip(number));
        world.run(millis(300));
        world.announce_from(mac, vip(number));
    }
    world.run(secs(10));
    world.laws.still = None;
    world.set_api(true);
    world.run(secs(10));
    world.assert_served();
}

/// It knows nobody yet, and whoever announces may be who has it now.
fn a_speaker_that_starts_without_the_api_server_asks_before_and_after_it_yields() {
    for has in [false, true] {
        let mut world = World::settled(&ALL, 9);
        let number = world.owned_by("a")[0];
        let mac = world.hosts["b"].mac;
        world.set_api(false);
        world.run(secs(3));
        world.kill("a");
        world.run(millis(300));
        world.start("a");
        world.run(secs(1));
        if has {
            world.hosts.of("b").kernel.foreign.insert(vip(number));
        }
        world.announce_from(mac, vip(number));
        world.run(secs(3));
        assert_eq!(world.having(vip(number)).contains("a"), !has);
        world.hosts.of("b").kernel.foreign.clear();
        world.run(secs(3));
        let have = world.having(vip(number)).contains("a");
        assert_eq!(have, !has, "what it has removed it may not add before it knows whose it is");
        world.set_api(true);
        world.run(secs(15));
        world.assert_served();
    }
}

fn without_the_api_server_a_stranger_that_announces_gets_nothing() {
    let mut world = World::settled(&ALL, 3);
    world.set_api(false);
    world.run(secs(10));
    world.hold_still();
    for number in 1..=3 {
        world.announce_from(pnet_base::MacAddr::new(2, 9, 9, 9, 9, 9), vip(number));
    }
    world.run(secs(10));
}

/// Its owner could not give up the claim meanwhile, so nobody else can take it.
fn what_is_asked_for_again_while_nothing_can_be_written_is_served_again() {
    let mut world = World::settled(&ALL, 3);
    world.set_read_only(true);
    world.run(secs(8));
    let (name, asked) = world.desired.claims.remove_entry(&claim(1)).unwrap();
    world.publish_desired();
    world.run(secs(3));
    assert!(world.having(vip(1)).is_empty());
    world.desired.claims.insert(name, asked);
    world.publish_desired();
    let took = world.run_until(|world| !world.having(vip(1)).is_empty());
    assert!(took < secs(1), "{took:?}");
    world.set_read_only(false);
    world.run(secs(5));
    world.assert_served();
}

fn a_hung_watch_is_noticed_and_lists_take_its_place() {
    let mut world = World::settled(&ALL, 6);
    world.laws.overlap = Some(secs(2));
    world.hosts.of("a").watch_hung = true;
    world.run(secs(5));
    let number = (1..=6).find(|n| world.owner(*n).as_deref() == Some("a")).unwrap();
    let stored = &world.store.sessions["b"];
    let session = SessionId { uid: stored.uid.clone(), transitions: stored.record.transitions };
    world.edit_claim(number, |claim| {
        claim.holder = Some("b".parse().unwrap());
        claim.transitions += 1;
        claim.session = Some(session);
    });
    world.run(secs(2));
    world.assert_served();
    world.kill_node("c");
    world.run(secs(12));
    world.assert_served();
}

fn a_hung_watch_alone_moves_nothing() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    world.hosts.of("a").watch_hung = true;
    world.run(secs(40));
    world.hosts.of("a").watch_hung = false;
    world.run(secs(10));
    world.assert_served();
}

fn slow_watches_move_nothing() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    for host in world.hosts.iter_mut() {
        host.watch_delay = millis(2500);
    }
    world.run(secs(40));
    world.assert_served();
}

fn a_service_deleted_moves_no_other() {
    let mut world = World::settled(&ALL, 9);
    let owners: Vec<_> = (2..=9).map(|n| world.owner(n)).collect();
    world.desired.claims.remove(&crate::world::controls::claim(1));
    world.publish_desired();
    world.run(secs(10));
    assert_eq!(owners, (2..=9).map(|n| world.owner(n)).collect::<Vec<_>>());
    assert!(world.having(vip(1)).is_empty());
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    an_api_server_that_is_away_for_a_minute_and_returns_moves_nothing,
    outages_of_any_length_move_nothing,
    outages_of_any_length_move_nothing_also_where_addresses_are_dropped,
    a_read_only_api_server_moves_nothing_and_the_addresses_stay,
    a_speaker_that_restarts_while_the_api_is_read_only_keeps_what_it_has,
    what_is_edited_while_the_api_is_read_only_is_repaired_when_it_can_be_written,
    a_carrier_that_is_lost_while_the_api_is_read_only_leaves_nothing_in_the_kernel,
    without_the_api_server_an_address_is_yielded_to_a_speaker_that_announces_it_and_has_it,
    without_the_api_server_an_address_is_not_yielded_to_a_speaker_that_does_not_have_it,
    a_speaker_that_starts_without_the_api_server_asks_before_and_after_it_yields,
    without_the_api_server_a_stranger_that_announces_gets_nothing,
    what_is_asked_for_again_while_nothing_can_be_written_is_served_again,
    a_hung_watch_is_noticed_and_lists_take_its_place,
    a_hung_watch_alone_moves_nothing,
    slow_watches_move_nothing,
    a_service_deleted_moves_no_other,
];
