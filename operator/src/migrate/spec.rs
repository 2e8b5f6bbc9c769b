//! The specification of one policy, from several advertisements.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use leasehold::api::causes;
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::names::InterfacePattern;
use leasehold_crds::policy::{
    AnnouncementPolicySpec, DEFAULT_PRIORITY, Layer2Spec, Policy, PolicyInterface,
};

use super::metallb::{AdvertisementSpec, Object};
use super::names::Names;
use super::notes::{Printed, listed, unknown_fields};

/// The greatest number of entries in each list of a policy.
const MOST: usize = 64;

/// The priority step by which a policy that selects Services precedes others.
const SELECTING_FIRST: i32 = 50;
/// The priority step by which a policy for all pools follows those that name pools.
const ALL_POOLS_LAST: i32 = 100;

/// The label of a node with its name (Kubernetes, well-known labels).
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The field of an `L2Advertisement` that weighs nodes.
const PREFERENCE: &str = "preferredNodeSelectors";

/// Of what a policy is made, and when it is tried.
pub struct Source<'a> {
    /// Whether others come first that name pools.
    pub behind: bool,
    /// The advertisement whose services it selects; none if it is for all services.
    pub selecting: Option<&'a Object<AdvertisementSpec>>,
    /// The advertisements for all services.
    pub general: Vec<&'a Object<AdvertisementSpec>>,
}

/// The policy for `pools`, for all pools if there are none; more than one where they do not fit.
pub fn policies(
    source: &Source<'_>,
    pools: &[String],
    names: &mut Names,
) -> Vec<Printed<AnnouncementPolicy>> {
    let all: Vec<_> = source.selecting.iter().chain(&source.general).copied().collect();
    let mut notes = Vec::new();
    if all.len() > 1 {
        notes.push(format!(
            "{} are combined, as in MetalLB: the policy allows everything that one of them allows",
            listed(&all)
        ));
    }
    let interfaces = interfaces(&all, &mut notes);
    let node_selectors = if interfaces.is_some() { node_selectors(&all) } else { vec![nobody()] };
    let service_selectors = source.selecting.map(|object| &object.spec.service_selectors);
    let spec = AnnouncementPolicySpec {
        priority: priority(source),
        service_selectors: service_selectors.map_or_else(Vec::new, |selectors| {
            at_most("serviceSelectors", selectors.clone(), &mut notes)
        }),
        node_selectors: at_most("nodeSelectors", node_selectors, &mut notes),
        layer2: interfaces.filter(|interfaces| !interfaces.is_empty()).map(|interfaces| {
            let interfaces = at_most("layer2.interfaces", interfaces, &mut notes);
            Layer2Spec { interfaces: Some(interfaces), ..Layer2Spec::default() }
        }),
        ..AnnouncementPolicySpec::default()
    };
    notes.extend(all.iter().flat_map(|object| remarks(object)));
    let name: Vec<&str> = all.iter().map(|object| object.name.as_str()).collect();
    parts(&name.join("-"), &spec, pools, notes, names)
}

/// The policy by which nobody announces `pools`.
pub fn silent(
    name: &str,
    pools: &[String],
    notes: Vec<String>,
    names: &mut Names,
) -> Vec<Printed<AnnouncementPolicy>> {
    let spec = AnnouncementPolicySpec {
        priority: DEFAULT_PRIORITY,
        node_selectors: vec![nobody()],
        ..AnnouncementPolicySpec::default()
    };
    parts(name, &spec, pools, notes, names)
}

fn priority(source: &Source<'_>) -> i32 {
    let last = if source.behind { ALL_POOLS_LAST } else { 0 };
    let first = if source.selecting.is_some() { SELECTING_FIRST } else { 0 };
    DEFAULT_PRIORITY + last - first
}

/// A selector that no node matches.
fn nobody() -> LabelSelector {
    let requirement = |operator: &str| LabelSelectorRequirement {
        key: HOSTNAME.to_owned(),
        operator: operator.to_owned(),
        values: None,
    };
    LabelSelector {
        match_expressions: Some(["Exists", "DoesNotExist"].map(requirement).to_vec()),
        ..LabelSelector::default()
    }
}

/// The nodes that any of the advertisements allows; empty for all.
fn node_selectors(all: &[&Object<AdvertisementSpec>]) -> Vec<LabelSelector> {
    if all.iter().any(|object| object.spec.node_selectors.is_empty()) {
        return Vec::new();
    }
    let mut joined: Vec<LabelSelector> = Vec::new();
    for selector in all.iter().flat_map(|object| &object.spec.node_selectors) {
        if !joined.contains(selector) {
            joined.push(selector.clone());
        }
    }
    joined
}

/// The interfaces that any of the advertisements names; empty for all, none if all that they name
/// cannot exist.
fn interfaces(
    all: &[&Object<AdvertisementSpec>],
    notes: &mut Vec<String>,
) -> Option<Vec<PolicyInterface>> {
    let of = |object: &Object<AdvertisementSpec>| -> BTreeSet<String> {
        object.spec.interfaces.iter().cloned().collect()
    };
    let sets: BTreeSet<BTreeSet<String>> = all.iter().map(|object| of(object)).collect();
    let by_node = all.iter().any(|object| !object.spec.node_selectors.is_empty());
    if sets.len() > 1 && by_node {
        notes.push(
            "MetalLB combines the interfaces of the advertisements node by node, but a policy has one \
             list for all its nodes: a node may announce on an interface that MetalLB allows only on \
             other nodes"
                .to_owned(),
        );
    }
    if sets.iter().any(BTreeSet::is_empty) {
        return Some(Vec::new());
    }
    let named: BTreeSet<String> = sets.into_iter().flatten().collect();
    let mut interfaces = Vec::new();
    for name in named {
        match name.parse::<InterfacePattern>() {
            Ok(name) => interfaces.push(PolicyInterface(name)),
            Err(error) => notes.push(format!("interface omitted: {error}")),
        }
    }
    if interfaces.len() > 1 {
        notes.push(
            "MetalLB answers on each of these interfaces. In Leasehold, one interface of the owner \
             carries an address: the one whose subnet contains it, otherwise the first by name"
                .to_owned(),
        );
    }
    if interfaces.is_empty() {
        notes.push(
            "no interface remains, so the policy selects no node and announces nothing".to_owned(),
        );
        return None;
    }
    Some(interfaces)
}

/// As many entries as a policy has; fewer announce from fewer places, never from more.
fn at_most<T>(field: &str, mut entries: Vec<T>, notes: &mut Vec<String>) -> Vec<T> {
    if entries.len() > MOST {
        notes.push(format!(
            "{field} would have {} entries, but a policy allows {MOST}: the others are omitted",
            entries.len()
        ));
        entries.truncate(MOST);
    }
    entries
}

/// The notes about fields of an advertisement without an equivalent.
fn remarks(object: &Object<AdvertisementSpec>) -> Vec<String> {
    let mut notes = Vec::new();
    let AdvertisementSpec { ip_address_pool_selectors, rest, .. } = &object.spec;
    if !ip_address_pool_selectors.is_empty() {
        notes.push(format!(
            "{object} selects pools by their labels: the policy names the pools that it selects now; to \
             match later ones, too, replace the names with spec.ipAddressPoolSelectors"
        ));
    }
    let mut rest = rest.clone();
    if rest.remove(PREFERENCE).is_some() {
        notes.push(format!(
            "{object} prefers some nodes (spec.{PREFERENCE}), which is not converted: write \
             spec.preferredNodes"
        ));
    }
    notes.extend(unknown_fields("spec", &rest).map(|note| format!("{object}: {note}")));
    notes
}

/// `spec` for `pools`, in as many policies as it takes to name them.
fn parts(
    name: &str,
    spec: &AnnouncementPolicySpec,
    pools: &[String],
    mut notes: Vec<String>,
    names: &mut Names,
) -> Vec<Printed<AnnouncementPolicy>> {
    // No chunk at all would be no policy.
    let chunks: Vec<&[String]> =
        if pools.is_empty() { vec![pools] } else { pools.chunks(MOST).collect() };
    let mut policies = Vec::new();
    for pools in chunks {
        let spec = AnnouncementPolicySpec { ip_address_pools: pools.to_vec(), ..spec.clone() };
        let object = AnnouncementPolicy::new(&names.give(name), spec);
        let mut notes = std::mem::take(&mut notes);
        if let Err(error) = Policy::parse(&object) {
            notes.push(format!(
                "the API server refuses this policy until you correct it: {}",
                causes(&error)
            ));
        }
        policies.push(Printed { object, notes });
    }
    policies
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn the_bound_is_that_of_the_definition() {
        let crd = serde_json::to_value(AnnouncementPolicy::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let interfaces = "layer2/properties/interfaces";
        for field in ["ipAddressPools", "serviceSelectors", "nodeSelectors", interfaces] {
            let bound = crd.pointer(&format!("{spec}/{field}/maxItems")).unwrap().as_u64().unwrap();
            assert_eq!(usize::try_from(bound).unwrap(), MOST, "{field}");
        }
    }
}
