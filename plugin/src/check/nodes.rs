//! Kernels of the nodes, and addresses of Services that a kubelet has taken for its node's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use leasehold_core::explain::View;
use leasehold_crds::IPAddressPool;
use leasehold_crds::range::IpRange;

use super::super::output::listed;
use super::finding::Finding;

const KERNEL: &str = "kernel";
const NODE_IP: &str = "node-ip";

/// Linux 5.10 is the oldest that is said to work.
const OLDEST: (u32, u32) = (5, 10);
/// Without `IFA_RT_PRIORITY` no address can be marked, and the speaker ends.
const IMPOSSIBLE: (u32, u32) = (4, 18);

/// Checks each node's kernel version, as its kubelet reports it.
pub(super) fn kernels(nodes: &[Node]) -> Vec<Finding> {
    let mut old: BTreeMap<(bool, String), Vec<String>> = BTreeMap::new();
    let mut fine = 0;
    for node in nodes {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let Some(info) = info.filter(|info| info.operating_system != "windows") else { continue };
        match version(&info.kernel_version) {
            Some(version) if version < OLDEST => {
                let text = format!("Linux {} ({})", info.kernel_version, info.os_image);
                old.entry((version < IMPOSSIBLE, text)).or_default().push(node.name_any());
            }
            Some(_) => fine += 1,
            None => {}
        }
    }
    if old.is_empty() {
        return match fine {
            0 => vec![Finding::skipped(KERNEL, "no node reports its kernel (status.nodeInfo)")],
            fine => {
                let text = format!("Linux 5.10 or later on {fine} of {} nodes", nodes.len());
                vec![Finding::ok(KERNEL, text)]
            }
        };
    }
    let finding = |((impossible, kernel), nodes): ((bool, String), Vec<String>)| {
        let nodes = listed(&nodes);
        if impossible {
            let text = format!("{kernel} cannot mark addresses: the speaker cannot run on {nodes}");
            let fix = "update the kernel to 5.10 or later, or exclude these nodes with the nodeSelector of \
                       the DaemonSet";
            Finding::fail(KERNEL, text, fix)
        } else {
            let text = format!("{kernel} on {nodes} is older than Linux 5.10 and untested");
            Finding::warn(KERNEL, text, "update the kernel to 5.10 or later")
        }
    };
    old.into_iter().map(finding).collect()
}

/// Major and minor number of what `uname -r` says.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || parts.next().and_then(|part| part.parse().ok());
    Some((number()?, number()?))
}

/// Nodes of which the API server believes that they have an address of a Service: other nodes and the control plane
/// reach their kubelets and host ports by it.
pub(super) fn addresses(nodes: &[Node], view: &View<'_>, pools: &[IPAddressPool]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut looked_at = false;
    for node in nodes {
        let name = node.name_any();
        let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        let internal = addresses.into_iter().flatten().filter(|it| it.type_ == "InternalIP");
        for ip in internal.filter_map(|it| it.address.parse::<IpAddr>().ok()) {
            looked_at = true;
            let Some(whose) = whose(ip, view, pools) else { continue };
            if !is_its_own(&name, ip, view) {
                let text = format!("Node {name} has the InternalIP {ip}, which is {whose}");
                let fix = format!(
                    "set --node-ip of the kubelet on {name} to the node's own address and restart it, or \
                     remove {ip} from the pool"
                );
                findings.push(Finding::fail(NODE_IP, text, fix));
            }
        }
    }
    if findings.is_empty() && looked_at {
        let text = "no InternalIP of a node is an address of a pool or Service";
        findings.push(Finding::ok(NODE_IP, text));
    }
    findings
}

/// The pool or Service whose address it is.
fn whose(ip: IpAddr, view: &View<'_>, pools: &[IPAddressPool]) -> Option<String> {
    let holds = |pool: &&IPAddressPool| {
        let ranges = pool.spec.addresses.iter().filter_map(|it| it.parse().ok());
        ranges.into_iter().any(|range: IpRange| range.contains(ip))
    };
    let mut services = view.world().services.iter().filter(|(_, row)| row.ours);
    if let Some((name, _)) = services.find(|(_, row)| row.addresses.contains(&ip)) {
        return Some(format!("the address of Service {name}"));
    }
    pools.iter().find(holds).map(|pool| format!("in pool {}", pool.name_any()))
}

/// Whether the node's speaker lists it among the addresses that the node has without Leasehold: then it is the pool
/// that is too wide, and the operator gives it to nobody.
fn is_its_own(node: &str, ip: IpAddr, view: &View<'_>) -> bool {
    let session = node.parse().ok().and_then(|node| view.live(&node));
    let interfaces = session.into_iter().flat_map(|session| &session.stored.record.interfaces);
    interfaces.flat_map(|interface| &interface.addresses).any(|net| net.addr() == ip)
}

#[cfg(test)]
mod tests {
    use leasehold_core::explain::{Objects, World};
    use leasehold_crds::lease::annotation;
    use serde_json::{Value, json};

    use super::super::finding::Level;
    use super::*;

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn node(name: &str, release: &str, system: &str, ip: &str) -> Node {
        of(json!({
            "metadata": { "name": name },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": ip },
                    { "type": "Hostname", "address": name }],
                "nodeInfo": { "kernelVersion": release, "operatingSystem": system,
                    "osImage": "Linux", "architecture": "amd64", "bootID": "", "machineID": "",
                    "systemUUID": "", "containerRuntimeVersion": "", "kubeletVersion": "",
                    "kubeProxyVersion": "" },
            },
        }))
    }

    #[test]
    fn a_kernel_that_is_too_old_is_named_with_its_nodes() {
        let rows = [
            ("6.18.44-fc", "linux", Level::Ok, "on 1 of 1 nodes"),
            ("5.10.0-28-amd64", "linux", Level::Ok, "on 1 of 1 nodes"),
            ("5.14.0-427.el9.x86_64", "linux", Level::Ok, "on 1 of 1 nodes"),
            ("4.18.0-553.el8_10.x86_64", "linux", Level::Warn, "on a is older than Linux 5.10"),
            ("5.4.0-190-generic", "linux", Level::Warn, "on a is older than Linux 5.10"),
            ("4.9.337", "linux", Level::Fail, "the speaker cannot run on a"),
            ("3.10.0-1160.el7.x86_64", "linux", Level::Fail, "the speaker cannot run on a"),
            ("10.0.20348.2582", "windows", Level::Skipped, "no node reports"),
            ("", "linux", Level::Skipped, "no node reports"),
        ];
        for (release, system, level, words) in rows {
            let found = kernels(&[node("a", release, system, "192.0.2.1")]);
            let [finding] = found.as_slice() else { panic!("{release}: {found:?}") };
            assert!(finding.level == level && finding.message.contains(words), "{finding:?}");
        }
        let both = ["5.10.1", "4.19.1"].map(|release| node(release, release, "linux", "192.0.2.1"));
        let found = kernels(&both);
        let expected = "on 4.19.1 is older than Linux 5.10 and untested";
        assert!(matches!(found.as_slice(), [it] if it.message.ends_with(expected)), "{found:?}");
    }

    #[test]
    fn a_node_that_goes_by_an_address_for_services_is_named() {
        let links = json!([{ "name": "eth0", "mac": "02:00:00:00:00:01",
            "addresses": ["192.0.2.250/24"] }]);
        let session = of(json!({
            "metadata": { "name": "a", "uid": "a", "resourceVersion": "1",
                "annotations": { annotation::INTERFACES: links.to_string() } },
            "spec": { "holderIdentity": "a", "leaseTransitions": 1 },
        }));
        let service = of(json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": "leasehold.dev/lease" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "198.51.100.9" }] } },
        }));
        let pools: Vec<IPAddressPool> = vec![of(json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
            "metadata": { "name": "default" }, "spec": { "addresses": ["192.0.2.100-192.0.2.250"] },
        }))];
        let objects =
            Objects { sessions: vec![session], services: vec![service], ..Objects::default() };
        let world = World::of(&objects);
        let view = View::new(&world);
        for (ip, expected) in [
            ("192.0.2.1", None),
            ("192.0.2.100", Some("in pool default")),
            ("198.51.100.9", Some("the address of Service shop/web")),
            // The node itself has it, by its own configuration.
            ("192.0.2.250", None),
        ] {
            let found = addresses(&[node("a", "6.1.0", "linux", ip)], &view, &pools);
            let [finding] = found.as_slice() else { panic!("{ip}: {found:?}") };
            let Some(words) = expected else {
                assert_eq!(finding.level, Level::Ok, "{ip}: {finding:?}");
                continue;
            };
            assert_eq!(finding.level, Level::Fail, "{ip}");
            assert!(finding.message.ends_with(words), "{finding:?}");
            assert!(finding.fix.as_ref().is_some_and(|fix| fix.contains("--node-ip")));
        }
    }
}
