//! The reasons for changes of Leases: the texts of the annotation `leasehold.dev/cause`.
//!
//! People read them in `kubectl describe lease`, in logs, Events and the plugin. Speakers decide on a few of them, by
//! the functions here and nowhere else: other versions write the same texts.

use std::fmt;

use crate::names::NodeName;

/// The reason for the last change of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A claim that no node has owned before.
    NewService,
    /// The Lease of the claim was deleted or edited.
    ClaimEdited,
    /// The Lease of the claim or of its owner's session was deleted or edited.
    ClaimOrSessionEdited,
    /// The owner before does not own the claim any more, for the reason that its Lease gives.
    TakenOver(String),
    /// The owner before does not answer for the claim.
    Unanswered(NodeName),
    /// The session of the owner before has ended, for no known reason.
    SessionOver(NodeName),
    /// The successor did not serve the claim after a handover.
    TakenBack(NodeName),
    /// The owner hands the claim over.
    HandingOver(MoveReason),
    /// The claim was handed over by this node; the text is that of the [`MoveReason`].
    MovedFrom(NodeName, String),
    /// The owner released the claim.
    ReleasedBy(NodeName, String),
    /// A speaker fenced the session of a node, for what it observed.
    Fenced {
        /// The node whose session ended.
        node: String,
        /// The node that wrote the fence.
        by: String,
        /// The observation.
        finding: String,
    },
    /// The speaker of the node has started.
    Started,
    /// The speaker of the node terminates, and another process is to go on with the session.
    Restarting,
    /// The speaker of the node has restarted and goes on with the session.
    Restarted,
    /// The speaker of the node terminates and hands over what it owns.
    Leaving,
    /// The speaker of the node has terminated.
    Left,
    /// The session Lease was deleted.
    SessionDeleted,
    /// The session Lease was edited.
    SessionEdited,
    /// All interfaces that carried addresses lost their carriers.
    CarrierLost,
}

const TAKEN_OVER: &str = "taken over: ";
const HANDING_OVER: &str = "handing over: ";
const MOVED_FROM: &str = "moved from ";
const RELEASED_BY: &str = "released by ";
const FENCED_BY: &str = "fenced by";
const LEFT: &str = "speaker left";
const EDITED: &str = "lease was edited";

/// The reason for which an interface or a session without a carrier is given up.
pub const CARRIER_LOST: &str = "carrier lost";

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewService => f.write_str("new service"),
            Self::ClaimEdited => f.write_str("lease was deleted or edited"),
            Self::ClaimOrSessionEdited => f.write_str("lease or session was deleted or edited"),
            Self::TakenOver(reason) => write!(f, "{TAKEN_OVER}{reason}"),
            Self::Unanswered(node) => {
                write!(f, "{TAKEN_OVER}{node} does not answer for it any more")
            }
            Self::SessionOver(node) => {
                write!(f, "the session of {node} under which it was held is over")
            }
            Self::TakenBack(node) => write!(f, "taken back: {node} does not serve it"),
            Self::HandingOver(reason) => write!(f, "{HANDING_OVER}{reason}"),
            Self::MovedFrom(node, reason) => write!(f, "{MOVED_FROM}{node}: {reason}"),
            Self::ReleasedBy(node, reason) => write!(f, "{RELEASED_BY}{node}: {reason}"),
            Self::Fenced { node, by, finding } => write!(f, "{node} {FENCED_BY} {by}: {finding}"),
            Self::Started => f.write_str("speaker started"),
            Self::Restarting => f.write_str("restarting"),
            Self::Restarted => f.write_str("speaker restarted"),
            Self::Leaving => f.write_str("leaving"),
            Self::Left => f.write_str(LEFT),
            Self::SessionDeleted => f.write_str("lease was deleted"),
            Self::SessionEdited => f.write_str(EDITED),
            Self::CarrierLost => f.write_str(CARRIER_LOST),
        }
    }
}

impl Reason {
    /// Whether the text says that a session was fenced.
    pub fn is_fence(text: &str) -> bool {
        text.contains(FENCED_BY)
    }

    /// Whether the text says that a speaker ended its session in order: it terminated, or lost all its carriers.
    pub fn is_departure(text: &str) -> bool {
        text == LEFT || text == CARRIER_LOST
    }

    /// Whether the text says that a speaker terminated and ended its session in order.
    pub fn has_left(text: &str) -> bool {
        text == LEFT
    }

    /// Whether the text says that the session Lease was edited.
    pub fn is_edit(text: &str) -> bool {
        text == EDITED
    }

    /// Whether the text says that `node` released the claim.
    pub fn is_released_by(text: &str, node: &NodeName) -> bool {
        names(text, RELEASED_BY, node)
    }

    /// Whether the text says that `node` handed the claim over.
    pub fn is_moved_from(text: &str, node: &NodeName) -> bool {
        names(text, MOVED_FROM, node)
    }

    /// The reason of the handover that the text announces.
    pub fn handover(text: &str) -> Option<&str> {
        text.strip_prefix(HANDING_OVER)
    }
}

fn names(text: &str, prefix: &str, node: &NodeName) -> bool {
    let rest = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(node.as_str()));
    rest.is_some_and(|rest| rest.starts_with(':'))
}

/// The reason for a planned move of a claim to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The speaker terminates.
    SpeakerLeaves,
    /// The node is not ready, and others are.
    NotReady,
    /// The node is cordoned, and the policy says `drainOnCordon`.
    Cordoned,
    /// Pods leave the node.
    Drained,
    /// The network of the node is not set up.
    NetworkUnavailable,
    /// The Node object is being deleted.
    NodeDeleted,
    /// The policy says `mode: None`, or no policy matches.
    NoPolicy,
    /// The Services have no endpoint.
    NoEndpoint,
    /// The policy or the endpoints do not allow the node.
    NotAllowed,
    /// The kube-proxy of the node does not answer.
    ProxySilent,
    /// The node has no endpoint, and cannot spread packets over others.
    CannotSpread,
    /// Another node has the subnet of the addresses.
    Misplaced,
    /// The node does not answer the clients on the segment, and another node does.
    OutOfReach,
    /// No interface of the node can carry the addresses.
    Uncarried,
    /// A user asked for the move, by `kubectl leasehold move` or the annotation.
    ByHand,
    /// Another node is preferred by the policy.
    Preferred,
    /// Another node has fewer addresses.
    Balance,
    /// Another address of the Service is on the node.
    Apart,
    /// A node has joined shortly after the claim was given to its first owner.
    Joined,
}

impl MoveReason {
    /// The moves that improve the placement while the owner could keep the claim.
    const IMPROVEMENTS: [Self; 4] = [Self::Preferred, Self::Balance, Self::Apart, Self::Joined];

    /// The text, as in the annotation.
    pub const fn text(self) -> &'static str {
        match self {
            Self::SpeakerLeaves => "speaker leaves",
            Self::NotReady => "node is not ready",
            Self::Cordoned => "node is cordoned",
            Self::Drained => "node is drained",
            Self::NetworkUnavailable => "network of the node is unavailable",
            Self::NodeDeleted => "node is being deleted",
            Self::NoPolicy => "no policy announces it",
            Self::NoEndpoint => "its Services have no endpoint",
            Self::NotAllowed => "node may not announce it any more",
            Self::ProxySilent => "kube-proxy of the node does not answer",
            Self::CannotSpread => "the node cannot spread packets over others, and has no endpoint",
            Self::Misplaced => "another node has the subnet of its addresses",
            Self::OutOfReach => "the node does not answer the clients there, and another does",
            Self::Uncarried => "no interface of the node can carry it",
            Self::ByHand => "moved by hand",
            Self::Preferred => "another node is preferred",
            Self::Balance => "another node has fewer addresses",
            Self::Apart => "another address of the service is on the node",
            Self::Joined => "a node has joined",
        }
    }

    /// The improvement with which the text of a Lease's reason ends.
    pub fn improvement(text: &str) -> Option<Self> {
        Self::IMPROVEMENTS.into_iter().find(|reason| text.ends_with(reason.text()))
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn what_speakers_decide_on_is_read_as_it_was_written() {
        let why = MoveReason::Joined.to_string();
        let moved = Reason::MovedFrom(node("a"), why.clone()).to_string();
        assert!(
            Reason::is_moved_from(&moved, &node("a")) && !Reason::is_moved_from(&moved, &node("b"))
        );
        assert_eq!(MoveReason::improvement(&moved), Some(MoveReason::Joined));
        let released = Reason::ReleasedBy(node("a"), CARRIER_LOST.to_owned()).to_string();
        assert!(Reason::is_released_by(&released, &node("a")));
        assert!(!Reason::is_moved_from(&released, &node("a")) && !Reason::is_departure(&released));
        let handing = Reason::HandingOver(MoveReason::Drained).to_string();
        assert_eq!(Reason::handover(&handing), Some(MoveReason::Drained.text()));
        assert_eq!(MoveReason::improvement(&handing), None);
        let (by, finding) = ("b".to_owned(), "session was not renewed".to_owned());
        let fenced = Reason::Fenced { node: "a".to_owned(), by, finding }.to_string();
        assert!(Reason::is_fence(&fenced) && !Reason::is_fence(&released));
        assert!(Reason::is_departure(&Reason::Left.to_string()));
        assert!(Reason::is_departure(&Reason::CarrierLost.to_string()));
        assert!(Reason::is_edit(&Reason::SessionEdited.to_string()));
        assert!(!Reason::is_edit(&Reason::ClaimEdited.to_string()));
    }

    /// `web-1` is no `web-10`.
    #[test]
    fn a_node_is_named_by_its_whole_name() {
        let released = Reason::ReleasedBy(node("web-10"), String::new()).to_string();
        assert!(!Reason::is_released_by(&released, &node("web-1")));
    }
}
