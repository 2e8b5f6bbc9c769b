//! Interfaces of CNIs that can replace kube-proxy.

use crate::net::rtnl::links::Links;

/// An interface that each of these has on every node: Cilium, Calico with its eBPF data plane, OVN-Kubernetes, Antrea. Some of
/// them leave Services to kube-proxy, which answers then.
const INTERFACES: [&str; 4] = ["cilium_host", "bpfin.cali", "ovn-k8s-mp0", "antrea-gw0"];

/// Whether the node has one of them.
pub fn is_possible(links: &Links) -> bool {
    links.0.keys().any(|name| INTERFACES.contains(&name.as_str()))
}
