//! The nodes that packets for a claim are not spread over, although they have endpoints, and why.

use leasehold_crds::lease::{Claim, Session, SessionInterface};
use leasehold_crds::names::NodeName;

use super::words;
use crate::election::share_a_subnet;

/// The reason for which packets for `claim` are not spread over a node with endpoints. `owner` is the session of its holder, and
/// `session` that of the node, if it is live.
fn left_out(claim: &Claim, owner: &Session, session: Option<&Session>) -> String {
    let Some(session) = session else { return "its speaker does not run".to_owned() };
    if let Some(state) = session.data_path.filter(|state| !state.spreads()) {
        return words::data_path(state).to_owned();
    }
    let mut interfaces = owner.interfaces.iter();
    let carrying = interfaces.find(|interface| claim.interface.as_ref() == Some(&interface.name));
    let Some(carrying) = carrying else { return words::NOT_REACHED.to_owned() };
    let Some(its) = session.interfaces.iter().find(|its| may_share_a_segment(carrying, its)) else {
        let subnets: Vec<_> =
            carrying.addresses.iter().map(|net| net.trunc().to_string()).collect();
        return format!(
            "no interface of the node is on the segment of the owner's {} ({})",
            carrying.name,
            subnets.join(", ")
        );
    };
    match carrying.mtu.zip(its.mtu) {
        Some((own, other)) if own != other => format!(
            "the MTU of its interface {} is {other}, and that of the owner's {} is {own}",
            its.name, carrying.name
        ),
        _ => words::NOT_REACHED.to_owned(),
    }
}

/// Whether two interfaces may be on one segment. Those without addresses may be on any.
fn may_share_a_segment(one: &SessionInterface, other: &SessionInterface) -> bool {
    let bare = one.addresses.is_empty() || other.addresses.is_empty();
    bare || share_a_subnet(&one.addresses, &other.addresses)
}

/// Of `nodes`, those that packets for `claim` are not spread over, each with the reason.
pub fn all_left_out<'a>(
    claim: &Claim,
    owner: &Session,
    nodes: impl Iterator<Item = (&'a NodeName, Option<&'a Session>)>,
) -> Vec<(NodeName, String)> {
    let left_out = nodes
        .filter(|(node, _)| claim.members.weight(node) == 0)
        .map(|(node, session)| (node.clone(), left_out(claim, owner, session)));
    left_out.collect()
}
