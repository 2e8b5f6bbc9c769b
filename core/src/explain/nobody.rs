//! The reason for which a claim has no owner, in one sentence.

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

use super::view::View;
use super::words::{self, first_of};

/// Number of nodes named for each reason, and of reasons.
const SHOWN: usize = 5;

/// The nodes that could take the claim of this name, or else the obstacle of each: nodes with the same obstacle
/// together. The order of the nodes does not matter.
pub fn nobody(view: &View<'_>, name: &LeaseName) -> String {
    let Some(claim) = view.desired().claims.get(name) else {
        return "the claim of another Service contains its addresses".to_owned();
    };
    let mut able = Vec::new();
    let mut unable: Vec<(String, Vec<&NodeName>)> = Vec::new();
    for node in view.world().snapshot.nodes.keys() {
        let Err(obstacle) = view.candidate(claim, node) else {
            able.push(node);
            continue;
        };
        let (_, reason) = words::obstacle(view, claim, node, &obstacle);
        match unable.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, nodes)) => nodes.push(node),
            None => unable.push((reason, vec![node])),
        }
    }
    if !able.is_empty() {
        return format!(
            "{} could take them but did not: check the speaker logs there",
            first_of(&able, SHOWN, ", ")
        );
    }
    if unable.is_empty() {
        return "the cluster has no Node".to_owned();
    }
    let reasons =
        unable.iter().map(|(reason, nodes)| format!("{}: {reason}", first_of(nodes, SHOWN, ", ")));
    first_of(&reasons.collect::<Vec<_>>(), SHOWN, "; ")
}
