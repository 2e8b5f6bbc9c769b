//! Policies: MetalLB announces a service if any of its advertisements says so, here one policy
//! governs it.
//!
//! So there is a policy for each set of advertisements that some pool has, and it allows what any of
//! them does. Where advertisements select services, those come first. Advertisements for all pools
//! become a policy for all pools, after those that name theirs.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::SelectorExt;
use leasehold_crds::AnnouncementPolicy;
use leasehold_crds::selector;

use super::metallb::{AdvertisementSpec, Object};
use super::names::Names;
use super::notes::{Printed, listed};
use super::pools::Moved;
use super::spec::{self, Source};

/// The name of the policy of the pools that are not to be announced.
const NOT_ANNOUNCED: &str = "not-announced";

/// An advertisement, told apart by namespace and name.
#[derive(Clone, Copy, Debug)]
struct Advertisement<'a>(&'a Object<AdvertisementSpec>);

impl<'a> Advertisement<'a> {
    fn key(self) -> (Option<&'a str>, &'a str) {
        (self.0.namespace.as_deref(), &self.0.name)
    }

    /// Whether it is for all services.
    fn is_general(self) -> bool {
        self.0.spec.service_selectors.is_empty()
    }

    /// Whether it names and selects no pools, which means all.
    fn is_for_all(self) -> bool {
        let spec = &self.0.spec;
        spec.ip_address_pools.is_empty() && spec.ip_address_pool_selectors.is_empty()
    }
}

impl PartialEq for Advertisement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Advertisement<'_> {}

impl PartialOrd for Advertisement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Advertisement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

type Advertisements<'a> = BTreeSet<Advertisement<'a>>;

/// A pool that advertisements speak of.
struct Target<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
    /// None if the pool was not read.
    labels: Option<&'a BTreeMap<String, String>>,
    /// Its names here.
    ours: Vec<String>,
    /// The advertisements that select it.
    advertisements: Advertisements<'a>,
}

/// Of which advertisements a policy is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin<'a> {
    /// Whether it is for the pools that no other policy names.
    all_pools: bool,
    /// The one whose services it selects; none if it is for all services.
    selecting: Option<Advertisement<'a>>,
    /// Those for all services.
    general: Advertisements<'a>,
}

impl<'a> Origin<'a> {
    /// The source of the policy. `some_name_pools`: other policies name pools.
    fn source(&self, some_name_pools: bool) -> Source<'a> {
        Source {
            behind: self.all_pools && some_name_pools,
            selecting: self.selecting.map(|it| it.0),
            general: self.general.iter().map(|it| it.0).collect(),
        }
    }
}

/// Makes policies of MetalLB's advertisements. `notes` gets what has no place above one of them.
pub fn convert(
    advertisements: &[&Object<AdvertisementSpec>],
    bgp: &[&Object<AdvertisementSpec>],
    pools: &[Moved],
    notes: &mut Vec<String>,
) -> Vec<Printed<AnnouncementPolicy>> {
    let advertisements: Advertisements<'_> =
        advertisements.iter().copied().map(Advertisement).collect();
    let mut targets = targets(pools);
    for advertisement in &advertisements {
        select(*advertisement, &mut targets, notes);
    }
    let everywhere: Advertisements<'_> =
        advertisements.into_iter().filter(|it| is_everywhere(*it, &targets)).collect();
    let mut origins: BTreeMap<Origin<'_>, Vec<String>> =
        origins_of(&everywhere, true).map(|origin| (origin, Vec::new())).collect();
    for target in targets.iter().filter(|target| target.advertisements != everywhere) {
        for origin in origins_of(&target.advertisements, false) {
            origins.entry(origin).or_default().extend(target.ours.iter().cloned());
        }
    }
    let some_name_pools = origins.keys().any(|origin| !origin.all_pools);
    let mut names = Names::default();
    let mut policies: Vec<_> = origins
        .iter()
        .flat_map(|(origin, pools)| {
            spec::policies(&origin.source(some_name_pools), pools, &mut names)
        })
        .collect();
    notes.extend(rivals(&targets));
    policies.extend(unannounced(&targets, bgp, &mut names));
    policies.sort_by_key(|printed| printed.object.spec.priority);
    policies
}

fn targets(pools: &[Moved]) -> Vec<Target<'_>> {
    pools
        .iter()
        .filter(|moved| !moved.pools.is_empty())
        .map(|moved| Target {
            namespace: moved.namespace.as_deref(),
            name: &moved.name,
            labels: Some(&moved.labels),
            ours: moved.pools.iter().map(|pool| pool.object.name_any()).collect(),
            advertisements: BTreeSet::new(),
        })
        .collect()
}

/// Whether objects of these namespaces may be of one MetalLB; a file may leave the namespace out.
fn same_namespace(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// Whether it is for all pools that there are and will be.
fn is_everywhere(advertisement: Advertisement<'_>, targets: &[Target<'_>]) -> bool {
    let namespace = advertisement.0.namespace.as_deref();
    advertisement.is_for_all()
        && targets.iter().all(|target| same_namespace(target.namespace, namespace))
}

fn selects(advertisement: Advertisement<'_>, target: &Target<'_>) -> bool {
    let Object { namespace, spec, .. } = advertisement.0;
    let by_label = |selector: &LabelSelector| {
        selector::read(selector)
            .is_ok_and(|selector| target.labels.is_some_and(|labels| selector.matches(labels)))
    };
    same_namespace(target.namespace, namespace.as_deref())
        && (advertisement.is_for_all()
            || spec.ip_address_pools.iter().any(|name| name == target.name)
            || spec.ip_address_pool_selectors.iter().any(by_label))
}

/// Enters the advertisement with all pools that it selects.
fn select<'a>(
    advertisement: Advertisement<'a>,
    targets: &mut Vec<Target<'a>>,
    notes: &mut Vec<String>,
) {
    let object = advertisement.0;
    let namespace = object.namespace.as_deref();
    for name in &object.spec.ip_address_pools {
        let known = |target: &Target<'_>| {
            target.name == name && same_namespace(target.namespace, namespace)
        };
        if !targets.iter().any(known) {
            notes.push(format!("{object} names pool {name}, which is not in the input"));
            targets.push(Target {
                namespace,
                name,
                labels: None,
                ours: vec![name.clone()],
                advertisements: BTreeSet::new(),
            });
        }
    }
    let mut selected = false;
    for target in targets.iter_mut().filter(|target| selects(advertisement, target)) {
        target.advertisements.insert(advertisement);
        selected = true;
    }
    if !selected && !advertisement.is_for_all() {
        notes.push(format!("{object} selects no pool: no policy is created for it"));
    }
}

/// Of what the policies are made for pools that have exactly these advertisements.
fn origins_of<'a>(
    of: &Advertisements<'a>,
    all_pools: bool,
) -> impl Iterator<Item = Origin<'a>> + use<'a> {
    let (general, selecting): (Advertisements<'a>, Advertisements<'a>) =
        of.iter().partition(|advertisement| advertisement.is_general());
    let for_all = (!general.is_empty()).then_some(None);
    let each = selecting.into_iter().map(Some).chain(for_all);
    each.map(move |selecting| Origin { all_pools, selecting, general: general.clone() })
}

/// The notes about advertisements that may select the same Services.
fn rivals(targets: &[Target<'_>]) -> BTreeSet<String> {
    let selecting = targets.iter().map(|target| -> Vec<_> {
        target.advertisements.iter().filter(|it| !it.is_general()).map(|it| it.0).collect()
    });
    let rivals = selecting.filter(|selecting| selecting.len() > 1);
    rivals
        .map(|rivals| {
            format!(
                "{} select Services of the same pool. MetalLB combines them; in Leasehold, only the \
                 first policy by name governs a Service that several select",
                listed(rivals)
            )
        })
        .collect()
}

/// The policy that keeps pools silent which MetalLB does not announce by ARP and NDP.
fn unannounced(
    targets: &[Target<'_>],
    bgp: &[&Object<AdvertisementSpec>],
    names: &mut Names,
) -> Vec<Printed<AnnouncementPolicy>> {
    let silent = targets.iter().filter(|target| target.advertisements.is_empty());
    let (mut pools, mut by_bgp) = (Vec::new(), Vec::new());
    for target in silent {
        if bgp.iter().any(|object| selects(Advertisement(object), target)) {
            by_bgp.push(target.name);
        }
        pools.extend(target.ours.iter().cloned());
    }
    if pools.is_empty() {
        return Vec::new();
    }
    let mut notes = vec![format!(
        "no L2Advertisement announces {}, and neither does Leasehold: the selector of this policy \
         matches no node. To announce such a pool, delete this policy, and let another policy match the \
         pool",
        listed(&pools)
    )];
    if !by_bgp.is_empty() {
        notes.push(format!(
            "MetalLB announces {} with BGP, which Leasehold does not support",
            listed(by_bgp)
        ));
    }
    spec::silent(NOT_ANNOUNCED, &pools, notes, names)
}
