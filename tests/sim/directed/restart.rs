//! Restarts: SIGTERM, SIGKILL, with and without the record, fenced or rebooted meanwhile.

use std::time::Duration;

use super::{Run, millis, runs, secs};
use crate::world::controls::{on_session, session};
use crate::world::{Trouble, World};
use leasehold_core::desired::{Detection, OnApiOutage};
use leasehold_core::election::{Fact, Write};

const ALL: [&str; 3] = ["a", "b", "c"];

fn an_upgrade_moves_nothing() {
    for away in [millis(100), secs(4), secs(12), secs(25)] {
        let mut world = World::settled(&ALL, 9);
        world.hold_still();
        let (before, since) = (world.loads(), world.now);
        let number = world.store.sessions[&session("a")].record.transitions;
        world.terminate("a");
        world.run(millis(100));
        assert!(world.hosts["a"].exited);
        assert!(world.store.sessions[&session("a")].record.restarting);
        let lasts = world.hosts["a"].kernel.next_expiry().unwrap().saturating_since(world.now);
        assert!(lasts > secs(28), "{lasts:?}");
        world.run(away);
        world.start("a");
        world.run(secs(15));
        assert_eq!(world.loads(), before);
        assert_eq!(world.fences("a", since).len(), 0);
        let stored = &world.store.sessions[&session("a")].record;
        assert_eq!((stored.transitions, stored.restarting), (number, false));
        world.assert_served();
    }
}

fn lifetimes_stay_as_they_are_when_the_restart_cannot_be_written() {
    for trouble in [Trouble::Lost, Trouble::Refused, Trouble::Throttled] {
        let mut world = World::settled(&ALL, 6);
        world.fault(Some("a"), on_session, trouble, 100);
        world.terminate("a");
        world.run_until(|world| world.hosts["a"].exited);
        for held in world.hosts["a"].kernel.ours.values() {
            assert!(held.ends.saturating_since(world.now) <= secs(6), "{trouble:?}");
        }
        assert!(!world.hosts["a"].kernel.ours.is_empty(), "{trouble:?}");
        assert!(!world.store.sessions[&session("a")].record.restarting, "{trouble:?}");
    }
}

fn a_restarting_speaker_that_does_not_come_back_is_replaced_after_its_grace() {
    let mut world = World::settled(&ALL, 6);
    world.laws.overlap = Some(millis(2030));
    world.terminate("a");
    world.run(secs(25));
    assert!(world.loads().contains_key("a"));
    world.run(secs(15));
    assert!(!world.loads().contains_key("a"));
    world.assert_served();
}

fn a_speaker_that_is_started_again_at_once_continues_though_nobody_said_that_it_would_be() {
    for away in [millis(100), secs(2), secs(4)] {
        let mut world = World::settled(&ALL, 9);
        world.hold_still();
        let before = world.loads();
        let number = world.store.sessions[&session("a")].record.transitions;
        world.shut_down("a");
        world.run(away);
        assert!(world.hosts["a"].exited);
        world.start("a");
        world.run(secs(15));
        assert_eq!(world.loads(), before);
        assert_eq!(world.store.sessions[&session("a")].record.transitions, number);
        world.assert_served();
    }
}

/// Where only leases tell who died: by their policy, or as nobody but the two owners is there to be heard.
fn where_only_leases_tell() -> [(&'static str, World); 2] {
    let settled = World::settled(&ALL, 6);
    let mut blind = World::new(&["a", "b"]);
    blind.router = false;
    blind.add_services_with(1, 6, Detection::default(), OnApiOutage::Hold);
    blind.run(secs(8));
    blind.assert_served();
    [("by policy", settled), ("on a blind segment", blind)]
}

/// How long nobody answers for what `a` had, in the worst case, if it loses its power `after` it was asked to
/// end, or without having been.
fn lost_by_an_end_of(after: Option<Duration>) -> [(&'static str, Duration); 2] {
    let mut worst = [("", Duration::ZERO); 2];
    // At any time between two renewals.
    for phase in (0..9).map(|n| millis(n * 200)) {
        for (worst, (place, mut world)) in worst.iter_mut().zip(where_only_leases_tell()) {
            world.run(phase);
            // What ended is in its kernel for as long after its lease ran out.
            world.laws.overlap = Some(millis(2030));
            if let Some(after) = after {
                world.shut_down("a");
                world.run(after);
            }
            world.kill_node("a");
            *worst = (place, world.outage().max(worst.1));
        }
    }
    worst
}

fn a_reboot_without_a_drain_costs_no_more_than_a_power_cut_where_only_leases_tell() {
    let cut = lost_by_an_end_of(None);
    for after in [millis(50), secs(1), secs(4), secs(8)] {
        for ((place, cut), (_, reboot)) in cut.into_iter().zip(lost_by_an_end_of(Some(after))) {
            assert!(reboot < cut + millis(200), "{place}, {after:?}: {reboot:?} and {cut:?}");
        }
    }
}

fn a_killed_speaker_that_is_back_at_once_continues_and_nothing_moves() {
    for away in [millis(10), secs(1), millis(2500)] {
        let mut world = World::settled(&ALL, 6);
        world.hold_still();
        let before = world.loads();
        world.kill("a");
        world.run(away);
        world.start("a");
        world.run(secs(15));
        assert_eq!(world.loads(), before);
        world.assert_served();
    }
}

fn a_process_that_starts_without_the_api_server_keeps_what_its_record_names() {
    let mut world = World::settled(&ALL, 6);
    world.set_api(false);
    world.run(secs(2));
    world.hold_still();
    world.kill("a");
    world.run(secs(1));
    world.start("a");
    world.run(secs(60));
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

fn without_a_record_a_process_that_starts_without_the_api_server_lets_the_addresses_lapse() {
    let mut world = World::settled(&ALL, 6);
    world.set_api(false);
    world.run(secs(2));
    world.kill("a");
    world.hosts.of("a").record = None;
    world.start("a");
    world.run(secs(10));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

fn a_record_of_another_boot_is_ignored() {
    let mut world = World::settled(&ALL, 6);
    world.set_api(false);
    world.kill("a");
    "another".clone_into(&mut world.hosts.of("a").boot);
    world.start("a");
    world.run(secs(10));
    assert!(world.hosts["a"].kernel.ours.is_empty());
}

fn a_process_whose_session_was_fenced_meanwhile_removes_first() {
    let mut world = World::settled(&ALL, 6);
    world.laws.overlap = Some(secs(60));
    world.kill("a");
    // Its kernel is kept from letting the addresses lapse: a clock that stood still.
    world.run(millis(5800));
    world.start("a");
    let acquired = |world: &World| world.store.sessions[&session("a")].record.holder.is_some();
    if !acquired(&world) {
        world.run_until(acquired);
        assert!(world.hosts["a"].kernel.ours.is_empty());
    }
    world.run(secs(5));
    world.assert_served();
}

fn a_rebooted_node_acquires_anew() {
    let mut world = World::settled(&ALL, 6);
    world.kill_node("a");
    world.run(secs(1));
    let since = world.now;
    world.power_on(world.hosts.id("a"));
    world.run(secs(20));
    world.assert_served();
    let acquired = |(host, fact): (&str, &Fact)| {
        host == "a" && matches!(fact, Fact::SessionAcquired { continued: false, .. })
    };
    assert!(world.facts_since(since).any(acquired));
}

fn nothing_is_claimed_or_removed_before_the_lists_are_in() {
    let mut world = World::settled(&ALL, 6);
    world.hold_still();
    world.kill("a");
    let since = world.now;
    // Started, with the API server out of reach of this host alone.
    world.hosts.of("a").api = false;
    world.start("a");
    world.run(millis(1200));
    assert!(!world.committed.iter().any(|write| write.at >= since && write.host == "a"));
    world.set_api_of("a", true);
    world.run(secs(10));
    world.assert_served();
}

fn what_another_announces_is_removed_before_the_lists_are_in() {
    let mut world = World::settled(&ALL, 9);
    world.laws.overlap = Some(millis(60));
    world.set_api_of("a", false);
    world.kill("a");
    world.start("a");
    world.run(secs(20));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.set_api_of("a", true);
    world.run(secs(20));
    world.assert_served();
}

/// Its session was edited, so that its claims are not valid, and its repair is lost with the API.
fn what_another_announces_is_removed_before_the_session_goes_on() {
    let mut world = World::settled(&ALL, 9);
    world.laws.overlap = Some(millis(60));
    world.kill("a");
    world.edit_session("a", |session| session.transitions += 1);
    world.fault(Some("a"), on_session, Trouble::Lost, 100);
    world.start("a");
    world.run(millis(120));
    world.set_api_of("a", false);
    world.run(secs(20));
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.clear_faults();
    world.set_api_of("a", true);
    world.run(secs(20));
    world.assert_served();
}

fn sigterm_on_a_drained_node_hands_everything_over() {
    let mut world = World::settled(&ALL, 9);
    let since = world.now;
    world.drain("a", true);
    world.terminate("a");
    let took = world.run_until(|world| world.hosts["a"].exited);
    assert!(took < secs(3), "{took:?}");
    assert_eq!(world.loads().get("a"), None);
    assert!(world.hosts["a"].kernel.ours.is_empty());
    world.run(secs(1));
    world.assert_served();
    let last = world.committed.iter().rev().find(|write| write.at >= since && write.host == "a");
    let Write::Session(last) = &last.unwrap().write else { panic!("the session goes last") };
    assert_eq!(last.record.holder, None);
}

pub(super) const RUNS: &[Run] = runs![
    an_upgrade_moves_nothing,
    lifetimes_stay_as_they_are_when_the_restart_cannot_be_written,
    a_restarting_speaker_that_does_not_come_back_is_replaced_after_its_grace,
    a_speaker_that_is_started_again_at_once_continues_though_nobody_said_that_it_would_be,
    a_reboot_without_a_drain_costs_no_more_than_a_power_cut_where_only_leases_tell,
    a_killed_speaker_that_is_back_at_once_continues_and_nothing_moves,
    a_process_that_starts_without_the_api_server_keeps_what_its_record_names,
    without_a_record_a_process_that_starts_without_the_api_server_lets_the_addresses_lapse,
    a_record_of_another_boot_is_ignored,
    a_process_whose_session_was_fenced_meanwhile_removes_first,
    a_rebooted_node_acquires_anew,
    nothing_is_claimed_or_removed_before_the_lists_are_in,
    what_another_announces_is_removed_before_the_lists_are_in,
    what_another_announces_is_removed_before_the_session_goes_on,
    sigterm_on_a_drained_node_hands_everything_over,
];
