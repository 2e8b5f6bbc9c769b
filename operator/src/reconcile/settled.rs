//! Which Services and claims something may have to be done about; the others are settled.
//!
//! A Service is settled when it is written as it was decided, its claim lists what it has, and nobody
//! else has or had a part in either. It is open again as soon as something about it, its claim, its
//! namespace, the pools or the policies changes, or another Service names its address or its claim. So
//! what follows from a change is found by looking at what is open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::index::Pending;
use super::service::ServiceRow;
use crate::allocate::{Occupancy, PoolMap, ServiceKey};

/// A Service that is settled.
#[derive(Debug)]
pub(super) struct Rest {
    /// What it has.
    pub(super) addresses: Vec<IpAddr>,
    /// The policy that governs it.
    pub(super) policy: Option<String>,
    /// Nobody owns its claim.
    pub(super) unowned: bool,
}

/// What is open, and what is settled.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: BTreeSet<ServiceKey>,
    /// Those that are not of settled Services.
    claims: BTreeSet<LeaseName>,
    settled: BTreeMap<ServiceKey, Rest>,
    space: Occupancy,
    /// How many settled Services each policy governs.
    governed: BTreeMap<String, usize>,
    /// The addresses of Services that do not want them from us.
    foreign: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    strangers: BTreeMap<ServiceKey, Vec<IpAddr>>,
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
    pub(super) fn space(&self) -> &Occupancy {
        &self.space
    }

    /// How many Services are settled.
    pub(super) fn count(&self) -> usize {
        self.settled.len()
    }

    /// How many settled Services each policy governs.
    pub(super) fn governed(&self) -> &BTreeMap<String, usize> {
        &self.governed
    }

    /// The addresses of Services that do not want them from us.
    pub(super) fn foreign(&self) -> &BTreeMap<IpAddr, BTreeSet<ServiceKey>> {
        &self.foreign
    }

    /// Opens everything, and forgets it: all Services and claims are to be told anew.
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

    /// The settled Services that nobody announces.
    pub(super) fn unowned(&self) -> impl Iterator<Item = &ServiceKey> {
        self.settled.iter().filter(|(_, rest)| rest.unowned).map(|(key, _)| key)
    }

    /// A Service is `row` now, and `pending` is being written to it.
    pub(super) fn service(
        &mut self,
        key: &ServiceKey,
        row: Option<(&ServiceRow, bool)>,
        pending: Option<&Pending>,
        pool_map: &PoolMap,
    ) {
        self.open_again(key, pool_map);
        self.open.remove(key);
        for ip in self.strangers.remove(key).unwrap_or_default() {
            if let Some(keys) = self.foreign.get_mut(&ip) {
                keys.remove(key);
                if keys.is_empty() {
                    self.foreign.remove(&ip);
                }
            }
        }
        let Some((row, wanted)) = row else { return };
        let ours = wanted || row.marked;
        if !ours && !row.present.is_empty() {
            for ip in &row.present {
                self.foreign.entry(*ip).or_default().insert(key.clone());
            }
            self.strangers.insert(key.clone(), row.present.clone());
        }
        if !ours && row.claim().is_none() {
            return;
        }
        self.open.insert(key.clone());
        let addresses = pending.map_or(&[][..], |pending| &pending.addresses);
        for ip in row.present.iter().chain(addresses) {
            if let Some(holder) = self.space.holder(*ip).cloned() {
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

    /// The lease of a claim, or what is being written to it, has changed.
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
        let Some(rest) = self.settled.remove(key) else { return };
        self.space.remove(&rest.addresses, pool_map);
        if let Some(policy) = &rest.policy
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

    /// Notes that nothing is to be done about a Service and its claim.
    pub(super) fn settle(&mut self, key: ServiceKey, rest: Rest, pool_map: &PoolMap) {
        self.open.remove(&key);
        self.claims.remove(&LeaseName::claim(&key.namespace, &key.name));
        self.space.insert(&key, &rest.addresses, pool_map);
        if let Some(policy) = &rest.policy {
            *self.governed.entry(policy.clone()).or_default() += 1;
        }
        self.settled.insert(key, rest);
    }
}
