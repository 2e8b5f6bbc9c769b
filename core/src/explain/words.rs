//! Obstacles and shares in words.

use ipnet::IpNet;
use leasehold_crds::lease::{DataPathState, Members};
use leasehold_crds::names::{InterfaceName, NodeName};

use super::share::Share;
use super::verdict::Verdict;
use super::view::{Obstacle, View};
use crate::desired::{DesiredClaim, LeftOut, NodeState};

/// The first of `items`, at most so many, and how many there are beside.
pub fn first_of(items: &[impl ToString], most: usize, separator: &str) -> String {
    let shown = items.iter().take(most).map(ToString::to_string).collect::<Vec<_>>();
    let shown = shown.join(separator);
    match items.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown}{separator}and {more} more"),
    }
}

/// The shares of the nodes of a set: `node-1 34 %, node-2 33 %, node-3 33 %`; empty without nodes.
pub fn shares(members: &Members) -> String {
    Share::listed(&Share::of(members))
}

/// The verdict and the reason that an obstacle leads to.
pub fn obstacle(
    view: &View<'_>,
    claim: &DesiredClaim,
    node: &NodeName,
    obstacle: &Obstacle,
) -> (Verdict, String) {
    let text = |text: &str| text.to_owned();
    match obstacle {
        Obstacle::LeftOut(LeftOut::Silent(silence)) => {
            (Verdict::Silent, text(silence.reason().text()))
        }
        Obstacle::LeftOut(LeftOut::Excluded) => (
            Verdict::Excluded,
            text(
                "excluded from load balancing by the label \
                 node.kubernetes.io/exclude-from-external-load-balancers (ignored with \
                 --ignore-exclude-label) or by the taint node.kubernetes.io/out-of-service",
            ),
        ),
        Obstacle::LeftOut(LeftOut::Unreadable(policy)) => (
            Verdict::Held,
            format!("{}: no node takes it until the policy is corrected", unreadable(policy)),
        ),
        Obstacle::LeftOut(LeftOut::NotSelected(policy)) => {
            (Verdict::NotSelected, format!("not selected by policy {policy}"))
        }
        Obstacle::LeftOut(LeftOut::NoEndpoint) => (
            Verdict::NoEndpoint,
            text("no endpoint on the node, and the Service has externalTrafficPolicy: Local"),
        ),
        Obstacle::LeftOut(LeftOut::NoNode) => (Verdict::NoNode, text("no such Node")),
        Obstacle::State(state) => (of_state(*state), text(state_of(*state))),
        Obstacle::NoSession => (Verdict::NoSession, no_session(view, node)),
        Obstacle::Drained => (
            Verdict::Drained,
            text("drained by annotation: end it with `kubectl leasehold undrain`"),
        ),
        Obstacle::Restarting => (Verdict::Restarting, text("its speaker is restarting")),
        Obstacle::CannotSpread => (Verdict::CannotSpread, cannot_spread(view, node)),
        Obstacle::NoInterface => (Verdict::NoInterface, no_interface(view, claim, node)),
    }
}

const fn of_state(state: NodeState) -> Verdict {
    match state {
        // Nodes in these states are candidates.
        NodeState::Ready | NodeState::NotReady => Verdict::Candidate,
        NodeState::Cordoned => Verdict::Cordoned,
        NodeState::Draining => Verdict::Draining,
        NodeState::NetworkUnavailable => Verdict::NetworkUnavailable,
        NodeState::Leaving => Verdict::Leaving,
    }
}

/// The state of a node in words.
pub const fn state_of(state: NodeState) -> &'static str {
    match state {
        NodeState::Ready => "ready",
        NodeState::NotReady => "not ready: takes only addresses that no other node can take",
        NodeState::Cordoned => "cordoned: takes no addresses",
        NodeState::Draining => "draining: hands over its addresses",
        NodeState::NetworkUnavailable => "its network is unavailable",
        NodeState::Leaving => "being deleted",
    }
}

/// The effect of a kube-proxy that does not answer.
pub const PROXY_SILENT: &str =
    "its kube-proxy does not answer: takes only addresses that no other node can take";

/// The reason for which an owner keeps a claim that it would not take.
pub fn keeps(claim: &DesiredClaim, obstacle: &Obstacle) -> Option<&'static str> {
    match obstacle {
        Obstacle::State(NodeState::Cordoned) if !claim.drain_on_cordon => {
            Some("keeps it until pods leave the node")
        }
        Obstacle::Restarting => Some("keeps it during the restart of its speaker"),
        Obstacle::LeftOut(LeftOut::Unreadable(_)) => Some("keeps it"),
        _ => None,
    }
}

/// That the policy that governs a Service cannot be read.
pub fn unreadable(policy: &str) -> String {
    format!("the governing policy {policy} is invalid (see its condition Accepted)")
}

/// That a node does not answer the hosts of `subnet` on `interface`, and what to do.
pub fn unanswered(subnet: IpNet, interface: &InterfaceName) -> String {
    format!("{}; {}", no_answer(subnet, interface), answer(interface))
}

/// That a node does not answer the hosts of `subnet` on `interface`, and why.
pub fn no_answer(subnet: IpNet, interface: &InterfaceName) -> String {
    format!(
        "the node does not answer hosts of {subnet} on {interface}: its route to them uses another \
         interface, and rp_filter is 1"
    )
}

/// The remedy that makes a node answer hosts of a subnet on `interface`.
pub fn answer(interface: &InterfaceName) -> String {
    format!(
        "set returnPath: Symmetric in the policy, change the route to use {interface}, or set \
         net.ipv4.conf.{interface}.rp_filter=2 on the node"
    )
}

fn cannot_spread(view: &View<'_>, node: &NodeName) -> String {
    let state = view.live(node).and_then(|session| session.stored.record.data_path);
    let why = state.map(|state| format!(": {}", data_path(state))).unwrap_or_default();
    format!("no endpoint on the node, and it cannot spread packets over others{why}")
}

/// That packets are not spread over a node although nothing that is known keeps the owner from it.
pub(super) const NOT_REACHED: &str = "the owner has not reached it yet";

/// The state of a data path, and what to do.
pub fn data_path(state: DataPathState) -> &'static str {
    match state {
        DataPathState::Slow => {
            "packets take the slow path, because its kernel has no netdev family in nf_tables, or no fwd"
        }
        DataPathState::Filtered => {
            "the network drops packets that it sends with the addresses of clients or of the Service; allow these \
             where switches or hypervisors filter source addresses"
        }
        DataPathState::Failing => {
            "its kernel refuses the rules (see the log of its speaker and \
             leasehold_speaker_spread_failing)"
        }
        DataPathState::Replaced => {
            "a CNI has replaced kube-proxy, and handles packets before the rules do; use dataPath: Owner \
             with it"
        }
    }
}

fn no_session(view: &View<'_>, node: &NodeName) -> String {
    match view.world().sessions.get(node) {
        None => "no session: no speaker has run on the node".to_owned(),
        Some(session) => {
            let cause = &session.stored.record.cause;
            let why = if cause.is_empty() { "the session ended" } else { cause };
            format!("no live session: {why}")
        }
    }
}

fn no_interface(view: &View<'_>, claim: &DesiredClaim, node: &NodeName) -> String {
    let Some(session) = view.live(node) else { return "no interface".to_owned() };
    let record = &session.stored.record;
    let macs: Vec<_> = record.links_down.iter().map(ToString::to_string).collect();
    let down = match macs.as_slice() {
        [] => String::new(),
        [mac] => format!("; no carrier on the link with MAC address {mac}"),
        macs => format!("; no carrier on the links with MAC addresses {}", macs.join(", ")),
    };
    let mut links = record.interfaces.iter();
    let named = links.any(|it| claim.interfaces.iter().any(|pattern| pattern.matches(&it.name)));
    if !claim.interfaces.is_empty() && !named {
        let patterns: Vec<_> = claim.interfaces.iter().map(ToString::to_string).collect();
        let patterns = patterns.join(", ");
        return format!("no interface with a carrier matches the policy ({patterns}){down}");
    }
    let addresses: Vec<_> = claim.addresses.iter().map(ToString::to_string).collect();
    let own: Vec<_> = record.interfaces.iter().map(ToString::to_string).collect();
    let own = if own.is_empty() { "none with a carrier".to_owned() } else { own.join("; ") };
    format!(
        "no interface has a subnet that contains {} (interfaces of the node: {own}){down}",
        addresses.join(", ")
    )
}
