//! The record of the addresses of Services in the leases of their claims, beside that in their status.
//!
//! Tools that know nothing of our annotations and status remove them from a Service: `kubectl replace`,
//! `helm upgrade --force`, Terraform. That is no request to release the addresses. The lease of the claim
//! lists them as well: as long as it names a Service and lists an address that was not withdrawn, the
//! Service has it. Where the claim has lost them, too, the Service has those that it was last seen to have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::outstanding::Outstanding;
use super::tables::Tables;
use crate::allocate::{self, Listed, PoolMap, ServiceKey};
use crate::reconcile::leases::ClaimRow;
use crate::reconcile::service::ServiceRow;

/// The Services that each claim names, except the one that it is named after.
#[derive(Debug, Default)]
struct Naming {
    claims: BTreeMap<ServiceKey, BTreeSet<LeaseName>>,
    services: BTreeMap<LeaseName, Vec<ServiceKey>>,
}

impl Naming {
    /// Replaces the Services that the claim `name` names; returns the old and the new ones.
    fn set(&mut self, name: &LeaseName, row: Option<&ClaimRow>) -> Vec<ServiceKey> {
        let mut concerned = self.services.remove(name).unwrap_or_default();
        for key in &concerned {
            if let Some(claims) = self.claims.get_mut(key) {
                claims.remove(name);
                if claims.is_empty() {
                    self.claims.remove(key);
                }
            }
        }
        let named = row.iter().flat_map(|row| &row.record.services);
        let named = named.filter_map(|text| text.split_once('/')).map(|(namespace, name)| {
            ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() }
        });
        let others: Vec<_> =
            named.filter(|key| LeaseName::claim(&key.namespace, &key.name) != *name).collect();
        for key in &others {
            self.claims.entry(key.clone()).or_default().insert(name.clone());
        }
        concerned.extend(others.iter().cloned());
        if !others.is_empty() {
            self.services.insert(name.clone(), others);
        }
        concerned
    }

    /// The claims that name this Service.
    fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &LeaseName> {
        self.claims.get(key).into_iter().flatten()
    }
}

/// The state of a Service as last seen with our write intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    addresses: Vec<IpAddr>,
    pool: String,
    claim: LeaseName,
}

impl Seen {
    /// The state of a Service, if our write is intact.
    pub(super) fn of(row: &ServiceRow) -> Option<Self> {
        let intact = row.written.intact && !row.present.is_empty();
        Some(Self {
            claim: row.claim().filter(|_| intact)?.clone(),
            pool: row.noted()?.to_owned(),
            addresses: row.present.clone(),
        })
    }
}

/// The intact states of Services to which another client has written since: for the case that both the
/// Service and the claims that list its addresses have lost them.
#[derive(Debug, Default)]
struct Memory {
    seen: BTreeMap<ServiceKey, Seen>,
}

impl Memory {
    /// Notes that a Service is `row` now, by an own write or another client's, and its intact state before.
    fn note(&mut self, key: &ServiceKey, row: &ServiceRow, before: Option<Seen>, own: bool) {
        if row.written.intact || own {
            self.seen.remove(key);
        } else if let Some(seen) = before {
            self.seen.insert(key.clone(), seen);
        }
    }

    /// Forgets a Service that is gone, or not ours any more.
    fn drop(&mut self, key: &ServiceKey) {
        self.seen.remove(key);
    }
}

/// The intact states of Services at the end of a tenure, with their uids: for the next tenure of the same process, if no
/// other replica was the active one in between.
#[derive(Debug, Default)]
pub struct Recollection {
    seen: BTreeMap<ServiceKey, (String, Seen)>,
}

/// The addresses of Services by the lists of claims, and by memory.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The claims under which each address is listed, or may be.
    listed: Listed,
    naming: Naming,
    memory: Memory,
}

/// The rooms beside the record that restoring a Service looks into.
#[derive(Clone, Copy)]
pub(super) struct Restoring<'a> {
    pub(super) tables: &'a Tables,
    pub(super) outstanding: &'a Outstanding,
    pub(super) pool_map: &'a PoolMap,
}

/// A claim that names a Service, with the addresses that it lists for it.
pub(in crate::reconcile) type ListedFor<'a> = (&'a LeaseName, &'a ClaimRow, Vec<IpAddr>);

impl Record {
    /// The claims under which each address is listed, or may be.
    pub(super) const fn listed(&self) -> &Listed {
        &self.listed
    }

    /// Replaces the addresses and the Services of a claim; returns the Services that it named or names
    /// beside the one that it is named after.
    pub(super) fn set(
        &mut self,
        name: &LeaseName,
        addresses: BTreeSet<IpAddr>,
        row: Option<&ClaimRow>,
    ) -> Vec<ServiceKey> {
        self.listed.set(name, addresses);
        self.naming.set(name, row)
    }

    /// Forgets the lists of all claims, before each is set again.
    pub(super) fn clear_lists(&mut self) {
        self.listed = Listed::default();
        self.naming = Naming::default();
    }

    /// Whether a claim names the Service that is not named after it.
    pub(super) fn is_named_elsewhere(&self, key: &ServiceKey) -> bool {
        self.naming.of(key).next().is_some()
    }

    /// Notes that a Service is `row` now, by an own write or another client's, and its intact state before.
    pub(super) fn note(
        &mut self,
        key: &ServiceKey,
        row: &ServiceRow,
        before: Option<Seen>,
        own: bool,
    ) {
        self.memory.note(key, row, before, own);
    }

    /// Forgets a Service that is gone, or not ours any more.
    pub(super) fn drop(&mut self, key: &ServiceKey) {
        self.memory.drop(key);
    }

    /// Adds to `recollection` the intact state of each Service as it is or was last seen.
    pub(super) fn recollect(&self, tables: &Tables, recollection: &mut Recollection) {
        for (key, row) in tables.services().iter().filter(|(_, row)| tables.request(row).is_some())
        {
            if let Some(seen) = Seen::of(row).or_else(|| self.memory.seen.get(key).cloned()) {
                recollection.seen.insert(key.clone(), (row.uid.clone(), seen));
            }
        }
    }

    /// Notes the intact states of the last tenure for the Services that have been edited since.
    pub(super) fn recall(&mut self, tables: &Tables, recollection: Recollection) {
        for (key, (uid, seen)) in recollection.seen {
            let row = tables.services().get(&key).filter(|row| row.uid == uid);
            if let Some(row) = row.filter(|row| tables.request(row).is_some()) {
                self.note(&key, row, Some(seen), false);
            }
        }
    }

    /// The claims that name a Service, with the addresses that each lists for it. Several Services that share
    /// a claim may each have a part of its list.
    pub(super) fn listed_for<'a>(
        &'a self,
        tables: &'a Tables,
        key: &ServiceKey,
        row: &ServiceRow,
    ) -> Vec<ListedFor<'a>> {
        let text = key.to_string();
        let own = LeaseName::claim(&key.namespace, &key.name);
        let names = self.naming.of(key).chain([&own]);
        let claims = names.filter_map(|name| tables.claims().entry(name));
        // Every list names its Services: one that names none has been edited, and is that of its namesake.
        let naming = claims.filter(|(name, _, claim)| {
            let unnamed = claim.record.services.is_empty() && **name == own;
            unnamed || claim.record.names(&text, &row.uid)
        });
        let listed = naming.map(|(name, _, claim)| {
            let has = |ip: &IpAddr| row.present.contains(ip);
            let some = claim.record.standing().any(|ip| has(&ip));
            let elsewhere = row
                .claims()
                .is_some_and(|claims| row.present.iter().any(|ip| claims.governing(*ip) != *name));
            let of_others = |ip: &IpAddr| {
                let mut others = claim.record.services.iter().filter(|it| **it != text);
                others.any(|it| tables.service_named(it).is_some_and(|it| it.present.contains(ip)))
            };
            let another = |ip: &IpAddr| {
                let mut others = claim.record.standing().filter(|it| it.is_ipv4() == ip.is_ipv4());
                others.any(|it| has(&it))
            };
            let lacks = |ip: &IpAddr| !another(ip) && (!(some || elsewhere) || !of_others(ip));
            let free = |ip: &IpAddr| {
                !tables.foreign().contains(*ip) && self.listed.of(*ip).all(|it| it == name)
            };
            let its = |ip: &IpAddr| has(ip) || lacks(ip) && free(ip);
            (name, claim, claim.record.standing().filter(its).collect())
        });
        listed.collect()
    }

    /// The addresses that a Service had before a plan. Where others have written to its status, these are
    /// those that its claims list for it.
    pub(super) fn had(&self, tables: &Tables, key: &ServiceKey, row: &ServiceRow) -> Vec<IpAddr> {
        if row.written.by_us {
            return row.present.clone();
        }
        let listed = self.listed_for(tables, key, row).into_iter();
        let listed: Vec<IpAddr> = listed.flat_map(|(.., addresses)| addresses).collect();
        match self.memory.seen.get(key) {
            _ if !listed.is_empty() => listed,
            Some(seen) => seen.addresses.clone(),
            None => row.present.clone(),
        }
    }

    /// `service`, for which no claim lists anything, with the addresses that it was last seen to have and no
    /// other object has.
    fn remembered(
        &self,
        tables: &Tables,
        outstanding: &Outstanding,
        key: &ServiceKey,
        service: &allocate::Service,
    ) -> Option<allocate::Service> {
        let seen =
            self.memory.seen.get(key).filter(|_| !outstanding.services().contains_key(key))?;
        let shared = |ip: &IpAddr| {
            tables.services().iter().any(|(other, row)| other != key && row.present.contains(ip))
        };
        // A list of its claim may be under way.
        let its = |ip: &IpAddr| {
            let mut listing = self.listed.of(*ip).peekable();
            listing.peek().is_none() || listing.all(|it| *it == seen.claim) && !shared(ip)
        };
        let free = |ip: &&IpAddr| !tables.foreign().contains(**ip) && its(ip);
        let present: Vec<IpAddr> = seen.addresses.iter().filter(free).copied().collect();
        (!present.is_empty()).then(|| allocate::Service {
            present,
            allocated_from: Some(seen.pool.clone()),
            claim: Some(seen.claim.clone()),
            ..service.clone()
        })
    }

    /// `service` with the addresses that it has lost; none where it has lost nothing.
    pub(super) fn restored(
        &self,
        world: Restoring<'_>,
        key: &ServiceKey,
        row: &ServiceRow,
        service: &allocate::Service,
    ) -> Option<allocate::Service> {
        let Restoring { tables, outstanding, pool_map } = world;
        let listed = self.listed_for(tables, key, row);
        if listed.iter().all(|(.., addresses)| addresses.is_empty())
            && let Some(remembered) = self.remembered(tables, outstanding, key, service)
        {
            return Some(remembered);
        }
        let claim = listed.iter().map(|(name, ..)| *name).next()?;
        let pool = listed.iter().find_map(|(_, claim, _)| claim.record.pool.clone());
        let addresses = listed.iter().flat_map(|(.., addresses)| addresses).copied();
        let lost: Vec<IpAddr> = addresses.filter(|ip| !service.present.contains(ip)).collect();
        let whole = lost.is_empty()
            && service.claim.is_some()
            && (service.allocated_from.is_some() || pool.is_none());
        if whole {
            return None;
        }
        let recorded = service.allocated_from.is_some();
        let present = service.present.iter().copied();
        // An address that others write to a status is not ours for that.
        let present = present.filter(|ip| {
            recorded || pool_map.owner(*ip).is_some() || self.listed.of(*ip).next().is_some()
        });
        // Our last write is newer than the list.
        let present: Vec<IpAddr> = if row.written.by_us || outstanding.services().contains_key(key)
        {
            present.chain(lost).collect()
        } else {
            lost.into_iter().chain(present).collect()
        };
        Some(allocate::Service {
            present,
            allocated_from: service.allocated_from.clone().or(pool),
            claim: service.claim.clone().or_else(|| Some(claim.clone())),
            ..service.clone()
        })
    }
}
