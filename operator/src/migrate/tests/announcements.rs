//! From where services are announced: there and here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use proptest::prelude::*;

use super::*;

/// Name, pools, priority, interfaces and node selectors of each policy.
fn policies(outcome: &Outcome) -> Vec<String> {
    let text = |printed: &Printed<AnnouncementPolicy>| {
        let spec = &printed.object.spec;
        let interfaces: Vec<_> = spec.layer2().interfaces.iter().map(ToString::to_string).collect();
        format!(
            "{} {}: pools [{}], {} services, {} nodes, interfaces [{}]",
            spec.priority,
            printed.object.name_any(),
            spec.ip_address_pools.join(","),
            spec.service_selectors.len(),
            spec.node_selectors.len(),
            interfaces.join(",")
        )
    };
    outcome.policies.iter().map(text).collect()
}

fn rack(name: &str) -> Value {
    json!([{"matchLabels": {"rack": name}}])
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn advertisements_become_policies() {
    let all = json!({});
    let a = json!({"ipAddressPools": ["a"]});
    for (advertisements, expected, note) in [
        (
            vec![("all", all.clone())],
            vec!["100 all: pools [], 0 services, 0 nodes, interfaces []"],
            "",
        ),
        (
            vec![("one", a.clone())],
            vec![
                "100 one: pools [a], 0 services, 0 nodes, interfaces []",
                "100 not-announced: pools [b], 0 services, 1 nodes, interfaces []",
            ],
            "no L2Advertisement announces b",
        ),
        (
            vec![],
            vec!["100 not-announced: pools [a,b], 0 services, 1 nodes, interfaces []"],
            "no L2Advertisement announces a and b",
        ),
        (
            vec![
                ("all", all.clone()),
                ("edge", json!({"ipAddressPools": ["a"], "nodeSelectors": rack("1")})),
            ],
            vec![
                "100 all-edge: pools [a], 0 services, 0 nodes, interfaces []",
                "200 all: pools [], 0 services, 0 nodes, interfaces []",
            ],
            "L2Advertisement metallb-system/all and L2Advertisement metallb-system/edge are combined",
        ),
        (
            vec![
                (
                    "x",
                    json!({"ipAddressPools": ["a", "b"], "nodeSelectors": rack("1"), "interfaces": ["eth1"]}),
                ),
                (
                    "y",
                    json!({"ipAddressPools": ["a"], "nodeSelectors": rack("2"), "interfaces": ["eth0"]}),
                ),
            ],
            vec![
                "100 x: pools [b], 0 services, 1 nodes, interfaces [eth1]",
                "100 x-y: pools [a], 0 services, 2 nodes, interfaces [eth0,eth1]",
            ],
            "node by node",
        ),
        (
            vec![("x", json!({"interfaces": ["eth1"]})), ("y", json!({}))],
            vec!["100 x-y: pools [], 0 services, 0 nodes, interfaces []"],
            "everything that one of them allows",
        ),
        (
            vec![("x", json!({"interfaces": ["eth1", "a-name-that-is-too-long"]}))],
            vec!["100 x: pools [], 0 services, 0 nodes, interfaces [eth1]"],
            "interface omitted: `a-name-that-is-too-long` is longer than 15 bytes",
        ),
        (
            vec![("x", json!({"interfaces": ["a/b"]}))],
            vec!["100 x: pools [], 0 services, 1 nodes, interfaces []"],
            "no interface remains",
        ),
        (
            vec![("x", json!({"interfaces": ["eth1", "eth0"]}))],
            vec!["100 x: pools [], 0 services, 0 nodes, interfaces [eth0,eth1]"],
            "one interface of the owner carries an address",
        ),
        (
            vec![
                ("all", json!({"nodeSelectors": rack("1")})),
                (
                    "web",
                    json!({"serviceSelectors": [{"matchLabels": {"app": "web"}}], "nodeSelectors": rack("2")}),
                ),
            ],
            vec![
                "50 web-all: pools [], 1 services, 2 nodes, interfaces []",
                "100 all: pools [], 0 services, 1 nodes, interfaces []",
            ],
            "are combined",
        ),
        (
            vec![("x", json!({"ipAddressPoolSelectors": [{"matchLabels": {"segment": "b"}}]}))],
            vec![
                "100 x: pools [b], 0 services, 0 nodes, interfaces []",
                "100 not-announced: pools [a], 0 services, 1 nodes, interfaces []",
            ],
            "replace the names with spec.ipAddressPoolSelectors",
        ),
        (
            vec![(
                "x",
                json!({"preferredNodeSelectors": [{"weight": 1, "preference": {}}], "other": 1}),
            )],
            vec!["100 x: pools [], 0 services, 0 nodes, interfaces []"],
            "prefers some nodes (spec.preferredNodeSelectors), which is not converted: write",
        ),
        (
            vec![(
                "x",
                json!({"nodeSelectors": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}),
            )],
            vec!["100 x: pools [], 0 services, 1 nodes, interfaces []"],
            "the API server refuses this policy until you correct it",
        ),
    ] {
        let mut b = pool("b", &json!({"addresses": ["198.51.100.0/24"]}));
        b["metadata"]["labels"] = json!({"segment": "b"});
        let mut objects = vec![pool("a", &json!({"addresses": ["192.0.2.0/24"]})), b];
        objects.extend(advertisements.iter().map(|(name, spec)| advertisement(name, spec)));
        let outcome = moved_objects(&objects);
        assert_eq!(policies(&outcome), expected, "{advertisements:?}");
        let notes: Vec<&str> =
            outcome.policies.iter().flat_map(|p| &p.notes).map(String::as_str).collect();
        assert!(notes.join("\n").contains(note), "{advertisements:?}: {notes:?}");
        assert_eq!(notes.is_empty(), note.is_empty(), "{notes:?}");
    }
}

#[test]
fn an_advertisement_speaks_of_pools_of_its_own_namespace() {
    let mut other = pool("b", &json!({"addresses": ["198.51.100.0/24"]}));
    other["metadata"]["namespace"] = json!("test");
    let outcome = moved_objects(&[
        pool("a", &json!({"addresses": ["192.0.2.0/24"]})),
        other,
        advertisement("all", &json!({})),
        advertisement("b", &json!({"ipAddressPools": ["b"]})),
    ]);
    assert_eq!(policies(&outcome)[0], "100 all: pools [a], 0 services, 0 nodes, interfaces []",);
    let notes = outcome.notes.join("\n");
    assert!(
        notes.contains("L2Advertisement metallb-system/b names pool b, which is not"),
        "{notes}"
    );
}

#[test]
fn a_pool_that_bgp_alone_announces_says_so() {
    let mut bgp = advertisement("up", &json!({"ipAddressPools": ["a"]}));
    bgp["kind"] = json!("BGPAdvertisement");
    let outcome = moved_objects(&[pool("a", &json!({"addresses": ["192.0.2.0/24"]})), bgp]);
    assert_eq!(
        outcome.policies[0].notes[1],
        "MetalLB announces a with BGP, which Leasehold does not support"
    );
}

/// Some subset of the labels `a: x`, `a: y`, `b: x`, `b: y`, one value per key.
fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let value = || prop::option::of(prop::sample::select(vec!["x", "y"]));
    (value(), value()).prop_map(|(a, b)| {
        let pairs = [("a", a), ("b", b)];
        let present = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
        present.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    })
}

fn selectors() -> impl Strategy<Value = Vec<LabelSelector>> {
    let selector = labels().prop_map(|labels| LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        ..LabelSelector::default()
    });
    prop::collection::vec(selector, 0..3)
}

#[derive(Clone, Debug)]
struct Theirs {
    pools: Vec<usize>,
    pool_selectors: Vec<LabelSelector>,
    nodes: Vec<LabelSelector>,
    services: Vec<LabelSelector>,
}

fn theirs() -> impl Strategy<Value = Theirs> {
    let some = prop_oneof![2 => Just(Vec::new()), 1 => selectors()];
    let pools = prop::collection::vec(0..3_usize, 0..3);
    (pools, some.clone(), selectors(), some).prop_map(|(pools, pool_selectors, nodes, services)| {
        Theirs { pools, pool_selectors, nodes, services }
    })
}

fn one_matches(selectors: &[LabelSelector], labels: &BTreeMap<String, String>) -> bool {
    selectors.iter().any(|it| Selector::try_from(it.clone()).unwrap().matches(labels))
}

fn all_or_any(selectors: &[LabelSelector], labels: &BTreeMap<String, String>) -> bool {
    selectors.is_empty() || one_matches(selectors, labels)
}

proptest! {
    /// MetalLB announces a service from a node if any advertisement of its pool says so.
    #[test]
    fn services_are_announced_from_the_nodes_that_metallb_announces_them_from(
        all in prop::collection::vec(theirs(), 0..4),
        pools in prop::collection::vec(labels(), 3),
        cases in prop::collection::vec((0..3_usize, labels(), labels()), 20),
    ) {
        let mut objects = Vec::new();
        for (index, labels) in pools.iter().enumerate() {
            let addresses = format!("192.0.2.{index}/32");
            let mut pool = pool(&format!("p{index}"), &json!({"addresses": [addresses]}));
            pool["metadata"]["labels"] = json!(labels);
            objects.push(pool);
        }
        for (index, it) in all.iter().enumerate() {
            let names: Vec<String> = it.pools.iter().map(|pool| format!("p{pool}")).collect();
            objects.push(advertisement(&format!("ad{index}"), &json!({
                "ipAddressPools": names, "ipAddressPoolSelectors": it.pool_selectors,
                "nodeSelectors": it.nodes, "serviceSelectors": it.services,
            })));
        }
        let outcome = converted(&objects);
        let (ours, errors) = Policies::new(outcome.policies.iter().map(|printed| &printed.object));
        prop_assert!(errors.is_empty());
        for (pool, service, node) in cases {
            let relevant = |it: &&Theirs| {
                let everything = it.pools.is_empty() && it.pool_selectors.is_empty();
                let selected =
                    everything || it.pools.contains(&pool) || one_matches(&it.pool_selectors, &pools[pool]);
                selected && all_or_any(&it.services, &service)
            };
            let there = all.iter().filter(relevant).any(|it| all_or_any(&it.nodes, &node));
            let here = match ours.govern(&service, Some(&format!("p{pool}"))) {
                Governance::Default => true,
                Governance::None | Governance::Unreadable(_) => false,
                Governance::Policy(policy) => policy.allows_node(&node),
            };
            let selecting = all.iter().filter(relevant).filter(|it| !it.services.is_empty()).count();
            prop_assert!(there || !here, "announced here alone: {:?} {:?} {:?}", pool, service, node);
            prop_assert!(here || !there || selecting > 1, "silent: {:?} {:?} {:?}", pool, service, node);
        }
    }

    /// MetalLB's pool and ours contain the same addresses.
    #[test]
    fn pools_hold_the_same_addresses(
        entries in prop::collection::vec((any::<u16>(), 0..600_u32, 20..=32_u8, any::<bool>()), 1..100),
        probes in prop::collection::vec(any::<u16>(), 50),
    ) {
        let number = |low: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + low);
        let text = |(first, more, length, cidr): &(u16, u32, u8, bool)| {
            let first = u32::from(*first);
            if *cidr {
                format!("{}/{length}", number(first))
            } else {
                format!("{}-{}", number(first), number(first + more))
            }
        };
        let written: Vec<String> = entries.iter().map(text).collect();
        let outcome = converted(&[pool("p", &json!({"addresses": written}))]);
        let ranges: Vec<IpRange> = outcome.pools.iter()
            .flat_map(|pool| &pool.object.spec.addresses)
            .map(|entry| entry.parse().unwrap())
            .collect();
        for probe in probes.into_iter().map(u32::from) {
            let there = entries.iter().any(|(first, more, length, cidr)| {
                let first = u32::from(*first);
                let (first, last) = if *cidr {
                    let host = u32::MAX.checked_shr(u32::from(*length)).unwrap_or(0);
                    (first & !host, first | host)
                } else {
                    (first, first + more)
                };
                (first..=last).contains(&probe)
            });
            let here = ranges.iter().any(|range| range.contains(number(probe).into()));
            prop_assert_eq!(there, here, "{}", number(probe));
        }
    }
}
