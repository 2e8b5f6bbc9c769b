//! The annotations, labels and status fields of a Service that Leasehold reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use crate::addresses::AddressSet;
use crate::annotation::{ConditionType, entries};
use crate::lease::LeaseName;

/// The `spec.loadBalancerClass` that asks for Leasehold.
pub const LOAD_BALANCER_CLASS: &str = "leasehold.dev/lease";

entries! {
    ANNOTATIONS:
    ADDRESSES = "leasehold.dev/addresses", on [Service] by "user",
        "IP addresses, comma-separated, at most one per family",
        "The requested addresses. All of them must belong to one pool that admits the Service.";
    ADDRESS_POOL = "leasehold.dev/address-pool", on [Service] by "user",
        "name of an IPAddressPool",
        "The requested pool.";
    SHARED_ADDRESS = "leasehold.dev/shared-address", on [Service] by "user",
        "key, any text",
        "Services with the same key share one address, if their ports do not collide.";
    REASSIGN = "leasehold.dev/reassign", on [Service] by "user",
        "any value except `false`",
        "The operator replaces addresses that no pool would allocate to the Service anymore.";
    ALLOCATED_FROM = "leasehold.dev/allocated-from", on [Service] by "operator",
        "name of an IPAddressPool",
        "The pool of the addresses.";
    CLAIM = "leasehold.dev/claim", on [Service] by "operator",
        "name of a claim Lease: `NAMESPACE.SERVICE`, or that of another Service or of an address if the address \
         is shared",
        "The claim that governs the addresses. A speaker serves an address only under this claim.";
    ADDRESS_CLAIMS = "leasehold.dev/address-claims", on [Service] by "operator",
        "names of claim Leases, comma-separated, such as `192-0-2-7.address.leasehold`",
        "The claims of single addresses, which govern these instead of `leasehold.dev/claim`. Present with \
         `spread: PerAddress`, and if no node has an interface that carries both families.";
}

/// The condition on a Service that says whether it has the addresses that it asks for.
pub const ALLOCATED: &str = "leasehold.dev/Allocated";
/// The condition on a Service that says which nodes announce its addresses, or why none does.
pub const ANNOUNCED: &str = "leasehold.dev/Announced";

/// The condition on a Service that says over which nodes packets are spread, where a policy asks for that.
pub const DATA_PATH: &str = "leasehold.dev/DataPath";

/// The conditions on a Service.
pub const CONDITIONS: [ConditionType; 3] = [
    ConditionType {
        type_: ALLOCATED,
        object: "Service",
        meaning: "The Service has the addresses that it requests. If `False`, the message has the cause.",
    },
    ConditionType {
        type_: ANNOUNCED,
        object: "Service",
        meaning: "A node announces each address of the Service; the message names the node and its \
                  interface. If `False`, the message has the cause.",
    },
    ConditionType {
        type_: DATA_PATH,
        object: "Service",
        meaning: "The policy says `dataPath: Spread`, and packets are spread over all nodes with endpoints; the \
                  message has their shares. If `False`, the message names the nodes that are left out, with the \
                  causes. There is no such condition with `dataPath: Owner`.",
    },
];

/// Which claims govern the addresses of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// That of all addresses that have none of their own.
    pub claim: LeaseName,
    /// Those that are named after an address.
    pub by_address: BTreeSet<LeaseName>,
}

impl Claims {
    /// Reads the record of the operator on `service`; `None` without one.
    pub fn of(service: &Service) -> Option<Self> {
        let claim = service.annotations().get(CLAIM)?.parse().ok()?;
        let further = service.annotations().get(ADDRESS_CLAIMS).map_or("", String::as_str);
        let by_address = further.split(',').filter_map(|name| name.trim().parse().ok()).collect();
        Some(Self { claim, by_address })
    }

    /// The claim that governs `address`.
    pub fn governing(&self, address: IpAddr) -> LeaseName {
        let own = LeaseName::address_claim(address);
        if self.by_address.contains(&own) { own } else { self.claim.clone() }
    }

    /// Which of these addresses each claim governs.
    pub fn split(
        &self,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> BTreeMap<LeaseName, AddressSet> {
        let mut split: BTreeMap<LeaseName, Vec<IpAddr>> = BTreeMap::new();
        for address in addresses {
            split.entry(self.governing(address)).or_default().push(address);
        }
        split.into_iter().map(|(name, addresses)| (name, addresses.into_iter().collect())).collect()
    }
}

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

/// The pool that the operator recorded for `service`, if any.
pub fn allocated_from(service: &Service) -> Option<&str> {
    service.annotations().get(ALLOCATED_FROM).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_governed_by_claims_of_their_own_where_these_are_recorded() {
        let addresses = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let v6 = "2001-db8-0-0-0-0-0-1.address.leasehold";
        let v4 = "192-0-2-1.address.leasehold";
        for (further, expected) in [
            (None, vec![("web.shop", 2)]),
            (Some(""), vec![("web.shop", 2)]),
            (Some(v6), vec![(v6, 1), ("web.shop", 1)]),
            (Some("192-0-2-9.address.leasehold"), vec![("web.shop", 2)]),
            (Some(&*format!("{v4}, {v6}")), vec![(v4, 1), (v6, 1)]),
        ] {
            let mut annotations = json!({CLAIM: "web.shop"});
            if let Some(further) = further {
                annotations[ADDRESS_CLAIMS] = json!(further);
            }
            let service: Service = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"annotations": annotations},
            }))
            .unwrap();
            let split = Claims::of(&service).unwrap().split(addresses.into_iter());
            let split: Vec<_> = split.iter().map(|(name, of)| (name.as_str(), of.len())).collect();
            assert_eq!(split, expected, "{further:?}");
        }
    }
}
