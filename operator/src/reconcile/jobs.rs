//! What is to be written: the plan against what is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use leasehold_crds::lease::LeaseName;

use super::announcing::Telling;
use super::index::Index;
use super::leases::ClaimRow;
use super::lists::{ListWrite, lists};
use super::pool::PoolWrite;
use super::service::{Beside, ServiceWrite};
use crate::allocate::{Decision, Plan, ServiceKey};
use crate::clock::Instant;

/// What a job is about. No two jobs about one target are ever under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The status of a Service.
    Service(ServiceKey),
    /// The status of a pool.
    Pool(String),
    /// The status of a policy.
    Policy(String),
    /// A claim.
    Claim(LeaseName),
    /// A session whose Node is gone.
    Session(LeaseName),
}

impl Target {
    /// The kind, for logs and metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Service(_) => "Service",
            Self::Pool(_) => "IPAddressPool",
            Self::Policy(_) => "AnnouncementPolicy",
            Self::Claim(_) => "Claim",
            Self::Session(_) => "Session",
        }
    }

    /// The name, for logs.
    pub fn name(&self) -> String {
        match self {
            Self::Service(key) => key.to_string(),
            Self::Pool(name) | Self::Policy(name) => name.clone(),
            Self::Claim(name) | Self::Session(name) => name.to_string(),
        }
    }
}

/// One object in one state: what a deletion is allowed to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The uid.
    pub uid: Arc<str>,
    /// The resource version.
    pub version: u64,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Write the status and the annotations of a Service.
    Service {
        /// Which one.
        key: ServiceKey,
        /// The version that the write replaces.
        version: u64,
        /// The write.
        write: Box<ServiceWrite>,
    },
    /// Write the status of a pool.
    Pool(String, Box<PoolWrite>),
    /// Write the status of a policy.
    Policy(String, serde_json::Value),
    /// Write which addresses a claim lists.
    List(LeaseName, Box<ListWrite>),
    /// Delete a claim that lists nothing.
    DeleteClaim(LeaseName, Revision),
    /// Delete a session if its Node does not exist.
    DeleteSession(LeaseName, Revision),
}

impl Job {
    /// Whether it does no more than say who announces a Service.
    pub fn only_tells(&self) -> bool {
        matches!(self, Self::Service { write, .. } if write.only_tells)
    }

    /// What it is about.
    pub fn target(&self) -> Target {
        match self {
            Self::Service { key, .. } => Target::Service(key.clone()),
            Self::Pool(name, _) => Target::Pool(name.clone()),
            Self::Policy(name, _) => Target::Policy(name.clone()),
            Self::List(name, _) | Self::DeleteClaim(name, _) => Target::Claim(name.clone()),
            Self::DeleteSession(name, _) => Target::Session(name.clone()),
        }
    }
}

/// All that differs between `plan` and what `index` knows of what is open; Services first, then
/// claims, and last what only tells who announces a Service.
pub fn jobs(index: &Index, plan: &Plan, now: Instant, time: Timestamp) -> Vec<Job> {
    let (mut jobs, mut tell) = (Vec::new(), Vec::new());
    let governed = index.governed(plan);
    let mut tellings = index.tellings(plan, now);
    let replacing = index.replaced_by().is_some_and(|at| now < at);
    for (key, version, row, decision) in index.decided(plan) {
        let untold;
        let decision = match decision {
            Some(decision)
                if replacing && !decision.retained.is_empty() && !row.is_told_of_kept() =>
            {
                untold = Decision { retained: Vec::new(), ..decision.clone() };
                Some(&untold)
            }
            decision => decision,
        };
        let telling = tellings.remove(key).unwrap_or(Telling::Nothing);
        let by_address =
            decision.map(|decision| index.by_address(row, decision)).unwrap_or_default();
        let contest = index.rivals.contest(key);
        let had = index.had(key, row);
        let beside = Beside { by_address, announced: telling, contest, had };
        let write = row.write(key, version, decision, beside, time);
        if let Some(write) = write.filter(|it| !index.rivals.holds_back(key, &it.given(), now)) {
            let queue = if write.only_tells { &mut tell } else { &mut jobs };
            queue.push(Job::Service { key: key.clone(), version, write: Box::new(write) });
        }
    }
    let lists = lists(index, plan).into_iter();
    jobs.extend(lists.map(|(name, write)| Job::List(name, Box::new(write))));
    for (name, row) in index.pools.iter() {
        let usage = plan.pools.get(name).copied().unwrap_or_default();
        let (overlaps, unusable) =
            (index.pool_map().overlaps(name), index.pool_map().unusable_of(name));
        if let Some(write) = row.write(name, usage, overlaps, unusable, time) {
            jobs.push(Job::Pool(name.clone(), Box::new(write)));
        }
    }
    for (name, row) in index.policies.iter() {
        let services = governed.get(name).copied().unwrap_or(0);
        if let Some(patch) = row.write(name, services, index.unmatched(name), time) {
            jobs.push(Job::Policy(name.clone(), patch));
        }
    }
    jobs.extend(outlived(index, plan, now));
    jobs.extend(tell);
    jobs
}

/// The leases that have had their day: claims that no Service records or is about to record and that
/// are named after no Service of ours without another, once they are released or orphaned and list
/// nothing; and abandoned sessions of Nodes that are gone.
fn outlived(index: &Index, plan: &Plan, now: Instant) -> Vec<Job> {
    let mut jobs = Vec::new();
    let is_over = |name: &LeaseName, claim: &ClaimRow| {
        claim.record.addresses.is_empty()
            && claim.is_marked()
            && !index.listings().contains_key(name)
            && !index.is_valid(claim)
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
    for (name, session) in index.sessions.iter() {
        if index.nodes.get(&name.to_string()).is_none()
            && index.is_abandoned(name, session, now)
            && let Some(version) = index.sessions.version(name)
        {
            let revision = Revision { uid: session.uid.clone(), version };
            jobs.push(Job::DeleteSession(name.clone(), revision));
        }
    }
    jobs
}
