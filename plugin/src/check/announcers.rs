//! Others that announce addresses of Services, as far as objects of the API and the speakers tell.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use leasehold_core::explain::{OTHER_WRITER, View};
use leasehold_crds::IPAddressPool;
use leasehold_crds::names::NodeName;
use leasehold_crds::range::IpRange;
use leasehold_crds::service::ALLOCATED;
use pnet_base::MacAddr;

use super::super::connect::Cluster;
use super::super::error::PluginError;
use super::super::output::listed;
use super::super::read::{list, pages};
use super::finding::{Finding, or_none, skip};

const CHECK: &str = "announcers";
const HEARD: &str = "heard";
const STRANGERS: &str = "strangers";
const WRITERS: &str = "writers";
const SYSTEM: &str = "kube-system";

/// The objects that the check reads, each by a right of its own; or the reason for which it may not be read.
#[derive(Clone, Debug)]
pub(super) struct Announcers {
    sets: Result<Vec<DaemonSet>, String>,
    /// Static pods among them.
    pods: Result<Vec<Pod>, String>,
    /// The names of Cilium's policies for announcements on layer 2.
    cilium: Result<Vec<String>, String>,
}

pub(super) async fn read(cluster: &Cluster) -> Result<Announcers, PluginError> {
    let client = || cluster.client.clone();
    let kind = GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumL2AnnouncementPolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "ciliuml2announcementpolicies");
    let policies: Api<DynamicObject> = Api::all_with(client(), &resource);
    let policies = pages(cluster, &policies, ListParams::default(), "Cilium's policies").await;
    let names = |policies: Vec<DynamicObject>| policies.iter().map(ResourceExt::name_any).collect();
    Ok(Announcers {
        sets: skip(list(cluster, Api::all(client())).await)?,
        pods: skip(list(cluster, Api::namespaced(client(), SYSTEM)).await)?,
        cilium: skip(or_none(policies))?.map(names),
    })
}

/// Finds other programs that announce addresses of Services.
pub(super) fn check(read: &Announcers) -> Vec<Finding> {
    let Announcers { sets, pods, cilium } = read;
    let of_set = |set: &DaemonSet| {
        let place = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        Some(format!("{} (DaemonSet {place})", known(set.labels(), spec)?))
    };
    let of_pod = |pod: &Pod| {
        // Those of a DaemonSet are told by it.
        let owners = pod.owner_references();
        let static_pod = owners.is_empty() || owners.iter().any(|owner| owner.kind == "Node");
        let name = known(pod.labels(), pod.spec.as_ref()).filter(|_| static_pod)?;
        Some(format!("{name} (pod {SYSTEM}/{})", pod.name_any()))
    };
    let of_cilium = |name: &String| format!("Cilium (CiliumL2AnnouncementPolicy {name})");
    let found = sets.iter().flatten().filter_map(of_set);
    let found = found.chain(pods.iter().flatten().filter_map(of_pod));
    let found = found.chain(cilium.iter().flatten().map(of_cilium));
    let mut findings: Vec<Finding> = found
        .map(|who| {
            let fix = "use separate pools and classes, so that it does not announce addresses of \
                       Leasehold's pools, or remove it";
            Finding::warn(CHECK, format!("{who} may announce the same addresses"), fix)
        })
        .collect();
    let unread = [sets.as_ref().err(), pods.as_ref().err(), cilium.as_ref().err()];
    findings.extend(unread.into_iter().flatten().map(|why| Finding::skipped(CHECK, why)));
    if findings.is_empty() {
        return vec![Finding::ok(CHECK, "no other load balancer found")];
    }
    findings
}

/// The load balancer that these pods belong to.
fn known(labels: &BTreeMap<String, String>, spec: Option<&PodSpec>) -> Option<&'static str> {
    let label = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
    let speaker = label("component", "speaker") || label("app.kubernetes.io/component", "speaker");
    let metallb = label("app", "metallb") || label("app.kubernetes.io/name", "metallb");
    let images = spec.into_iter().flat_map(|spec| &spec.containers);
    let image = |part: &str| {
        images.clone().any(|it| it.image.as_ref().is_some_and(|image| image.contains(part)))
    };
    if metallb && speaker {
        Some("MetalLB")
    } else if image("kube-vip/") || image("/kube-vip") {
        Some("kube-vip")
    } else if labels.contains_key("svccontroller.k3s.cattle.io/svcname") {
        Some("ServiceLB of k3s")
    } else if image("purelb/lbnodeagent") {
        Some("PureLB")
    } else if image("openelb/") {
        Some("OpenELB")
    } else {
        None
    }
}

/// Hosts that the speakers heard announce addresses of Services, and that are no speakers.
pub(super) fn heard(view: &View<'_>) -> Vec<Finding> {
    let mut heard: BTreeMap<(IpAddr, MacAddr), Vec<&NodeName>> = BTreeMap::new();
    for node in view.world().sessions.keys() {
        for entry in view.live(node).iter().flat_map(|it| &it.stored.record.foreign) {
            heard.entry(*entry).or_default().push(node);
        }
    }
    if heard.is_empty() {
        return vec![Finding::ok(
            HEARD,
            "no other host announced an address within the last ten minutes",
        )];
    }
    let finding = |((address, mac), nodes): (_, Vec<&NodeName>)| {
        let text = format!(
            "the host with MAC address {mac} announced {address} (received by {})",
            listed(&nodes)
        );
        let fix = "find the host by its MAC address (table of the switch, `ip neigh`), and remove the address \
                   from the host or from the pool";
        Finding::warn(HEARD, text, fix)
    };
    heard.into_iter().map(finding).collect()
}

/// Services that are not ours and have an address of a pool of ours in their status.
pub(super) fn strangers(view: &View<'_>, pools: &[IPAddressPool]) -> Vec<Finding> {
    let ranges = pools.iter().flat_map(|pool| &pool.spec.addresses);
    let ranges: Vec<IpRange> = ranges.filter_map(|entry| entry.parse().ok()).collect();
    let services = view.world().services.iter().filter(|(_, row)| !row.ours);
    services
        .filter_map(|(name, row)| {
            let address =
                row.addresses.iter().find(|ip| ranges.iter().any(|range| range.contains(**ip)))?;
            let class = row.class.as_deref().unwrap_or("none");
            let text = format!(
                "Service {name} (loadBalancerClass {class}) has {address} from another controller, but \
                 a pool of Leasehold contains it"
            );
            let fix = "remove the address from the pool, or change the address of the Service";
            Some(Finding::warn(STRANGERS, text, fix))
        })
        .collect()
}

/// Services of ours that somebody else writes to again and again, as the operator says in their conditions.
pub(super) fn writers(view: &View<'_>) -> Vec<Finding> {
    let contested = view.world().services.iter().filter_map(|(name, row)| {
        let condition = row.condition(ALLOCATED).filter(|it| it.reason == OTHER_WRITER)?;
        let text = format!("Service {name}: {}", condition.message);
        let fix = "configure the named field manager to ignore this Service";
        Some(Finding::warn(WRITERS, text, fix))
    });
    let findings: Vec<Finding> = contested.collect();
    if findings.is_empty() {
        let text = "no other controller reverts writes of the operator";
        return vec![Finding::ok(WRITERS, text)];
    }
    findings
}

#[cfg(test)]
mod tests {
    use leasehold_core::explain::{Objects, World};
    use serde_json::json;

    use super::super::super::fake::Answer;
    use super::super::finding::Level;
    use super::*;

    fn set(name: &str, labels: &serde_json::Value, image: &str) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "lb", "labels": labels },
            "spec": { "selector": {}, "template": { "spec": {
                "containers": [{ "name": "c", "image": image }],
            } } },
        }))
        .unwrap()
    }

    #[test]
    fn services_that_somebody_else_writes_to_are_told_with_what_the_operator_says() {
        let found = |reason: &str| {
            let service = serde_json::from_value(json!({
                "metadata": { "name": "shop", "namespace": "web" },
                "spec": { "type": "LoadBalancer" },
                "status": { "conditions": [{
                    "type": ALLOCATED, "status": "True", "reason": reason,
                    "message": "field manager k3s", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            }))
            .unwrap();
            let world = World::of(&Objects { services: vec![service], ..Objects::default() });
            writers(&View::new(&world)).remove(0)
        };
        let finding = found(OTHER_WRITER);
        assert_eq!(finding.level, Level::Warn);
        assert_eq!(finding.message, "Service web/shop: field manager k3s");
        assert_eq!(found("AddressAssigned").level, Level::Ok);
    }

    fn nothing() -> Announcers {
        Announcers { sets: Ok(Vec::new()), pods: Ok(Vec::new()), cilium: Ok(Vec::new()) }
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_skipped_for_itself() {
        let levels = |found: &[Finding]| found.iter().map(|it| it.level).collect::<Vec<_>>();
        assert_eq!(levels(&check(&nothing())), [Level::Ok]);
        // No right for pods of kube-system, and no Cilium.
        let metallb = json!({ "app": "metallb", "component": "speaker" });
        let sets = serde_json::to_value(set("it", &metallb, "quay.io/metallb/speaker")).unwrap();
        let (cluster, _) = Cluster::that_says(move |asked| match asked.last() {
            "daemonsets" => Answer::list(std::slice::from_ref(&sets)),
            "pods" => Answer::refused(403, "pods is forbidden"),
            _ => Answer::missing(),
        });
        let found = check(&read(&cluster).await.unwrap());
        assert_eq!(levels(&found), [Level::Warn, Level::Skipped], "{found:?}");
        assert!(found[0].message.starts_with("MetalLB"), "{found:?}");
        assert_eq!(found[1].message, "cannot list pods: pods is forbidden");
    }

    #[test]
    fn other_load_balancers_are_told_by_labels_and_images() {
        let none = json!({});
        let metallb = json!({ "app": "metallb", "component": "speaker" });
        let helm = json!({ "app.kubernetes.io/name": "metallb",
            "app.kubernetes.io/component": "speaker" });
        let frr = json!({ "app.kubernetes.io/name": "metallb",
            "app.kubernetes.io/component": "frr-k8s" });
        for (labels, image, expected) in [
            (&metallb, "quay.io/metallb/speaker:v0.15", Some("MetalLB")),
            (&helm, "quay.io/metallb/speaker:v0.15", Some("MetalLB")),
            (&frr, "quay.io/metallb/frr-k8s", None),
            (&none, "ghcr.io/kube-vip/kube-vip:v1", Some("kube-vip")),
            (&none, "leasehold/speaker:0.1.0", None),
        ] {
            let sets = Ok(vec![set("it", labels, image)]);
            let found = check(&Announcers { sets, ..nothing() });
            let named = expected.is_some_and(|name| found[0].message.starts_with(name));
            assert!(named == (found[0].level == Level::Warn), "{image}: {found:?}");
            assert_eq!(expected.is_some(), found[0].level == Level::Warn, "{image}");
        }
    }
}
