//! What the cluster asks for: which claims exist, with which addresses, and who may hold them.
//!
//! [`Desired`] is a pure function of Services, EndpointSlices, `AnnouncementPolicies` and Nodes.

mod build;
mod reach;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};

pub use leasehold_crds::policy::{Detection, Failback, FailbackMode, OnApiOutage};

pub use build::{NodeObject, ServiceFacts, SliceFacts, Snapshot, build};
pub use reach::{Protocol, Reach, ServicePort};

/// What the cluster asks for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The claims that govern addresses, as the operator recorded them on the Services.
    pub claims: BTreeMap<LeaseName, DesiredClaim>,
    /// All nodes.
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// What of a node may be reached by each of the addresses. No claim depends on it.
    pub reach: BTreeMap<IpAddr, Reach>,
}

/// One claim that the cluster asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredClaim {
    /// The services, as `namespace/name`.
    pub services: Vec<String>,
    /// The addresses that it governs.
    pub addresses: BTreeSet<IpAddr>,
    /// The nodes that may hold it: selected by the policy, not excluded, and with an endpoint where
    /// the service asks for one on the node. Cordoned nodes are among them.
    pub nodes: Arc<BTreeSet<NodeName>>,
    /// How much nodes are preferred to those that are not named.
    pub preference: Arc<BTreeMap<NodeName, u32>>,
    /// When it goes to a better node while its owner lives.
    pub failback: Failback,
    /// The interfaces that may carry it; empty: the one whose subnet holds the addresses.
    pub interfaces: Vec<InterfaceName>,
    /// How the silence of its owner is told.
    pub detection: Detection,
    /// What becomes of its addresses while the API server does not answer.
    pub on_api_outage: OnApiOutage,
}

/// What matters of a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Unschedulable: holds what it has only until another node takes it.
    pub cordoned: bool,
    /// Being deleted.
    pub leaving: bool,
}
