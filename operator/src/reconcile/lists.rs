//! Which addresses the claims list: the operator alone puts an address on a list, and only one that no
//! other list bears.
//!
//! Services that share an address record one claim, and all of them have to lose an address before it
//! goes off the list. An address that changes its claim goes off the old list, which must not be valid then; on record, in
//! the Service's status and annotation; and on the new list. So however old a speaker's view of the
//! Services is, no two valid claims list one address. What a Service has lost while its claim is valid
//! the owner takes off, once its kernel does not have it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};

use super::index::Index;
use crate::allocate::Plan;

/// For how many seconds a claim that nobody holds yet says it is renewed: for people, as in those
/// that are held.
const DURATION_SECONDS: i32 = 5;

/// What a lease is to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWrite {
    /// The lease as it was seen; none where there is none.
    pub base: Option<Stored<Claim>>,
    /// What it says afterwards.
    pub record: Claim,
    /// The session that must be over, by a read that is not from a cache, before anything is taken off:
    /// the claim is held under it.
    pub over: Option<(LeaseName, SessionId)>,
}

/// A list that is being written, or was, and has not been seen since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The version that the write replaces; none for a new lease.
    pub version: Option<u64>,
    /// What it lists.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether its outcome is not known.
    pub unanswered: bool,
}

/// What the Services say about one claim.
#[derive(Debug, Default)]
struct Asked {
    services: Vec<String>,
    /// What is on record, and stays.
    addresses: BTreeSet<IpAddr>,
    /// What they have or may have: not to be taken off.
    had: BTreeSet<IpAddr>,
}

/// The lists that differ from what is on record.
pub(super) fn lists(index: &Index, plan: &Plan) -> Vec<(LeaseName, ListWrite)> {
    let asked = asked(index, plan);
    let listed = listed(index);
    let unseen = index.listings.iter().filter(|(_, listing)| listing.version.is_none());
    let names: BTreeSet<&LeaseName> = index
        .claims
        .iter()
        .map(|(name, _)| name)
        .chain(asked.keys())
        .chain(unseen.map(|(name, _)| name))
        .collect();
    let nothing = Asked::default();
    names
        .into_iter()
        .filter_map(|name| {
            let asked = asked.get(name).unwrap_or(&nothing);
            Some((name.clone(), list(index, name, asked, &listed)?))
        })
        .collect()
}

fn asked(index: &Index, plan: &Plan) -> BTreeMap<LeaseName, Asked> {
    let mut all: BTreeMap<LeaseName, Asked> = BTreeMap::new();
    for (key, row) in index.services.iter() {
        if let Some(claim) = row.claim() {
            all.entry(claim.clone()).or_default().had.extend(&row.present);
        }
        if let Some((claim, pending)) =
            index.pending.get(key).and_then(|pending| Some((pending.claim.clone()?, pending)))
        {
            all.entry(claim).or_default().had.extend(&pending.addresses);
        }
        let decision = index.wish(row).and_then(|_| plan.services.get(key));
        let Some(decision) = decision.filter(|decision| decision.claim.as_ref() == row.claim())
        else {
            continue;
        };
        let Some(claim) = &decision.claim else { continue };
        let asked = all.entry(claim.clone()).or_default();
        let stays = row.present.iter().filter(|ip| decision.addresses.contains(ip));
        asked.addresses.extend(stays);
        if !row.present.is_empty() {
            asked.services.push(key.to_string());
        }
    }
    all
}

/// Under which claims each address is listed, or may be.
pub(super) fn listed(index: &Index) -> BTreeMap<IpAddr, BTreeSet<&LeaseName>> {
    let mut listed: BTreeMap<IpAddr, BTreeSet<&LeaseName>> = BTreeMap::new();
    let seen = index.claims.iter().map(|(name, row)| (name, &row.record.addresses));
    let unseen = index.listings.iter().map(|(name, listing)| (name, &listing.addresses));
    for (name, addresses) in seen.chain(unseen) {
        for ip in addresses {
            listed.entry(*ip).or_default().insert(name);
        }
    }
    listed
}

fn list(
    index: &Index,
    name: &LeaseName,
    asked: &Asked,
    listed: &BTreeMap<IpAddr, BTreeSet<&LeaseName>>,
) -> Option<ListWrite> {
    let elsewhere = |ip: &&IpAddr| {
        listed.get(*ip).is_some_and(|claims| claims.iter().any(|other| *other != name))
    };
    let mut free = asked.addresses.iter().filter(|ip| !elsewhere(ip)).copied().peekable();
    let Some(row) = index.claims.get(name) else {
        // A write whose outcome is not known may have made the lease: then this one is refused.
        let unanswered = index.listings.get(name).is_some_and(|listing| listing.unanswered);
        if free.peek().is_none() && !unanswered {
            return None;
        }
        let record = Claim {
            duration_seconds: DURATION_SECONDS,
            services: if asked.services.is_empty() {
                name.service()
                    .map(|(namespace, name)| format!("{namespace}/{name}"))
                    .into_iter()
                    .collect()
            } else {
                asked.services.clone()
            },
            addresses: free.collect(),
            cause: "new service".to_owned(),
            ..Claim::default()
        };
        return Some(ListWrite { base: None, record, over: None });
    };
    let mut record = row.record.clone();
    record.addresses.extend(free);
    let valid = index.is_valid(row);
    let before = record.addresses.len();
    if !valid {
        record.addresses.retain(|ip| asked.had.contains(ip));
    }
    let takes_off = record.addresses.len() < before;
    if !asked.services.is_empty() {
        record.services.clone_from(&asked.services);
    }
    if record == row.record {
        return None;
    }
    let base = Stored {
        name: name.clone(),
        uid: row.uid.clone(),
        resource_version: index.claims.version(name)?.to_string(),
        acquired: row.acquired,
        record: row.record.clone(),
    };
    Some(ListWrite { base: Some(base), record, over: row.session().filter(|_| takes_off) })
}
