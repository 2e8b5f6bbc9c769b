//! What a run asks of the world.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Fact, Frame, Write};

use super::controls::{session, vip};
use super::laws::broken;
use super::{Committed, World};

impl World {
    pub(crate) fn owner_of(&self, ip: IpAddr) -> Option<String> {
        let mut valid = self.store.valid_claims();
        let claim = valid.find(|claim| claim.addresses.contains(&ip))?;
        claim.holder.as_ref().map(ToString::to_string)
    }

    pub(crate) fn owner(&self, number: u8) -> Option<String> {
        self.owner_of(vip(number))
    }

    /// The services of these numbers that `node` owns.
    pub(crate) fn owned_by(&self, node: &str) -> Vec<u8> {
        (1..=200).filter(|number| self.owner(*number).as_deref() == Some(node)).collect()
    }

    /// How many claims each node owns.
    pub(crate) fn loads(&self) -> BTreeMap<String, usize> {
        let mut loads = BTreeMap::new();
        for owner in self.store.valid_claims().filter_map(|claim| claim.holder.as_ref()) {
            *loads.entry(owner.to_string()).or_default() += 1;
        }
        loads
    }

    /// Every address is on its claim's owner alone.
    pub(crate) fn assert_served(&self) {
        for (name, claim) in &self.desired.claims {
            for ip in &claim.addresses {
                let Some(owner) = self.owner_of(*ip) else {
                    broken(self.now, "L3", &format!("{name} has no owner"));
                };
                let have = self.having(*ip);
                if have != [owner.clone()].into() {
                    let text = format!("{owner} owns {name}, and {have:?} have {ip}");
                    broken(self.now, "L3", &text);
                }
            }
        }
    }

    /// The same, once what is on its way to a better node has arrived.
    pub(crate) fn assert_served_soon(&mut self) {
        let until = self.now + Duration::from_secs(2);
        // Its new owner may have it in the store a moment before it has the address.
        let moves = |world: &Self, ip: &IpAddr| {
            let have = world.having(*ip);
            have.len() > 1
                || have.into_iter().next().is_some_and(|it| world.owner_of(*ip) != Some(it))
        };
        let moves = |world: &Self| {
            world.store.claims.values().any(|stored| stored.record.successor.is_some())
                || world
                    .desired
                    .claims
                    .values()
                    .flat_map(|claim| &claim.addresses)
                    .any(|ip| moves(world, ip))
        };
        while self.now < until && moves(self) {
            self.run(Duration::from_millis(10));
        }
        self.assert_served();
    }

    /// The writes on `node`'s session that others carried out since `since`.
    pub(crate) fn fences(&self, node: &str, since: Instant) -> Vec<&Committed> {
        let of = |committed: &&Committed| {
            let Write::Session(change) = &committed.write else { return false };
            committed.at >= since && change.name == session(node) && committed.host != node
        };
        self.committed.iter().filter(of).collect()
    }

    pub(crate) fn facts_since(&self, since: Instant) -> impl Iterator<Item = (&str, &Fact)> {
        let new = self.facts.iter().filter(move |(at, ..)| *at >= since);
        new.map(|(_, host, fact)| (host.as_str(), fact))
    }

    pub(crate) fn frames_since(&self, since: Instant) -> impl Iterator<Item = (&str, &Frame)> {
        let new = self.sent.iter().filter(move |(at, ..)| *at >= since);
        new.map(|(_, host, frame)| (host.as_str(), frame))
    }

    /// Runs until `done`; returns how long that took.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !done(self) {
            let end = self.now + Duration::from_secs(60);
            assert!(
                self.now.saturating_since(start) < Duration::from_secs(120),
                "it never happened"
            );
            if !self.step(end) {
                self.now = end;
            }
        }
        self.now.saturating_since(start)
    }

    /// How long it takes until clients get an answer for every address.
    pub(crate) fn outage(&mut self) -> Duration {
        self.run_until(|world| {
            let mut ips = world.desired.claims.values().flat_map(|claim| &claim.addresses);
            ips.all(|ip| world.is_answered(*ip))
        })
    }
}
