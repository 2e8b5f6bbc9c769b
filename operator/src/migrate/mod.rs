//! The move from MetalLB: its objects in, ours out. Nothing is written to the cluster.
//!
//! ```text
//! cluster ─┐             ┌──────── convert(), pure ────────┐
//!          ├──► Inputs ──┤ pools ──► services ──► policies ├──► Outcome ──► print ──► YAML, summary
//! files ───┘             └─────────────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`metallb`] | MetalLB's objects |
//! | [`read`] | from files and from the cluster |
//! | [`addresses`] | the entries of a pool |
//! | [`pools`] | pools |
//! | [`services`] | whether the pools hold what Services have, and allow what they share |
//! | [`policies`] | which advertisements make which policy |
//! | [`spec`] | what a policy says |
//! | [`names`] | names for objects that have none |
//! | [`mod@print`] | what people and `kubectl` read |

pub mod addresses;
pub mod metallb;
pub mod names;
pub mod policies;
pub mod pools;
pub mod print;
pub mod read;
pub mod services;
pub mod spec;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde_json::Value;

use crate::config::MigrateArguments;
use metallb::{Inputs, Object, OtherKind};
use services::Tally;

/// An object as it is printed, with what is to be said of it.
#[derive(Clone, Debug)]
pub struct Printed<T> {
    /// The object.
    pub object: T,
    /// What has no equivalent, or is not as it was.
    pub notes: Vec<String>,
}

/// What becomes of MetalLB's objects.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The pools.
    pub pools: Vec<Printed<IPAddressPool>>,
    /// The policies, in the order in which they are tried.
    pub policies: Vec<Printed<AnnouncementPolicy>>,
    /// What concerns none of them.
    pub notes: Vec<String>,
    /// Which Services were looked at.
    pub tally: Tally,
}

/// Reads, converts and prints.
pub async fn run(arguments: &MigrateArguments, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    let inputs = if arguments.files.is_empty() {
        read::cluster(kubeconfig).await?
    } else {
        read::files(&arguments.files)?
    };
    let outcome = convert(&inputs);
    let yaml = print::yaml(&outcome)?;
    std::io::stdout().write_all(yaml.as_bytes()).context("cannot write to standard output")?;
    std::io::stderr()
        .write_all(print::summary(&outcome).as_bytes())
        .context("cannot write to standard error")
}

/// Makes our objects of MetalLB's.
pub fn convert(inputs: &Inputs) -> Outcome {
    let mut notes = Vec::new();
    let theirs = once_each(&inputs.pools, &mut notes);
    let mut moved = pools::convert(&theirs, &mut notes);
    let advertisements = once_each(&inputs.advertisements, &mut notes);
    let bgp = once_each(&inputs.bgp_advertisements, &mut notes);
    let policies = policies::convert(&advertisements, &bgp, &moved, &mut notes);
    let tally = services::apply(&inputs.services, &mut moved, &mut notes);
    if inputs.services.is_empty() {
        notes.push(NO_SERVICES.to_owned());
    }
    if advertisements.iter().any(|object| object.spec.interfaces.is_empty()) {
        notes.push(ONE_INTERFACE.to_owned());
    }
    if !bgp.is_empty() {
        notes.push(format!("{} not moved: {NO_BGP}", are(&bgp)));
    }
    notes.extend(inputs.others.iter().map(|(kind, names)| skipped(kind, names)));
    let pools = moved.into_iter().flat_map(|moved| moved.pools).collect();
    Outcome { pools, policies, notes, tally }
}

/// What is not known without Services.
const NO_SERVICES: &str = "no Service of type LoadBalancer was read: whether the pools contain the \
    addresses of Services was not checked";

/// What is otherwise where no interfaces are named.
const ONE_INTERFACE: &str = "if an L2Advertisement names no interfaces, MetalLB answers on all of \
    them. In Leasehold, only the interface whose subnet contains an address carries it: for a pool \
    outside of the nodes' subnets, set spec.interfaces in its AnnouncementPolicy";

/// Why nothing of BGP is moved.
const NO_BGP: &str = "Leasehold announces addresses with ARP and NDP, and does not support BGP";

/// The objects by namespace and name, each once.
fn once_each<'a, S>(objects: &'a [Object<S>], notes: &mut Vec<String>) -> Vec<&'a Object<S>> {
    let mut by_key: BTreeMap<(Option<&str>, &str), &'a Object<S>> = BTreeMap::new();
    for object in objects {
        let key = (object.namespace.as_deref(), object.name.as_str());
        match by_key.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(object);
            }
            Entry::Occupied(_) => {
                notes.push(format!("{object} was read twice: the first one counts"));
            }
        }
    }
    by_key.into_values().collect()
}

fn skipped(OtherKind { group, kind }: &OtherKind, names: &BTreeSet<String>) -> String {
    let reason = match (group.as_str(), kind.as_str()) {
        (metallb::GROUP, "BGPPeer" | "Community" | "BFDProfile") => NO_BGP,
        (metallb::GROUP, "AddressPool") => {
            "it is the form of a pool before IPAddressPool: write it as IPAddressPool and \
             L2Advertisement, and run this again"
        }
        (metallb::GROUP, _) => "nothing in it is moved",
        (leasehold_crds::GROUP, _) => "it is Leasehold's own already",
        _ => "it is not of MetalLB, and not a Service",
    };
    let names = names.iter().map(|name| format!("{kind} {name}"));
    let names: Vec<String> = names.collect();
    format!("{} not moved: {reason}", are(&names))
}

/// `a, b and c are`, or `a is`.
fn are<T: fmt::Display>(items: &[T]) -> String {
    format!("{} {}", listed(items), if items.len() == 1 { "is" } else { "are" })
}

/// `a, b and c`.
fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Says of each field that it is not known.
fn unknown_fields(
    of: &str,
    fields: &BTreeMap<String, Value>,
) -> impl Iterator<Item = String> + use<> {
    let fields: Vec<String> =
        fields.keys().map(|field| format!("{of}.{field} is unknown and omitted")).collect();
    fields.into_iter()
}
