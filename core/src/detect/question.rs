//! A question to a host on the segment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

/// Time after a question within which an answer belongs to it.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Hosts that have answered this node before, per interface: they tell a deaf node from a silent
/// owner.
pub type Witnesses = BTreeMap<InterfaceName, BTreeMap<IpAddr, MacAddr>>;

/// A question for one host or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The interface to send on.
    pub interface: InterfaceName,
    /// For which address.
    pub ip: IpAddr,
    /// The host to ask, if its MAC is known; else all hosts are asked.
    pub mac: Option<MacAddr>,
    /// Whether to ask in the node's own name: with an address in the subnet, or any that it has there; else,
    /// for IPv4, from 0.0.0.0 (RFC 5227 section 2.1.1). Some hosts answer only the one form (a router without
    /// a route back) or only the other (devices that do not know RFC 5227).
    pub named: bool,
}
