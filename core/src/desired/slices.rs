//! EndpointSlices: of which nodes they say what.
//!
//! All slices of the cluster are kept, those of other Services, too: such a Service may be given an address
//! later, and an endpoint that leaves a cordoned node says that it is drained, whoever it belongs to. There may be
//! tens of thousands of them with a hundred endpoints each. So nodes are numbered, and a slice keeps their
//! numbers in a byte or two each; and the endpoints themselves are kept for our own Services alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use leasehold_crds::names::NodeName;
use serde::Deserialize;

use super::ServicePort;

/// The label of an EndpointSlice that names its service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// `namespace/name` of an object.
pub(super) fn key(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// An EndpointSlice, of which only this is read (discovery.k8s.io/v1). The API server makes its text of an object
/// of its own: there is none that could not be read.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = EndpointSlice)]
pub struct Slice {
    metadata: ObjectMeta,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

/// A port of the endpoints. Without a number it means all ports, which kube-proxy ignores, too.
#[derive(Clone, Debug, Deserialize)]
struct Port {
    name: Option<Box<str>>,
    protocol: Option<Box<str>>,
    #[serde(rename = "port")]
    number: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<Box<str>>,
    node_name: Option<String>,
    conditions: Option<Conditions>,
}

/// Unknown counts as true (discovery.k8s.io/v1, `EndpointConditions`), but for `terminating`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

/// The part of an EndpointSlice that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFacts {
    service: String,
    ready: BTreeSet<NodeName>,
    serving: BTreeSet<NodeName>,
    /// Nodes on which an endpoint terminates.
    leaving: BTreeSet<NodeName>,
    /// Whether any endpoint serves, on a node or elsewhere.
    any: bool,
    /// Where the endpoints are reached.
    ports: Vec<EndpointPort>,
    endpoints: Vec<(IpAddr, Option<NodeName>, Use)>,
}

/// A port of the endpoints of a slice, by the name that the Service has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPort {
    /// The name; empty where the Service has one port only.
    pub name: Box<str>,
    /// The port of the pods.
    pub port: ServicePort,
}

/// The use of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Serves, and ends.
    Serving,
    /// Takes new connections.
    Ready,
}

impl SliceFacts {
    /// The facts of a slice that belongs to a Service; `None` for all others.
    pub fn of(object: &Slice) -> Option<(String, Self)> {
        let name = object.labels().get(SERVICE_NAME)?;
        let service = format!("{}/{name}", object.namespace().unwrap_or_default());
        let (ready, serving, leaving) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let ports = object.ports.iter().flatten().filter_map(EndpointPort::of).collect();
        let endpoints = Vec::new();
        let mut facts = Self { service, ready, serving, leaving, any: false, ports, endpoints };
        for endpoint in object.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            let serving = conditions.serving.unwrap_or(ready);
            facts.any |= ready || serving;
            let name = endpoint.node_name.as_deref().and_then(|name| name.parse().ok());
            // kube-proxy takes the first address, too.
            let ip = endpoint.addresses.first().and_then(|ip| ip.parse().ok());
            let used = if ready { Some(Use::Ready) } else { serving.then_some(Use::Serving) };
            if let Some((ip, used)) = ip.zip(used) {
                facts.endpoints.push((ip, name.clone(), used));
            }
            let Some(node): Option<NodeName> = name else { continue };
            if ready {
                facts.ready.insert(node.clone());
            }
            if serving {
                facts.serving.insert(node.clone());
            }
            if conditions.terminating.unwrap_or(false) {
                facts.leaving.insert(node);
            }
        }
        Some((key(object), facts))
    }

    /// The service, as `namespace/name`.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Whether any endpoint serves, on a node or elsewhere.
    pub const fn serves(&self) -> bool {
        self.any
    }

    pub(super) const fn leaving(&self) -> &BTreeSet<NodeName> {
        &self.leaving
    }

    pub(super) fn is_ready(&self, node: &NodeName) -> bool {
        self.ready.contains(node)
    }
}

impl EndpointPort {
    fn of(object: &Port) -> Option<Self> {
        let port = ServicePort::of(object.protocol.as_deref(), object.number?)?;
        Some(Self { name: object.name.clone().unwrap_or_default(), port })
    }
}

/// The effect of news of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// Nothing.
    None,
    /// Where its endpoints are reached, and not the nodes that they are on.
    Endpoints,
    /// Anything else.
    Nodes,
}

/// Slices, by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    kept: BTreeMap<Box<str>, Kept>,
    nodes: Numbered,
}

/// The part of a slice that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    service: Box<str>,
    ready: Numbers,
    /// `None`: the same as are ready.
    serving: Option<Numbers>,
    leaving: Numbers,
    any: bool,
    /// The endpoints, where anybody needs them; not known of a Service that became ours later.
    reached: Option<Box<Reached>>,
}

/// Where the endpoints of a slice are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reached {
    ports: Box<[EndpointPort]>,
    endpoints: Box<[(IpAddr, Option<u32>, Use)]>,
}

/// An endpoint, where it is reached, and on which node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptEndpoint<'a> {
    /// The address of the pod.
    pub ip: IpAddr,
    /// Its node, if it is on one.
    pub node: Option<&'a NodeName>,
    /// Its use.
    pub used: Use,
}

/// A slice among [`Slices`].
#[derive(Clone, Copy, Debug)]
pub struct KeptSlice<'a> {
    kept: &'a Kept,
    nodes: &'a Numbered,
}

impl Slices {
    /// Takes over what a slice says now; with its endpoints if it is `ours`.
    pub fn insert(&mut self, key: &str, facts: &SliceFacts, ours: bool) -> News {
        let kept = Kept {
            service: facts.service.as_str().into(),
            ready: self.nodes.numbers(&facts.ready),
            serving: (facts.serving != facts.ready).then(|| self.nodes.numbers(&facts.serving)),
            leaving: self.nodes.numbers(&facts.leaving),
            any: facts.any,
            reached: ours.then(|| Box::new(self.reached(facts))),
        };
        match self.kept.get_mut(key) {
            Some(known) if *known == kept => News::None,
            Some(known) => {
                let same = known.says_the_same_of_nodes(&kept);
                *known = kept;
                if same { News::Endpoints } else { News::Nodes }
            }
            None => {
                self.kept.insert(key.into(), kept);
                News::Nodes
            }
        }
    }

    /// Takes over the endpoints of a slice of which only the nodes were kept: what a list says that was asked for
    /// after its Service had become ours. What a watch has said since counts, and what it will say if the list
    /// has something newer.
    pub fn complete(&mut self, key: &str, facts: &SliceFacts) -> News {
        let known = self.kept.get(key).is_some_and(|kept| kept.reached.is_none());
        if !known {
            return News::None;
        }
        let reached = self.reached(facts);
        if let Some(kept) = self.kept.get_mut(key) {
            kept.reached = Some(Box::new(reached));
        }
        News::Endpoints
    }

    fn reached(&mut self, facts: &SliceFacts) -> Reached {
        let mut endpoint = |(ip, node, used): &(IpAddr, Option<NodeName>, Use)| {
            (*ip, node.as_ref().and_then(|node| self.nodes.number(node)), *used)
        };
        let endpoints = facts.endpoints.iter().map(&mut endpoint).collect();
        Reached { ports: facts.ports.clone().into(), endpoints }
    }

    /// Forgets a slice; returns whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        self.kept.remove(key).is_some()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// One of them.
    pub fn get(&self, key: &str) -> Option<KeptSlice<'_>> {
        self.kept.get(key).map(|kept| KeptSlice { kept, nodes: &self.nodes })
    }

    /// All of them with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, KeptSlice<'_>)> {
        self.kept.iter().map(|(key, kept)| (&**key, KeptSlice { kept, nodes: &self.nodes }))
    }
}

/// Equal nodes, whatever their numbers are.
impl PartialEq for Slices {
    fn eq(&self, other: &Self) -> bool {
        self.kept.len() == other.kept.len()
            && self.iter().zip(other.iter()).all(|((key, one), (other_key, other))| {
                key == other_key && one.facts() == other.facts()
            })
    }
}

impl Kept {
    fn says_the_same_of_nodes(&self, other: &Self) -> bool {
        self.service == other.service
            && self.ready == other.ready
            && self.serving == other.serving
            && self.leaving == other.leaving
            && self.any == other.any
    }
}

impl Extend<(String, SliceFacts)> for Slices {
    fn extend<T: IntoIterator<Item = (String, SliceFacts)>>(&mut self, slices: T) {
        for (key, facts) in slices {
            self.insert(&key, &facts, false);
        }
    }
}

impl FromIterator<(String, SliceFacts)> for Slices {
    fn from_iter<T: IntoIterator<Item = (String, SliceFacts)>>(slices: T) -> Self {
        let mut all = Self::default();
        all.extend(slices);
        all
    }
}

impl<'a> KeptSlice<'a> {
    /// The service, as `namespace/name`.
    pub fn service(self) -> &'a str {
        &self.kept.service
    }

    /// Whether any endpoint serves, on a node or elsewhere.
    pub const fn serves(self) -> bool {
        self.kept.any
    }

    /// The nodes with an endpoint that is ready.
    pub fn ready(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(&self.kept.ready)
    }

    /// The nodes with an endpoint that serves, be it while it terminates.
    pub fn serving(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(self.kept.serving.as_ref().unwrap_or(&self.kept.ready))
    }

    /// The nodes on which an endpoint terminates.
    pub(super) fn leaving(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(&self.kept.leaving)
    }

    /// Its ports and its endpoints; `None` where only the nodes are known.
    pub fn endpoints(
        self,
    ) -> Option<(&'a [EndpointPort], impl Iterator<Item = KeptEndpoint<'a>> + Clone)> {
        let reached = self.kept.reached.as_deref()?;
        let endpoint = move |(ip, node, used): &(IpAddr, Option<u32>, Use)| {
            let node = node.and_then(|number| self.nodes.name(number));
            KeptEndpoint { ip: *ip, node, used: *used }
        };
        Some((&*reached.ports, reached.endpoints.iter().map(endpoint)))
    }

    /// The same without endpoints, to be kept elsewhere.
    pub fn facts(self) -> SliceFacts {
        SliceFacts {
            service: self.service().to_owned(),
            ready: self.ready().cloned().collect(),
            serving: self.serving().cloned().collect(),
            leaving: self.leaving().cloned().collect(),
            any: self.kept.any,
            ports: Vec::new(),
            endpoints: Vec::new(),
        }
    }
}

/// Nodes in the order in which they were first named. None is forgotten: there are few, for slices.
#[derive(Clone, Debug, Default)]
struct Numbered {
    numbers: BTreeMap<NodeName, u32>,
    names: Vec<NodeName>,
}

impl Numbered {
    fn numbers(&mut self, names: &BTreeSet<NodeName>) -> Numbers {
        let numbers: BTreeSet<u32> = names.iter().filter_map(|name| self.number(name)).collect();
        Numbers::of(numbers)
    }

    /// `None` only after four thousand million nodes.
    fn number(&mut self, name: &NodeName) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.numbers.insert(name.clone(), number);
        self.names.push(name.clone());
        Some(number)
    }

    fn name(&self, number: u32) -> Option<&NodeName> {
        self.names.get(usize::try_from(number).ok()?)
    }

    fn names<'a>(&'a self, numbers: &'a Numbers) -> impl Iterator<Item = &'a NodeName> {
        numbers.iter().filter_map(|number| self.name(number))
    }
}

/// Numbers in their order: the distance of each to the one before, in groups of seven bits, the lowest first, of
/// which all but the last have the highest bit set (LEB128).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers(Box<[u8]>);

impl Numbers {
    fn of(numbers: BTreeSet<u32>) -> Self {
        let mut bytes = Vec::with_capacity(numbers.len());
        let mut last = 0;
        for number in numbers {
            let mut distance = number.wrapping_sub(last);
            last = number;
            loop {
                let [low, ..] = distance.to_le_bytes();
                distance >>= 7;
                if distance == 0 {
                    bytes.push(low & 0x7f);
                    break;
                }
                bytes.push(low | 0x80);
            }
        }
        Self(bytes.into())
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let mut bytes = self.0.iter();
        let mut last = 0_u32;
        std::iter::from_fn(move || {
            let (mut distance, mut shift) = (0_u32, 0);
            loop {
                let byte = *bytes.next()?;
                distance |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    last = last.wrapping_add(distance);
                    return Some(last);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for numbers in [
            vec![],
            vec![0],
            vec![0, 1, 127, 128, 129, 16_384],
            vec![5, 300, 70_000, u32::MAX - 1, u32::MAX],
        ] {
            let written = Numbers::of(numbers.iter().copied().collect());
            assert_eq!(written.iter().collect::<Vec<_>>(), numbers);
        }
    }

    fn slice(service: usize, endpoints: usize) -> Slice {
        let endpoint = |pod: usize| {
            json!({
                "addresses": ["10.0.0.1"], "nodeName": format!("n{}", (service * 37 + pod * 19) % 2000),
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "targetRef": { "kind": "Pod", "namespace": "web", "name": format!("pod-{pod}") },
            })
        };
        let service = format!("service-{service}");
        let object = json!({
            "metadata": { "namespace": "web", "name": format!("{service}-x7k2p"),
                "labels": { "kubernetes.io/service-name": service } },
            "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_kept_of_a_slice_is_what_it_said() {
        let mut slices = Slices::default();
        let conditions = [
            json!({ "ready": true }),
            json!({ "ready": false, "serving": true, "terminating": true }),
            json!({ "ready": false }),
            json!({}),
        ];
        let endpoint = |(number, conditions)| json!({ "nodeName": format!("n{number}"), "conditions": conditions });
        let endpoints: Vec<_> = conditions.into_iter().enumerate().map(endpoint).collect();
        let object = json!({
            "metadata": { "namespace": "web", "name": "a-1", "labels": { "kubernetes.io/service-name": "a" } },
            "endpoints": endpoints,
        });
        let (key, facts) = SliceFacts::of(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(slices.insert(&key, &facts, false), News::Nodes);
        assert_eq!(slices.insert(&key, &facts, false), News::None, "it says the same again");
        let kept = slices.get("web/a-1").unwrap();
        assert!(kept.endpoints().is_none());
        assert_eq!(
            kept.facts(),
            SliceFacts { ports: Vec::new(), endpoints: Vec::new(), ..facts.clone() }
        );
        assert_eq!(kept.service(), "web/a");
        let names =
            |nodes: BTreeSet<&NodeName>| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(kept.ready().collect()), ["n0", "n3"]);
        assert_eq!(names(kept.serving().collect()), ["n0", "n1", "n3"]);
        assert_eq!(names(kept.leaving().collect()), ["n1"]);
        assert!(slices.remove(&key) && slices.get(&key).is_none());
    }

    /// The endpoints of a slice: their ports, and address, node and use of each.
    fn endpoints(slices: &Slices, key: &str) -> Option<Vec<String>> {
        let (ports, endpoints) = slices.get(key)?.endpoints()?;
        let ports = ports.iter().map(|it| format!("{} {}", it.name, it.port));
        let endpoints = endpoints.map(|it| {
            let node = it.node.map(NodeName::as_str).unwrap_or_default();
            format!("{} {node} {:?}", it.ip, it.used)
        });
        Some(ports.chain(endpoints).collect())
    }

    #[test]
    fn endpoints_are_kept_of_our_own_services_and_come_later_where_a_service_becomes_ours() {
        let facts = |pods: &[(&str, &str, bool, bool)]| {
            let endpoint = |(ip, node, ready, serving): &(&str, &str, bool, bool)| {
                json!({ "addresses": [ip], "nodeName": node,
                    "conditions": { "ready": ready, "serving": serving } })
            };
            let object = json!({
                "metadata": { "namespace": "web", "name": "a-1", "labels": { "kubernetes.io/service-name": "a" } },
                "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "all" }],
                "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
            });
            SliceFacts::of(&serde_json::from_value(object).unwrap()).unwrap().1
        };
        let mut slices = Slices::default();
        let first = facts(&[("10.0.0.1", "n1", true, true), ("10.0.0.2", "n2", false, true)]);
        let other_pod = facts(&[("10.0.0.9", "n1", true, true), ("10.0.0.2", "n2", false, true)]);
        let listed = ["http 8080/TCP", "10.0.0.1 n1 Ready", "10.0.0.2 n2 Serving"];
        let listed: Vec<String> = listed.map(str::to_owned).to_vec();

        assert_eq!(slices.complete("web/a-1", &first), News::None, "a slice that is gone");
        slices.insert("web/a-1", &first, false);
        assert_eq!(endpoints(&slices, "web/a-1"), None);
        assert_eq!(slices.complete("web/a-1", &first), News::Endpoints);
        assert_eq!(endpoints(&slices, "web/a-1"), Some(listed.clone()));
        assert_eq!(slices.complete("web/a-1", &other_pod), News::None, "the watch has said it");
        assert_eq!(endpoints(&slices, "web/a-1"), Some(listed));

        assert_eq!(slices.insert("web/a-1", &other_pod, true), News::Endpoints);
        assert_eq!(slices.insert("web/a-1", &other_pod, true), News::None);
        let fewer = facts(&[("10.0.0.9", "n1", true, true)]);
        assert_eq!(slices.insert("web/a-1", &fewer, true), News::Nodes);
    }

    /// Twenty thousand of them are to cost a speaker no more than a few MiB.
    #[test]
    fn a_slice_of_a_hundred_endpoints_on_a_hundred_of_two_thousand_nodes_takes_300_bytes() {
        let slices: Slices = (0..1000).filter_map(|it| SliceFacts::of(&slice(it, 100))).collect();
        #[expect(clippy::borrowed_box, reason = "the keys of the map")]
        let bytes = |(key, kept): (&Box<str>, &Kept)| {
            assert!(kept.serving.is_none() && kept.leaving.0.is_empty());
            size_of::<(Box<str>, Kept)>() + key.len() + kept.service.len() + kept.ready.0.len()
        };
        let all: usize = slices.kept.iter().map(bytes).sum();
        assert!(all / 1000 <= 300, "{} bytes", all / 1000);
        assert_eq!(slices.nodes.names.len(), 2000);
    }
}
