//! The lists of claims: the operator alone puts an address on a list, and only one that no other list has.
//!
//! Services that share an address record one claim, and all of them have to lose an address before it
//! goes off the list. An address that changes its claim goes off the old list, which must not be valid then; on record, in
//! the Service's status and annotation; and on the new list. So however old a speaker's view of the
//! Services is, no two valid claims list one address. An address that is taken from an existing Service
//! while its claim is valid is marked there as withdrawn: else the owner would treat the missing record as
//! removed by another tool. The owner takes it off once its kernel does not have it any more.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::service::Claims;

use super::index::Index;
use super::job::ListWrite;
use super::leases::ClaimRow;
use crate::allocate::{Plan, ServiceKey};

/// The duration of a claim without an owner, in seconds: for people, as in claims that have one.
const DURATION_SECONDS: i32 = 5;

/// The content of one Service about a claim.
struct Mention<'a> {
    claim: LeaseName,
    key: &'a ServiceKey,
    /// The addresses that it has or may have: not to be taken off.
    had: AddressSet,
    /// Those of them that it keeps, if the claim stays on its record.
    stays: Option<AddressSet>,
}

/// The content of all Services about one claim.
#[derive(Clone, Copy)]
struct Asked<'a>(&'a [Mention<'a>]);

impl<'a> Asked<'a> {
    fn had(self, ip: IpAddr) -> bool {
        self.0.iter().any(|mention| mention.had.contains(&ip))
    }

    fn is_by_nobody(self) -> bool {
        self.services().next().is_none()
    }

    /// The Services on whose record it is, and stays.
    fn services(self) -> impl Iterator<Item = &'a ServiceKey> {
        self.0.iter().filter(|mention| mention.stays.is_some()).map(|mention| mention.key)
    }

    /// The uids and the pool of these Services, for the lease. Where their pools differ, because one requests
    /// another than that of the address, it is the one of the address, or the one in the lease `before`: the
    /// pool decides which policy governs all of them.
    fn describe(
        self,
        index: &Index,
        plan: &Plan,
        before: Option<&str>,
    ) -> (Vec<String>, Option<String>) {
        let uids = self.services().filter_map(|key| index.tables().services().get(key));
        let decisions = self.services().filter_map(|key| plan.services.get(key));
        let pools: Vec<&str> = decisions.filter_map(|it| it.allocated_from.as_deref()).collect();
        let owners = || self.addresses().filter_map(|ip| index.pool_map().owner(ip));
        let mut known = owners().chain(before);
        let pool = known.find(|pool| pools.contains(pool)).or(pools.first().copied());
        (uids.map(|row| row.uid.clone()).collect(), pool.map(str::to_owned))
    }

    /// Their addresses.
    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let stay = |mention: &'a Mention<'a>| {
            let stays = mention.stays.iter().flatten();
            stays.filter(|ip| mention.had.contains(ip))
        };
        self.0.iter().flat_map(stay).copied()
    }
}

/// The lists that differ from the records of the Services.
pub(super) fn lists(index: &Index, plan: &Plan) -> Vec<(LeaseName, ListWrite)> {
    let mentions = mentions(index, plan);
    let of = |group: &[Mention<'_>], is: fn(&LeaseName, &LeaseName) -> bool, name: &LeaseName| {
        group.first().is_some_and(|mention| is(&mention.claim, name))
    };
    let mut groups = mentions.chunk_by(|a, b| a.claim == b.claim).peekable();
    let mut new: BTreeMap<&LeaseName, Asked<'_>> = BTreeMap::new();
    let unseen = index.listings().iter().filter(|(_, listing)| listing.version.is_none());
    new.extend(unseen.map(|(name, _)| (name, Asked(&[]))));
    let mut writes = Vec::new();
    // Both are in the order of the names.
    for (name, version, row) in index.open_claims() {
        new.remove(name);
        while let Some(group) = groups.next_if(|group| of(group, LeaseName::lt, name)) {
            new.extend(group.first().map(|mention| (&mention.claim, Asked(group))));
        }
        let group = groups.next_if(|group| of(group, LeaseName::eq, name)).unwrap_or_default();
        let write = relist(index, plan, name, version, row, Asked(group));
        writes.extend(write.map(|write| (name.clone(), write)));
    }
    for group in groups {
        new.extend(group.first().map(|mention| (&mention.claim, Asked(group))));
    }
    for (name, asked) in new {
        let write = list_first(index, plan, name, asked);
        writes.extend(write.map(|write| (name.clone(), write)));
    }
    writes
}

/// The content of all open Services about claims, in the order of the claims, then of the Services.
fn mentions<'a>(index: &'a Index, plan: &'a Plan) -> Vec<Mention<'a>> {
    let mut mentions = Vec::new();
    for (key, _, row, decision) in index.decided(plan) {
        let present = row.present.iter().copied();
        let listed = index.listed_for(key, row);
        let on_record = !row.present.is_empty() || !listed.is_empty();
        let keeps = decision.filter(|_| on_record).and_then(|decision| {
            let claim = decision.claim.clone()?;
            let claims = Claims { claim, by_address: index.by_address(row, decision) };
            Some(claims.split(decision.addresses.iter().copied()))
        });
        let mut has = row.claims().map(|it| it.split(present)).unwrap_or_default();
        // An address that merely vanished from its record is still its own, if it is to keep it.
        for (claim, _, addresses) in listed {
            let stays = keeps.as_ref().and_then(|keeps| keeps.get(claim));
            let stay = |ip: &IpAddr| stays.is_some_and(|stays| stays.contains(ip));
            let lost: Vec<IpAddr> = addresses.into_iter().filter(stay).collect();
            if !lost.is_empty() {
                has.entry(claim.clone()).or_default().extend(lost);
            }
        }
        for (claim, had) in has {
            let stays = keeps.as_ref().and_then(|keeps| keeps.get(&claim)).cloned();
            mentions.push(Mention { claim, key, had, stays });
        }
        let pending = index.pending().get(key);
        if let Some((pending, claims)) = pending.and_then(|it| Some((it, it.claims.as_ref()?))) {
            for (claim, had) in claims.split(pending.addresses.iter().copied()) {
                mentions.push(Mention { claim, key, had, stays: None });
            }
        }
    }
    mentions.sort_by(|a, b| a.claim.cmp(&b.claim));
    mentions
}

/// The addresses of `asked` that neither `old` lists, nor any claim but `name`.
fn free(index: &Index, name: &LeaseName, asked: Asked<'_>, old: &AddressSet) -> AddressSet {
    let missing = asked.addresses().filter(|ip| !old.contains(ip));
    missing.filter(|ip| index.listed().of(*ip).all(|other| other == name)).collect()
}

/// The first list of a claim that has no lease yet.
fn list_first(index: &Index, plan: &Plan, name: &LeaseName, asked: Asked<'_>) -> Option<ListWrite> {
    let addresses = free(index, name, asked, &AddressSet::default());
    // A write whose outcome is not known may have made the lease: then this one is refused.
    let unanswered = index.listings().get(name).is_some_and(|listing| listing.unanswered);
    if addresses.is_empty() && !unanswered {
        return None;
    }
    let (uids, pool) = asked.describe(index, plan, None);
    let named_after = name.service().map(|(namespace, name)| format!("{namespace}/{name}"));
    let record = Claim {
        duration_seconds: DURATION_SECONDS,
        services: if asked.is_by_nobody() {
            named_after.into_iter().collect()
        } else {
            asked.services().map(ToString::to_string).collect()
        },
        uids,
        addresses,
        pool,
        cause: "new service".to_owned(),
        ..Claim::default()
    };
    Some(ListWrite { base: None, record, over: None })
}

/// The list of a claim, if it is to change.
fn relist(
    index: &Index,
    plan: &Plan,
    name: &LeaseName,
    version: u64,
    row: &ClaimRow,
    asked: Asked<'_>,
) -> Option<ListWrite> {
    let old = &row.record;
    let lost = |ip: &IpAddr| !asked.had(*ip);
    let takes_off = old.addresses.iter().any(lost) && !index.tables().is_valid(row);
    let mut record = old.clone();
    record.addresses.extend(free(index, name, asked, &old.addresses));
    // Where no Service exists that could still have it, nothing has to be marked.
    if takes_off || index.tables().may_stand(row) {
        record.withdrawn = old.addresses.iter().filter(|ip| lost(ip)).copied().collect();
    }
    record.withdrawn.retain(lost);
    if takes_off {
        record.addresses.retain(|ip| !lost(ip));
    }
    if !asked.is_by_nobody() {
        (record.uids, record.pool) = asked.describe(index, plan, old.pool.as_deref());
        if !names(&old.services, asked.services()) {
            record.services = asked.services().map(ToString::to_string).collect();
        }
    }
    // An address that was taken off may be forgotten with the next change.
    let withdraws = record.withdrawn.iter().any(|ip| !old.withdrawn.contains(ip))
        || old.addresses.intersection(&old.withdrawn).any(|ip| !record.withdrawn.contains(ip));
    let changed = withdraws
        || record.addresses != old.addresses
        || (&record.services, &record.uids, &record.pool) != (&old.services, &old.uids, &old.pool);
    if !changed {
        return None;
    }
    let base = Stored {
        name: name.clone(),
        uid: row.uid.clone(),
        resource_version: version.to_string().into(),
        acquired: row.acquired,
        record: old.clone(),
    };
    Some(ListWrite { base: Some(base), record, over: row.session().filter(|_| takes_off) })
}

/// Whether `texts` are the names of `services`.
fn names<'a>(texts: &[String], services: impl Iterator<Item = &'a ServiceKey>) -> bool {
    let texts = texts.iter().map(|text| text.split_once('/'));
    texts.eq(services.map(|key| Some((key.namespace.as_str(), key.name.as_str()))))
}
