//! Connections that outlive a move of their address: packets that belong to no connection of this node go on to the
//! owner before it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;

/// The addresses that this node owns or has owned, with the treatment of packets that belong to no connection of its
/// own, and begin none.
///
/// A packet of another speaker is forwarded only where that one has owned the address after this node. So each step leads
/// to a node whose last tenure is older, and no node forwards a packet twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// By the address.
    pub onward: BTreeMap<IpAddr, Onward>,
    /// The MAC addresses of the other speakers.
    pub speakers: BTreeSet<MacAddr>,
    /// The addresses that this node has handed over: others forward to it what belongs to its open connections.
    pub handed: Arc<BTreeSet<IpAddr>>,
}

/// The treatment of packets for an address that belong to no connection of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward {
    /// The owner before this node; none: what is forwarded to this node ends here.
    pub to: Option<Hop>,
    /// Whether this node has the address and keeps it: what clients send is forwarded. Otherwise it is dropped: they send
    /// it again, to the node that has the address.
    pub owned: bool,
    /// The MAC addresses of those that have owned the address after this node: what they send is forwarded.
    pub later: BTreeSet<MacAddr>,
    /// The MAC addresses of those that have owned it before, and of the successor: what they send before all have heard of
    /// a move is dropped, and comes again.
    pub others: BTreeSet<MacAddr>,
    /// Whether UDP flows of owners before are forwarded. Not while the next one is down: they begin anew here at once.
    pub flows: bool,
    /// The end of the time in which UDP flows that are not known count as flows of the owner before; they stay
    /// such as long as they send. `None`: no UDP flow does.
    pub flows_until: Option<Instant>,
    /// The end of all this.
    pub until: Instant,
}

/// A node that packets are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// An address of its own, of the family of the address.
    pub to: IpAddr,
    /// The interface of this node on which it is met.
    pub interface: InterfaceName,
}

/// The open connections through addresses that this node has handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnections {
    /// The addresses.
    pub through: Arc<BTreeSet<IpAddr>>,
    /// Their number.
    pub count: u64,
}
