//! What a service asks for.

use std::net::IpAddr;

use leasehold_crds::range::Family;

use super::families::ByFamily;
use super::{Failure, Service, Territory};

/// Something that a service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<T> {
    /// What it asks for.
    pub what: T,
    /// The field or annotation in which it does.
    pub place: &'static str,
}

/// Which addresses a service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// These.
    pub addresses: Option<Asked<Vec<IpAddr>>>,
    /// Some of this pool.
    pub pool: Option<Asked<String>>,
}

/// A request that can be understood as things are.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand<'a> {
    pub(super) addresses: ByFamily,
    pub(super) pool: Option<&'a str>,
}

impl<'a> Demand<'a> {
    /// What `service` asks for.
    pub(super) fn of(service: &'a Service, territory: &'a Territory) -> Result<Self, Failure> {
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
        if let Some(contradiction) = two_pools(service, &demand.addresses, territory) {
            return Err(contradiction);
        }
        let Some(asked) = &request.pool else { return Ok(demand) };
        let had_from = service.allocated_from.as_ref() == Some(&asked.what);
        if territory.domain(&asked.what).is_none() && !had_from {
            let pools = territory.domains().map(|(pool, _)| pool.to_owned()).collect();
            let (pool, place) = (asked.what.clone(), asked.place);
            return Err(Failure::UnknownPool { pool, place, pools });
        }
        for ip in demand.addresses.iter() {
            let owner = territory.owner(ip);
            // What it has of the pool is no contradiction, even where the pool has lost it.
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

/// That a service asks for addresses of two pools; what it has already may be of another than before.
fn two_pools(service: &Service, asked: &ByFamily, territory: &Territory) -> Option<Failure> {
    let mut of_pools = asked.iter().filter_map(|ip| Some((ip, territory.owner(ip)?.to_owned())));
    let ((first, first_pool), (second, second_pool)) = (of_pools.next()?, of_pools.next()?);
    let has_both = service.present.contains(&first) && service.present.contains(&second);
    (first_pool != second_pool && !has_both).then_some(Failure::TwoPools {
        first,
        first_pool,
        second,
        second_pool,
    })
}
