//! The own session: renewed, contended, deleted, edited.

use leasehold_crds::lease::Incarnation;

use super::{Run, millis, runs, secs};
use crate::world::controls::{on_session, session, vip};
use crate::world::{Committed, Trouble, World};
use leasehold_core::election::{Fact, Target, Write};

const ALL: [&str; 3] = ["a", "b", "c"];

fn a_deleted_session_is_created_again_and_nothing_moves() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    let before = world.loads();
    world.delete(&Target::Session(session("a")));
    world.run(secs(20));
    assert_eq!(world.loads(), before);
    assert_eq!(world.fences("a", world.now - secs(20)).len(), 0);
    world.assert_served();
}

/// Stopped, and what it served has lapsed and is served by others since its session was deleted.
fn a_session_that_was_deleted_while_its_addresses_lapsed_is_not_continued() {
    let mut world = World::listening(&ALL, 6);
    let stopped = world.hosts.id("a");
    world.stop(stopped, false);
    // The API server does not answer while they lapse: nobody fences it.
    world.set_api(false);
    world.run(secs(9));
    world.set_api(true);
    world.run(millis(300));
    world.delete(&Target::Session(session("a")));
    world.run(secs(5));
    world.assert_served();
    assert!(world.owned_by("a").is_empty());
    world.cont(stopped);
    world.run(secs(10));
    world.assert_served();
    assert_eq!(world.store.sessions[&session("a")].record.cause, "speaker started");
}

/// Stopped for as long as the kernel's lifetimes: some have ended, others are about to.
fn a_process_that_goes_on_when_addresses_have_begun_to_lapse_adds_none_of_them() {
    let mut world = World::settled(&ALL, 24);
    let (stopped, all) = (world.hosts.id("a"), world.hosts["a"].kernel.ours.clone());
    world.laws.overlap = Some(secs(3));
    world.stop(stopped, false);
    world.run_until(|world| world.hosts["a"].kernel.ours.len() < all.len());
    let lapsed = all.keys().find(|ip| !world.hosts["a"].kernel.ours.contains_key(*ip));
    let lapsed = *lapsed.unwrap();
    assert_ne!(world.owner_of(lapsed).as_deref(), Some("a"), "taken by another");
    world.cont(stopped);
    let end = world.now + secs(10);
    while world.step(end) {
        assert!(!world.having(lapsed).contains("a"), "{}: a has {lapsed} again", world.now);
    }
    world.assert_served();
}

fn an_edited_number_of_transitions_is_repaired_by_its_holder_and_nothing_moves() {
    for change in [-1, 1, 40] {
        let mut world = World::settled(&ALL, 6);
        world.hold_still();
        let before = world.loads();
        let highest = world.store.sessions[&session("a")].record.transitions;
        world.edit_session("a", |session| session.transitions += change);
        world.run(secs(20));
        assert_eq!(world.loads(), before, "{change}");
        world.assert_served();
        let now = world.store.sessions[&session("a")].record.transitions;
        assert!(now > highest, "{change}: {now} after {highest}");
    }
}

fn a_holder_that_was_cleared_by_hand_is_put_back_and_nothing_moves() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    world.edit_session("a", |session| session.holder = None);
    world.run(secs(20));
    world.assert_served();
}

/// Both wait with the repair, as a write was refused. Meanwhile neither takes what it cannot hold.
fn two_whose_sessions_were_edited_do_not_take_claims_from_each_other() {
    for refused in 0..8 {
        let mut world = World::listening(&ALL, 9);
        world.set_read_only(true);
        world.run(millis(1700 + refused * 200));
        world.set_read_only(false);
        let since = world.now;
        world.edit_session("a", |session| session.holder = None);
        world.edit_session("b", |session| session.transitions -= 1);
        world.laws.overlap = Some(secs(1));
        world.run(secs(10));
        world.assert_served();
        let taken = |write: &&Committed| match &write.write {
            Write::Claim(change) => {
                let before = change.base.as_ref().map(|base| base.record.transitions);
                write.at >= since && before != Some(change.record.transitions)
            }
            Write::Session(_) => false,
        };
        let taken = world.committed.iter().filter(taken).count();
        assert!(taken <= 9, "{refused}: {taken}");
    }
}

fn a_renewal_that_is_lost_is_repeated_and_nothing_moves() {
    for trouble in [
        Trouble::Lost,
        Trouble::AnswerLost,
        Trouble::Late(millis(1600)),
        Trouble::Late(millis(4000)),
        Trouble::Throttled,
        Trouble::Refused,
    ] {
        let mut world = World::settled(&ALL, 6);
        world.hold_still();
        let before = world.loads();
        world.fault(Some("a"), on_session, trouble, 1);
        world.run(secs(20));
        assert_eq!(world.loads(), before, "{trouble:?}");
        world.assert_served();
    }
}

fn an_api_server_that_answers_nothing_is_told_from_one_that_refuses() {
    let rows = [
        (None, false),
        (Some(Trouble::Lost), true),
        (Some(Trouble::Refused), false),
        (Some(Trouble::Throttled), false),
    ];
    for (trouble, away) in rows {
        let mut world = World::settled(&ALL, 6);
        if let Some(trouble) = trouble {
            world.fault(Some("a"), on_session, trouble, 1000);
        }
        let is_away = |world: &World| {
            world.hosts["a"].core.as_ref().is_some_and(|core| core.is_api_away(world.now))
        };
        assert!(!is_away(&world), "{trouble:?}");
        world.run(secs(8));
        assert_eq!(is_away(&world), away, "{trouble:?}");
        world.clear_faults();
        world.run(secs(8));
        assert!(!is_away(&world), "{trouble:?}");
    }
}

fn a_late_renewal_does_not_bring_a_deleted_session_back() {
    let mut world = World::settled(&ALL, 6);
    world.fault(Some("a"), on_session, Trouble::Late(millis(1400)), 1);
    world.run(secs(2));
    let old = world.store.sessions[&session("a")].uid.clone();
    world.delete(&Target::Session(session("a")));
    world.run(secs(20));
    assert_ne!(world.store.sessions[&session("a")].uid, old);
    world.assert_served();
}

fn a_conflict_on_the_own_session_is_read_and_forgiven() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    // Somebody annotates the lease; the watch is late, so that the next renewal meets a conflict.
    world.hosts.of("a").watch_delay = secs(3);
    world.edit_session("a", |session| "annotated".clone_into(&mut session.cause));
    world.run(secs(20));
    world.assert_served();
}

fn of_two_hosts_with_one_name_the_second_waits_and_never_serves() {
    let mut world = World::settled(&["a", "b"], 6);
    world.add_host("a2", "a");
    world.start("a2");
    world.hold_still();
    world.run(secs(60));
    assert_eq!(world.having(vip(1)).len(), 1);
    assert!(world.hosts["a2"].kernel.ours.is_empty());
    assert!(world.committed.iter().all(|write| write.host != "a2"));
}

fn the_second_host_of_a_name_takes_part_after_the_first_has_been_silent_for_its_lease() {
    let mut world = World::settled(&["a", "b"], 6);
    world.add_host("a2", "a");
    world.start("a2");
    world.run(secs(10));
    world.kill_node("a");
    world.run(secs(20));
    let stored = &world.store.sessions[&session("a")].record;
    assert_eq!(stored.incarnation, Some(Incarnation::new("machine", "boot-3")));
}

fn a_node_that_the_cluster_does_not_know_never_acquires_a_session() {
    let mut world = World::new(&["a", "b"]);
    world.add_host("d", "d");
    world.desired.nodes.remove(&"d".parse().unwrap());
    world.add_services(1, 4);
    world.start("d");
    world.run(secs(20));
    assert!(!world.store.sessions.contains_key(&session("d")));
    assert!(world.hosts["d"].kernel.ours.is_empty());
}

fn a_refused_renewal_waits_for_its_time_also_when_the_interfaces_changed() {
    for trouble in [Trouble::Refused, Trouble::Throttled] {
        let mut world = World::settled(&["a", "b"], 4);
        world.fault(Some("a"), on_session, trouble, 1000);
        let host = world.hosts.of("a");
        host.nics[0].address = "10.0.254.1".parse().unwrap();
        let links = host.interfaces();
        let since = world.now;
        world.feed(world.hosts.id("a"), leasehold_core::election::Event::Interfaces(links));
        world.run(secs(3));
        let failed = |(host, fact): &(&str, &Fact)| {
            *host == "a" && matches!(fact, Fact::RenewalFailed { .. })
        };
        assert!(world.facts_since(since).filter(failed).count() <= 4, "{trouble:?}");
        world.clear_faults();
        world.run(secs(10));
        let stored = &world.store.sessions[&session("a")].record;
        assert_eq!(stored.interfaces[0].addresses, ["10.0.254.1/16".parse().unwrap()]);
    }
}

fn released_and_acquired_anew_a_session_has_another_number() {
    let mut world = World::settled(&["a", "b"], 4);
    let before = world.store.sessions[&session("a")].record.transitions;
    world.drain("a", true);
    world.terminate("a");
    world.run(secs(5));
    assert!(world.hosts["a"].exited);
    let released = world.store.sessions[&session("a")].record.clone();
    assert_eq!((released.holder, released.transitions), (None, before + 1));
    world.drain("a", false);
    world.start("a");
    world.run(secs(5));
    let anew = world.store.sessions[&session("a")].record.clone();
    assert_eq!(anew.transitions, before + 2);
    assert!(anew.holder.is_some());
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    a_session_that_was_deleted_while_its_addresses_lapsed_is_not_continued,
    a_process_that_goes_on_when_addresses_have_begun_to_lapse_adds_none_of_them,
    a_deleted_session_is_created_again_and_nothing_moves,
    an_api_server_that_answers_nothing_is_told_from_one_that_refuses,
    an_edited_number_of_transitions_is_repaired_by_its_holder_and_nothing_moves,
    a_holder_that_was_cleared_by_hand_is_put_back_and_nothing_moves,
    two_whose_sessions_were_edited_do_not_take_claims_from_each_other,
    a_renewal_that_is_lost_is_repeated_and_nothing_moves,
    a_late_renewal_does_not_bring_a_deleted_session_back,
    a_conflict_on_the_own_session_is_read_and_forgiven,
    of_two_hosts_with_one_name_the_second_waits_and_never_serves,
    the_second_host_of_a_name_takes_part_after_the_first_has_been_silent_for_its_lease,
    a_node_that_the_cluster_does_not_know_never_acquires_a_session,
    a_refused_renewal_waits_for_its_time_also_when_the_interfaces_changed,
    released_and_acquired_anew_a_session_has_another_number,
];
