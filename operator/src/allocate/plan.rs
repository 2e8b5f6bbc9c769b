//! The plan: first everybody keeps what still fits, then those that lack something are served.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::range::Family;

use super::space::Space;
use super::{Decision, Failure, Plan, Service, ServiceKey, Stack, State};

type ByFamily = BTreeMap<Family, IpAddr>;

/// Decides for all services at once.
pub fn plan(state: &State<'_>) -> Plan {
    let mut space = Space::new(state);
    let mut kept = keep(state, &mut space);
    let mut by_age: Vec<_> = state.services.iter().map(|(key, service)| (*key, *service)).collect();
    by_age.sort_by_key(|(key, service)| (service.created, *key));
    let mut services = BTreeMap::new();
    for (key, service) in by_age {
        let kept = kept.remove(key).unwrap_or_default();
        let wanting = Wanting { key, service, state };
        services.insert(key.clone(), wanting.serve(kept, &mut space));
    }
    Plan { services, pools: space.usage() }
}

/// What each service keeps of what it has; the rest is on its way out.
fn keep<'a>(state: &'a State<'a>, space: &mut Space<'a>) -> BTreeMap<&'a ServiceKey, ByFamily> {
    let mut by_right: Vec<_> =
        state.services.iter().map(|(key, service)| (*key, *service)).collect();
    by_right
        .sort_by_key(|(key, service)| (service.allocated_from.is_none(), service.created, *key));
    let mut all = BTreeMap::new();
    for (key, service) in by_right {
        let wanting = Wanting { key, service, state };
        let request = wanting.request().ok();
        let mut kept = ByFamily::new();
        for &ip in &service.present {
            let fits = request.as_ref().is_some_and(|request| wanting.fits(ip, request));
            if fits && !kept.contains_key(&Family::of(ip)) && !space.is_taken(ip) {
                kept.insert(Family::of(ip), ip);
                space.take(ip, key);
            } else if !kept.values().any(|kept| *kept == ip) {
                space.leave(ip, &service.claim);
            }
        }
        all.insert(key, kept);
    }
    all
}

/// A service whose turn it is.
#[derive(Clone, Copy)]
struct Wanting<'a> {
    key: &'a ServiceKey,
    service: &'a Service,
    state: &'a State<'a>,
}

impl<'a> Wanting<'a> {
    /// The addresses that the service asks for, by family.
    fn request(&self) -> Result<ByFamily, Failure> {
        let mut request = ByFamily::new();
        for &ip in self.service.request.as_ref().map_err(Failure::clone)? {
            if !self.service.families.contains(&Family::of(ip)) {
                return Err(Failure::FamilyNotWanted { address: ip });
            }
            if let Some(other) = request.insert(Family::of(ip), ip)
                && other != ip
            {
                return Err(Failure::TwoOfFamily(other, ip));
            }
        }
        Ok(request)
    }

    /// The pool of an address that the service has.
    fn pool_of(&self, ip: IpAddr) -> Option<&'a str> {
        self.service.allocated_from.as_deref().or_else(|| self.state.territory.owner(ip))
    }

    /// Whether an address that the service has is one that it may keep.
    fn fits(&self, ip: IpAddr, request: &ByFamily) -> bool {
        let Some(pool) = self.pool_of(ip) else {
            return false;
        };
        let asked = request.get(&Family::of(ip));
        // All addresses of a service are from one pool: a request for an address of another pool
        // moves the other family, too.
        let moves = || {
            request.values().any(|wanted| {
                !self.service.present.contains(wanted)
                    && self.state.territory.owner(*wanted).is_some_and(|owner| owner != pool)
            })
        };
        self.service.families.contains(&Family::of(ip))
            && asked.map_or_else(|| !moves(), |asked| *asked == ip)
    }

    fn serve(&self, kept: ByFamily, space: &mut Space<'a>) -> Decision {
        let anchor = kept.values().find_map(|ip| self.pool_of(*ip));
        let request = match self.request() {
            Ok(request) => request,
            Err(failure) => return self.decision(&kept, anchor, Some(failure), None),
        };
        let (mut given, anchor) = match self.requested(&request, &kept, anchor, space) {
            Ok(given) => given,
            Err(failure) => return self.decision(&kept, anchor, Some(failure), None),
        };
        let missing: Vec<Family> = self
            .service
            .families
            .iter()
            .copied()
            .filter(|family| !kept.contains_key(family) && !given.contains_key(family))
            .collect();
        let (pool, lacking) = match anchor {
            Some(pool) => (Some(pool), self.draw(pool, &missing, &mut given, space)),
            None => self.draw_from_any(&missing, &mut given, space),
        };
        let (failure, shortfall) = match lacking {
            // All or nothing: what it already has is not taken away for what it lacks.
            Some(failure) if self.service.stack == Stack::All => {
                let had = kept.values().find_map(|ip| self.pool_of(*ip));
                return self.decision(&kept, had, Some(failure), None);
            }
            Some(failure) if kept.is_empty() && given.is_empty() => (Some(failure), None),
            lacking => (None, lacking),
        };
        for ip in given.values() {
            space.take(*ip, self.key);
        }
        given.extend(kept);
        self.decision(&given, pool, failure, shortfall)
    }

    /// The requested addresses that it does not have yet, and the pool of all requested ones.
    fn requested(
        &self,
        request: &ByFamily,
        kept: &ByFamily,
        anchor: Option<&'a str>,
        space: &Space<'a>,
    ) -> Result<(ByFamily, Option<&'a str>), Failure> {
        let mut given = ByFamily::new();
        let mut from = anchor.zip(kept.values().next().copied());
        for (&family, &ip) in request {
            if kept.contains_key(&family) {
                continue;
            }
            let Some(pool) = self.state.territory.owner(ip) else {
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
            if let Some(obstacle) = space.obstacle(ip, &self.service.claim) {
                return Err(obstacle);
            }
            from = Some((pool, ip));
            given.insert(family, ip);
        }
        Ok((given, from.map(|(pool, _)| pool)))
    }

    /// The address of `pool` that the service gets: one that its own claim lists, else the lowest.
    fn next(&self, pool: &'a str, family: Family, space: &mut Space<'a>) -> Option<IpAddr> {
        space.listed(&self.service.claim, pool, family).or_else(|| space.lowest(pool, family))
    }

    /// Serves `missing` from `pool`; what is left over is the failure.
    fn draw(
        &self,
        pool: &'a str,
        missing: &[Family],
        given: &mut ByFamily,
        space: &mut Space<'a>,
    ) -> Option<Failure> {
        let mut lacking = None;
        for &family in missing {
            if let Some(ip) = self.next(pool, family, space) {
                given.insert(family, ip);
            } else {
                let lacks = || Failure::PoolLacks { pool: pool.to_owned(), family };
                lacking = Some(space.releasing(pool, family).unwrap_or_else(lacks));
            }
        }
        lacking
    }

    /// Serves `missing` from the first pool by name that has room for all; if a part is enough and
    /// there is none, from the first that has room for one.
    fn draw_from_any(
        &self,
        missing: &[Family],
        given: &mut ByFamily,
        space: &mut Space<'a>,
    ) -> (Option<&'a str>, Option<Failure>) {
        let mut partial = None;
        for (pool, domain) in self.state.territory.domains() {
            if !domain.auto_assign {
                continue;
            }
            let found: ByFamily = missing
                .iter()
                .filter_map(|&family| Some((family, self.next(pool, family, space)?)))
                .collect();
            if found.len() == missing.len() {
                given.extend(found);
                return (Some(pool), None);
            }
            if partial.is_none() && !found.is_empty() {
                partial = Some((pool, found));
            }
        }
        let failure = self.diagnose(missing, space);
        match partial {
            Some((pool, found)) if self.service.stack == Stack::Any => {
                given.extend(found);
                (Some(pool), Some(failure))
            }
            _ => (None, Some(failure)),
        }
    }

    /// Why no pool has room for all of `missing`.
    fn diagnose(&self, missing: &[Family], space: &mut Space<'a>) -> Failure {
        if self.state.territory.domains().next().is_none() {
            return Failure::NoPool;
        }
        for &family in missing {
            let pools: Vec<&'a str> = self
                .state
                .territory
                .domains()
                .filter(|(_, domain)| domain.auto_assign && domain.size(family) > 0)
                .map(|(pool, _)| pool)
                .collect();
            if pools.is_empty() {
                return Failure::NoFamily(family);
            }
            if pools.iter().any(|pool| space.lowest(pool, family).is_some()) {
                continue;
            }
            if let Some(failure) = pools.iter().find_map(|pool| space.releasing(pool, family)) {
                return failure;
            }
            let pools = pools.iter().map(|pool| format!("pool {pool}")).collect();
            return Failure::Exhausted { family, pools };
        }
        Failure::NoPoolForBoth
    }

    fn decision(
        &self,
        addresses: &ByFamily,
        pool: Option<&str>,
        failure: Option<Failure>,
        shortfall: Option<Failure>,
    ) -> Decision {
        let families = &self.service.families;
        let addresses: Vec<IpAddr> =
            families.iter().filter_map(|family| addresses.get(family).copied()).collect();
        let allocated_from = pool.filter(|_| !addresses.is_empty()).map(str::to_owned);
        Decision { addresses, allocated_from, failure, shortfall }
    }
}
