//! The request of a Service, read from its spec and its annotations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::range::Family;
use leasehold_crds::service::{ADDRESS_POOL, ADDRESSES, Claims, REASSIGN, SHARED_ADDRESS};

use crate::allocate::{
    self, Asked, Failure, Port, Protocol, Request, ServiceKey, Stack, Terms, Traffic,
};
use crate::reconcile::table::created;

/// Annotations of one meaning, ours first, then those that Services have from MetalLB; the first that is
/// present counts.
pub type Places = [&'static str; 3];

const ADDRESSES_PLACES: Places =
    [ADDRESSES, "metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"];
/// The annotations that request a pool.
pub const POOL_PLACES: Places =
    [ADDRESS_POOL, "metallb.io/address-pool", "metallb.universe.tf/address-pool"];
const KEY_PLACES: Places =
    [SHARED_ADDRESS, "metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip"];

/// The requests that Services may also make by annotations of MetalLB.
pub const REQUESTS: [Places; 3] = [ADDRESSES_PLACES, POOL_PLACES, KEY_PLACES];

/// The field that requests an address.
const FIELD: &str = "spec.loadBalancerIP";

/// The request of `service`, given the content of its status.
pub(super) fn read(
    service: &Service,
    spec: &ServiceSpec,
    key: &ServiceKey,
    present: &[IpAddr],
    allocated_from: Option<&str>,
) -> allocate::Service {
    let annotations = service.annotations();
    let mut families: Vec<Family> = Vec::with_capacity(2);
    for family in spec.ip_families.iter().flatten() {
        let family = if family == "IPv6" { Family::V6 } else { Family::V4 };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.is_empty() {
        families.push(Family::V4);
    }
    let prefers = spec.ip_family_policy.as_deref() == Some("PreferDualStack");
    allocate::Service {
        created: created(&service.metadata),
        labels: service.labels().clone(),
        families,
        stack: if prefers { Stack::Any } else { Stack::All },
        request: addresses_and_pool(annotations, spec.load_balancer_ip.as_deref()),
        sharing: terms(annotations, spec).map(Box::new),
        reassign: annotations.get(REASSIGN).is_some_and(|text| text.trim() != "false"),
        present: present.to_vec(),
        allocated_from: allocated_from.map(str::to_owned),
        claim: recorded_claims(service).map(|claims| claims.claim),
        own_claim: LeaseName::claim(&key.namespace, &key.name),
    }
}

/// The claims on record; an annotation with any other content is none.
pub(super) fn recorded_claims(service: &Service) -> Option<Claims> {
    Claims::of(service).filter(|claims| claims.claim.is_claim())
}

/// The value of the first of these annotations that is present.
pub fn asked(annotations: &BTreeMap<String, String>, places: Places) -> Option<Asked<String>> {
    places.into_iter().find_map(|place| {
        let text = annotations.get(place)?.trim();
        (!text.is_empty()).then(|| Asked { what: text.to_owned(), place })
    })
}

/// The requested addresses and pool.
fn addresses_and_pool(
    annotations: &BTreeMap<String, String>,
    field: Option<&str>,
) -> Result<Request, Failure> {
    let pool = asked(annotations, POOL_PLACES);
    let addresses = addresses(asked(annotations, ADDRESSES_PLACES), field)?;
    Ok(Request { addresses, pool })
}

/// The addresses that an annotation requests, else the field.
fn addresses(
    annotation: Option<Asked<String>>,
    field: Option<&str>,
) -> Result<Option<Asked<Vec<IpAddr>>>, Failure> {
    let parse = |place, entry: &str| {
        entry.parse().map_err(|_| Failure::Malformed { place, entry: entry.to_owned() })
    };
    let field = field.map_or("", str::trim);
    let field: Option<IpAddr> = if field.is_empty() { None } else { Some(parse(FIELD, field)?) };
    let Some(Asked { what, place }) = annotation else {
        return Ok(field.map(|address| Asked { what: vec![address], place: FIELD }));
    };
    let entries = what.split(',').map(|entry| parse(place, entry.trim()));
    let what: Vec<IpAddr> = entries.collect::<Result<_, _>>()?;
    match field {
        Some(address) if !what.contains(&address) => {
            Err(Failure::TwoRequests { field: FIELD, address, annotation: place })
        }
        _ => Ok(Some(Asked { what, place })),
    }
}

/// The terms on which the Service shares an address.
fn terms(annotations: &BTreeMap<String, String>, spec: &ServiceSpec) -> Option<Terms> {
    let key = asked(annotations, KEY_PLACES)?;
    let ports: BTreeSet<Port> = spec
        .ports
        .iter()
        .flatten()
        .filter_map(|port| {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            Some(Port { number: u16::try_from(port.port).ok()?, protocol })
        })
        .collect();
    let traffic = match spec.external_traffic_policy.as_deref() {
        Some("Local") => Traffic::Local(spec.selector.clone().unwrap_or_default()),
        _ => Traffic::Cluster,
    };
    Some(Terms { key, ports, traffic })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// `addresses (place) pool (place)`, or the failure.
    fn shown(pairs: &[(&str, &str)], field: Option<&str>) -> String {
        match addresses_and_pool(&annotations(pairs), field) {
            Ok(Request { addresses, pool }) => {
                let addresses =
                    addresses.map(|asked| format!("{:?} ({})", asked.what, asked.place));
                let pool = pool.map(|asked| format!("{} ({})", asked.what, asked.place));
                [addresses, pool].into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn our_annotations_win_over_those_that_services_bring_along() {
        for (pairs, field, expected) in [
            (&[][..], None, ""),
            (&[], Some("10.0.0.7"), "[10.0.0.7] (spec.loadBalancerIP)"),
            (&[], Some(" "), ""),
            (
                &[("leasehold.dev/addresses", " 10.0.0.7, 2001:db8::7 ")],
                None,
                "[10.0.0.7, 2001:db8::7] (leasehold.dev/addresses)",
            ),
            (
                &[
                    ("leasehold.dev/addresses", "10.0.0.7"),
                    ("metallb.io/loadBalancerIPs", "10.0.0.8"),
                    ("metallb.universe.tf/loadBalancerIPs", "10.0.0.9"),
                ],
                None,
                "[10.0.0.7] (leasehold.dev/addresses)",
            ),
            (
                &[
                    ("leasehold.dev/addresses", ""),
                    ("metallb.io/loadBalancerIPs", "10.0.0.8"),
                    ("metallb.universe.tf/loadBalancerIPs", "10.0.0.9"),
                ],
                None,
                "[10.0.0.8] (metallb.io/loadBalancerIPs)",
            ),
            (
                &[("metallb.universe.tf/loadBalancerIPs", "10.0.0.9")],
                Some("10.0.0.9"),
                "[10.0.0.9] (metallb.universe.tf/loadBalancerIPs)",
            ),
            (
                &[("metallb.io/address-pool", "lan"), ("metallb.universe.tf/address-pool", "old")],
                None,
                "lan (metallb.io/address-pool)",
            ),
            (
                &[("leasehold.dev/address-pool", "own"), ("metallb.io/address-pool", "lan")],
                None,
                "own (leasehold.dev/address-pool)",
            ),
            (
                &[("metallb.universe.tf/address-pool", "old")],
                None,
                "old (metallb.universe.tf/address-pool)",
            ),
            (
                &[("metallb.io/loadBalancerIPs", "10.0.0")],
                None,
                "metallb.io/loadBalancerIPs: `10.0.0` is not a valid IP address: write 192.0.2.10, \
                 or 192.0.2.10,2001:db8::10",
            ),
            (
                &[("metallb.io/loadBalancerIPs", "10.0.0.8")],
                Some("10.0.0.7"),
                "spec.loadBalancerIP requests 10.0.0.7, which is not in the annotation \
                 metallb.io/loadBalancerIPs: remove one of the two",
            ),
        ] {
            assert_eq!(shown(pairs, field), expected, "{pairs:?} {field:?}");
        }
    }

    #[test]
    fn a_sharing_key_comes_with_ports_and_traffic() {
        let spec = |local: bool| -> ServiceSpec {
            let policy = if local { "Local" } else { "Cluster" };
            serde_json::from_value(serde_json::json!({
                "ports": [
                    {"port": 53, "protocol": "UDP"}, {"port": 80}, {"port": 9, "protocol": "SCTP"},
                ],
                "selector": {"app": "web"},
                "externalTrafficPolicy": policy,
            }))
            .unwrap()
        };
        let cluster = terms(&annotations(&[("metallb.io/allow-shared-ip", "k")]), &spec(false));
        let cluster = cluster.unwrap();
        assert_eq!(cluster.key.what, "k");
        assert_eq!(cluster.key.place, "metallb.io/allow-shared-ip");
        let ports: Vec<_> = cluster.ports.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["9/SCTP", "53/UDP", "80/TCP"]);
        assert_eq!(cluster.traffic, Traffic::Cluster);
        let both = [("leasehold.dev/shared-address", "own"), ("metallb.io/allow-shared-ip", "k")];
        let local = terms(&annotations(&both), &spec(true)).unwrap();
        assert_eq!(local.key.what, "own");
        assert_eq!(local.traffic, Traffic::Local(annotations(&[("app", "web")])));
        assert_eq!(terms(&annotations(&[]), &spec(true)), None);
    }
}
