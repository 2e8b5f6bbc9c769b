//! What a process leaves for the next one on the same boot of the same host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::lease::{Incarnation, LeaseName, SessionId};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;
use serde::{Deserialize, Serialize};

/// The record in the state folder. It gives no right to anything: it says which addresses a
/// starting process keeps alive until it has seen the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnRecord {
    /// The node whose speaker wrote it.
    pub node: NodeName,
    /// The boot on which it was written; void on any other.
    pub incarnation: Incarnation,
    /// The session that was held.
    pub session: Option<SessionId>,
    /// The greatest number of transitions that its session lease was seen with.
    #[serde(default)]
    pub transitions: i32,
    /// The claims that were held.
    pub claims: BTreeMap<LeaseName, HeldClaim>,
}

/// A claim that was held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldClaim {
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// The interface that carries them.
    pub interface: InterfaceName,
    /// They lapse while the API server does not answer.
    #[serde(default)]
    pub drops: bool,
    /// The MAC addresses of those who may have them still and do not know that they lost them.
    #[serde(default)]
    pub untold: Box<[MacAddr]>,
}
