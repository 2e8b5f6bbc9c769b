//! Which addresses the claims list: the operator alone puts an address on a list, and only one that no
//! other list bears.
//!
//! Services that share an address record one claim, and all of them have to lose an address before it
//! goes off the list. An address that changes its claim goes off the old list, which must not be valid then; on record, in
//! the Service's status and annotation; and on the new list. So however old a speaker's view of the
//! Services is, no two valid claims list one address. What a Service has lost while its claim is valid
//! the owner takes off, once its kernel does not have it any more.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};

use super::index::Index;
use crate::allocate::{Listed, Plan, ServiceKey};

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
struct Asked<'a> {
    services: Vec<&'a ServiceKey>,
    /// What is on record, and stays.
    addresses: BTreeSet<IpAddr>,
    /// What they have or may have: not to be taken off.
    had: BTreeSet<IpAddr>,
}

/// The lists that differ from what is on record.
pub(super) fn lists(index: &Index, plan: &Plan) -> Vec<(LeaseName, ListWrite)> {
    let asked = asked(index, plan);
    let listed = listed(index);
    let known = |name: &LeaseName| index.claims.get(name).is_some();
    let unseen = index.listings.iter().filter(|(_, listing)| listing.version.is_none());
    let unseen = unseen.map(|(name, _)| name).filter(|name| !known(name));
    let new: BTreeSet<&LeaseName> =
        asked.keys().copied().filter(|name| !known(name)).chain(unseen).collect();
    let nothing = Asked::default();
    index
        .claims
        .iter()
        .map(|(name, _)| name)
        .chain(new)
        .filter_map(|name| {
            let asked = asked.get(name).unwrap_or(&nothing);
            Some((name.clone(), list(index, name, asked, &listed)?))
        })
        .collect()
}

fn asked<'a>(index: &'a Index, plan: &'a Plan) -> HashMap<&'a LeaseName, Asked<'a>> {
    let mut all: HashMap<&LeaseName, Asked<'_>> = HashMap::new();
    for (key, row) in index.services.iter() {
        if let Some(claim) = row.claim() {
            all.entry(claim).or_default().had.extend(&row.present);
        }
        if let Some(pending) = index.pending.get(key)
            && let Some(claim) = &pending.claim
        {
            all.entry(claim).or_default().had.extend(&pending.addresses);
        }
        let decision = index.wish(row).and_then(|_| plan.services.get(key));
        let on_record = |claim: &&LeaseName| row.claim() == Some(*claim);
        if let Some(decision) = decision
            && let Some(claim) = decision.claim.as_ref().filter(on_record)
            && !row.present.is_empty()
        {
            let asked = all.entry(claim).or_default();
            let stays = row.present.iter().filter(|ip| decision.addresses.contains(ip));
            asked.addresses.extend(stays);
            asked.services.push(key);
        }
    }
    all
}

/// Under which claims each address is listed, or may be.
pub(super) fn listed(index: &Index) -> Listed<'_> {
    let seen = index.claims.iter().map(|(name, row)| (name, &row.record.addresses));
    let unseen = index.listings.iter().map(|(name, listing)| (name, &listing.addresses));
    let lists = seen.chain(unseen);
    lists.flat_map(|(name, addresses)| addresses.iter().map(move |ip| (*ip, name))).collect()
}

fn list(
    index: &Index,
    name: &LeaseName,
    asked: &Asked<'_>,
    listed: &Listed<'_>,
) -> Option<ListWrite> {
    let elsewhere = |ip: &&IpAddr| listed.of(**ip).any(|other| other != name);
    let free = |listed: &BTreeSet<IpAddr>| -> Vec<IpAddr> {
        let missing = asked.addresses.iter().filter(|ip| !listed.contains(ip));
        missing.filter(|ip| !elsewhere(ip)).copied().collect()
    };
    let services = || asked.services.iter().map(ToString::to_string).collect::<Vec<_>>();
    let Some(row) = index.claims.get(name) else {
        let free = free(&BTreeSet::new());
        // A write whose outcome is not known may have made the lease: then this one is refused.
        let unanswered = index.listings.get(name).is_some_and(|listing| listing.unanswered);
        if free.is_empty() && !unanswered {
            return None;
        }
        let named_after = || name.service().map(|(namespace, name)| format!("{namespace}/{name}"));
        let record = Claim {
            duration_seconds: DURATION_SECONDS,
            services: if asked.services.is_empty() {
                named_after().into_iter().collect()
            } else {
                services()
            },
            addresses: free.into_iter().collect(),
            cause: "new service".to_owned(),
            ..Claim::default()
        };
        return Some(ListWrite { base: None, record, over: None });
    };
    let old = &row.record;
    let free = free(&old.addresses);
    let lost = |ip: &IpAddr| !asked.had.contains(ip);
    let takes_off = old.addresses.iter().any(lost) && !index.is_valid(row);
    let renamed = !asked.services.is_empty() && !names(&old.services, &asked.services);
    if free.is_empty() && !takes_off && !renamed {
        return None;
    }
    let mut record = old.clone();
    record.addresses.extend(free);
    if takes_off {
        record.addresses.retain(|ip| !lost(ip));
    }
    if renamed {
        record.services = services();
    }
    let base = Stored {
        name: name.clone(),
        uid: row.uid.clone(),
        resource_version: index.claims.version(name)?.to_string(),
        acquired: row.acquired,
        record: old.clone(),
    };
    Some(ListWrite { base: Some(base), record, over: row.session().filter(|_| takes_off) })
}

/// Whether `texts` are the names of `services`.
fn names(texts: &[String], services: &[&ServiceKey]) -> bool {
    let is = |(text, key): (&String, &&ServiceKey)| {
        text.split_once('/') == Some((key.namespace.as_str(), key.name.as_str()))
    };
    texts.len() == services.len() && texts.iter().zip(services).all(is)
}
