//! Addresses of nodes, which no claim may serve.

use std::net::IpAddr;

use leasehold_crds::names::NodeName;

use crate::desired::DesiredClaim;
use crate::election::context::Context;
use crate::election::io::event::Interface;

impl Context {
    /// An address that a node has without our mark, and the node: to serve it would take the node
    /// off the network, or let two hosts answer.
    pub(in crate::election) fn address_of_a_node(
        &self,
        claim: &DesiredClaim,
    ) -> Option<(IpAddr, NodeName)> {
        let own = |address: &&IpAddr| {
            let has = |interface: &Interface| {
                interface.addresses.iter().any(|net| net.addr() == **address)
            };
            self.kernel.foreign.contains_key(*address) || self.interfaces.values().any(has)
        };
        if let Some(address) = claim.addresses.iter().find(own) {
            return Some((*address, self.config.node.clone()));
        }
        self.live_sessions().find_map(|(node, stored)| {
            let theirs = stored.record.addresses().find(|own| claim.addresses.contains(own))?;
            Some((theirs, node.clone()))
        })
    }
}
