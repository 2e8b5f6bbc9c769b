//! EndpointSlices: of which nodes they say what.
//!
//! All slices of the cluster are kept, those of other Services, too: such a Service may be given an address
//! later, and an endpoint that leaves a cordoned node says that it is drained, whoever it belongs to. There may be
//! tens of thousands of them with a hundred endpoints each. So nodes are numbered, and a slice keeps their
//! numbers in a byte or two each.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use leasehold_crds::names::NodeName;
use serde::Deserialize;

/// The label of an EndpointSlice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

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
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
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
}

impl SliceFacts {
    /// The facts of a slice that belongs to a Service; `None` for all others.
    pub fn of(object: &Slice) -> Option<(String, Self)> {
        let name = object.labels().get(SERVICE_NAME)?;
        let service = format!("{}/{name}", object.namespace().unwrap_or_default());
        let (ready, serving, leaving) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut facts = Self { service, ready, serving, leaving, any: false };
        for endpoint in object.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            let serving = conditions.serving.unwrap_or(ready);
            facts.any |= ready || serving;
            let name = endpoint.node_name.as_deref().and_then(|name| name.parse().ok());
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
}

/// A slice among [`Slices`].
#[derive(Clone, Copy, Debug)]
pub struct KeptSlice<'a> {
    kept: &'a Kept,
    nodes: &'a Numbered,
}

impl Slices {
    /// Takes over what a slice says now; returns whether that is something else than before.
    pub fn insert(&mut self, key: &str, facts: &SliceFacts) -> bool {
        let kept = Kept {
            service: facts.service.as_str().into(),
            ready: self.nodes.numbers(&facts.ready),
            serving: (facts.serving != facts.ready).then(|| self.nodes.numbers(&facts.serving)),
            leaving: self.nodes.numbers(&facts.leaving),
            any: facts.any,
        };
        match self.kept.get_mut(key) {
            Some(known) if *known == kept => false,
            Some(known) => {
                *known = kept;
                true
            }
            None => {
                self.kept.insert(key.into(), kept);
                true
            }
        }
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

/// Equal content, whatever the numbers of the nodes are.
impl PartialEq for Slices {
    fn eq(&self, other: &Self) -> bool {
        self.kept.len() == other.kept.len()
            && self.iter().zip(other.iter()).all(|((key, one), (other_key, other))| {
                key == other_key && one.facts() == other.facts()
            })
    }
}

impl Extend<(String, SliceFacts)> for Slices {
    fn extend<T: IntoIterator<Item = (String, SliceFacts)>>(&mut self, slices: T) {
        for (key, facts) in slices {
            self.insert(&key, &facts);
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
    pub(super) fn ready(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(&self.kept.ready)
    }

    /// The nodes with an endpoint that serves, be it while it terminates.
    pub(super) fn serving(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(self.kept.serving.as_ref().unwrap_or(&self.kept.ready))
    }

    /// The nodes on which an endpoint terminates.
    pub(super) fn leaving(self) -> impl Iterator<Item = &'a NodeName> {
        self.nodes.names(&self.kept.leaving)
    }

    /// The same, to be kept elsewhere.
    pub fn facts(self) -> SliceFacts {
        SliceFacts {
            service: self.service().to_owned(),
            ready: self.ready().cloned().collect(),
            serving: self.serving().cloned().collect(),
            leaving: self.leaving().cloned().collect(),
            any: self.kept.any,
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

    fn names<'a>(&'a self, numbers: &'a Numbers) -> impl Iterator<Item = &'a NodeName> {
        let name = move |number| self.names.get(usize::try_from(number).ok()?);
        numbers.iter().filter_map(name)
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
        assert!(slices.insert(&key, &facts));
        assert!(!slices.insert(&key, &facts), "it says the same again");
        let kept = slices.get("web/a-1").unwrap();
        assert_eq!(kept.facts(), facts);
        assert_eq!(kept.service(), "web/a");
        let names =
            |nodes: BTreeSet<&NodeName>| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(kept.ready().collect()), ["n0", "n3"]);
        assert_eq!(names(kept.serving().collect()), ["n0", "n1", "n3"]);
        assert_eq!(names(kept.leaving().collect()), ["n1"]);
        assert!(slices.remove(&key) && slices.get(&key).is_none());
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
