//! The reasons of the events that the speaker and the operator publish. The reference of the book is made of
//! them, so that no event is without an entry there.

use std::fmt;

/// A component that publishes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// `leasehold-speaker`.
    Speaker,
    /// `leasehold-operator`.
    Operator,
}

impl Component {
    /// The controller that its events name (`reportingController`).
    pub const fn controller(self) -> &'static str {
        match self {
            Self::Speaker => "leasehold.dev/speaker",
            Self::Operator => "leasehold-operator",
        }
    }
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// A change in the course of operation.
    Normal,
    /// A condition that users should look at.
    Warning,
}

/// The constant part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `reason`: several entries have the same where type or object differ.
    pub reason: &'static str,
    /// The component that publishes it.
    pub component: Component,
    /// `type`.
    pub type_: EventType,
    /// The kind of `regarding`.
    pub object: &'static str,
    /// `action`.
    pub action: &'static str,
    /// The meaning for users, in Markdown.
    pub meaning: &'static str,
}

macro_rules! reasons {
    ($($name:ident: $component:ident, $type_:ident $reason:literal on $object:literal in $action:literal,
        $meaning:literal;)+) => {
        /// The reason of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The constant part of the event.
            pub const fn entry(self) -> Entry {
                match self {
                    $(Self::$name => Entry {
                        reason: $reason,
                        component: Component::$component,
                        type_: EventType::$type_,
                        object: $object,
                        action: $action,
                        meaning: $meaning,
                    },)+
                }
            }
        }
    };
}

reasons! {
    Announced: Speaker, Normal "Announced" on "Service" in "Announce",
        "A node announces an address that had no owner.";
    TakenOver: Speaker, Normal "TakenOver" on "Service" in "Announce",
        "A node announces an address of a former owner. The note has the time since the former owner's last \
         sign of life.";
    Moved: Speaker, Normal "Moved" on "Service" in "Announce",
        "A handover is complete.";
    MoveRefused: Speaker, Warning "MoveRefused" on "Service" in "Announce",
        "A requested move is not possible. The note has the cause.";
    RulesLate: Speaker, Warning "RulesLate" on "Service" in "Announce",
        "kube-proxy had no rules for the Service within the maximum wait, and the node announces the \
         addresses without them.";
    AddressConflict: Speaker, Warning "AddressConflict" on "Service" in "Announce",
        "A host that is not a speaker uses an address of the Service, or a node has the address as its own.";
    AddressRefused: Speaker, Warning "AddressRefused" on "Service" in "Announce",
        "The kernel of the owner refuses the address, or another program removed it.";
    OldOwnerAnswers: Speaker, Warning "OldOwnerAnswers" on "Service" in "Announce",
        "A former owner still answers for an address. The new owner repeats its announcements.";
    NodeAnnounces: Speaker, Normal "Announced" on "Node" in "Announce",
        "The node announces the addresses of more than ten Services at once; the note counts them.";
    NodeTakenOver: Speaker, Warning "TakenOver" on "Node" in "Announce",
        "Another node took the addresses of this node, because it failed. The note counts the Services.";
    NodeReleased: Speaker, Normal "TakenOver" on "Node" in "Announce",
        "Another node took the addresses of this node, which had released them, or lost them through an \
         edited Lease.";
    Fenced: Speaker, Warning "Fenced" on "Node" in "Watch",
        "Another node ended the session of this node, because it did not answer probes or did not renew its \
         session.";
    WirePathOff: Speaker, Warning "WirePathOff" on "Node" in "Listen",
        "No witness has ever answered on an interface of the node. Owners on that segment are replaced only \
         when their sessions expire.";
    WirePathOn: Speaker, Normal "WirePathOn" on "Node" in "Listen",
        "A witness answers on the interface: owners that do not answer probes are replaced immediately.";
    ClientsNotAnswered: Speaker, Warning "ClientsNotAnswered" on "Node" in "Listen",
        "The node owns addresses and answers probes, but does not answer ARP requests as clients send them.";
    KubeProxySilent: Speaker, Warning "KubeProxySilent" on "Node" in "Check",
        "The kube-proxy of the node has stopped answering health checks. The node takes only addresses that \
         no other node can take.";
    KubeProxyAnswers: Speaker, Normal "KubeProxyAnswers" on "Node" in "Check",
        "The kube-proxy of the node answers health checks again.";
    HostExposed: Speaker, Warning "HostExposed" on "Node" in "Protect",
        "The kernel refuses the rules of host protection. The note has the effect and the cause.";
    HostProtected: Speaker, Normal "HostProtected" on "Node" in "Protect",
        "Host protection works again.";
    AddressAssigned: Operator, Normal "AddressAssigned" on "Service" in "Allocate",
        "The Service has new addresses.";
    AddressReleased: Operator, Normal "AddressReleased" on "Service" in "Release",
        "The Service gave up its addresses.";
    AllocationFailed: Operator, Warning "AllocationFailed" on "Service" in "Allocate",
        "The Service gets no address, or lacks one. The note has the cause.";
    AddressKept: Operator, Warning "AddressKept" on "Service" in "Allocate",
        "The Service keeps an address that no pool would allocate to it anymore.";
    NotSpread: Operator, Warning "NotSpread" on "Service" in "Spread",
        "The policy says `dataPath: Spread`, and packets are not spread, or not over all nodes with endpoints. The \
         note has the cause.";
    OtherWriter: Operator, Warning "OtherWriter" on "Service" in "Restore",
        "Another client repeatedly reverts what the operator writes to the Service.";
    NotAnnounced: Operator, Warning "NotAnnounced" on "Service" in "Announce",
        "No node announces the addresses (condition reason `NoOwner`), or the owner does not answer clients \
         (`ClientsNotAnswered`).";
    NotToBeAnnounced: Operator, Normal "NotAnnounced" on "Service" in "Announce",
        "No node announces the addresses, for any other reason of the condition `leasehold.dev/Announced`, \
         such as `NoEndpoint` or `ModeNone`.";
    InvalidAddresses: Operator, Warning "InvalidAddresses" on "IPAddressPool" in "ReadPool",
        "Entries of the pool are invalid. The other entries remain in use.";
    InvalidSelector: Operator, Warning "InvalidSelector" on "IPAddressPool" in "ReadPool",
        "Selectors of the pool are invalid. The pool serves no Service until they are corrected.";
    Overlapping: Operator, Warning "Overlapping" on "IPAddressPool" in "ReadPool",
        "Addresses of the pool belong to an older pool.";
    SpeakersNotDeployed: Operator, Warning "SpeakersNotDeployed" on "Deployment" in "Deploy",
        "The operator cannot deploy the speakers (`--deploy-speakers`). The note has the cause.";
}

impl Reason {
    /// The word that the event has for it.
    pub const fn as_str(self) -> &'static str {
        self.entry().reason
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_reasons_are_the_same_event() {
        for (number, one) in Reason::ALL.iter().enumerate() {
            let Entry { reason, type_, object, component, .. } = one.entry();
            let same = |other: &&Reason| {
                let other = other.entry();
                (other.reason, other.type_, other.object, other.component)
                    == (reason, type_, object, component)
            };
            assert_eq!(Reason::ALL[number + 1..].iter().find(same), None, "{one:?}");
        }
    }

    #[test]
    fn reasons_are_words_as_kubernetes_asks_for() {
        for reason in Reason::ALL {
            let word = reason.as_str();
            assert!(word.len() <= 128 && word.chars().all(char::is_alphanumeric), "{word}");
        }
    }
}
