//! The demand of a service: its request, checked against the pools.

use leasehold_crds::range::Family;

use super::failure::Failure;
use super::families::ByFamily;
use super::pool_map::PoolMap;
use super::state::Service;

/// A request that is consistent with the pools as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand<'a> {
    addresses: ByFamily,
    pool: Option<&'a str>,
}

impl<'a> Demand<'a> {
    /// The requested addresses.
    pub(super) const fn addresses(&self) -> &ByFamily {
        &self.addresses
    }

    /// The requested pool.
    pub(super) const fn pool(&self) -> Option<&'a str> {
        self.pool
    }

    /// Checks the request of `service`.
    pub(super) fn of(service: &'a Service, pool_map: &'a PoolMap) -> Result<Self, Failure> {
        let request = service.request.as_ref().map_err(Failure::clone)?;
        let mut demand = Self::default();
        for &ip in request.addresses.iter().flat_map(|asked| &asked.what) {
            if !service.families.contains(&Family::of(ip)) {
                return Err(Failure::FamilyNotWanted { address: ip });
            }
            if let Some(other) = demand.addresses.insert(ip)
                && other != ip
            {
                return Err(Failure::TwoOfFamily(other, ip));
            }
        }
        if let Some(contradiction) = two_pools(service, &demand.addresses, pool_map) {
            return Err(contradiction);
        }
        let Some(asked) = &request.pool else { return Ok(demand) };
        let had_from = service.allocated_from.as_ref() == Some(&asked.what);
        if pool_map.domain(&asked.what).is_none() && !had_from {
            let pools = pool_map.domains().map(|(pool, _)| pool.to_owned()).collect();
            let (pool, place) = (asked.what.clone(), asked.place);
            return Err(Failure::UnknownPool { pool, place, pools });
        }
        for ip in demand.addresses.iter() {
            let owner = pool_map.owner(ip);
            // An address that it has of the pool is no contradiction, even where the pool has lost it.
            if owner != Some(&asked.what) && !(had_from && service.present.contains(&ip)) {
                return Err(Failure::NotInThatPool {
                    address: ip,
                    pool: asked.what.clone(),
                    place: asked.place,
                    owner: owner.map(str::to_owned),
                });
            }
        }
        demand.pool = Some(&asked.what);
        Ok(demand)
    }
}

/// The failure of a request for addresses of two pools. A service that has both addresses already may keep
/// them: a pool may have lost one since.
fn two_pools(service: &Service, asked: &ByFamily, pool_map: &PoolMap) -> Option<Failure> {
    let mut of_pools = asked.iter().filter_map(|ip| Some((ip, pool_map.owner(ip)?.to_owned())));
    let ((first, first_pool), (second, second_pool)) = (of_pools.next()?, of_pools.next()?);
    let has_both = service.present.contains(&first) && service.present.contains(&second);
    (first_pool != second_pool && !has_both).then_some(Failure::TwoPools {
        first,
        first_pool,
        second,
        second_pool,
    })
}
