//! The plan: first everybody keeps what still fits, then those that lack something are served.

use std::net::IpAddr;

use super::draw::Draft;
use super::kept::{Held, Kept};
use super::request::Demand;
use super::scope::Admission;
use super::sharing::Party;
use super::space::{Space, party};
use super::{Decision, Failure, Plan, Service, ServiceKey, State};

/// Decides for all services at once.
pub fn plan(state: &State<'_>) -> Plan {
    let mut space = Space::new(state);
    // They are in the order of their names: a number stands for a name.
    let services = state.services.iter().enumerate();
    let mut all: Vec<_> = services
        .map(|(number, (key, service))| {
            let turn = (service.allocated_from.is_none(), service.created, number);
            (turn, Wanting { key, service, state })
        })
        .collect();
    all.sort_unstable_by_key(|(turn, _)| *turn);
    let mut held: Vec<_> = all
        .into_iter()
        .map(|((_, created, number), it)| ((created, number), it, it.keep(&mut space)))
        .collect();
    held.sort_unstable_by_key(|(turn, ..)| *turn);
    let services = held.into_iter();
    let services =
        services.map(|(_, it, held)| (it.key.clone(), it.serve(held, &mut space))).collect();
    Plan { services, pools: space.usage() }
}

/// A service whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Wanting<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) service: &'a Service,
    pub(super) state: &'a State<'a>,
}

impl<'a> Wanting<'a> {
    fn serve(&self, held: Held, space: &mut Space<'a>) -> Decision {
        let decision = self.decide(held, space);
        let mut families = self.service.families.iter();
        let apart = families.find_map(|family| space.apart(&self.party(), *family));
        Decision { apart, ..decision }
    }

    fn decide(&self, held: Held, space: &mut Space<'a>) -> Decision {
        let demand = match self.demand() {
            Ok(demand) => demand,
            Err(failure) => {
                return self.decision(&Demand::default(), &held, None, Some(failure), None);
            }
        };
        let unoffered = self.unoffered(&held, space);
        let mut stuck = None;
        if self.service.reassign && !unoffered.is_empty() {
            match self.replace(&demand, &held, &unoffered, space) {
                Ok(decision) => return decision,
                Err(failure) => stuck = Some(failure),
            }
        }
        let decision = match self.find(&demand, &held, space) {
            Ok((draft, shortfall)) => self.give(&demand, held, draft, shortfall, space),
            Err(failure) => self.decision(&demand, &held, None, Some(failure), None),
        };
        Decision { kept: unoffered, stuck, ..decision }
    }

    /// Has what no pool would give out any more replaced; what it has is not given up for less.
    fn replace(
        &self,
        demand: &Demand<'a>,
        held: &Held,
        unoffered: &[Kept],
        space: &mut Space<'a>,
    ) -> Result<Decision, Failure> {
        let mut rest = held.clone();
        for kept in unoffered {
            if demand.addresses.contains(kept.address) {
                return Err(Failure::OwnRequest(kept.address));
            }
            rest.addresses.remove(kept.address);
        }
        if rest.addresses.is_empty() {
            rest.claim = None;
        }
        let (draft, shortfall) = self.find(demand, &rest, space)?;
        match shortfall {
            Some(less) if rest.addresses.len() + draft.given.len() < held.addresses.len() => {
                Err(less)
            }
            shortfall => {
                for kept in unoffered {
                    space.part(kept.address, self.party());
                }
                Ok(self.give(demand, rest, draft, shortfall, space))
            }
        }
    }

    fn give(
        &self,
        demand: &Demand<'a>,
        mut held: Held,
        draft: Draft<'a>,
        shortfall: Option<Failure>,
        space: &mut Space<'a>,
    ) -> Decision {
        held.claim = held.claim.or(draft.claim);
        if let Some(claim) = &held.claim {
            for ip in draft.given.iter() {
                space.hold(ip, self.party(), claim);
            }
        }
        held.addresses.extend(draft.given.iter());
        self.decision(demand, &held, draft.pool, None, shortfall)
    }

    fn decision(
        &self,
        demand: &Demand<'a>,
        held: &Held,
        pool: Option<&str>,
        failure: Option<Failure>,
        shortfall: Option<Failure>,
    ) -> Decision {
        let families = &self.service.families;
        let addresses: Vec<IpAddr> =
            families.iter().filter_map(|family| held.addresses.get(*family)).collect();
        let pool = pool.or_else(|| self.pool_of_all(&held.addresses, demand));
        let allocated_from = pool.filter(|_| !addresses.is_empty()).map(str::to_owned);
        let claim = held.claim.clone().filter(|_| !addresses.is_empty());
        let lost = held.lost.clone();
        Decision {
            addresses,
            allocated_from,
            claim,
            failure,
            shortfall,
            lost,
            ..Decision::default()
        }
    }

    /// Whether `pool` serves the service.
    pub(super) fn admission(&self, pool: &str) -> Admission {
        let Some(domain) = self.state.territory.domain(pool) else { return Admission::Refused };
        let namespace = self.key.namespace.as_str();
        let labels = self.state.namespaces.get(namespace).copied();
        domain.rules.scope.admits(namespace, labels, &self.service.labels)
    }

    pub(super) fn party(&self) -> Party<'a> {
        party(self.key, self.service)
    }
}
