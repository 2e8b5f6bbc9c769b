//! What a Service has by its record, whatever others have written into its status and its annotations.
//!
//! What somebody removed or overwrote is not a wish: as long as the Service wants its address from us, it
//! has what it had, and gets the rest written again. The record is what was last seen as we wrote it; a
//! replica that has not seen that reads it from the claim that names the Service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::service::Claims;

use super::index::Index;
use super::service::ServiceRow;
use crate::allocate::{self, ServiceKey};

/// What a Service has, and under which claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) allocated_from: Option<String>,
    pub(super) claims: Claims,
}

impl Record {
    /// `wish`, of a Service that has this.
    pub(super) fn overlay(self, wish: &allocate::Service) -> allocate::Service {
        allocate::Service {
            present: self.addresses,
            allocated_from: self.allocated_from,
            claim: Some(self.claims.claim),
            ..wish.clone()
        }
    }
}

/// The records of Services that somebody else has written to since.
#[derive(Debug, Default)]
pub(super) struct Records {
    seen: BTreeMap<ServiceKey, Record>,
}

impl Records {
    /// A Service that had `before` by its record is `row` now, by an own write or by somebody else's.
    pub(super) fn note(
        &mut self,
        key: &ServiceKey,
        row: &ServiceRow,
        before: Option<Record>,
        own: bool,
    ) {
        if row.intact || own {
            self.seen.remove(key);
        } else if let Some(record) = before {
            self.seen.insert(key.clone(), record);
        }
    }

    /// A Service has gone, or is not ours any more.
    pub(super) fn drop(&mut self, key: &ServiceKey) {
        self.seen.remove(key);
    }
}

impl Record {
    /// What the fields of a Service say, if they are as we wrote them.
    pub(super) fn of(row: &ServiceRow) -> Option<Self> {
        let claims = row.claims().filter(|_| row.intact && !row.present.is_empty())?;
        Some(Self {
            addresses: row.present.clone(),
            allocated_from: row.noted().map(str::to_owned),
            claims: claims.clone(),
        })
    }
}

impl Index {
    /// What a Service has whose status or annotations are not as we wrote them; none where these say it.
    pub(super) fn recorded(&self, key: &ServiceKey, row: &ServiceRow) -> Option<Record> {
        if row.intact || self.wish(row).is_none() {
            return None;
        }
        let mut record = match self.records.seen.get(key) {
            Some(record) => record.clone(),
            None => self.claimed(key, row)?,
        };
        // Nobody has what another has by its status, by its claim, and by the plan.
        record.addresses.retain(|ip| !self.is_settled(*ip));
        (!record.addresses.is_empty()).then_some(record)
    }

    /// What the claims say that a Service has which bears a mark of ours.
    fn claimed(&self, key: &ServiceKey, row: &ServiceRow) -> Option<Record> {
        if !row.marked || row.says_that_it_lacks() {
            return None;
        }
        let own = LeaseName::claim(&key.namespace, &key.name);
        let noted = row.claims().into_iter().flat_map(|it| it.by_address.iter().chain([&it.claim]));
        let name = key.to_string();
        let names_it = |claim: &&LeaseName| {
            let claim = self.claims.get(claim);
            claim.is_some_and(|claim| claim.record.services.contains(&name))
        };
        let mut naming: Vec<&LeaseName> = noted.chain([&own]).filter(names_it).collect();
        naming.sort_unstable();
        naming.dedup();
        let main = row.claim().filter(|claim| naming.contains(claim)).unwrap_or(&own);
        let main = naming.iter().copied().find(|claim| *claim == main)?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for claim in naming.iter().filter_map(|claim| self.claims.get(claim)) {
            addresses.extend(&claim.record.addresses);
        }
        // Of those of one family the first is kept.
        addresses.sort_by_key(|ip| !row.present.contains(ip));
        let owner = addresses.iter().find_map(|ip| self.territory().owner(*ip));
        Some(Record {
            allocated_from: row.noted().or(owner).map(str::to_owned),
            addresses,
            claims: Claims {
                claim: main.clone(),
                by_address: naming.into_iter().filter(|claim| *claim != main).cloned().collect(),
            },
        })
    }
}
