//! The pick: addresses for a service that lacks some, as requested, shared, or the next free one.

use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;

use super::applicant::{Applicant, Held};
use super::demand::Demand;
use super::failure::Failure;
use super::families::ByFamily;
use super::pool_map::Domain;
use super::scope::Admission;
use super::space::Space;
use super::types::Stack;

/// Addresses that a service is about to get, beside those that it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft<'a> {
    given: ByFamily,
    pool: Option<&'a str>,
    claim: Option<LeaseName>,
}

impl<'a> Draft<'a> {
    pub(super) const fn given(&self) -> &ByFamily {
        &self.given
    }

    /// The pool of all addresses of the service.
    pub(super) const fn pool(&self) -> Option<&'a str> {
        self.pool
    }

    /// The claim that governs all addresses of the service; none before the first is found.
    pub(super) const fn claim(&self) -> Option<&LeaseName> {
        self.claim.as_ref()
    }
}

/// Picks the addresses that the service lacks. Where one family is enough, the failure to find the
/// other is returned as well.
pub(super) fn pick<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    held: &Held,
    space: &mut Space<'a>,
) -> Result<(Draft<'a>, Option<Failure>), Failure> {
    let pool = applicant.pool_of_all(held.addresses(), demand);
    let mut draft = Draft { pool, claim: held.claim().cloned(), ..Draft::default() };
    requested(applicant, demand, held, &mut draft, space)?;
    let missing: Vec<Family> = applicant
        .service
        .families
        .iter()
        .copied()
        .filter(|family| !held.addresses().has(*family) && !draft.given.has(*family))
        .collect();
    if missing.is_empty() {
        return Ok((draft, None));
    }
    let lacking = match draft.pool {
        Some(pool) => from_pool(applicant, pool, &missing, &mut draft, space),
        None => from_any_pool(applicant, demand, &missing, &mut draft, space),
    };
    match lacking {
        // All or nothing: what it already has is not taken away for what it lacks.
        Some(failure)
            if applicant.service.stack == Stack::All
                || (held.addresses().is_empty() && draft.given.is_empty()) =>
        {
            Err(failure)
        }
        lacking => Ok((draft, lacking)),
    }
}

/// The reason for which `pool` gives the service nothing.
fn closed(applicant: &Applicant<'_>, pool: &str, domain: &Domain) -> Option<Failure> {
    if domain.rules.disabled {
        return Some(Failure::PoolDisabled { pool: pool.to_owned() });
    }
    match applicant.admission(pool) {
        Admission::Admitted => None,
        Admission::Unknown => Some(Failure::NamespaceUnseen(applicant.key.namespace.clone())),
        Admission::Refused => {
            let scope = domain.rules.scope.to_string();
            Some(Failure::NotAdmitted { pool: pool.to_owned(), scope })
        }
    }
}

/// Adds the requested addresses that the service does not hold, and the pool of all requested
/// ones.
fn requested<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    held: &Held,
    draft: &mut Draft<'a>,
    space: &Space<'a>,
) -> Result<(), Failure> {
    let lacks = |ip: &IpAddr| !held.addresses().has(Family::of(*ip));
    let mut wanted: Vec<IpAddr> = demand.addresses().iter().filter(lacks).collect();
    // The claims of addresses that a service has are given; the others follow.
    wanted.sort_by_key(|ip| space.claim_of(*ip).is_none());
    let mut from = draft.pool.zip(held.addresses().iter().next());
    for ip in wanted {
        let Some((pool, domain)) = applicant.state.pool_map.holder(ip) else {
            return Err(Failure::NotInPool(ip));
        };
        if let Some((first_pool, first)) = from
            && first_pool != pool
        {
            return Err(Failure::TwoPools {
                first,
                first_pool: first_pool.to_owned(),
                second: ip,
                second_pool: pool.to_owned(),
            });
        }
        if let Some(failure) = closed(applicant, pool, domain) {
            return Err(failure);
        }
        let own = || space.new_claim(applicant.service, ip);
        let governing = space.claim_of(ip);
        let claim = governing.clone().or(draft.claim.clone()).unwrap_or_else(own);
        if let Some(obstacle) = space.obstacle(ip, &applicant.party(), &claim) {
            return Err(obstacle);
        }
        if let (Some(first_claim), Some((_, first))) = (&draft.claim, from)
            && *first_claim != claim
        {
            let (second, second_claim) = (ip, claim);
            let first_claim = first_claim.clone();
            return Err(Failure::TwoClaims { first, first_claim, second, second_claim });
        }
        from = Some((pool, ip));
        draft.claim = Some(claim);
        draft.given.insert(ip);
    }
    draft.pool = from.map(|(pool, _)| pool);
    Ok(())
}

/// Picks an address of `pool` for each family in `missing`; returns the failure for the last family that it
/// lacks.
fn from_pool<'a>(
    applicant: &Applicant<'a>,
    pool: &'a str,
    missing: &[Family],
    draft: &mut Draft<'a>,
    space: &mut Space<'a>,
) -> Option<Failure> {
    let Some(domain) = applicant.state.pool_map.domain(pool) else {
        return Some(Failure::PoolGone { pool: pool.to_owned() });
    };
    let closed = closed(applicant, pool, domain);
    if closed.is_some() {
        return closed;
    }
    let mut lacking = None;
    for &family in missing {
        if !take(applicant, pool, family, draft, space) {
            let lacks = || Failure::PoolLacks { pool: pool.to_owned(), family };
            lacking = Some(space.soon_vacant(pool, family).unwrap_or_else(lacks));
        }
    }
    lacking
}

/// Adds an address of `pool`; returns whether there is one.
fn take<'a>(
    applicant: &Applicant<'a>,
    pool: &'a str,
    family: Family,
    draft: &mut Draft<'a>,
    space: &mut Space<'a>,
) -> bool {
    let party = applicant.party();
    let own = space.own_claim(applicant.service);
    let governing = draft.claim.as_ref();
    let claim = governing.or(own);
    let found = governing
        .and_then(|claim| space.joinable(pool, family, &party, claim))
        .or_else(|| space.listed_alone(pool, family, &party, claim?))
        .or_else(|| space.formerly_own(pool, family, &party, claim))
        .or_else(|| space.vacant(pool, family));
    let Some(ip) = found else { return false };
    if draft.claim.is_none() {
        draft.claim = Some(space.new_claim(applicant.service, ip));
    }
    draft.given.insert(ip);
    true
}

/// Picks `missing` from the first pool that has room for all, or, where a part is enough, from
/// the first that has room for one; but first by joining others of the same key.
fn from_any_pool<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    missing: &[Family],
    draft: &mut Draft<'a>,
    space: &mut Space<'a>,
) -> Option<Failure> {
    if let Some((joined, lacking)) = join(applicant, demand, missing, space) {
        *draft = joined;
        return lacking;
    }
    if let Some(pool) = demand.pool() {
        draft.pool = Some(pool);
        return from_pool(applicant, pool, missing, draft, space);
    }
    let mut partial = None;
    for (pool, domain) in applicant.state.pool_map.in_order() {
        if !domain.rules.auto_assign {
            continue;
        }
        match closed(applicant, pool, domain) {
            None => {}
            // It would come before the others.
            Some(unseen @ Failure::NamespaceUnseen(_)) => return Some(unseen),
            Some(_) => continue,
        }
        let mut found = Draft { pool: Some(pool), ..Draft::default() };
        if from_pool(applicant, pool, missing, &mut found, space).is_none() {
            *draft = found;
            return None;
        }
        if partial.is_none() && !found.given.is_empty() {
            partial = Some(found);
        }
    }
    let failure = diagnose(applicant, missing, space);
    if let Some(found) = partial.filter(|_| applicant.service.stack == Stack::Any) {
        *draft = found;
    }
    Some(failure)
}

/// Joins the services of the same sharing key at the oldest of their addresses that has room; a family
/// that is still lacking is the failure.
fn join<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    missing: &[Family],
    space: &mut Space<'a>,
) -> Option<(Draft<'a>, Option<Failure>)> {
    let party = applicant.party();
    party.terms?;
    let mut partial = None;
    for index in space.first_candidate(&party).. {
        let Some(ip) = space.candidate(&party, index) else { break };
        let family = Family::of(ip);
        let Some((pool, domain)) = applicant.state.pool_map.holder(ip) else { continue };
        let Some(claim) = space.claim_of(ip) else { continue };
        if !missing.contains(&family)
            || demand.pool().is_some_and(|asked| asked != pool)
            || space.has(ip, applicant.key)
            || space.obstacle(ip, &party, &claim).is_some()
            || closed(applicant, pool, domain).is_some()
        {
            continue;
        }
        let mut draft = Draft { given: ByFamily::default(), pool: Some(pool), claim: Some(claim) };
        draft.given.insert(ip);
        let others: Vec<Family> =
            missing.iter().copied().filter(|other| *other != family).collect();
        let lacking = from_pool(applicant, pool, &others, &mut draft, space);
        if lacking.is_none() {
            return Some((draft, None));
        }
        if applicant.service.stack == Stack::Any && partial.is_none() {
            partial = Some((draft, lacking));
        }
    }
    partial
}

/// The reason for which no pool has room for all of `missing`.
fn diagnose<'a>(applicant: &Applicant<'a>, missing: &[Family], space: &mut Space<'a>) -> Failure {
    let pool_map = applicant.state.pool_map;
    if pool_map.domains().next().is_none() {
        return Failure::NoPool;
    }
    for &family in missing {
        let (mut serving, mut others) = (Vec::new(), Vec::new());
        for (pool, domain) in pool_map.domains().filter(|(_, it)| it.size(family) > 0) {
            match passed_over(applicant, pool, domain) {
                None => serving.push(pool),
                Some(why) => others.push(why),
            }
        }
        if serving.is_empty() && others.is_empty() {
            return Failure::NoFamily(family);
        }
        if serving.is_empty() {
            return Failure::NoneServes { family, pools: others };
        }
        if serving.iter().any(|pool| space.vacant(pool, family).is_some()) {
            continue;
        }
        if let Some(failure) = serving.iter().find_map(|pool| space.soon_vacant(pool, family)) {
            return failure;
        }
        let pools = serving.iter().map(|pool| format!("pool {pool}")).collect();
        return Failure::Exhausted { family, pools };
    }
    Failure::NoPoolForBoth
}

/// The reason for which `pool` is passed over for the service, which requests none.
fn passed_over(applicant: &Applicant<'_>, pool: &str, domain: &Domain) -> Option<String> {
    if domain.rules.disabled {
        Some(format!("pool {pool} is disabled"))
    } else if applicant.admission(pool) == Admission::Refused {
        Some(format!("pool {pool} {}", domain.rules.scope))
    } else if !domain.rules.auto_assign {
        Some(format!("pool {pool} serves only Services that request it (autoAssign: false)"))
    } else {
        None
    }
}
