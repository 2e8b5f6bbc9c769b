//! The plan: each service first retains the addresses that still fit; then those that lack some are
//! served, the oldest first.

use std::net::IpAddr;

use super::applicant::{Applicant, Held};
use super::decision::{Decision, Plan, Retained};
use super::demand::Demand;
use super::failure::Failure;
use super::pick::{Draft, pick};
use super::retained::{keep, unoffered};
use super::space::Space;
use super::state::State;

/// Decides for all services at once.
pub fn plan(state: &State<'_>) -> Plan {
    let mut space = Space::new(state);
    // They are in the order of their names: the number stands for the name.
    let services = state.services.iter().enumerate();
    let mut all: Vec<_> = services
        .map(|(number, (key, service))| {
            let turn = (service.allocated_from.is_none(), service.created, number);
            (turn, Applicant { key, service, state })
        })
        .collect();
    all.sort_unstable_by_key(|(turn, _)| *turn);
    let mut held: Vec<_> = all
        .into_iter()
        .map(|((_, created, number), it)| ((created, number), it, keep(&it, &mut space)))
        .collect();
    held.sort_unstable_by_key(|(turn, ..)| *turn);
    let services = held.into_iter();
    let services =
        services.map(|(_, it, held)| (it.key.clone(), serve(&it, held, &mut space))).collect();
    Plan { services, pools: space.usage() }
}

/// The decision for the service, with the address of its sharing key that it cannot join.
fn serve<'a>(applicant: &Applicant<'a>, held: Held, space: &mut Space<'a>) -> Decision {
    let decision = decide(applicant, held, space);
    let mut families = applicant.service.families.iter();
    let apart = families.find_map(|family| space.apart(&applicant.party(), *family));
    Decision { apart, ..decision }
}

fn decide<'a>(applicant: &Applicant<'a>, held: Held, space: &mut Space<'a>) -> Decision {
    let demand = match applicant.demand() {
        Ok(demand) => demand,
        Err(failure) => {
            return decision(applicant, &Demand::default(), &held, None, Some(failure), None);
        }
    };
    let unoffered = unoffered(applicant, &held, space);
    let mut stuck = None;
    if applicant.service.reassign && !unoffered.is_empty() {
        match replace(applicant, &demand, &held, &unoffered, space) {
            Ok(decision) => return decision,
            Err(failure) => stuck = Some(failure),
        }
    }
    let decision = match pick(applicant, &demand, &held, space) {
        Ok((draft, shortfall)) => give(applicant, &demand, held, &draft, shortfall, space),
        Err(failure) => decision(applicant, &demand, &held, None, Some(failure), None),
    };
    Decision { retained: unoffered, stuck, ..decision }
}

/// Replaces the addresses that no pool offers any more; fails rather than end with fewer than before.
fn replace<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    held: &Held,
    unoffered: &[Retained],
    space: &mut Space<'a>,
) -> Result<Decision, Failure> {
    let replaced = || unoffered.iter().map(|retained| retained.address);
    if let Some(requested) = replaced().find(|ip| demand.addresses().contains(*ip)) {
        return Err(Failure::OwnRequest(requested));
    }
    let rest = held.without(replaced());
    let (draft, shortfall) = pick(applicant, demand, &rest, space)?;
    match shortfall {
        Some(less) if rest.addresses().len() + draft.given().len() < held.addresses().len() => {
            Err(less)
        }
        shortfall => {
            for ip in replaced() {
                space.part(ip, applicant.party());
            }
            Ok(give(applicant, demand, rest, &draft, shortfall, space))
        }
    }
}

/// Adds the picked addresses to those held.
fn give<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    mut held: Held,
    draft: &Draft<'a>,
    shortfall: Option<Failure>,
    space: &mut Space<'a>,
) -> Decision {
    held.extend(draft.given(), draft.claim());
    if let Some(claim) = held.claim() {
        for ip in draft.given().iter() {
            space.hold(ip, applicant.party(), claim);
        }
    }
    decision(applicant, demand, &held, draft.pool(), None, shortfall)
}

fn decision<'a>(
    applicant: &Applicant<'a>,
    demand: &Demand<'a>,
    held: &Held,
    pool: Option<&str>,
    failure: Option<Failure>,
    shortfall: Option<Failure>,
) -> Decision {
    let families = &applicant.service.families;
    let addresses: Vec<IpAddr> =
        families.iter().filter_map(|family| held.addresses().get(*family)).collect();
    let pool = pool.or_else(|| applicant.pool_of_all(held.addresses(), demand));
    let allocated_from = pool.filter(|_| !addresses.is_empty()).map(str::to_owned);
    let claim = held.claim().cloned().filter(|_| !addresses.is_empty());
    let lost = held.lost().to_vec();
    Decision { addresses, allocated_from, claim, failure, shortfall, lost, ..Decision::default() }
}
