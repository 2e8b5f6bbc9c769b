//! What the core is told and what it asks for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_crds::lease::{Claim, DefaultRoutes, Detours, LeaseName, Session, Silenced, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::{Desired, Down};
use crate::election::io::checkpoint::OwnRecord;
use crate::election::io::claim_state::ClaimState;
use crate::election::io::data_path::DataPathView;
use crate::election::io::forwarding::{Forwarding, OpenConnections};
use crate::election::io::probes::{Voices, Watchlist};
use crate::election::io::proxy::{ProxyView, RulesWatch};
use crate::election::io::serving::{KernelView, Serving};
use crate::election::io::spreading::Spreading;
use crate::election::io::transition::{OwnerId, Story};

/// What the core is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// All sessions, complete as of one moment; a watch goes on from there.
    Sessions(Vec<Arc<Stored<Session>>>),
    /// A session was created or changed.
    Session(Arc<Stored<Session>>),
    /// A session was deleted.
    SessionGone(LeaseName),
    /// All claims, complete as of one moment; a watch goes on from there.
    Claims(Vec<Arc<Stored<Claim>>>),
    /// A claim was created or changed.
    Claim(Arc<Stored<Claim>>),
    /// A claim was deleted.
    ClaimGone(LeaseName),
    /// The answer to [`Action::List`].
    Listed {
        /// When the lists were asked for.
        asked: Instant,
        /// All sessions.
        sessions: Vec<Arc<Stored<Session>>>,
        /// All claims.
        claims: Vec<Arc<Stored<Claim>>>,
    },
    /// What the cluster asks for; sent once everything that it is made from has been listed.
    Desired(Arc<Desired>),
    /// The interfaces of this node.
    Interfaces(BTreeMap<InterfaceName, Interface>),
    /// When a request of this node was last answered by somebody, per interface.
    Hearing(BTreeMap<InterfaceName, Instant>),
    /// A frame that claims or confirms an address.
    Heard(Heard),
    /// Frames that this node was sent were dropped: it did not keep up. Answers may have been among them.
    Missed,
    /// Which owners answer.
    Voices(Voices),
    /// What the kernel holds.
    Kernel(KernelView),
    /// The number of connections that are open through addresses that this node has handed over.
    Connections(OpenConnections),
    /// What is known of this node's service proxy.
    Proxy(ProxyView),
    /// The state of the spreading of packets on this node.
    DataPath(DataPathView),
    /// The answer to a [`Action::Write`] or [`Action::Read`].
    Answered {
        /// Which request.
        request: RequestId,
        /// What came back.
        answer: Answer,
    },
    /// The process was asked to end.
    Terminate(Follower),
    /// A deadline has passed.
    Tick,
}

/// Whether another process follows one that was asked to end. Of two answers the later one here counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Follower {
    /// Nothing says so: it may be started again at once, and its host may be shutting down.
    #[default]
    Unknown,
    /// Its pod is being replaced: this may take as long as a pod takes to start.
    Expected,
    /// None: Leasehold is being uninstalled.
    Nobody,
}

/// An interface of this node that can announce; one without an address only what a policy names it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its MAC address.
    pub mac: MacAddr,
    /// The largest packet that it sends, in bytes.
    pub mtu: u32,
    /// Whether it has a carrier and is up.
    pub carrier: bool,
    /// The node's own addresses on it.
    pub addresses: Vec<IpNet>,
    /// Its link-local IPv6 address there, where it has no other.
    pub link_local: Option<Ipv6Addr>,
    /// The families whose default route leads through it.
    pub default_routes: DefaultRoutes,
    /// Of the subnets of its addresses, those whose hosts the kernel reaches by another of the node's links.
    pub detours: Detours,
    /// Whether it announces only what a policy names it for.
    pub only_if_named: bool,
}

/// A frame from another host that says that it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardFrame {
    /// The address.
    pub ip: IpAddr,
    /// The MAC address that it names.
    pub mac: MacAddr,
    /// Whether it was sent to all; otherwise it answers a request.
    pub announcement: bool,
}

/// A [`HeardFrame`] with the interface on which it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The interface.
    pub interface: InterfaceName,
    /// The frame.
    pub frame: HeardFrame,
}

/// Tells requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A lease that is read or written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A session.
    Session(LeaseName),
    /// A claim.
    Claim(LeaseName),
}

/// A compare-and-swap on one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// On a session.
    Session(Change<Session>),
    /// On a claim.
    Claim(Change<Claim>),
}

/// The new state of one lease, and the state that it must still have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// Its name.
    pub name: LeaseName,
    /// What it must still be; `None`: it must not exist.
    pub base: Option<Arc<Stored<T>>>,
    /// What it is to say.
    pub record: T,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The session as it is now stored.
    Session(Arc<Stored<Session>>),
    /// The claim as it is now stored.
    Claim(Arc<Stored<Claim>>),
    /// There is no such lease.
    Absent,
    /// It is not what it had to be; nothing was written.
    Conflict,
    /// The API server asks to slow down; nothing was written.
    Throttled,
    /// The API server refuses; nothing was written.
    Refused(String),
    /// No answer: a write may have been carried out, or may still be.
    Unknown(String),
}

/// A frame to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Announce the address: gratuitous ARP request or unsolicited Neighbor Advertisement.
    Announce(IpAddr),
    /// Ask everybody who has the address, without a sender address (RFC 5227 section 2.1.1).
    Probe(IpAddr),
    /// Ask this MAC address alone whether it has the address.
    Ask(IpAddr, MacAddr),
    /// Ask the hosts that should be there, to know whether anybody answers this node now.
    AskAround,
}

/// What the core asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "an action is carried out at once")]
pub enum Action {
    /// Send this compare-and-swap at once.
    Write {
        /// To be named in the answer.
        request: RequestId,
        /// What to write.
        write: Write,
    },
    /// Read this lease from the store, not from a cache.
    Read {
        /// To be named in the answer.
        request: RequestId,
        /// What to read.
        target: Target,
    },
    /// List all sessions and claims from the store: the watch does not deliver.
    List {
        /// When, to be named in the answer.
        asked: Instant,
    },
    /// Bring the kernel's addresses in line.
    Serve(Serving),
    /// Listen to these owners.
    Listen(Watchlist),
    /// Forward what this node does not know of these addresses' connections. Comes before the addresses are to be
    /// served.
    Forward(Arc<Forwarding>),
    /// Spread the packets for these addresses. Comes before the addresses are to be served.
    Spread(Arc<Spreading>),
    /// These nodes are down: lead no new connection to their pods.
    Down(Down),
    /// Look whether the service proxy has the rules for these claims, until they are no longer asked for.
    Look(RulesWatch),
    /// Send a frame.
    Transmit {
        /// On which interface.
        interface: InterfaceName,
        /// What to send.
        frame: Frame,
    },
    /// Store the record for the next process.
    Persist(OwnRecord),
    /// Something that people or metrics want to know.
    Report(Fact),
    /// All is done: end the process.
    Exit,
}

/// Something that happened, for logs, metrics and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// This node has a session.
    SessionAcquired {
        /// Its number of transitions.
        transitions: i32,
        /// Whether it continues that of a former process.
        continued: bool,
    },
    /// This node's session was fenced, released or taken.
    SessionLost {
        /// What was seen.
        cause: String,
    },
    /// A renewal was not answered or was refused; what is held is held on.
    RenewalFailed {
        /// Why.
        cause: String,
    },
    /// This node fenced another.
    Fenced {
        /// The other.
        owner: OwnerId,
        /// Which sign of life was missing, and for how long.
        silence: Silenced,
    },
    /// This node became the owner.
    Claimed {
        /// The claim.
        claim: LeaseName,
        /// Why, for people.
        cause: String,
        /// What is known of the change; none where a former process of this node owned it already.
        story: Option<Story>,
        /// How long ago that began.
        after: Duration,
    },
    /// The kernel has all addresses of a claim that this node took, and they are announced.
    Serving {
        /// The claim.
        claim: LeaseName,
        /// Its services, as `namespace/name`.
        services: Vec<String>,
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The interface that carries them.
        interface: InterfaceName,
        /// Why this node has them.
        story: Story,
        /// How long that took from its first sign.
        took: Duration,
    },
    /// This node is the owner no longer.
    Yielded {
        /// The claim.
        claim: LeaseName,
        /// Why.
        cause: String,
        /// This node, as others name it who follow.
        owner: Option<OwnerId>,
    },
    /// Somebody asked for a move that cannot be made.
    MoveRefused {
        /// The claim.
        claim: LeaseName,
        /// To which node.
        node: NodeName,
        /// Why not.
        cause: String,
    },
    /// An address is used by a host that is no speaker, or by the node itself.
    AddressConflict {
        /// The claim.
        claim: LeaseName,
        /// The address.
        address: IpAddr,
        /// What was seen.
        cause: String,
    },
    /// The kernel does not hold an address that this node owns.
    AddressRefused {
        /// The claim.
        claim: LeaseName,
        /// The error of the kernel.
        cause: String,
    },
    /// The old owner of addresses that this node took still answers for them.
    OldOwnerAnswers {
        /// The claim that governs the address.
        claim: LeaseName,
        /// Its MAC address.
        mac: MacAddr,
        /// An address for which it answers.
        address: IpAddr,
    },
    /// An owner that answered on the wire does so no longer.
    Silent {
        /// The owner.
        owner: OwnerId,
        /// The interface on which it was polled.
        interface: InterfaceName,
        /// The address that was polled.
        address: IpAddr,
        /// The time since the first poll without an answer.
        after: Duration,
    },
    /// A node is down, or no longer: new connections are not led to its pods.
    NodeDown {
        /// The node.
        node: NodeName,
        /// Whether it is so now.
        down: bool,
    },
    /// Whether nobody but the polled owners ever answered on a segment: the wire is no evidence
    /// there, and only leases count.
    WireBlind {
        /// The interface on that segment.
        interface: InterfaceName,
        /// Whether it is so now.
        blind: bool,
    },
    /// Whether an owner answers what this node asks from 0.0.0.0 and nothing that it asks in its own name, as
    /// clients ask.
    ClientsUnanswered {
        /// The owner.
        owner: OwnerId,
        /// The interface on which it was asked.
        interface: InterfaceName,
        /// Whether it is so now.
        unanswered: bool,
    },
    /// Whether this node's kube-proxy, which answered before, does not for some seconds.
    ProxySilent {
        /// Whether it is so now.
        silent: bool,
    },
    /// Nobody served the addresses of a claim, and the rules of kube-proxy for its Services were not there in
    /// time: they are announced without.
    RulesLate {
        /// The claim.
        claim: LeaseName,
        /// For how long they were waited for.
        waited: Duration,
    },
    /// The state of a claim changed in a way that the table of [`ClaimState`] does not contain: a fault of this
    /// program. The claim is treated by its new state.
    UnexpectedTransition {
        /// The claim.
        claim: LeaseName,
        /// Its state before.
        from: ClaimState,
        /// Its state now.
        to: ClaimState,
    },
    /// This node took addresses whose owner fell silent while the API server did not answer.
    TookProvisionally {
        /// Their claim.
        claim: LeaseName,
        /// The owner.
        owner: OwnerId,
    },
}

impl Fact {
    /// The claim that it is about.
    pub const fn claim(&self) -> Option<&LeaseName> {
        match self {
            Self::Claimed { claim, .. }
            | Self::Serving { claim, .. }
            | Self::Yielded { claim, .. }
            | Self::MoveRefused { claim, .. }
            | Self::AddressConflict { claim, .. }
            | Self::AddressRefused { claim, .. }
            | Self::OldOwnerAnswers { claim, .. }
            | Self::RulesLate { claim, .. }
            | Self::UnexpectedTransition { claim, .. }
            | Self::TookProvisionally { claim, .. } => Some(claim),
            Self::SessionAcquired { .. }
            | Self::SessionLost { .. }
            | Self::RenewalFailed { .. }
            | Self::Fenced { .. }
            | Self::Silent { .. }
            | Self::NodeDown { .. }
            | Self::WireBlind { .. }
            | Self::ClientsUnanswered { .. }
            | Self::ProxySilent { .. } => None,
        }
    }
}
