//! Whether a node may take a claim, as far as everybody can tell: a pure function of the objects.

use std::net::IpAddr;

use leasehold_crds::lease::Session;
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::desired::{DesiredClaim, NodeState};
use crate::election::placement::interface::{Carried, Segment, Way, carrying};

/// Why a node whose session lives may not take a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// The policy, a label or the endpoints leave it out.
    NotAllowed,
    /// There is no such Node.
    NoNode,
    /// Its state: cordoned, drained, ….
    State(NodeState),
    /// Its speaker restarts.
    Restarting,
    /// It has no endpoint, and cannot spread packets over nodes with endpoints.
    CannotSpread,
    /// None of its interfaces that have a carrier can carry the addresses.
    NoInterface,
}

/// Through which interface `node`, whose live session this is, may take `claim`, or why it may not.
/// `is_in_a_subnet` says whether an interface of any node has a subnet that holds an address.
pub fn bar<'a>(
    claim: &DesiredClaim,
    node: &NodeName,
    state: Option<NodeState>,
    session: &'a Session,
    is_in_a_subnet: impl Fn(IpAddr) -> bool,
) -> Result<&'a InterfaceName, Bar> {
    if !claim.nodes.contains(node) {
        return Err(Bar::NotAllowed);
    }
    let state = state.ok_or(Bar::NoNode)?;
    if !state.takes() {
        return Err(Bar::State(state));
    }
    if session.restarting {
        return Err(Bar::Restarting);
    }
    if !can_lead(claim, node, session.spreads()) {
        return Err(Bar::CannotSpread);
    }
    carrying(claim, Segment::listed(session), is_in_a_subnet).ok_or(Bar::NoInterface)
}

/// Whether packets that come to `node` for the addresses of `claim` reach endpoints, where there are any. `spreads` says
/// whether it can spread them over other nodes.
pub(in crate::election) fn can_lead(claim: &DesiredClaim, node: &NodeName, spreads: bool) -> bool {
    let spread = claim.spread.as_ref().filter(|_| !spreads);
    spread.is_none_or(|spread| spread.members.is_empty() || spread.members.weight(node) > 0)
}

/// Whether one interface of the node whose session this is can carry all of `what`. `is_in_a_subnet` says
/// whether an interface of any node has a subnet that holds an address.
pub fn carries(
    what: Carried<'_>,
    session: &Session,
    is_in_a_subnet: impl Fn(IpAddr) -> bool,
) -> bool {
    carrying(what, Segment::listed(session), is_in_a_subnet).is_some()
}

/// Whether the kernel of the node whose session this is answers the clients of `claim` on `interface`, as far
/// as it says.
pub fn answers(claim: &DesiredClaim, session: &Session, interface: &InterfaceName) -> bool {
    let mut listed = Segment::listed(session).filter(|it| it.name() == interface);
    listed.all(|it| it.way(claim) != Way::None)
}

/// Leaves out those that cannot answer clients, as long as another can: of each the second says whether it
/// can.
pub fn prefer_answering<T>(candidates: Vec<(T, bool)>) -> Vec<T> {
    let any = candidates.iter().any(|(_, answers)| *answers);
    let kept = candidates.into_iter().filter(|(_, answers)| *answers || !any);
    kept.map(|(candidate, _)| candidate).collect()
}
