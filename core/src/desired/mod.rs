//! The desired state: the claims that should exist, their addresses, and the nodes that may hold them.
//!
//! [`Desired`] is a pure function of Services, EndpointSlices, `AnnouncementPolicies`, Nodes and what the
//! claims list.

mod announcement;
mod build;
mod detours;
mod endpoints;
mod proxied;
mod reach;
mod records;
mod rules;
mod slices;
mod snapshot;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{LeaseName, MoveReason};
use leasehold_crds::names::{InterfacePattern, NodeName};

pub use leasehold_crds::policy::{
    Announcements, Detection, Failback, FailbackMode, OnApiOutage, ReturnPath, ServiceProxy,
};

pub use announcement::Announcement;
pub use build::build;
pub use detours::{Detour, Detours, Down, Port, detours};
pub use proxied::Proxied;
pub use reach::{Protocol, Reach, ServicePort};
pub use records::{Governed, Lists, Record, governed};
pub use rules::{LeftOut, Rules};
pub use slices::{
    EndpointPort, KeptEndpoint, KeptSlice, News, SERVICE_NAME, Slice, SliceFacts, Slices, Use,
};
pub use snapshot::{NodeObject, ServiceFacts, Snapshot};
pub use spread::SpreadOver;

/// The desired state of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The claims that govern addresses, as the operator recorded them on the Services.
    pub claims: BTreeMap<LeaseName, Arc<DesiredClaim>>,
    /// All nodes.
    pub nodes: BTreeMap<NodeName, NodeState>,
    /// The polling of nodes that own nothing, as quickly as any claim asks for; `None`: the wire is not asked.
    pub polls: Option<Detection>,
    /// The ports of the node that each address leads to. No claim depends on it.
    pub reach: BTreeMap<IpAddr, Reach>,
}

impl Desired {
    /// The desired claim of this name.
    pub fn claim(&self, name: &LeaseName) -> Option<&DesiredClaim> {
        self.claims.get(name).map(|claim| &**claim)
    }

    /// The polling of nodes that own nothing, where these are the claims.
    pub fn polls_of(claims: &BTreeMap<LeaseName, Arc<DesiredClaim>>) -> Option<Detection> {
        let wired = claims.values().map(|claim| claim.detection).filter(|detection| detection.wire);
        wired.min_by_key(|detection| (detection.rank_step(), *detection))
    }

    /// The nodes that are not ready.
    pub fn not_ready(&self) -> impl Iterator<Item = &NodeName> {
        let not_ready = |(_, state): &(&NodeName, &NodeState)| **state == NodeState::NotReady;
        self.nodes.iter().filter(not_ready).map(|(name, _)| name)
    }

    /// The claims of which something else is asked for than `before`, those among them that are not
    /// asked for any more.
    pub fn changed<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a LeaseName> {
        let known = move |name| before.and_then(|before| before.claims.get(name));
        let new = self.claims.iter().filter(move |(name, claim)| known(*name) != Some(*claim));
        let former = before.into_iter().flat_map(|before| before.claims.keys());
        let gone = former.filter(|name| !self.claims.contains_key(*name));
        new.map(|(name, _)| name).chain(gone)
    }
}

/// Has what is as it was before be the same in memory: to compare it costs nothing then, for however many
/// claims and nodes, and it is kept once.
struct Sharing<'a> {
    before: Option<&'a Desired>,
    nodes: Shared<BTreeSet<NodeName>>,
    preferences: Shared<BTreeMap<NodeName, u32>>,
}

impl<'a> Sharing<'a> {
    fn with(before: Option<&'a Desired>) -> Self {
        Self { before, nodes: Shared::default(), preferences: Shared::default() }
    }

    fn claim(&mut self, name: &LeaseName, mut claim: DesiredClaim) -> Arc<DesiredClaim> {
        let Some(known) = self.before.and_then(|before| before.claims.get(name)) else {
            return Arc::new(claim);
        };
        self.nodes.share(&mut claim.nodes, &known.nodes);
        self.preferences.share(&mut claim.preference, &known.preference);
        if claim == **known { Arc::clone(known) } else { Arc::new(claim) }
    }

    fn reach(&self, address: IpAddr, reach: Reach) -> Reach {
        let known = self.before.and_then(|before| before.reach.get(&address));
        known.filter(|known| **known == reach).cloned().unwrap_or(reach)
    }
}

/// Which of two values, by their places in memory, are equal.
struct Shared<T>(BTreeMap<(*const T, *const T), bool>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: PartialEq> Shared<T> {
    /// Replaces `value` by `known` where they are equal.
    fn share(&mut self, value: &mut Arc<T>, known: &Arc<T>) {
        let places = (Arc::as_ptr(value), Arc::as_ptr(known));
        if *self.0.entry(places).or_insert_with(|| **value == **known) {
            *value = Arc::clone(known);
        }
    }
}

/// One claim that the cluster asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredClaim {
    /// The services, as `namespace/name`.
    pub services: Vec<String>,
    /// The addresses that it governs.
    pub addresses: AddressSet,
    /// The nodes that may hold it: selected by the policy, not excluded, and with an endpoint where
    /// the service asks for one on the node. Whatever their state, nodes are among them.
    pub nodes: Arc<BTreeSet<NodeName>>,
    /// Why no node may hold it, if none may.
    pub silence: Option<Silence>,
    /// Whether what governs it cannot be read: then its owner keeps it, and no node may take it.
    pub held: bool,
    /// Whether a node gives it away as soon as it is cordoned.
    pub drain_on_cordon: bool,
    /// The weights of preferred nodes; a node that is not named has the weight 0.
    pub preference: Arc<BTreeMap<NodeName, u32>>,
    /// Claims of its services for other addresses, which are better on other nodes.
    pub apart_from: BTreeSet<LeaseName>,
    /// When it goes to a better node while its owner lives.
    pub failback: Failback,
    /// The interfaces that may carry it, as all policies of its services say; empty: the one whose subnet
    /// holds the addresses.
    pub interfaces: Vec<InterfacePattern>,
    /// The way in which its addresses are announced.
    pub announcement: Announcement,
    /// The detection of a failed owner.
    pub detection: Detection,
    /// The treatment of its addresses while the API server does not answer.
    pub on_api_outage: OnApiOutage,
    /// For how long the connections of its former owner are forwarded to it after a planned move.
    pub connection_handover: Duration,
    /// The service proxy that leads traffic from its addresses to pods.
    pub proxied: Proxied,
    /// The nodes that its owner is to spread packets over; none: they go to its own pods.
    pub spread: Option<SpreadOver>,
    /// The interface by which answers from its addresses leave their owner.
    pub return_path: ReturnPath,
}

/// Why nobody announces a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Its policy says `mode: None`, or there are policies and none matches.
    Policy,
    /// Its services have no endpoint anywhere.
    NoEndpoint,
}

impl Silence {
    /// The reason for which the owner gives the claim up.
    pub const fn reason(self) -> MoveReason {
        match self {
            Self::Policy => MoveReason::NoPolicy,
            Self::NoEndpoint => MoveReason::NoEndpoint,
        }
    }
}

/// The state of a node: the most serious one that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// Takes and keeps addresses.
    #[default]
    Ready,
    /// Tainted as not ready or unreachable: takes only what no other node can, and gives away what it
    /// has if that lasts while others are ready.
    NotReady,
    /// Unschedulable: takes nothing, and keeps what it has unless the policy says otherwise.
    Cordoned,
    /// Unschedulable, and pods leave it: gives away what it has.
    Draining,
    /// Its network is not set up: gives away what it has.
    NetworkUnavailable,
    /// Being deleted: gives away what it has.
    Leaving,
}

impl NodeState {
    /// Whether it takes what it does not have.
    pub fn takes(self) -> bool {
        self <= Self::NotReady
    }
}
