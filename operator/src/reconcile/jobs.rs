//! The pass that finds jobs: the plan against the objects as they are.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use leasehold_crds::lease::LeaseName;

use super::index::Index;
use super::job::{Job, Revision};
use super::leases::ClaimRow;
use super::lists::lists;
use super::service::conditions::Reports;
use super::service::write::Supplement;
use crate::allocate::{Decision, Plan};
use crate::clock::Instant;

/// The jobs that make the open objects of `index` what `plan` says: Services first, then claims, and last
/// the conditions about announcement alone.
pub fn jobs(index: &Index, plan: &Plan, now: Instant, time: Timestamp) -> Vec<Job> {
    let (mut jobs, mut reporting) = (Vec::new(), Vec::new());
    let governed = index.governed(plan);
    let mut reports = index.reports(plan, now);
    let replacing = index.tables().replaced_by().is_some_and(|at| now < at);
    for (key, version, row, decision) in index.decided(plan) {
        let unreported;
        let decision = match decision {
            Some(decision)
                if replacing && !decision.retained.is_empty() && !row.reports_retained() =>
            {
                unreported = Decision { retained: Vec::new(), ..decision.clone() };
                Some(&unreported)
            }
            decision => decision,
        };
        let reports = reports.remove(key).unwrap_or(Reports::NOTHING);
        let by_address =
            decision.map(|decision| index.by_address(row, decision)).unwrap_or_default();
        let contest = index.rivals().contest(key);
        let had = index.had(key, row);
        let supplement = Supplement { by_address, reports, contest, had };
        let write = row.write(key, version, decision, supplement, time);
        if let Some(write) = write.filter(|it| !index.rivals().holds_back(key, &it.given(), now)) {
            let queue = if write.only_reports { &mut reporting } else { &mut jobs };
            queue.push(Job::Service { key: key.clone(), version, write: Box::new(write) });
        }
    }
    let lists = lists(index, plan).into_iter();
    jobs.extend(lists.map(|(name, write)| Job::List(name, Box::new(write))));
    for (name, row) in index.tables().pools().iter() {
        let usage = plan.pools.get(name).copied().unwrap_or_default();
        let (overlaps, unusable) =
            (index.pool_map().overlaps(name), index.pool_map().unusable_of(name));
        if let Some(write) = row.write(name, usage, overlaps, unusable, time) {
            jobs.push(Job::Pool(name.clone(), Box::new(write)));
        }
    }
    for (name, row) in index.tables().policies().iter() {
        let services = governed.get(name).copied().unwrap_or(0);
        if let Some(patch) = row.write(name, services, index.unmatched(name), time) {
            jobs.push(Job::Policy(name.clone(), patch));
        }
    }
    jobs.extend(deletions(index, plan, now));
    jobs.extend(reporting);
    jobs
}

/// The deletions of leases that are no longer needed: claims that no Service records or is about to record,
/// and that are named after no Service of ours without another, once they have no owner and list nothing; and
/// abandoned sessions of Nodes that are gone.
fn deletions(index: &Index, plan: &Plan, now: Instant) -> Vec<Job> {
    let mut jobs = Vec::new();
    let is_over = |name: &LeaseName, claim: &ClaimRow| {
        claim.record.addresses.is_empty()
            && claim.is_marked()
            && !index.listings().contains_key(name)
            && !index.tables().is_valid(claim)
    };
    let mut over = index.open_claims().filter(|(name, _, row)| is_over(name, row)).peekable();
    if over.peek().is_some() {
        let recorded = index.decided(plan).filter_map(|(_, _, row, _)| row.claims());
        let pending = index.pending().values().filter_map(|pending| pending.claims.as_ref());
        let named = recorded.chain(pending);
        let named = named.flat_map(|claims| claims.by_address.iter().chain([&claims.claim]));
        let planned = plan.services.values().filter_map(|decision| decision.claim.as_ref());
        let used: BTreeSet<&LeaseName> = named.chain(planned).collect();
        for (name, version, claim) in over {
            let own = claim.service.as_ref().and_then(|service| plan.services.get(service));
            let awaits = own.is_some_and(|decision| decision.claim.is_none());
            if !used.contains(name) && !awaits {
                let revision = Revision { uid: claim.uid.clone(), version };
                jobs.push(Job::DeleteClaim(name.clone(), revision));
            }
        }
    }
    let tables = index.tables();
    for (name, session) in tables.sessions().iter() {
        if tables.nodes().get(&name.to_string()).is_none()
            && tables.is_abandoned(name, session, now)
            && let Some(version) = tables.sessions().version(name)
        {
            let revision = Revision { uid: session.uid.clone(), version };
            jobs.push(Job::DeleteSession(name.clone(), revision));
        }
    }
    jobs
}
