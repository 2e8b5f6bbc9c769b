//! What the claims say that Services have, whatever these say of themselves.
//!
//! Annotations and the status of a Service are taken off by tools that know nothing of them: `kubectl
//! replace`, `helm upgrade --force`, Terraform. That is no wish. The lease of the claim lists the same: as
//! long as it names a Service and lists an address that was not withdrawn, the Service has it. Where the
//! claim has lost that, too, it has what it was last seen to have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;

use super::index::Index;
use super::leases::ClaimRow;
use super::service::ServiceRow;
use crate::allocate::{self, ServiceKey};

/// Which claims name which Services, but for those that are named after them.
#[derive(Debug, Default)]
pub(super) struct Naming {
    claims: BTreeMap<ServiceKey, BTreeSet<LeaseName>>,
    services: BTreeMap<LeaseName, Vec<ServiceKey>>,
}

impl Naming {
    /// Says what `name` names instead of what it did; returns all of both.
    pub(super) fn set(&mut self, name: &LeaseName, row: Option<&ClaimRow>) -> Vec<ServiceKey> {
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

    /// Those that name this Service.
    pub(super) fn of(&self, key: &ServiceKey) -> impl Iterator<Item = &LeaseName> {
        self.claims.get(key).into_iter().flatten()
    }
}

/// What a Service was last seen to have as we wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    addresses: Vec<IpAddr>,
    pool: String,
    claim: LeaseName,
}

impl Seen {
    /// What a Service says, where nobody else has written that.
    pub(super) fn of(row: &ServiceRow) -> Option<Self> {
        let intact = row.written.intact && !row.present.is_empty();
        Some(Self {
            claim: row.claim().filter(|_| intact)?.clone(),
            pool: row.noted()?.to_owned(),
            addresses: row.present.clone(),
        })
    }
}

/// What those Services were last seen to have to which somebody else has written since: for the case
/// that both they and the claims that list it have lost that.
#[derive(Debug, Default)]
pub(super) struct Memory {
    seen: BTreeMap<ServiceKey, Seen>,
}

impl Memory {
    /// A Service is `row` now, by an own write or by somebody else's; `before`, if it was as we wrote it.
    pub(super) fn note(
        &mut self,
        key: &ServiceKey,
        row: &ServiceRow,
        before: Option<Seen>,
        own: bool,
    ) {
        if row.written.intact || own {
            self.seen.remove(key);
        } else if let Some(seen) = before {
            self.seen.insert(key.clone(), seen);
        }
    }

    /// A Service has gone, or is not ours any more.
    pub(super) fn drop(&mut self, key: &ServiceKey) {
        self.seen.remove(key);
    }
}

impl Index {
    /// The claims that name a Service, and what each lists for it. Of several that share a claim each may
    /// have a part of that.
    pub(super) fn listed_for(
        &self,
        key: &ServiceKey,
        row: &ServiceRow,
    ) -> Vec<(&LeaseName, &ClaimRow, Vec<IpAddr>)> {
        let text = key.to_string();
        let own = LeaseName::claim(&key.namespace, &key.name);
        let names = self.naming.of(key).chain([&own]);
        let claims = names.filter_map(|name| self.claims.entry(name));
        // Every list names its Services: one that names none has been edited, and is its namesake's.
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
                others.any(|it| self.service_named(it).is_some_and(|it| it.present.contains(ip)))
            };
            let another = |ip: &IpAddr| {
                let mut others = claim.record.standing().filter(|it| it.is_ipv4() == ip.is_ipv4());
                others.any(|it| has(&it))
            };
            let lacks = |ip: &IpAddr| !another(ip) && (!(some || elsewhere) || !of_others(ip));
            let free =
                |ip: &IpAddr| !self.is_of_others(*ip) && self.listed().of(*ip).all(|it| it == name);
            let its = |ip: &IpAddr| has(ip) || lacks(ip) && free(ip);
            (name, claim, claim.record.standing().filter(its).collect())
        });
        listed.collect()
    }

    /// The Service of this name, `namespace/name`.
    fn service_named(&self, text: &str) -> Option<&ServiceRow> {
        let (namespace, name) = text.split_once('/')?;
        let key = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.services.get(&key)
    }

    /// Whether a speaker may believe that an address of this claim is still that of a Service: one that
    /// it names lives, and is of our type and class.
    pub(super) fn may_stand(&self, claim: &ClaimRow) -> bool {
        let mut named = claim.record.services.iter().filter_map(|text| self.service_named(text));
        named.any(|row| row.wish.is_some())
    }

    /// The addresses that a Service had before a plan, also where others have written to its status: these
    /// are what its claims list for it.
    pub(super) fn had(&self, key: &ServiceKey, row: &ServiceRow) -> Vec<IpAddr> {
        if row.written.by_us {
            return row.present.clone();
        }
        let listed = self.listed_for(key, row).into_iter();
        let listed: Vec<IpAddr> = listed.flat_map(|(.., addresses)| addresses).collect();
        match self.memory.seen.get(key) {
            _ if !listed.is_empty() => listed,
            Some(seen) => seen.addresses.clone(),
            None => row.present.clone(),
        }
    }

    /// `service`, for which no claim lists anything, with what it was last seen to have and nobody else has.
    fn remembered(
        &self,
        key: &ServiceKey,
        service: &allocate::Service,
    ) -> Option<allocate::Service> {
        let seen = self.memory.seen.get(key).filter(|_| !self.pending().contains_key(key))?;
        let shared = |ip: &IpAddr| {
            self.services.iter().any(|(other, row)| other != key && row.present.contains(ip))
        };
        // A list of its claim may be under way.
        let its = |ip: &IpAddr| {
            let mut listing = self.listed().of(*ip).peekable();
            listing.peek().is_none() || listing.all(|it| *it == seen.claim) && !shared(ip)
        };
        let free = |ip: &&IpAddr| !self.is_of_others(**ip) && its(ip);
        let present: Vec<IpAddr> = seen.addresses.iter().filter(free).copied().collect();
        (!present.is_empty()).then(|| allocate::Service {
            present,
            allocated_from: Some(seen.pool.clone()),
            claim: Some(seen.claim.clone()),
            ..service.clone()
        })
    }

    /// `service` with what it has lost; none where it has lost nothing.
    pub(super) fn restored(
        &self,
        key: &ServiceKey,
        row: &ServiceRow,
        service: &allocate::Service,
    ) -> Option<allocate::Service> {
        let listed = self.listed_for(key, row);
        if listed.iter().all(|(.., addresses)| addresses.is_empty())
            && let Some(remembered) = self.remembered(key, service)
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
        // What others write to a status is no address of ours for that.
        let present = present.filter(|ip| {
            recorded
                || self.pool_map().owner(*ip).is_some()
                || self.listed().of(*ip).next().is_some()
        });
        // What we wrote last is newer than the list.
        let present: Vec<IpAddr> = if row.written.by_us || self.pending().contains_key(key) {
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
