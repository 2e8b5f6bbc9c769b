//! Sessions of the speakers, and interfaces for the addresses of the pools.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use leasehold_core::election::has_subnet_of;
use leasehold_core::explain::{SessionRow, View, World, answer, no_answer};
use leasehold_crds::IPAddressPool;
use leasehold_crds::lease::Session;
use leasehold_crds::names::NodeName;
use leasehold_crds::range::IpRange;
use tokio::time::{Instant, sleep};

use super::super::connect::Cluster;
use super::super::error::PluginError;
use super::super::output::listed;
use super::super::read::list;
use super::finding::Finding;

const SESSIONS: &str = "speakers";
const INTERFACES: &str = "interfaces";
const MTU: &str = "mtu";
const WAYS: &str = "rp_filter";

/// Interval between two looks at the sessions.
const LOOK: Duration = Duration::from_millis(500);
/// The longest time to look.
const LONGEST: Duration = Duration::from_secs(10);

/// The nodes whose sessions changed while they were looked at, for as long as one may go without: no
/// clock of theirs is compared with any other.
pub(super) async fn renewed(
    cluster: &Cluster,
    world: &World,
) -> Result<BTreeSet<NodeName>, PluginError> {
    let before: BTreeMap<&NodeName, &SessionRow> =
        world.sessions.iter().filter(|(_, session)| session.is_live()).collect();
    let longest = world.sessions.values().map(|it| it.stored.record.duration_seconds).max();
    let longest = u64::try_from(longest.unwrap_or(0)).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(longest).min(LONGEST);
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.sessions);
    let mut renewed = BTreeSet::new();
    while renewed.len() < before.len() && Instant::now() < until {
        sleep(LOOK).await;
        for lease in list(cluster, leases.clone()).await? {
            let Some((node, now)) = SessionRow::of(&lease) else { continue };
            // One that was fenced meanwhile has changed, too.
            let changed = before.get(&node).is_some_and(|before| is_renewed(before, &now));
            if changed {
                renewed.insert(node);
            }
        }
    }
    Ok(renewed)
}

/// Whether a session is the same as before, and was written since.
fn is_renewed(before: &SessionRow, now: &SessionRow) -> bool {
    let (before, stored) = (&before.stored, &now.stored);
    now.is_live()
        && before.uid == stored.uid
        && before.record.transitions == stored.record.transitions
        && before.resource_version != stored.resource_version
}

/// The nodes that policies select, or all.
fn selected<'a>(view: &View<'a>) -> Vec<&'a NodeName> {
    let policies = view.rules().policies();
    let none = policies.iter().next().is_none();
    let nodes = view.world().snapshot.nodes.iter();
    let may = nodes.filter(|(_, node)| {
        !node.is_excluded() && (none || policies.iter().any(|it| it.allows_node(node.labels())))
    });
    may.map(|(name, _)| name).collect()
}

/// Checks whether a speaker lives on each node that may announce.
pub(super) fn sessions(view: &View<'_>, renewed: &BTreeSet<NodeName>) -> Vec<Finding> {
    let selected = selected(view);
    let (mut without, mut still, mut restarting, mut drained) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for node in &selected {
        match view.live(node) {
            None => without.push(*node),
            Some(session) if session.stored.record.restarting => restarting.push(*node),
            Some(_) if !renewed.contains(*node) => still.push(*node),
            Some(session) if session.stored.record.drain => drained.push(*node),
            Some(_) => {}
        }
    }
    let mut findings = Vec::new();
    if selected.is_empty() {
        let fix = "kubectl get announcementpolicies; change their nodeSelectors";
        findings.push(Finding::fail(SESSIONS, "no node may announce", fix));
    } else if without.len() == selected.len() {
        let fix = "check the pods and logs: kubectl get pods -n leasehold-system";
        findings.push(Finding::fail(SESSIONS, "no node has a session: no speaker runs", fix));
    } else if !without.is_empty() {
        let text = format!("no session, so no running speaker: {}", listed(&without));
        let fix =
            "run a speaker on these nodes, or exclude them with the nodeSelectors of a policy";
        findings.push(Finding::warn(SESSIONS, text, fix));
    }
    if !still.is_empty() {
        let text = format!("session not renewed: {}", listed(&still));
        let fix = "the speaker hangs, or cannot reach the API server: see its log";
        findings.push(Finding::fail(SESSIONS, text, fix));
    }
    if !restarting.is_empty() {
        let text = format!("speaker restarting: {}", listed(&restarting));
        findings.push(Finding::warn(SESSIONS, text, "repeat the check in 30 seconds"));
    }
    if !drained.is_empty() {
        let text = format!("drained by annotation: {}", listed(&drained));
        findings.push(Finding::warn(SESSIONS, text, "kubectl leasehold undrain NODE"));
    }
    let silent = |node: &&&NodeName| {
        view.live(node).is_some_and(|session| session.stored.record.proxy_silent)
    };
    let silent: Vec<_> = selected.iter().filter(silent).collect();
    if !silent.is_empty() {
        let text = format!("kube-proxy has stopped answering: {}", listed(&silent));
        let fix = "check its pod and log; if you have replaced kube-proxy, restart the speakers";
        findings.push(Finding::warn(SESSIONS, text, fix));
    }
    if findings.is_empty() {
        let text = format!("all {} nodes that may announce have a live session", selected.len());
        findings.push(Finding::ok(SESSIONS, text));
    }
    findings
}

/// Checks whether all interfaces in one subnet have the same MTU: what moves to a node with a smaller one, or to
/// clients behind it, loses the larger packets.
pub(super) fn mtus(view: &View<'_>) -> Vec<Finding> {
    let mut subnets: BTreeMap<IpNet, BTreeMap<u32, Vec<String>>> = BTreeMap::new();
    for node in view.world().sessions.keys() {
        let Some(session) = view.live(node) else { continue };
        for interface in &session.stored.record.interfaces {
            let Some(mtu) = interface.mtu else { continue };
            let nets = interface.addresses.iter();
            let wide = nets.filter(|net| net.prefix_len() < net.max_prefix_len());
            for subnet in wide.map(IpNet::trunc).collect::<BTreeSet<_>>() {
                let place = format!("{node} {}", interface.name);
                subnets.entry(subnet).or_default().entry(mtu).or_default().push(place);
            }
        }
    }
    let mut findings = Vec::new();
    for (subnet, mtus) in subnets.iter().filter(|(_, mtus)| mtus.len() > 1) {
        let of = |(mtu, places): (&u32, &Vec<String>)| format!("{mtu} on {}", listed(places));
        let text = mtus.iter().map(of).collect::<Vec<_>>().join("; ");
        let fix =
            "give all interfaces of the segment the same MTU (ip link set dev INTERFACE mtu BYTES)";
        findings.push(Finding::warn(MTU, format!("{subnet}: the MTU is {text}"), fix));
    }
    if findings.is_empty() && !subnets.is_empty() {
        findings.push(Finding::ok(MTU, "the same on all interfaces of each subnet"));
    }
    findings
}

/// Checks whether nodes answer the hosts of their subnets on each of their interfaces there.
pub(super) fn ways(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in view.world().sessions.keys() {
        let Some(session) = view.live(node) else { continue };
        for interface in &session.stored.record.interfaces {
            for subnet in &interface.detours.unanswered {
                let name = &interface.name;
                let text = format!("{node}: {}", no_answer(*subnet, name));
                findings.push(Finding::warn(WAYS, text, answer(name)));
            }
        }
    }
    let mut unheard: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
    for node in view.world().sessions.keys() {
        for owner in view.live(node).iter().flat_map(|it| &it.stored.record.unanswering) {
            unheard.entry(owner).or_default().push(node);
        }
    }
    for (owner, nodes) in unheard {
        let text = format!(
            "{owner} does not answer client requests for its addresses (tested by {})",
            listed(&nodes)
        );
        let fix = format!(
            "on {owner}, set rp_filter=2 and arp_filter=0 on the interface with the addresses, or route to \
             the clients through it"
        );
        findings.push(Finding::warn(WAYS, text, fix));
    }
    if findings.is_empty() && view.world().sessions.keys().any(|node| view.live(node).is_some()) {
        let text = "each interface answers the hosts of its subnets";
        findings.push(Finding::ok(WAYS, text));
    }
    findings
}

/// Checks whether nodes have a subnet for the addresses of the pools.
pub(super) fn interfaces(view: &View<'_>, pools: &[IPAddressPool]) -> Vec<Finding> {
    let live: Vec<(&NodeName, &Session)> = selected(view)
        .into_iter()
        .filter_map(|node| Some((node, &view.live(node)?.stored.record)))
        .collect();
    let mut findings = Vec::new();
    for pool in pools {
        let name = pool.name_any();
        let ranges = pool.spec.addresses.iter().filter_map(|it| it.parse().ok());
        let ranges: Vec<IpRange> = ranges.collect();
        let lacks = |session: &Session| ranges.iter().find(|range| !holds(session, range));
        let lacking: Vec<_> =
            live.iter().filter_map(|(node, session)| Some((*node, lacks(session)?))).collect();
        let Some((_, range)) = lacking.first() else { continue };
        findings.push(if lacking.len() == live.len() {
            let text = format!(
                "pool {name}: no node has a subnet that contains {range}; the interface with the default \
                 route announces these addresses"
            );
            let fix = "no action is needed if the addresses are routed to that segment; otherwise, add an \
                       address of that subnet to the nodes";
            Finding::warn(INTERFACES, text, fix)
        } else {
            let nodes = listed(lacking.iter().map(|(node, _)| *node));
            let text = format!("pool {name}: no subnet that contains {range} on {nodes}");
            let fix = format!(
                "these nodes cannot announce {range}: add an address of that subnet, or exclude the nodes \
                 with the nodeSelectors of a policy"
            );
            Finding::warn(INTERFACES, text, fix)
        });
    }
    if findings.is_empty() && !live.is_empty() && !pools.is_empty() {
        let text = "each node has a subnet for the addresses of each pool";
        findings.push(Finding::ok(INTERFACES, text));
    }
    findings
}

/// Whether subnets of a node hold both ends of a range.
fn holds(session: &Session, range: &IpRange) -> bool {
    let ends: [IpAddr; 2] = [range.first(), range.last()];
    ends.into_iter().all(|end| has_subnet_of(session, end))
}

#[cfg(test)]
mod tests {
    use leasehold_core::explain::Objects;
    use leasehold_crds::lease::annotation;
    use serde_json::{Value, json};

    use super::super::finding::Level;
    use super::*;

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn session(node: &str, address: &str, more: &[&str]) -> Lease {
        let links = json!([{ "name": "eth0", "mac": "02:00:00:00:00:01", "addresses": [address] }]);
        let mut annotations = json!({ annotation::INTERFACES: links.to_string() });
        for key in more {
            annotations[*key] = json!("true");
        }
        of(json!({
            "metadata": { "name": node, "uid": node, "resourceVersion": "1",
                "annotations": annotations },
            "spec": { "holderIdentity": node, "leaseTransitions": 1 },
        }))
    }

    fn world(nodes: &[&str], sessions: Vec<Lease>) -> World {
        let node = |name: &&str| of(json!({ "metadata": { "name": name } }));
        let nodes = nodes.iter().map(node).collect();
        World::of(&Objects { nodes, sessions, ..Objects::default() })
    }

    #[test]
    fn speakers_that_are_missing_hung_restarting_or_drained_are_named() {
        let (here, drain, restarts) = ("192.0.2.250/24", annotation::DRAIN, annotation::RESTARTING);
        let both = || vec![session("a", here, &[]), session("b", here, &[])];
        for (what, sessions, renewed, expected) in [
            ("all live", both(), &["a", "b"][..], (Level::Ok, "all 2 nodes")),
            ("one hangs", both(), &["a"], (Level::Fail, "not renewed: b")),
            ("one has none", vec![session("a", here, &[])], &["a"], (Level::Warn, "speaker: b")),
            ("none runs", Vec::new(), &[], (Level::Fail, "no node has a session")),
            (
                "one is drained",
                vec![session("a", here, &[]), session("b", here, &[drain])],
                &["a", "b"],
                (Level::Warn, "drained by annotation: b"),
            ),
            (
                "one restarts",
                vec![session("a", here, &[]), session("b", here, &[restarts])],
                &["a"],
                (Level::Warn, "speaker restarting: b"),
            ),
        ] {
            let world = world(&["a", "b"], sessions);
            let renewed = renewed.iter().map(|name| name.parse().unwrap()).collect();
            let found = super::sessions(&View::new(&world), &renewed);
            let [finding] = &found[..] else { panic!("{what}: {found:?}") };
            assert_eq!(finding.level, expected.0, "{what}");
            assert!(finding.message.contains(expected.1), "{what}: {}", finding.message);
        }
        let mut silent = session("b", here, &[]);
        let annotations = silent.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::SERVICE_PROXY.to_owned(), "silent".to_owned());
        let silent = world(&["a", "b"], vec![session("a", here, &[]), silent]);
        let renewed = ["a", "b"].map(|name| name.parse().unwrap()).into();
        let found = super::sessions(&View::new(&silent), &renewed);
        assert_eq!(found[0].message, "kube-proxy has stopped answering: b");
        let nobody = world(&[], Vec::new());
        let found = super::sessions(&View::new(&nobody), &BTreeSet::new());
        assert_eq!(found[0].message, "no node may announce");
    }

    #[test]
    fn interfaces_of_one_subnet_that_differ_in_mtu_are_named() {
        let links = |address: &str, mtu: Option<u32>| {
            json!([{ "name": "eth0", "mac": "02:00:00:00:00:01", "addresses": [address],
                "mtu": mtu }])
        };
        let session = |node: &str, address: &str, mtu| {
            let annotations = json!({ annotation::INTERFACES: links(address, mtu).to_string() });
            of(json!({
                "metadata": { "name": node, "uid": node, "resourceVersion": "1",
                    "annotations": annotations },
                "spec": { "holderIdentity": node, "leaseTransitions": 1 },
            }))
        };
        let (near, also, far) = ("192.0.2.250/24", "192.0.2.251/24", "198.51.100.1/24");
        let differ = "192.0.2.0/24: the MTU is 1500 on a eth0; 9000 on b eth0";
        let same = "the same on all interfaces of each subnet";
        for (other, mtu, expected) in [
            (also, Some(9000), Some((Level::Warn, differ))),
            (also, Some(1500), Some((Level::Ok, same))),
            (also, None, Some((Level::Ok, same))),
            (far, Some(9000), Some((Level::Ok, same))),
        ] {
            let sessions = vec![session("a", near, Some(1500)), session("b", other, mtu)];
            let world = world(&["a", "b"], sessions);
            let found = super::mtus(&View::new(&world));
            let found = found.first().map(|it| (it.level, it.message.as_str()));
            assert_eq!(found, expected, "{other} {mtu:?}");
        }
    }

    #[test]
    fn an_interface_on_which_hosts_get_no_answer_is_named() {
        let lease = |more: &str| {
            let json = format!(
                r#"[{{"name":"eth0","mac":"02:00:00:00:00:01","addresses":["192.0.2.250/24"]{more}}}]"#
            );
            let annotations = json!({ annotation::INTERFACES: json });
            of(json!({
                "metadata": { "name": "a", "uid": "a", "resourceVersion": "1",
                    "annotations": annotations },
                "spec": { "holderIdentity": "a", "leaseTransitions": 1 },
            }))
        };
        let bypassed = r#","bypassed":["192.0.2.0/24"]"#;
        let unanswered = format!(r#"{bypassed},"unanswered":["192.0.2.0/24"]"#);
        for (more, level, message) in [
            ("", Level::Ok, "each interface answers"),
            (bypassed, Level::Ok, "each interface answers"),
            (&unanswered, Level::Warn, "a: the node does not answer hosts of 192.0.2.0/24 on eth0"),
        ] {
            let world = world(&["a"], vec![lease(more)]);
            let found = super::ways(&View::new(&world));
            let [finding] = &found[..] else { panic!("{found:?}") };
            assert_eq!(finding.level, level, "{more}");
            assert!(finding.message.starts_with(message), "{}", finding.message);
        }
        let mut asking = session("b", "192.0.2.251/24", &[]);
        let annotations = asking.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::UNANSWERING.to_owned(), "a".to_owned());
        let found = super::ways(&View::new(&world(&["a", "b"], vec![lease(""), asking])));
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.level, Level::Warn);
        assert!(
            finding.message.starts_with("a does not answer") && finding.message.ends_with("by b)")
        );
    }

    #[test]
    fn pools_that_no_node_or_not_each_node_has_a_subnet_for_are_named() {
        let pool: IPAddressPool = of(json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "IPAddressPool",
            "metadata": { "name": "lan" }, "spec": { "addresses": ["192.0.2.0/28"] },
        }));
        let (near, far) = ("192.0.2.250/24", "198.51.100.1/24");
        for (a, b, expected) in [
            (near, near, (Level::Ok, "each node has a subnet")),
            (near, far, (Level::Warn, "no subnet that contains 192.0.2.0-192.0.2.15 on b")),
            (far, far, (Level::Warn, "no node has a subnet that contains")),
        ] {
            let world = world(&["a", "b"], vec![session("a", a, &[]), session("b", b, &[])]);
            let found = super::interfaces(&View::new(&world), std::slice::from_ref(&pool));
            let [finding] = &found[..] else { panic!("{found:?}") };
            assert_eq!(finding.level, expected.0, "{a} {b}");
            assert!(finding.message.contains(expected.1), "{}", finding.message);
        }
    }
}
