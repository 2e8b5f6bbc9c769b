//! Services: whether the pools hold what they have, and what they need of the pools.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use leasehold_crds::service::{ADDRESS_POOL, ADDRESSES, LOAD_BALANCER_CLASS, ingress_ips};

use super::notes::{Printed, listed};
use super::pools::{self, Moved};
use crate::allocate::Asked;
use crate::reconcile::service::request::{POOL_PLACES, asked};

/// The prefixes of MetalLB's annotations.
const ANNOTATIONS: [&str; 2] = ["metallb.io/", "metallb.universe.tf/"];

/// The numbers of objects that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Services that MetalLB serves.
    pub services: usize,
    /// Their addresses.
    pub addresses: usize,
    /// Those of the addresses that a pool holds.
    pub held: usize,
}

/// A Service that has an address.
struct Sharer<'a> {
    service: &'a Service,
    namespace: String,
}

/// Looks at all services: `pools` get what the services need, `notes` what is to be done about some.
pub fn apply(services: &[Service], pools: &mut [Moved], notes: &mut Vec<String>) -> Tally {
    let mut tally = Tally::default();
    let mut holders: BTreeMap<IpAddr, Vec<Sharer<'_>>> = BTreeMap::new();
    let mut classes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for service in services {
        let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
        let addresses: BTreeSet<IpAddr> =
            ingress_ips(service).filter_map(|ip| ip.parse().ok()).collect();
        let held = addresses.iter().filter(|ip| holding(pools, **ip).is_some()).count();
        let marked = service
            .annotations()
            .keys()
            .any(|key| ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
        match class {
            Some(LOAD_BALANCER_CLASS) => continue,
            // Another load balancer's.
            Some(_) if held == 0 && !marked => continue,
            Some(class) => {
                classes.entry(class).or_default().push(with_addresses(service, &addresses));
            }
            None => {}
        }
        tally.services += 1;
        tally.addresses += addresses.len();
        tally.held += held;
        notes.extend(misnamed(service, &addresses, pools));
        for ip in addresses {
            notes.extend(trouble(service, ip, pools));
            let namespace = service.namespace().unwrap_or_default();
            holders.entry(ip).or_default().push(Sharer { service, namespace });
        }
    }
    share(&holders, pools, notes);
    notes.extend(classes.iter().map(|(class, services)| of_class(class, services)));
    tally
}

fn holding(pools: &mut [Moved], ip: IpAddr) -> Option<&mut Printed<leasehold_crds::IPAddressPool>> {
    pools.iter_mut().find_map(|pool| pool.holding(ip))
}

/// `namespace/name` of a Service.
fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn with_addresses(service: &Service, addresses: &BTreeSet<IpAddr>) -> String {
    if addresses.is_empty() {
        return key(service);
    }
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{} ({})", key(service), addresses.join(","))
}

/// Why a service would not keep `ip`.
fn trouble(service: &Service, ip: IpAddr, pools: &mut [Moved]) -> Option<String> {
    let name = key(service);
    let Some(pool) = holding(pools, ip) else {
        return Some(format!(
            "Service {name} has {ip}, which no converted pool contains: Leasehold removes the address \
             as soon as it serves the Service; add {ip} to a pool to keep it"
        ));
    };
    let namespace = service.namespace().unwrap_or_default();
    let reason = pools::refusal(&pool.object, ip, &namespace, service.labels())?;
    Some(format!(
        "Service {name} has {ip} of pool {}, which does not admit it: {reason}; change the pool or the \
         Service, or Leasehold removes the address",
        pool.object.name_any()
    ))
}

/// That a service asks for a pool whose name another one has here than that which holds what it has.
fn misnamed(
    service: &Service,
    addresses: &BTreeSet<IpAddr>,
    pools: &mut [Moved],
) -> Option<String> {
    let Asked { what: asked, place } = asked(service.annotations(), POOL_PLACES)?;
    let known = pools.iter().flat_map(|moved| &moved.pools).any(|it| it.object.name_any() == asked);
    let held =
        addresses.iter().filter_map(|ip| Some((*ip, holding(pools, *ip)?.object.name_any())));
    let held: Vec<(IpAddr, String)> = held.collect();
    let elsewhere: Vec<_> = held.iter().filter(|(_, pool)| *pool != asked).collect();
    // By the name of no pool nothing is taken away.
    let (_, first) = elsewhere.first().filter(|_| known)?;
    let name = key(service);
    let places = elsewhere.iter().map(|(ip, pool)| format!("{ip} of the converted pool {pool}"));
    let has =
        format!("Service {name} requests pool {asked} with {place}, but has {}", listed(places));
    let otherwise = "otherwise Leasehold replaces the address";
    Some(if held.iter().all(|(_, pool)| pool == first) {
        let (namespace, service) = (service.namespace().unwrap_or_default(), service.name_any());
        format!(
            "{has}: before step 3, run kubectl annotate service -n {namespace} {service} \
             {ADDRESS_POOL}={first}; {otherwise}"
        )
    } else {
        format!(
            "{has}, unlike its other address: after step 2 and before step 3, remove {place}; {otherwise}"
        )
    })
}

/// Has pools allow what services of several namespaces do already.
fn share(
    holders: &BTreeMap<IpAddr, Vec<Sharer<'_>>>,
    pools: &mut [Moved],
    notes: &mut Vec<String>,
) {
    let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (ip, sharers) in holders {
        let namespaces: BTreeSet<&str> =
            sharers.iter().map(|sharer| sharer.namespace.as_str()).collect();
        let Some(pool) = holding(pools, *ip).filter(|_| namespaces.len() > 1) else { continue };
        let names = sharers.iter().map(|sharer| key(sharer.service));
        let text = format!("{ip} ({})", listed(names));
        by_pool.entry(pool.object.name_any()).or_default().push(text.clone());
        if sharers.iter().any(|sharer| is_local(sharer.service)) {
            notes.push(format!(
                "{text} is shared across namespaces with externalTrafficPolicy: Local; Leasehold \
                 allows this only within one namespace, and gives the younger Services other \
                 addresses: set externalTrafficPolicy: Cluster to keep the address"
            ));
        }
    }
    for pool in pools.iter_mut().flat_map(|moved| &mut moved.pools) {
        if let Some(shared) = by_pool.get(&pool.object.name_any()) {
            pools::share(pool, shared);
        }
    }
}

fn is_local(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

fn of_class(class: &str, services: &[String]) -> String {
    format!(
        "spec.loadBalancerClass {class} cannot be changed while a Service has type LoadBalancer. \
         Leasehold serves the class {LOAD_BALANCER_CLASS} and, with --default-class, Services without \
         a class: recreate these Services accordingly, and list their addresses in the annotation \
         {ADDRESSES} to keep them: {}",
        listed(services)
    )
}
