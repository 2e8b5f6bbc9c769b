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
//! | [`services`] | whether the pools contain the addresses of Services, and allow their sharing |
//! | [`policies`] | policies from advertisements |
//! | [`spec`] | the spec of a policy |
//! | [`names`] | names for objects that have none |
//! | [`notes`] | objects with notes, and the words of these |
//! | [`outcome`] | the result |
//! | [`mod@print`] | YAML for `kubectl`, and a summary for people |

pub mod addresses;
pub mod metallb;
pub mod names;
pub mod notes;
pub mod outcome;
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
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use self::metallb::{Inputs, Object, OtherKind};
use self::notes::are;
use self::outcome::Outcome;
use crate::config::MigrateArguments;

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

/// Converts MetalLB's objects to ours.
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

/// The note on an input without Services.
const NO_SERVICES: &str = "no Service of type LoadBalancer was read: whether the pools contain the \
    addresses of Services was not checked";

/// The note on advertisements without interfaces.
const ONE_INTERFACE: &str = "if an L2Advertisement names no interfaces, MetalLB answers on all of \
    them. In Leasehold, only the interface whose subnet contains an address carries it: for a pool \
    outside of the nodes' subnets, set spec.layer2.interfaces in its AnnouncementPolicy";

/// The reason for which no object of BGP is moved.
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

/// The note on objects of another kind.
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
