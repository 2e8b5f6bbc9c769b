//! What the wire says against what the leases say.

use pnet_base::MacAddr;

use super::{Run, millis, runs, secs};
use crate::world::World;
use crate::world::controls::{claim, vip};
use leasehold_core::election::{Fact, Frame};

const STRANGER: MacAddr = MacAddr(2, 9, 9, 9, 9, 9);
const ALL: [&str; 3] = ["a", "b", "c"];

fn a_new_claim_is_probed_for_twice_before_its_address_is_added() {
    let mut world = World::new(&ALL);
    let since = world.now;
    world.add_services(1, 1);
    world.run_until(|world| !world.having(vip(1)).is_empty());
    let probe = |frame: &Frame| *frame == Frame::Probe(vip(1));
    let probes: Vec<_> = world.sent.iter().filter(|(at, _, f)| *at >= since && probe(f)).collect();
    assert_eq!(probes.len(), 2);
    assert_eq!(probes[1].0.saturating_since(probes[0].0), millis(20));
    assert!(world.now.saturating_since(probes[1].0) >= millis(20));
}

fn a_new_claim_for_which_a_stranger_answers_is_released_and_reported() {
    let mut world = World::new(&ALL);
    world.strangers.insert(vip(1), STRANGER);
    let since = world.now;
    world.add_services(1, 2);
    world.run(secs(10));
    assert_eq!(world.owner(1), None);
    assert!(world.having(vip(1)).is_empty());
    let conflicts = world.facts_since(since).filter(
        |(_, fact)| matches!(fact, Fact::AddressConflict { address, .. } if *address == vip(1)),
    );
    assert!((1..=3).contains(&conflicts.count()));
    world.strangers.clear();
    world.run(secs(120));
    world.assert_served();
}

/// Its answers are dropped with what else a storm brings.
fn probes_are_sent_again_where_answers_may_have_been_dropped() {
    let mut world = World::new(&["a"]);
    world.strangers.insert(vip(1), STRANGER);
    world.hosts.of("a").overflows = 100;
    world.add_services(1, 1);
    let probed =
        |world: &World| world.sent.iter().any(|(.., frame)| *frame == Frame::Probe(vip(1)));
    world.run_until(probed);
    world.run(millis(30));
    world.hosts.of("a").overflows = 0;
    world.run(secs(2));
    assert!(world.having(vip(1)).is_empty());
    assert_eq!(world.owner(1), None);
}

fn a_storm_that_does_not_end_keeps_no_address_away() {
    let mut world = World::new(&["a"]);
    world.strangers.insert(vip(1), STRANGER);
    world.hosts.of("a").overflows = 100;
    world.add_services(1, 1);
    let served = world.run_until(|world| !world.having(vip(1)).is_empty());
    assert!(served < millis(500), "{served:?}");
}

fn an_address_is_defended_once_in_ten_seconds_and_reported_at_the_third_time() {
    let mut world = World::settled(&ALL, 3);
    let owner = world.owner(1).unwrap();
    world.hold_still();
    let since = world.now;
    for _ in 0..290 {
        world.announce_from(STRANGER, vip(1));
        world.run(millis(100));
    }
    let defences: Vec<_> =
        world.frames_since(since).filter(|(_, frame)| **frame == Frame::Announce(vip(1))).collect();
    assert_eq!(defences.len(), 3);
    assert!(defences.iter().all(|(host, _)| *host == owner));
    let reports = world.facts_since(since).filter(
        |(_, fact)| matches!(fact, Fact::AddressConflict { claim: name, .. } if *name == claim(1)),
    );
    assert_eq!(reports.count(), 1);
}

fn an_announcement_by_the_new_owner_makes_the_old_one_read_and_yield() {
    let mut world = World::settled(&ALL, 3);
    let owner = world.owner(1).unwrap();
    let new = ALL.into_iter().find(|name| **name != owner).unwrap();
    // The watch of the owner is late: it learns of the change by the wire alone.
    world.hosts.of(&owner).watch_delay = secs(2);
    let (mac, node) = (world.hosts[new].mac, world.hosts[new].node.clone());
    let session = world.store.sessions[new].clone();
    world.edit_claim(1, |claim| {
        claim.transitions += 1;
        claim.holder = Some(node);
        claim.mac = Some(mac);
        claim.session = Some(leasehold_crds::lease::SessionId {
            uid: session.uid.clone(),
            transitions: session.record.transitions,
        });
    });
    world.announce_from(mac, vip(1));
    world.run(millis(20));
    assert!(!world.having(vip(1)).contains(&owner));
    world.run(secs(5));
    world.assert_served();
}

/// Reads go the way of renewals, and anybody can send frames.
fn announcements_of_all_addresses_again_and_again_do_not_flood_the_api_server() {
    let mut world = World::settled(&ALL, 120);
    world.hold_still();
    let (before, mac) = (world.server.reads, world.hosts["b"].mac);
    let end = world.now + secs(20);
    while world.now < end {
        for number in 1..=120 {
            world.announce_from(if number % 2 == 0 { mac } else { STRANGER }, vip(number));
        }
        world.run(millis(250));
    }
    let reads = world.server.reads - before;
    assert!(reads < 3 * (100 + 25 * 20), "{reads} reads in 20 s");
    // A rightful owner is heard meanwhile, and soon.
    let owner = world.owner(1).unwrap();
    let since = world.now;
    world.announce_from(STRANGER, vip(1));
    world.run(millis(500));
    let defended =
        |(host, frame): &(&str, &Frame)| *host == owner && **frame == Frame::Announce(vip(1));
    assert_eq!(world.frames_since(since).filter(defended).count(), 1);
}

pub(super) const RUNS: &[Run] = runs![
    a_new_claim_is_probed_for_twice_before_its_address_is_added,
    a_new_claim_for_which_a_stranger_answers_is_released_and_reported,
    probes_are_sent_again_where_answers_may_have_been_dropped,
    a_storm_that_does_not_end_keeps_no_address_away,
    an_address_is_defended_once_in_ten_seconds_and_reported_at_the_third_time,
    an_announcement_by_the_new_owner_makes_the_old_one_read_and_yield,
    announcements_of_all_addresses_again_and_again_do_not_flood_the_api_server,
];
