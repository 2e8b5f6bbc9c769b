//! Detours: where the ports of addresses lead while nodes with endpoints are down.
//!
//! kube-proxy goes on to send connections to the pods of a node that died until its endpoints are not ready any more,
//! 40 to 50 seconds later. Meanwhile these ports lead to the endpoints on other nodes. As kube-proxy, a detour knows the
//! ready endpoints, and where there is none those that serve while they terminate (KEP-1669). It never leaves
//! a port without an endpoint: what has none elsewhere leads where kube-proxy says.
//!
//! When the EndpointSlices say the same, kube-proxies learn of it at the same time, and change their rules later: so a
//! detour lasts for a while longer.
//!
//! Services with `externalTrafficPolicy: Local` have none: their addresses lead to the pods of the owner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{DeadEndpoints, Policies, Policy};

use super::proxied::Proxied;
use super::slices::{KeptSlice, Use};
use super::snapshot::{ServiceFacts, Snapshot};
use super::{ServicePort, records};

/// The nodes that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// New connections are not to lead there.
    pub nodes: BTreeSet<NodeName>,
    /// Those of them that have been silent for so long that open connections to their pods are to end.
    pub lost: BTreeSet<NodeName>,
}

/// A port of an address.
pub type Port = (IpAddr, ServicePort);

/// The detours, and what they have to know beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detours {
    /// The ports of addresses that lead elsewhere.
    pub ports: BTreeMap<Port, Arc<Detour>>,
    /// The ports of addresses whose clients stay with a pod: which pod a client has is noted before anything fails.
    pub affine: BTreeSet<Port>,
}

/// Where a port of an address leads meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Detour {
    /// The clients that are let in; none: all.
    pub sources: Box<[IpNet]>,
    /// Whether a client stays with one endpoint.
    pub affine: bool,
    /// The endpoints on other nodes.
    pub to: Box<[(IpAddr, u16)]>,
    /// The endpoints on nodes that are down.
    pub around: Box<[(IpAddr, u16)]>,
    /// Those of them whose open connections are to end.
    pub lost: Box<[(IpAddr, u16)]>,
}

/// The detours around these nodes, and of these ports, which had one a moment ago.
pub fn detours(snapshot: &Snapshot, down: &Down, before: &BTreeSet<Port>) -> Detours {
    let around = !down.nodes.is_empty() || !before.is_empty();
    if !around && snapshot.services.values().all(|service| !service.affine) {
        return Detours::default();
    }
    let allowed = Allowed::new(snapshot);
    let mut detours = Detours { affine: allowed.affine(), ..Detours::default() };
    if !around {
        return detours;
    }
    let had_one = |service: &str| {
        let service = snapshot.services.get(service);
        let ports = |service: &ServiceFacts| {
            let mut ports = before.iter().filter(|(_, port)| service.ports.contains(port));
            ports.any(|(ip, _)| service.addresses().any(|its| its == *ip))
        };
        service.is_some_and(ports)
    };
    let mut slices: BTreeMap<&str, Vec<KeptSlice<'_>>> = BTreeMap::new();
    for (_, slice) in snapshot.slices.iter() {
        if snapshot.services.get(slice.service()).is_some_and(|service| !service.local) {
            slices.entry(slice.service()).or_default().push(slice);
        }
    }
    slices.retain(|service, slices| {
        let mut nodes = slices.iter().flat_map(|slice| slice.ready().chain(slice.serving()));
        nodes.any(|node| down.nodes.contains(node)) || had_one(service)
    });
    for (name, slices) in slices {
        let Some(service) = snapshot.services.get(name) else { continue };
        if !allowed.has_detours(name, service) {
            continue;
        }
        for port in service.ports.iter() {
            for ip in service.addresses() {
                let had_one = before.contains(&(ip, *port));
                if let Some(detour) = detour(service, (ip, *port), &slices, down, had_one) {
                    detours.ports.insert((ip, *port), Arc::new(detour));
                }
            }
        }
    }
    detours
}

/// Which Services may have detours.
struct Allowed<'a> {
    snapshot: &'a Snapshot,
    policies: Policies,
    claims: BTreeMap<&'a str, records::Governed<'a>>,
}

impl<'a> Allowed<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let (policies, _) = Policies::new(snapshot.policies.values());
        let policies = policies.of_pools(snapshot.pools.clone());
        Self { snapshot, policies, claims: records::governed(&snapshot.services, &snapshot.lists) }
    }

    /// The ports whose clients stay with a pod.
    fn affine(&self) -> BTreeSet<Port> {
        let services = self.snapshot.services.iter().filter(|(_, it)| it.affine && !it.local);
        let services = services.filter(|(name, service)| self.has_detours(name, service));
        let ports = services.flat_map(|(_, service)| {
            service.addresses().flat_map(|ip| service.ports.iter().map(move |port| (ip, *port)))
        });
        ports.collect()
    }

    /// Whether its policy wants them, and kube-proxy leads its traffic to pods.
    fn has_detours(&self, name: &str, service: &ServiceFacts) -> bool {
        let claims = self.claims.get(name).map(|claims| &**claims).unwrap_or_default();
        let pool = service.pool(claims, &self.snapshot.lists);
        let policy = self.policies.govern(&service.labels, pool).policy();
        let proxy = policy.map(|policy| policy.service_proxy).unwrap_or_default();
        let wanted = |policy: &Policy| policy.dead_endpoints == DeadEndpoints::Detour;
        policy.is_none_or(wanted) && Proxied::of(service, proxy).asks()
    }
}

fn detour(
    service: &ServiceFacts,
    (ip, port): Port,
    slices: &[KeptSlice<'_>],
    down: &Down,
    had_one: bool,
) -> Option<Detour> {
    let name = service.name(port);
    let mut known = BTreeSet::new();
    for slice in slices {
        let Some((ports, endpoints)) = slice.endpoints() else { continue };
        let its =
            |it: &&super::EndpointPort| *it.name == *name && it.port.protocol == port.protocol;
        for target in ports.iter().filter(its) {
            let endpoints = endpoints.clone().filter(|it| it.ip.is_ipv4() == ip.is_ipv4());
            known.extend(endpoints.map(|it| (it.used, (it.ip, target.port.port), it.node)));
        }
    }
    let is_on = |nodes: &BTreeSet<NodeName>, node: Option<&NodeName>| {
        node.is_some_and(|node| nodes.contains(node))
    };
    let any_ready = known.iter().any(|(used, ..)| *used == Use::Ready);
    // What kube-proxy leads to.
    let led = |used: &Use| *used == Use::Ready || !any_ready;
    let used_by_proxy = known.iter().filter(|(used, ..)| led(used));
    let around = used_by_proxy.filter(|(_, _, node)| is_on(&down.nodes, *node));
    let lost = around.clone().filter(|(_, _, node)| is_on(&down.lost, *node));
    let lost = lost.map(|(_, at, _)| *at).collect();
    let around: Vec<(IpAddr, u16)> = around.map(|(_, at, _)| *at).collect();
    if around.is_empty() && !had_one {
        return None;
    }
    let living = known.iter().filter(|(_, _, node)| !is_on(&down.nodes, *node));
    let ready: Vec<_> = living.clone().filter(|(used, ..)| led(used)).map(|it| it.1).collect();
    let to = if ready.is_empty() { living.map(|it| it.1).collect() } else { ready };
    if to.is_empty() {
        return None;
    }
    let sources = service.sources.iter().filter(|it| it.addr().is_ipv4() == ip.is_ipv4());
    let sources: Box<[IpNet]> = sources.copied().collect();
    if sources.is_empty() && !service.sources.is_empty() {
        // Nobody is let in by this family.
        return None;
    }
    Some(Detour { sources, affine: service.affine, to: to.into(), around: around.into(), lost })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use kube::ResourceExt;
    use leasehold_crds::AnnouncementPolicy;
    use serde_json::{Value, json};

    use super::*;
    use crate::desired::{Slice, SliceFacts};

    /// A Service with the address 192.0.2.7 and `2001:db8::7` and this beside.
    fn service(more: &Value) -> Value {
        let mut service = json!({
            "metadata": { "namespace": "web", "name": "shop",
                "annotations": { "leasehold.dev/claim": "web.shop" } },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease",
                "ports": [{ "port": 80 }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }, { "ip": "2001:db8::7" }] } },
        });
        let spec = service["spec"].as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
        service
    }

    /// A slice with these ports and endpoints: address, node, whether it is ready and whether it serves.
    fn slice(name: &str, ports: &Value, endpoints: &[(&str, &str, bool, bool)]) -> Value {
        let endpoint = |(ip, node, ready, serving): &(&str, &str, bool, bool)| {
            json!({ "addresses": [ip], "nodeName": node,
                "conditions": { "ready": ready, "serving": serving, "terminating": !ready } })
        };
        json!({
            "metadata": { "namespace": "web", "name": name, "labels": { "kubernetes.io/service-name": "shop" } },
            "ports": ports,
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }

    fn snapshot(service: Value, slices: &[Value], policy: Option<Value>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let service: Service = serde_json::from_value(service).unwrap();
        snapshot.services.extend(ServiceFacts::of(&service));
        for slice in slices {
            let slice: Slice = serde_json::from_value(slice.clone()).unwrap();
            let (key, facts) = SliceFacts::of(&slice).unwrap();
            snapshot.set_slice(&key, Some(&facts));
        }
        if let Some(spec) = policy {
            let policy = AnnouncementPolicy::new("all", serde_json::from_value(spec).unwrap());
            snapshot.policies.insert(policy.name_any(), policy);
        }
        snapshot
    }

    fn down(nodes: &[&str], lost: &[&str]) -> Down {
        let all = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        Down { nodes: all(nodes), lost: all(lost) }
    }

    /// The detours as lines: `192.0.2.7 80/TCP > 10.0.0.2:80 around 10.0.0.1:80`.
    fn lines(detours: &Detours) -> Vec<String> {
        let list = |all: &[(IpAddr, u16)]| {
            let all = all.iter().map(|(ip, port)| format!("{ip}:{port}"));
            all.collect::<Vec<_>>().join(" ")
        };
        let line = |((ip, port), detour): (&Port, &Arc<Detour>)| {
            let ended = if detour.lost.is_empty() { "" } else { " lost " };
            let (to, around) = (list(&detour.to), list(&detour.around));
            format!("{ip} {port} > {to} around {around}{ended}{}", list(&detour.lost))
        };
        detours.ports.iter().map(line).collect()
    }

    const READY: (bool, bool) = (true, true);
    const ENDING: (bool, bool) = (false, true);
    const GONE: (bool, bool) = (false, false);

    /// Pods on `n1`, `n2`, … at 10.0.0.1, 10.0.0.2, … in these states.
    fn pods(states: &[(bool, bool)]) -> Value {
        let names: Vec<(String, String)> = (1..=states.len())
            .map(|number| (format!("10.0.0.{number}"), format!("n{number}")))
            .collect();
        let pods: Vec<_> = names
            .iter()
            .zip(states)
            .map(|((ip, node), (ready, serving))| (ip.as_str(), node.as_str(), *ready, *serving))
            .collect();
        slice("shop-1", &json!([{ "port": 8080 }]), &pods)
    }

    #[test]
    fn connections_lead_to_the_endpoints_on_other_nodes_as_kube_proxy_knows_them() {
        let v4 = |text: &str| vec![format!("192.0.2.7 80/TCP > {text}")];
        let none = Vec::<String>::new;
        for (name, states, dead, lost, expected) in [
            ("nobody is down", &[READY, READY][..], &[][..], &[][..], none()),
            (
                "one of three",
                &[READY, READY, READY],
                &["n1"],
                &[],
                v4("10.0.0.2:8080 10.0.0.3:8080 around 10.0.0.1:8080"),
            ),
            (
                "it is lost",
                &[READY, READY],
                &["n1"],
                &["n1"],
                v4("10.0.0.2:8080 around 10.0.0.1:8080 lost 10.0.0.1:8080"),
            ),
            ("the node has no pod of it", &[READY, READY], &["n9"], &[], none()),
            ("all are on nodes that are down", &[READY, READY], &["n1", "n2"], &[], none()),
            ("its pod is not ready any more", &[GONE, READY], &["n1"], &[], none()),
            ("its pod ends, and others are ready", &[ENDING, READY], &["n1"], &[], none()),
            (
                "none is ready: those that end count",
                &[ENDING, ENDING, GONE],
                &["n1"],
                &[],
                v4("10.0.0.2:8080 around 10.0.0.1:8080"),
            ),
            (
                "the only ready one is down, and others still serve",
                &[READY, ENDING],
                &["n1"],
                &[],
                v4("10.0.0.2:8080 around 10.0.0.1:8080"),
            ),
        ] {
            let snapshot = snapshot(service(&json!({})), &[pods(states)], None);
            let found = detours(&snapshot, &down(dead, lost), &BTreeSet::new());
            assert_eq!(lines(&found), expected, "{name}");
        }
    }

    #[test]
    fn what_had_a_detour_keeps_it_for_a_while_and_follows_the_endpoints() {
        let port = ("192.0.2.7".parse().unwrap(), ServicePort::of(None, 80).unwrap());
        let lines = |states: &[(bool, bool)], dead: &[&str]| {
            let snapshot = snapshot(service(&json!({})), &[pods(states)], None);
            lines(&detours(&snapshot, &down(dead, &[]), &[port].into()))
        };
        let after = ["192.0.2.7 80/TCP > 10.0.0.2:8080 around "];
        assert_eq!(lines(&[GONE, READY], &["n1"]), after, "kube-proxy may not know yet");
        assert_eq!(lines(&[GONE, READY], &[]), after, "the node is back");
        assert_eq!(lines(&[GONE, GONE], &["n1"]), [""; 0], "nothing is left");
    }

    #[test]
    fn ports_are_told_by_name_and_families_apart_and_slices_count_together() {
        let ports = json!({ "ports": [
            { "name": "http", "port": 80, "protocol": "TCP" },
            { "name": "dns", "port": 53, "protocol": "UDP" },
        ] });
        let named = json!([{ "name": "http", "port": 8080 }, { "name": "dns", "port": 5353, "protocol": "UDP" }]);
        // Of another version of the pods that has another port.
        let other = json!([{ "name": "http", "port": 9090 }]);
        let slices = [
            slice(
                "shop-1",
                &named,
                &[("10.0.0.1", "n1", true, true), ("10.0.0.2", "n2", true, true)],
            ),
            slice("shop-2", &other, &[("10.0.0.3", "n3", true, true)]),
            slice(
                "shop-6",
                &named,
                &[("fd00::1", "n1", true, true), ("fd00::2", "n2", true, true)],
            ),
        ];
        let snapshot = snapshot(service(&ports), &slices, None);
        assert_eq!(
            lines(&detours(&snapshot, &down(&["n1"], &[]), &BTreeSet::new())),
            [
                "192.0.2.7 80/TCP > 10.0.0.2:8080 10.0.0.3:9090 around 10.0.0.1:8080",
                "192.0.2.7 53/UDP > 10.0.0.2:5353 around 10.0.0.1:5353",
                "2001:db8::7 80/TCP > fd00::2:8080 around fd00::1:8080",
                "2001:db8::7 53/UDP > fd00::2:5353 around fd00::1:5353",
            ]
        );
    }

    #[test]
    fn who_does_not_want_detours_has_none() {
        let affinity = json!({ "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } } });
        let with = |more: &Value, label: bool, policy: Option<Value>| {
            let mut service = service(&affinity);
            service["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            if label {
                service["metadata"]["labels"] =
                    json!({ "service.kubernetes.io/service-proxy-name": "other" });
            }
            let snapshot = snapshot(service, &[pods(&[READY, READY])], policy);
            let detours = detours(&snapshot, &down(&["n1"], &[]), &BTreeSet::new());
            (detours.ports.len(), detours.affine.len())
        };
        let plain = json!({});
        let local = json!({ "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000 });
        let policy = |spec: Value| Some(spec);
        for (name, (more, label, policy), expected) in [
            ("no policy", (&plain, false, None), (1, 2)),
            ("a policy that says nothing", (&plain, false, policy(json!({}))), (1, 2)),
            ("Leave", (&plain, false, policy(json!({ "deadEndpoints": "Leave" }))), (0, 0)),
            ("another proxy", (&plain, true, None), (0, 0)),
            (
                "serviceProxy: None",
                (&plain, false, policy(json!({ "serviceProxy": "None" }))),
                (0, 0),
            ),
            ("Local", (&local, false, None), (0, 0)),
        ] {
            assert_eq!(with(more, label, policy), expected, "{name}");
        }
    }

    #[test]
    fn clients_that_are_not_let_in_are_left_to_kube_proxy() {
        let ranges = json!({ "loadBalancerSourceRanges": ["198.51.100.0/24 ", "10.0.0.0/8"] });
        let slices = [
            pods(&[READY, READY]),
            slice(
                "shop-6",
                &json!([{ "port": 8080 }]),
                &[("fd00::1", "n1", true, true), ("fd00::2", "n2", true, true)],
            ),
        ];
        let detours = detours(
            &snapshot(service(&ranges), &slices, None),
            &down(&["n1"], &[]),
            &BTreeSet::new(),
        );
        // Nobody is let in by IPv6.
        let all: Vec<_> =
            detours.ports.iter().map(|((ip, _), it)| (*ip, it.sources.clone())).collect();
        let nets = ["198.51.100.0/24", "10.0.0.0/8"].map(|net| net.parse().unwrap());
        assert_eq!(all, [("192.0.2.7".parse().unwrap(), nets.into())]);
    }
}
