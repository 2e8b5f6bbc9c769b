//! The operator: it alone puts addresses on the lists of claims, and only where no other claim lists
//! them; off a list it takes them only while the claim is not valid. While it is, it says there what it takes
//! from a Service that lives on. And it writes again what Services have lost of their records.
//!
//! What it decides rests on what is stored at that moment, and is carried out a while later by
//! compare-and-swap.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Change, Target, Write};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName};

use super::{Item, Step, World};

/// How often it looks again while the API server does not let it work.
const AGAIN: Duration = Duration::from_millis(500);

/// What is to become of a claim's lease.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart as soon as it is made")]
pub(crate) enum Work {
    Put(Change<Claim>),
    /// Its list is empty and nothing asks for it.
    Delete {
        name: LeaseName,
        version: Arc<str>,
    },
    /// Services have lost their records.
    Records,
}

#[derive(Debug)]
pub(crate) struct Operator {
    up: bool,
    /// Since when it is up, or is not.
    pub(super) since: Instant,
    /// It is about to look at everything.
    pub(super) due: bool,
    /// What it is about to write, or is writing: the claims, and what their lists are to be.
    writing: BTreeMap<LeaseName, AddressSet>,
    /// It has left out a claim that it was writing already.
    left_out: bool,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            up: true,
            since: Instant::default(),
            due: false,
            writing: BTreeMap::new(),
            left_out: false,
        }
    }
}

impl World {
    pub(crate) fn set_operator(&mut self, up: bool) {
        self.tell_all(&format!("the operator is up: {up}"));
        self.operator.up = up;
        self.operator.since = self.now;
        self.laws.dirty = true;
    }

    /// Whether the operator has been up for so long.
    pub(super) fn is_operator_well_for(&self, long: Duration) -> bool {
        self.operator.up && self.now.saturating_since(self.operator.since) >= long
    }

    /// Something has changed that lists depend on.
    pub(super) fn call_operator(&mut self) {
        if !self.operator.due {
            self.operator.due = true;
            let delay = self.operator_delay();
            self.later(delay, Item::Operate);
        }
    }

    fn operator_delay(&mut self) -> Duration {
        let (least, most) = (Duration::from_micros(500), Duration::from_millis(20));
        if self.jitter { self.dice.between(least, most) } else { least }
    }

    /// Looks at everything.
    pub(super) fn operate(&mut self) {
        let works = self.list_works();
        let able = self.operator.up && self.server.down.is_none() && !self.server.read_only;
        if !able {
            self.later(AGAIN, Item::Operate);
            return;
        }
        self.operator.due = false;
        if !self.lost.is_empty() {
            let delay = self.operator_delay();
            let (work, restores) = (Work::Records, self.store.restores);
            self.later(delay, Item::Operation { work, restores });
        }
        for work in works {
            let (name, list) = match &work {
                Work::Records => continue,
                Work::Put(change) => (change.name.clone(), change.record.addresses.clone()),
                Work::Delete { name, .. } => (name.clone(), AddressSet::default()),
            };
            if self.operator.writing.contains_key(&name) {
                self.operator.left_out = true;
                continue;
            }
            self.operator.writing.insert(name, list);
            let delay = self.operator_delay();
            self.later(delay, Item::Operation { work, restores: self.store.restores });
        }
    }

    /// For a restore the API server is stopped: what was on its way is lost, and the operator lists anew.
    pub(super) fn carry_out_operation(&mut self, work: Work, restores: u32) {
        let (Work::Put(Change { name, .. }) | Work::Delete { name, .. }) = &work else {
            self.restore_records();
            return;
        };
        self.operator.writing.remove(name);
        if std::mem::take(&mut self.operator.left_out) {
            self.call_operator();
        }
        if restores != self.store.restores {
            self.call_operator();
            return;
        }
        let event = match work {
            Work::Put(change) => {
                let (_, event) = self.store.write(&Write::Claim(change));
                event
            }
            Work::Delete { name, version } => {
                let same =
                    self.store.claims.get(&name).is_some_and(|s| s.resource_version == version);
                same.then(|| self.store.delete(&Target::Claim(name))).flatten()
            }
            Work::Records => None,
        };
        match event {
            Some(event) => {
                if self.telling {
                    self.tell_commit("the operator", &event);
                }
                self.trace(|| Step::Operator(event.clone()));
                self.publish(&event);
            }
            None => self.call_operator(),
        }
    }

    fn list_works(&self) -> Vec<Work> {
        let stored = self.store.claims.keys();
        let names: BTreeSet<&LeaseName> = stored.chain(self.desired.claims.keys()).collect();
        names.into_iter().filter_map(|name| self.list_work(name)).collect()
    }

    fn list_work(&self, name: &LeaseName) -> Option<Work> {
        let desired = self.desired.claims.get(name);
        let asked = desired.map(|claim| &claim.addresses);
        let free = |ip: &IpAddr| {
            let first = self.desired.claims.iter().find(|(_, claim)| claim.addresses.contains(ip));
            let stored = self.store.claims.values().map(|it| (&it.name, &it.record.addresses));
            let mut lists = stored.chain(&self.operator.writing);
            first.is_some_and(|(first, _)| first == name)
                && !lists.any(|(other, list)| other != name && list.contains(ip))
        };
        let base = self.store.claims.get(name);
        let valid = base.is_some_and(|stored| self.store.is_valid(stored));
        let mut record = base.map(|stored| stored.record.clone()).unwrap_or_default();
        let taken = |ip: &IpAddr| asked.is_none_or(|asked| !asked.contains(ip));
        let mut all = self.desired.claims.values();
        if all.any(|claim| claim.services.iter().any(|it| record.services.contains(it))) {
            record.withdrawn = record.addresses.iter().filter(|ip| taken(ip)).copied().collect();
        }
        record.withdrawn.retain(taken);
        if !valid {
            record.addresses.retain(|ip| asked.is_some_and(|asked| asked.contains(ip)));
        }
        record.addresses.extend(asked.into_iter().flatten().copied().filter(free));
        if let Some(desired) = desired {
            record.services.clone_from(&desired.services);
        }
        record.duration_seconds = record.duration_seconds.max(5);
        let Some(base) = base else {
            let change = Change { name: name.clone(), base: None, record };
            return (!change.record.addresses.is_empty()).then_some(Work::Put(change));
        };
        if desired.is_none() && !valid && base.record.addresses.is_empty() {
            let version = base.resource_version.clone();
            return Some(Work::Delete { name: name.clone(), version });
        }
        let old = &base.record;
        let withdraws = record.withdrawn.iter().any(|ip| !old.withdrawn.contains(ip))
            || old
                .withdrawn
                .intersection(&record.addresses)
                .any(|ip| !record.withdrawn.contains(ip));
        (withdraws || record.addresses != old.addresses || record.services != old.services)
            .then(|| Work::Put(Change { name: name.clone(), base: Some(base.clone()), record }))
    }
}
