//! Pools: those of MetalLB belong to a namespace, ours to the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use leasehold::api::causes;
use leasehold_crds::IPAddressPool;
use leasehold_crds::pool::{AddressRange, IPAddressPoolSpec, ServiceAllocation, Sharing};
use leasehold_crds::range::IpRange;
use leasehold_crds::selector;

use super::addresses::{self, Entry};
use super::metallb::{AllocationSpec, Object, PoolSpec};
use super::names::Names;
use super::notes::{Printed, listed, unknown_fields};

/// The greatest number of entries in a pool (`IPAddressPool.spec.addresses`).
const MOST_ENTRIES: usize = 64;
/// The greatest number of namespaces in a pool (`serviceAllocation.namespaces`).
const MOST_NAMESPACES: usize = 64;
/// The greatest number of selectors in each list of a pool (`namespaceSelectors`, `serviceSelectors`).
const MOST_SELECTORS: usize = 16;

/// The label that each namespace bears with its name (Kubernetes, well-known labels).
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A pool of MetalLB, and the pools that replace it.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Its namespace; none if that is not known.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Ours: more than one where the entries of one do not fit.
    pub pools: Vec<Printed<IPAddressPool>>,
}

impl Moved {
    /// The pool of ours that holds `ip`.
    pub fn holding(&mut self, ip: IpAddr) -> Option<&mut Printed<IPAddressPool>> {
        self.pools.iter_mut().find(|pool| ranges(&pool.object).any(|range| range.contains(ip)))
    }
}

/// The ranges of a pool.
fn ranges(pool: &IPAddressPool) -> impl Iterator<Item = IpRange> {
    pool.spec.addresses.iter().filter_map(|entry| entry.parse().ok())
}

/// Makes ours of MetalLB's pools. `notes` gets what has no place above one of them.
pub fn convert(theirs: &[&Object<PoolSpec>], notes: &mut Vec<String>) -> Vec<Moved> {
    let mut names = Names::reserving(theirs.iter().map(|pool| pool.name.clone()));
    let mut first_of_name = BTreeSet::new();
    let mut all: Vec<Moved> = Vec::new();
    for pool in theirs {
        let mut about = Vec::new();
        let name = if first_of_name.insert(&pool.name) {
            pool.name.clone()
        } else {
            let name = names.give(&format!(
                "{}-{}",
                pool.name,
                pool.namespace.as_deref().unwrap_or("other")
            ));
            about.push(format!(
                "{pool} is renamed to {name}, because pools of Leasehold have no namespace and another \
                 pool {} exists: Services that request {} get that pool",
                pool.name, pool.name
            ));
            name
        };
        let mut moved = move_one(pool, &name, about, &mut names);
        if moved.is_empty() {
            notes.push(format!("{pool} is omitted: none of its addresses is valid"));
        }
        for earlier in all.iter().flat_map(|moved| &moved.pools) {
            for later in &mut moved {
                later.notes.extend(overlap(&earlier.object, &later.object));
            }
        }
        all.push(Moved {
            namespace: pool.namespace.clone(),
            name: pool.name.clone(),
            labels: pool.labels.clone(),
            pools: moved,
        });
    }
    let namespaces: BTreeSet<&str> =
        all.iter().filter_map(|moved| moved.namespace.as_deref()).collect();
    if namespaces.len() > 1 {
        notes.push(format!(
            "IPAddressPools of {GROUP} exist in several namespaces ({}), but MetalLB reads only those \
             of its own: remove the other pools from the output",
            listed(namespaces),
            GROUP = super::metallb::GROUP,
        ));
    }
    all
}

/// Ours for one of MetalLB's: none if it holds nothing.
fn move_one(
    pool: &Object<PoolSpec>,
    name: &str,
    mut notes: Vec<String>,
    names: &mut Names,
) -> Vec<Printed<IPAddressPool>> {
    let spec = &pool.spec;
    let entries = entries(&spec.addresses, &mut notes);
    let allocation = spec.service_allocation.as_ref().map(|theirs| allocation(theirs, &mut notes));
    notes.extend(unknown_fields("spec", &spec.rest));
    let mut pools: Vec<Printed<IPAddressPool>> = Vec::new();
    for entries in entries.chunks(MOST_ENTRIES) {
        let spec = IPAddressPoolSpec {
            addresses: entries.iter().map(|entry| AddressRange(entry.text.clone())).collect(),
            auto_assign: spec.auto_assign.unwrap_or(true),
            avoid_buggy_ips: spec.avoid_buggy_ips,
            service_allocation: allocation.clone(),
            ..IPAddressPoolSpec::default()
        };
        let (name, notes) = if pools.is_empty() {
            (name.to_owned(), std::mem::take(&mut notes))
        } else {
            let note = format!(
                "the rest of pool {name}, because a pool has at most {MOST_ENTRIES} entries: Services \
                 that request {name} get no address from this pool, and keep none unless they request \
                 this pool"
            );
            (names.give(name), vec![note])
        };
        pools.push(Printed { object: IPAddressPool::new(&name, spec), notes });
    }
    pools
}

fn entries(written: &[String], notes: &mut Vec<String>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for text in written {
        match addresses::read(text) {
            Ok(entry) if entries.iter().any(|known| known.text == entry.text) => {
                notes.push(format!("{text} is listed twice: written once"));
            }
            Ok(mut entry) => {
                notes.extend(entry.note.take());
                entries.push(entry);
            }
            Err(reason) => {
                notes.push(format!("{reason}: omitted; MetalLB does not read it either"));
            }
        }
    }
    if entries.len() > MOST_ENTRIES {
        notes.push(format!(
            "{} entries exceed the limit of {MOST_ENTRIES} per pool: adjacent entries are combined",
            entries.len()
        ));
        entries = addresses::merge(&entries);
    }
    entries
}

fn allocation(theirs: &AllocationSpec, notes: &mut Vec<String>) -> ServiceAllocation {
    notes.extend(unknown_fields("spec.serviceAllocation", &theirs.rest));
    let priority = i32::try_from(theirs.priority.clamp(0, i64::from(i32::MAX))).unwrap_or(0);
    if i64::from(priority) != theirs.priority {
        notes.push(format!("priority {} is converted to {priority}", theirs.priority));
    }
    let mut namespaces: Vec<String> = Vec::new();
    for namespace in &theirs.namespaces {
        if !namespaces.contains(namespace) {
            namespaces.push(namespace.clone());
        }
    }
    let mut namespace_selectors = theirs.namespace_selectors.clone();
    if namespaces.len() > MOST_NAMESPACES {
        notes.push(format!(
            "{} namespaces exceed the limit of {MOST_NAMESPACES} per pool: the pool selects them by \
             the label {NAMESPACE_NAME} instead",
            namespaces.len()
        ));
        namespace_selectors.insert(0, selecting(std::mem::take(&mut namespaces)));
    }
    let ours = ServiceAllocation {
        priority,
        namespaces,
        namespace_selectors: selectors("namespaceSelectors", namespace_selectors, notes),
        service_selectors: selectors("serviceSelectors", theirs.service_selectors.clone(), notes),
    };
    let open = ours.namespaces.is_empty()
        && ours.namespace_selectors.is_empty()
        && ours.service_selectors.is_empty();
    if open {
        notes.push(
            "serviceAllocation has neither namespaces nor selectors: MetalLB tries such a pool before \
             those without serviceAllocation; in Leasehold, it is a general pool. General pools come \
             after all pools with namespaces or selectors, by priority (0 is last), then by name"
                .to_owned(),
        );
    }
    ours
}

/// The selector of the namespaces with these names.
fn selecting(namespaces: Vec<String>) -> LabelSelector {
    let named = LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(namespaces),
    };
    LabelSelector { match_expressions: Some(vec![named]), ..LabelSelector::default() }
}

/// As many selectors as fit; one that cannot be read closes a pool here.
fn selectors(
    field: &str,
    mut selectors: Vec<LabelSelector>,
    notes: &mut Vec<String>,
) -> Vec<LabelSelector> {
    if selectors.len() > MOST_SELECTORS {
        notes.push(format!(
            "{field} has {} selectors, but a pool allows {MOST_SELECTORS}: the others are omitted, and \
             Services that match only those get no new addresses from this pool; combine selectors with \
             matchExpressions",
            selectors.len()
        ));
        selectors.truncate(MOST_SELECTORS);
    }
    for (index, selector) in selectors.iter().enumerate() {
        if let Err(error) = selector::read(selector) {
            notes.push(format!(
                "{field}[{index}] is not a valid selector, and the API server refuses the pool until you \
                 correct it: {}",
                causes(&error)
            ));
        }
    }
    selectors
}

/// The note about addresses that both pools contain.
fn overlap(earlier: &IPAddressPool, later: &IPAddressPool) -> Option<String> {
    let shared = ranges(later)
        .find_map(|range| ranges(earlier).find_map(|other| range.intersection(&other)))?;
    Some(format!(
        "pool {} also contains {shared}, which MetalLB refuses; in Leasehold, such addresses belong to \
         the older pool, and of pools of the same age to the first by name",
        earlier.name_any()
    ))
}

/// Why `pool` would not give an address that it holds to a service with these properties.
pub fn refusal(
    pool: &IPAddressPool,
    ip: IpAddr,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<&'static str> {
    use kube::core::SelectorExt as _;
    let buggy = matches!(ip, IpAddr::V4(ip) if matches!(ip.octets(), [.., 0 | 255]));
    if pool.spec.avoid_buggy_ips && buggy {
        return Some("the pool excludes addresses that end in .0 or .255");
    }
    let scope = pool.spec.service_allocation.as_ref()?;
    // The labels of namespaces are not read: where they count, the pool is taken to admit it.
    let in_scope = scope.namespaces.iter().any(|name| name == namespace)
        || !scope.namespace_selectors.is_empty()
        || scope.namespaces.is_empty();
    if !in_scope {
        return Some("the pool serves only Services of other namespaces");
    }
    let matches = |selector: &LabelSelector| {
        selector::read(selector).is_ok_and(|selector| selector.matches(labels))
    };
    let selectors = &scope.service_selectors;
    if !selectors.is_empty() && !selectors.iter().any(matches) {
        return Some("the labels of the Service match none of the pool's serviceSelectors");
    }
    None
}

/// Lets services of all namespaces share addresses of `pool`.
pub fn share(pool: &mut Printed<IPAddressPool>, shared: &[String]) {
    pool.object.spec.sharing = Sharing::AnyNamespace;
    pool.notes.push(format!(
        "Services of several namespaces share an address, which Leasehold allows only with sharing: \
         AnyNamespace: {}",
        listed(shared)
    ));
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn the_bounds_are_those_of_the_definition() {
        let crd = serde_json::to_value(IPAddressPool::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let most = |field: &str| {
            let bound = crd.pointer(&format!("{spec}/{field}/maxItems")).unwrap().as_u64().unwrap();
            usize::try_from(bound).unwrap()
        };
        assert_eq!(most("addresses"), MOST_ENTRIES);
        assert_eq!(most("serviceAllocation/properties/namespaces"), MOST_NAMESPACES);
        assert_eq!(most("serviceAllocation/properties/namespaceSelectors"), MOST_SELECTORS);
        assert_eq!(most("serviceAllocation/properties/serviceSelectors"), MOST_SELECTORS);
    }
}
