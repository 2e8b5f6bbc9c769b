//! The interfaces that the own session lists.

use std::collections::BTreeMap;

use leasehold_crds::lease::SessionInterface;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::election::io::event::Interface;

/// Those of a node's interfaces that can announce, as its session says it.
pub(in crate::election) fn links(
    interfaces: &BTreeMap<InterfaceName, Interface>,
) -> Vec<SessionInterface> {
    interfaces
        .iter()
        .filter(|(_, interface)| interface.carrier)
        .map(|(name, interface)| SessionInterface {
            name: name.clone(),
            mac: interface.mac,
            mtu: Some(interface.mtu),
            addresses: interface.addresses.clone(),
            link_local: interface.link_local,
            default_routes: interface.default_routes,
            detours: interface.detours.clone(),
            only_if_named: interface.only_if_named,
        })
        .collect()
}

/// The MAC addresses of those whose link is down.
pub(in crate::election) fn links_down(
    interfaces: &BTreeMap<InterfaceName, Interface>,
) -> Vec<MacAddr> {
    interfaces.values().filter(|interface| !interface.carrier).map(|down| down.mac).collect()
}
