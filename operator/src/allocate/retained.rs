//! The retained addresses: a service keeps what still fits its request, also where no pool offers it
//! any more.

use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::Family;

use super::applicant::{Applicant, Held};
use super::decision::{Retained, Unoffered};
use super::demand::Demand;
use super::scope::Admission;
use super::space::Space;

/// Has the service keep its present addresses that still fit; the others are on their way out.
pub(super) fn keep<'a>(applicant: &Applicant<'a>, space: &mut Space<'a>) -> Held {
    // An invalid request is no reason to give up an address.
    let demand = applicant.demand().unwrap_or_default();
    let mut held = Held::default();
    for &ip in &applicant.service.present {
        if held.addresses().contains(ip) {
            continue;
        }
        if fits(applicant, ip, &demand) && !held.addresses().has(Family::of(ip)) {
            let claim = claim_of(applicant, ip, &held, space);
            match space.keep(ip, applicant.party(), &claim) {
                Ok(()) => {
                    held.add(ip, claim);
                    continue;
                }
                Err(lost) => lost.into_iter().for_each(|lost| held.lose(lost)),
            }
        }
        space.leave(ip, applicant.party());
    }
    held
}

/// The claim that governs an address that the service has: that of the others that have it, or the one
/// on record.
fn claim_of<'a>(
    applicant: &Applicant<'a>,
    ip: IpAddr,
    held: &Held,
    space: &Space<'a>,
) -> LeaseName {
    if let Some(claim) = held.claim().cloned().or_else(|| space.claim_of(ip)) {
        return claim;
    }
    let own = &applicant.service.own_claim;
    // The record may have been edited: then the claim that lists the address is right.
    let doubtful = |claim: &LeaseName| {
        claim != own && !applicant.state.listed.of(ip).any(|other| other == claim)
    };
    let recorded = applicant.service.claim.as_ref();
    if let Some(claim) = recorded.filter(|claim| !doubtful(claim)) {
        return claim.clone();
    }
    let listing = applicant.state.listed.only(ip).or(recorded);
    listing.cloned().unwrap_or_else(|| space.new_claim(applicant.service, ip))
}

/// Whether an address that the service has is one that it may keep.
fn fits<'a>(applicant: &Applicant<'a>, ip: IpAddr, demand: &Demand<'a>) -> bool {
    let pool_map = applicant.state.pool_map;
    let owner = pool_map.owner(ip);
    let recorded = applicant.service.allocated_from.as_deref();
    let adopted = || owner.is_some_and(|pool| applicant.admission(pool) != Admission::Refused);
    if !applicant.service.families.contains(&Family::of(ip)) || !(recorded.is_some() || adopted()) {
        return false;
    }
    if demand.pool().is_some_and(|pool| owner != Some(pool) && recorded != Some(pool)) {
        return false;
    }
    if let Some(asked) = demand.addresses().get(Family::of(ip)) {
        return asked == ip;
    }
    // All addresses of a service are from one pool: a request for an address of another pool
    // moves the other family, too.
    let pool = applicant.pool_of(ip, demand);
    let moves = |wanted: IpAddr| {
        !applicant.service.present.contains(&wanted)
            && pool_map.owner(wanted).is_some_and(|owner| Some(owner) != pool)
    };
    !demand.addresses().iter().any(moves)
}

/// Those of its addresses that no pool offers to the service any more.
pub(super) fn unoffered<'a>(
    applicant: &Applicant<'a>,
    held: &Held,
    space: &Space<'a>,
) -> Vec<Retained> {
    let addresses = held.addresses().iter();
    addresses
        .filter_map(|address| Some(Retained { address, why: why(applicant, address, space)? }))
        .collect()
}

/// The reason for which no pool offers `ip` to the service, if none does.
fn why<'a>(applicant: &Applicant<'a>, ip: IpAddr, space: &Space<'a>) -> Option<Unoffered> {
    let Some((owner, domain)) = applicant.state.pool_map.holder(ip) else {
        return Some(Unoffered::NoPool);
    };
    let pool = owner.to_owned();
    let asked = applicant.service.request.as_ref().ok().and_then(|request| request.pool.as_ref());
    let abroad = || {
        let first = space.first_of(ip).map(|first| &first.namespace);
        first.is_some_and(|namespace| *namespace != applicant.key.namespace)
    };
    if asked.is_some_and(|asked| asked.what != owner) {
        Some(Unoffered::OtherPool(pool))
    } else if applicant.admission(owner) == Admission::Refused {
        Some(Unoffered::NotAdmitted { pool, scope: domain.rules.scope.to_string() })
    } else if let Some(why) = applicant.state.pool_map.unusable(ip) {
        Some(Unoffered::Unusable(why))
    } else if !domain.rules.offers(ip) {
        Some(Unoffered::LeftOut(pool))
    } else if domain.rules.sharing == Sharing::SameNamespace && abroad() {
        Some(Unoffered::NotShared(pool))
    } else if applicant.service.reassign && domain.rules.disabled {
        Some(Unoffered::Disabled(pool))
    } else {
        None
    }
}
