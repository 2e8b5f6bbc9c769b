//! Nodes that die: who takes what.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use serde::Serialize;

use super::view::View;
use super::words;

/// The effect of the simultaneous failure of nodes on their addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    /// The nodes.
    pub down: BTreeSet<NodeName>,
    /// The claims that they own, each with the node that takes it.
    pub moves: Vec<Move>,
    /// The number of addresses of each node before and after.
    pub loads: Vec<Load>,
}

/// One claim of a node that dies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The name of its lease.
    pub claim: LeaseName,
    /// Its Services.
    pub services: Vec<String>,
    /// Its addresses.
    pub addresses: AddressSet,
    /// The owner.
    pub from: NodeName,
    /// The node that takes it.
    pub to: Option<NodeName>,
    /// The nodes that would take it, one after another, if that one could not.
    pub then: Vec<NodeName>,
    /// If no node takes it: the obstacles of the other nodes.
    pub obstacles: Vec<String>,
}

/// The number of addresses of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// The node.
    pub node: NodeName,
    /// Now.
    pub before: usize,
    /// After the failure, when the others have taken all that they can.
    pub after: usize,
}

impl Simulation {
    /// The claims that no node takes.
    pub fn lost(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(|it| it.to.is_none())
    }
}

/// Simulates the simultaneous failure of nodes.
pub fn simulate(view: &View<'_>, down: &BTreeSet<NodeName>) -> Simulation {
    let owned: BTreeMap<&LeaseName, &NodeName> = view
        .world()
        .claims
        .iter()
        .filter_map(|(name, claim)| Some((name, view.owner(claim)?)))
        .filter(|(_, owner)| down.contains(*owner))
        .collect();
    let ranking = view.rank(&owned.keys().copied().collect(), down);
    let before = view.loads();
    let mut after = before.clone();
    let mut moves = Vec::new();
    for (name, from) in owned {
        let Some(claim) = view.world().claims.get(name) else { continue };
        let record = &claim.stored.record;
        let mut takers = ranking.get(name).cloned().unwrap_or_default().into_iter();
        let to = takers.next();
        if let Some(load) = to.as_ref().and_then(|to| after.get_mut(to)) {
            *load += record.addresses.len();
        }
        moves.push(Move {
            claim: name.clone(),
            services: record.services.clone(),
            addresses: record.addresses.clone(),
            from: from.clone(),
            obstacles: if to.is_some() { Vec::new() } else { obstacles(view, name, down) },
            to,
            then: takers.collect(),
        });
    }
    for node in down {
        after.insert(node.clone(), 0);
    }
    let loads = after.into_iter().map(|(node, after)| {
        let before = before.get(&node).copied().unwrap_or(0);
        Load { node, before, after }
    });
    Simulation { down: down.clone(), moves, loads: loads.collect() }
}

/// The obstacles that keep the live nodes from taking a claim.
fn obstacles(view: &View<'_>, name: &LeaseName, down: &BTreeSet<NodeName>) -> Vec<String> {
    let Some(claim) = view.desired().claims.get(name) else {
        return vec!["no Service requests it anymore".to_owned()];
    };
    let alive = view.world().snapshot.nodes.keys().filter(|node| !down.contains(*node));
    let obstacle = |node| {
        let obstacle = view.candidate(claim, node).err()?;
        Some(format!("{node}: {}", words::obstacle(view, claim, node, &obstacle).1))
    };
    alive.filter_map(obstacle).collect()
}
