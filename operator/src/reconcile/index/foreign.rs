//! Addresses that are in use outside the allocation: those of Nodes, and those of Services that do not
//! request them from us.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::allocate::ServiceKey;

/// The addresses that the allocation must not give out because others have them.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    nodes: BTreeMap<IpAddr, String>,
    services: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    by_service: BTreeMap<ServiceKey, Vec<IpAddr>>,
}

impl Foreign {
    /// The addresses of Nodes, with the Node.
    pub(super) const fn nodes(&self) -> &BTreeMap<IpAddr, String> {
        &self.nodes
    }

    /// The addresses of Services that do not request them from us.
    pub(super) const fn services(&self) -> &BTreeMap<IpAddr, BTreeSet<ServiceKey>> {
        &self.services
    }

    /// Whether a Node has `ip`, or a Service that does not request its addresses from us.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.nodes.contains_key(&ip) || self.services.contains_key(&ip)
    }

    /// Replaces the addresses of all Nodes.
    pub(super) fn set_nodes(&mut self, addresses: impl Iterator<Item = (IpAddr, String)>) {
        self.nodes = addresses.collect();
    }

    /// Replaces the addresses of a Service; none: it is gone, has none, or is ours.
    pub(super) fn set_service(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        for ip in self.by_service.remove(key).unwrap_or_default() {
            if let Some(keys) = self.services.get_mut(&ip) {
                keys.remove(key);
                if keys.is_empty() {
                    self.services.remove(&ip);
                }
            }
        }
        if addresses.is_empty() {
            return;
        }
        for ip in addresses {
            self.services.entry(*ip).or_default().insert(key.clone());
        }
        self.by_service.insert(key.clone(), addresses.to_vec());
    }

    /// Forgets the addresses of all Services.
    pub(super) fn clear_services(&mut self) {
        self.services.clear();
        self.by_service.clear();
    }
}
