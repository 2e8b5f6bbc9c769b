//! What must hold after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::World;
use crate::clock::Instant;
use crate::lease::Target;

/// How many requests for one lease within a second are a hot loop.
const REQUESTS: u32 = 60;
/// How many ticks of one speaker at the same moment are a hot loop.
const TICKS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Laws {
    /// For how long two connected hosts may have the same address.
    pub(crate) overlap: Duration,
    /// Who must go on having each address.
    pub(crate) still: Option<BTreeMap<IpAddr, BTreeSet<String>>>,
    overlaps: BTreeMap<IpAddr, Instant>,
    requests: BTreeMap<(String, Target), (u64, u32)>,
    ticks: BTreeMap<String, (Instant, u32)>,
}

impl Default for Laws {
    fn default() -> Self {
        Self {
            // A planned move: 200 ms until the old owner probes, and its two probes.
            overlap: Duration::from_millis(270),
            still: None,
            overlaps: BTreeMap::new(),
            requests: BTreeMap::new(),
            ticks: BTreeMap::new(),
        }
    }
}

impl Laws {
    pub(crate) fn requested(&mut self, now: Instant, host: &str, target: &Target) {
        let second = now.since_boot().as_secs();
        let count = self.requests.entry((host.to_owned(), target.clone())).or_default();
        *count = if count.0 == second { (second, count.1 + 1) } else { (second, 1) };
        assert!(count.1 < REQUESTS, "{now}: {host} asks for {target:?} in a hot loop");
    }

    pub(crate) fn ticked(&mut self, now: Instant, host: &str) {
        let count = self.ticks.entry(host.to_owned()).or_default();
        *count = if count.0 == now { (now, count.1 + 1) } else { (now, 1) };
        assert!(count.1 < TICKS, "{now}: {host} wants to be called again at once, for ever");
    }
}

impl World {
    pub(super) fn check(&mut self) {
        self.check_claims();
        self.check_overlaps();
        if let Some(still) = &self.laws.still {
            for (ip, hosts) in still {
                let have: BTreeSet<String> = self.having(*ip);
                assert_eq!(&have, hosts, "{}: {ip} moved, and nothing moved it", self.now);
            }
        }
    }

    fn check_claims(&self) {
        let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for (claim, owner) in self.valid_claims() {
            for ip in &claim.addresses {
                let other = owners.insert(*ip, owner);
                assert_eq!(other, None, "{}: two valid claims for {ip}", self.now);
            }
        }
    }

    fn check_overlaps(&mut self) {
        let mut holders: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
        for (name, host) in &self.hosts {
            for ip in host.kernel.ours.keys() {
                holders.entry(*ip).or_default().push(name);
            }
        }
        let overlap = |names: &Vec<&str>| {
            names.iter().any(|one| names.iter().any(|other| self.connected(one, other)))
        };
        let two: BTreeMap<IpAddr, Vec<String>> = holders
            .into_iter()
            .filter(|(_, names)| names.len() > 1 && overlap(names))
            .map(|(ip, names)| (ip, names.into_iter().map(str::to_owned).collect()))
            .collect();
        self.laws.overlaps.retain(|ip, _| two.contains_key(ip));
        for (ip, names) in two {
            let since = *self.laws.overlaps.entry(ip).or_insert(self.now);
            let so_long = self.now.saturating_since(since);
            assert!(so_long <= self.laws.overlap, "{}: {names:?} have {ip}", self.now);
        }
    }

    /// The hosts whose kernels have `ip`.
    pub(crate) fn having(&self, ip: IpAddr) -> BTreeSet<String> {
        let has = |(_, host): &(&String, &super::Host)| host.kernel.ours.contains_key(&ip);
        self.hosts.iter().filter(has).map(|(name, _)| name.clone()).collect()
    }
}
