//! The ledger of Services and claims: open ones, which may need work, and settled ones.
//!
//! A Service is settled when it is written as it was decided, its claim lists its addresses, and no other
//! object has or had a part in either. It is open again as soon as something about it, its claim, its
//! namespace, the pools or the policies changes, or another Service names its address or its claim. So
//! all consequences of a change are found among the open ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::outstanding::Pending;
use crate::allocate::{Occupancy, PoolMap, ServiceKey};
use crate::clock::Instant;
use crate::reconcile::service::ServiceRow;

/// A Service that is settled.
#[derive(Debug)]
pub(super) struct Settled {
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The policy that governs it.
    pub(super) policy: Option<String>,
    /// Whether its claim has no owner.
    pub(super) unowned: bool,
}

/// The open and the settled Services and claims.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: BTreeSet<ServiceKey>,
    /// The open claims: those that are not of settled Services.
    claims: BTreeSet<LeaseName>,
    settled: BTreeMap<ServiceKey, Settled>,
    /// The addresses of the settled Services.
    occupancy: Occupancy,
    /// The number of settled Services that each policy governs.
    governed: BTreeMap<String, usize>,
    /// The settled Services whose conditions are to be looked at again, with the time.
    looks: BTreeMap<ServiceKey, Instant>,
}

impl Ledger {
    /// The Services that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = &ServiceKey> {
        self.open.iter()
    }

    /// The claims that are open.
    pub(super) fn claims(&self) -> impl Iterator<Item = &LeaseName> {
        self.claims.iter()
    }

    /// The addresses of the settled Services.
    pub(super) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    /// The number of settled Services.
    pub(super) fn count(&self) -> usize {
        self.settled.len()
    }

    /// The number of settled Services that each policy governs.
    pub(super) fn governed(&self) -> &BTreeMap<String, usize> {
        &self.governed
    }

    /// Forgets all Services and claims, before each is noted again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Opens the Services of a namespace.
    pub(super) fn open_namespace(&mut self, namespace: &str, pool_map: &PoolMap) {
        let first = ServiceKey { namespace: namespace.to_owned(), name: String::new() };
        let keys = self.settled.range(first..).map(|(key, _)| key);
        let keys: Vec<_> = keys.take_while(|key| key.namespace == namespace).cloned().collect();
        for key in keys {
            self.open_again(&key, pool_map);
        }
    }

    /// The settled Services whose claims have no owner.
    pub(super) fn unowned(&self) -> impl Iterator<Item = &ServiceKey> {
        self.settled.iter().filter(|(_, settled)| settled.unowned).map(|(key, _)| key)
    }

    /// Notes that a Service is `row` now, with whether it makes a request to us, and that `pending` is being
    /// written to it.
    pub(super) fn service(
        &mut self,
        key: &ServiceKey,
        row: Option<(&ServiceRow, bool)>,
        pending: Option<&Pending>,
        pool_map: &PoolMap,
    ) {
        self.open_again(key, pool_map);
        self.open.remove(key);
        let Some((row, requests)) = row else { return };
        let ours = requests || row.marked;
        if !ours && row.claim().is_none() {
            return;
        }
        self.open.insert(key.clone());
        let addresses = pending.map_or(&[][..], |pending| &pending.addresses);
        for ip in row.present.iter().chain(addresses) {
            if let Some(holder) = self.occupancy.holder(*ip).cloned() {
                self.open_again(&holder, pool_map);
            }
        }
        for claim in row
            .claim()
            .into_iter()
            .chain(pending.and_then(|it| it.claims.as_ref()).map(|claims| &claims.claim))
        {
            self.open_owner(claim, pool_map);
        }
    }

    /// Notes that the lease of a claim, or the write to it, has changed.
    pub(super) fn claim(&mut self, name: &LeaseName, exists: bool, pool_map: &PoolMap) {
        self.open_owner(name, pool_map);
        if exists {
            self.claims.insert(name.clone());
        } else {
            self.claims.remove(name);
        }
    }

    /// Opens the Service that `claim` is named after.
    fn open_owner(&mut self, claim: &LeaseName, pool_map: &PoolMap) {
        if let Some((namespace, name)) = claim.service() {
            let key = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
            self.open_again(&key, pool_map);
        }
    }

    /// Opens a Service that is settled.
    pub(super) fn open_again(&mut self, key: &ServiceKey, pool_map: &PoolMap) {
        let Some(settled) = self.settled.remove(key) else { return };
        self.occupancy.remove(&settled.addresses, pool_map);
        if let Some(policy) = &settled.policy
            && let Some(count) = self.governed.get_mut(policy)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.governed.remove(policy);
            }
        }
        self.claims.insert(LeaseName::claim(&key.namespace, &key.name));
        self.open.insert(key.clone());
    }

    /// Settles a Service and its claim.
    pub(super) fn settle(&mut self, key: ServiceKey, settled: Settled, pool_map: &PoolMap) {
        self.open.remove(&key);
        self.claims.remove(&LeaseName::claim(&key.namespace, &key.name));
        self.occupancy.insert(&key, &settled.addresses, pool_map);
        if let Some(policy) = &settled.policy {
            *self.governed.entry(policy.clone()).or_default() += 1;
        }
        self.settled.insert(key, settled);
    }

    /// Has the condition of a Service be looked at again at `at`.
    pub(super) fn look_at(&mut self, key: ServiceKey, at: Instant) {
        self.looks.insert(key, at);
    }

    /// As [`Ledger::look_at`], unless that is to be earlier already.
    pub(super) fn look_by(&mut self, key: ServiceKey, at: Instant) {
        self.looks.entry(key).and_modify(|before| *before = at.min(*before)).or_insert(at);
    }

    /// The time of the earliest such look.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.looks.values().min().copied()
    }

    /// Opens the settled Services to look at by `now`, at most `room`.
    pub(super) fn open_due(&mut self, now: Instant, room: usize, pool_map: &PoolMap) {
        let due = self.looks.iter().filter(|(_, at)| **at <= now).take(room);
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.looks.remove(&key);
            self.open_again(&key, pool_map);
        }
    }
}
