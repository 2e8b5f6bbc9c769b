//! Directed runs: the rules of the core one by one, and every attack that broke an earlier protocol.

mod attacks;
mod attacks_wire;
mod by_hand;
mod carrier;
mod claims;
mod cold;
mod conflict;
mod down;
mod failback;
mod forwarding;
mod handover;
mod ipv6;
mod lease_path;
mod nodes;
mod old_owners;
mod outage;
mod pieces;
mod provisional;
mod proxy;
mod records;
mod restart;
mod segments;
mod session;
mod spread;
mod steadiness;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;

use crate::world::World;

/// A run with a name.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What it shows; a sentence.
    pub name: &'static str,
    /// Panics where a law is broken, or the run goes otherwise than it should.
    pub run: fn(),
}

macro_rules! runs {
    ($($name:ident),* $(,)?) => {
        &[$($crate::directed::Run { name: stringify!($name), run: $name }),*]
    };
}
pub(crate) use runs;

/// All directed runs.
pub fn all() -> impl Iterator<Item = Run> {
    [
        attacks::RUNS,
        attacks_wire::RUNS,
        by_hand::RUNS,
        carrier::RUNS,
        claims::RUNS,
        cold::RUNS,
        conflict::RUNS,
        down::RUNS,
        failback::RUNS,
        forwarding::RUNS,
        handover::RUNS,
        ipv6::RUNS,
        lease_path::RUNS,
        nodes::RUNS,
        old_owners::RUNS,
        outage::RUNS,
        pieces::RUNS,
        provisional::RUNS,
        proxy::RUNS,
        records::RUNS,
        restart::RUNS,
        segments::RUNS,
        session::RUNS,
        spread::RUNS,
        steadiness::RUNS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Runs for `duration`; every address is answered for all the time.
fn run_answered(world: &mut World, duration: Duration) {
    let end = world.now + duration;
    let ips: Vec<IpAddr> =
        world.desired.claims.values().flat_map(|claim| claim.addresses.iter().copied()).collect();
    loop {
        for ip in &ips {
            assert!(world.is_answered(*ip), "{}: nobody answers for {ip}", world.now);
        }
        if !world.step(end) {
            break;
        }
    }
    world.now = end;
}

/// Runs for `duration`; for how long at most nobody answered for an address.
fn longest_gap(world: &mut World, duration: Duration) -> Duration {
    let end = world.now + duration;
    let ips: Vec<IpAddr> =
        world.desired.claims.values().flat_map(|claim| claim.addresses.iter().copied()).collect();
    let mut longest = Duration::ZERO;
    let mut dark: BTreeMap<IpAddr, Instant> = BTreeMap::new();
    loop {
        for ip in &ips {
            if !world.is_answered(*ip) {
                dark.entry(*ip).or_insert(world.now);
            } else if let Some(began) = dark.remove(ip) {
                longest = longest.max(world.now.saturating_since(began));
            }
        }
        if !world.step(end) {
            break;
        }
    }
    world.now = end;
    dark.into_values().map(|began| end.saturating_since(began)).fold(longest, Duration::max)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
