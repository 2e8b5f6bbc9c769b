//! Addresses of IPv6: who asks from `::` has all hear the answer.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::{Run, longest_gap, millis, runs, secs};
use crate::world::World;
use crate::world::controls::claim;
use leasehold_core::desired::{Detection, OnApiOutage};
use leasehold_crds::lease::DefaultRoutes;

const ALL: [&str; 3] = ["a", "b", "c"];

/// Three hosts with a default route, and as many services of IPv6 addresses, whose owners are listened to.
fn world(services: u16) -> (World, Vec<IpAddr>) {
    let mut world = World::new(&ALL);
    for id in 0..ALL.len() {
        world.hosts[id].nics[0].default_routes = DefaultRoutes::BOTH;
        world.set_carrier_of(id, 0, true);
    }
    let ips = (1..=services).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into());
    let ips: Vec<IpAddr> = ips.collect();
    for (number, ip) in (1..).zip(&ips) {
        let claimed = world.claimed(number, *ip, Detection::default(), OnApiOutage::Hold);
        world.desired.claims.insert(claim(number), claimed.into());
    }
    world.publish_desired();
    world.run(secs(6));
    world.assert_served();
    (world, ips)
}

fn an_owner_that_dies_is_replaced() {
    let (mut world, _) = world(6);
    world.kill_node("a");
    let outage = world.outage();
    assert!(outage < millis(400), "{outage:?}");
    world.run(secs(10));
    world.assert_served();
}

/// It answers who asks for what it had: that is no announcement, which only who has read the leases makes.
fn without_the_api_server_who_is_heard_again_leaves_its_addresses_to_who_serves_them() {
    for after in (0..10).map(|n| millis(n * 7)) {
        heard_again(secs(2) + after);
        heard_again(secs(65) + after);
    }
}

/// Without the API server a node is cut off for so long, and then is not.
fn heard_again(apart: Duration) {
    let (mut world, ips) = world(6);
    let theirs = |ip: &&IpAddr| world.owner_of(**ip).as_deref() == Some("a");
    let theirs: Vec<IpAddr> = ips.iter().filter(theirs).copied().collect();
    world.laws.overlap = Some(secs(100));
    world.set_api(false);
    world.run(secs(3));
    world.cut_off("a");
    world.run(apart);
    world.heal_wire();
    let gap = longest_gap(&mut world, secs(4));
    assert!(gap < millis(100), "{apart:?}: {gap:?}");
    for ip in &theirs {
        assert_eq!(world.having(*ip).len(), 1, "{apart:?}: {ip}");
    }
    world.set_api(true);
    world.run(secs(20));
    world.assert_served();
}

pub(super) const RUNS: &[Run] = runs![
    an_owner_that_dies_is_replaced,
    without_the_api_server_who_is_heard_again_leaves_its_addresses_to_who_serves_them,
];
