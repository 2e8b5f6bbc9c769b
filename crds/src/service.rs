//! What Leasehold reads from and writes to Services.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use crate::lease::LeaseName;

/// The `spec.loadBalancerClass` that asks for Leasehold.
pub const LOAD_BALANCER_CLASS: &str = "leasehold.dev/lease";

/// Request: the addresses that the service wants, one per family, separated by commas.
pub const ADDRESSES: &str = "leasehold.dev/addresses";

/// Request: the pool that the addresses are to be from.
pub const ADDRESS_POOL: &str = "leasehold.dev/address-pool";

/// Request: services with the same key have one address together.
pub const SHARED_ADDRESS: &str = "leasehold.dev/shared-address";

/// Request: as long as it is there, addresses that the service keeps although its pool would not give
/// them out any more are replaced.
pub const REASSIGN: &str = "leasehold.dev/reassign";

/// Written by the operator: the pool that the addresses are from.
pub const ALLOCATED_FROM: &str = "leasehold.dev/allocated-from";

/// Written by the operator, its only writer: the name of the claim lease that governs the
/// addresses. A speaker serves an address only under this claim.
pub const CLAIM: &str = "leasehold.dev/claim";

/// Whether Leasehold is to handle `service`: a living Service of `type: LoadBalancer` with our
/// class, or without a class where `default_class` is set.
pub fn is_ours(service: &Service, default_class: bool) -> bool {
    let Some(spec) = &service.spec else { return false };
    service.metadata.deletion_timestamp.is_none()
        && spec.type_.as_deref() == Some("LoadBalancer")
        && match spec.load_balancer_class.as_deref() {
            Some(class) => class == LOAD_BALANCER_CLASS,
            None => default_class,
        }
}

/// The addresses in the status of `service`, as they stand there.
pub fn ingress_ips(service: &Service) -> impl Iterator<Item = &str> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|load_balancer| load_balancer.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|entry| entry.ip.as_deref())
}

/// The claim that the operator recorded for `service`, if any.
pub fn governing_claim(service: &Service) -> Option<LeaseName> {
    service.annotations().get(CLAIM).and_then(|name| name.parse().ok())
}

/// The pool that the operator recorded for `service`, if any.
pub fn allocated_from(service: &Service) -> Option<&str> {
    service.annotations().get(ALLOCATED_FROM).map(String::as_str)
}
