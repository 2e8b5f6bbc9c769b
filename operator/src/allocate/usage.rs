//! How much of each pool is in use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::range::Family;

use super::State;

/// How much of a pool is in use, per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// IPv4 addresses that services hold.
    pub assigned_v4: u128,
    /// IPv4 addresses that are free.
    pub available_v4: u128,
    /// IPv6 addresses that services hold.
    pub assigned_v6: u128,
    /// IPv6 addresses that are free.
    pub available_v6: u128,
}

/// The usage of each pool while services hold `held`.
pub(super) fn usage(
    state: &State<'_>,
    held: impl Iterator<Item = IpAddr>,
    is_held: impl Fn(IpAddr) -> bool,
) -> BTreeMap<String, Usage> {
    let territory = state.territory;
    let mut usage: BTreeMap<&str, Usage> = territory
        .domains()
        .map(|(name, domain)| {
            let available_v4 = domain.offered(Family::V4);
            let available_v6 = domain.offered(Family::V6);
            (name, Usage { available_v4, available_v6, ..Usage::default() })
        })
        .collect();
    let mut count = |ip: IpAddr, assigned: u128| {
        let Some((pool, domain)) = territory.holder(ip) else { return };
        let Some(usage) = usage.get_mut(pool) else { return };
        let offered = u128::from(domain.rules.offers(ip));
        match Family::of(ip) {
            Family::V4 => {
                usage.assigned_v4 += assigned;
                usage.available_v4 = usage.available_v4.saturating_sub(offered);
            }
            Family::V6 => {
                usage.assigned_v6 += assigned;
                usage.available_v6 = usage.available_v6.saturating_sub(offered);
            }
        }
    };
    let nodes = state.nodes.keys().filter(|ip| !state.foreign.contains_key(ip));
    for ip in nodes.chain(state.foreign.keys()).filter(|ip| !is_held(**ip)) {
        count(*ip, 0);
    }
    for ip in held {
        count(ip, 1);
    }
    usage.into_iter().map(|(name, usage)| (name.to_owned(), usage)).collect()
}
