//! `AnnouncementPolicy`: which services are announced from where, and which policy governs one.

#![allow(clippy::duplicated_attributes, reason = "printer columns repeat their types")]

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::names::InterfacePattern;
use crate::selector;

mod announcing;
mod detection;
mod govern;
mod placement;

pub use announcing::{Announcements, AnnouncementsSpec};
pub use detection::{Detection, DetectionError, DetectionMode, DetectionSpec, DurationText};
pub use govern::{Governance, Policies, Policy, PolicyError, PoolLabels};
pub use placement::{Failback, FailbackMode, PreferredNodes, Spread};

/// The condition that says whether a policy can be followed.
pub const ACCEPTED: &str = "Accepted";

/// The condition that says whether each name and selector of a policy matches something.
pub const EFFECTIVE: &str = "Effective";

/// The priority of a policy that gives none.
pub const DEFAULT_PRIORITY: i32 = 100;

/// From which nodes and interfaces services are announced, and when another node takes over.
///
/// Of the policies that match a service, the one with the smallest `priority` governs it; among
/// equals the first by name. Where no policy exists at all, every service is announced from any node
/// with the defaults; as soon as one exists, a service that none matches is not announced.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "leasehold.dev",
    version = "v1alpha1",
    kind = "AnnouncementPolicy",
    plural = "announcementpolicies",
    shortname = "annpol",
    category = "leasehold",
    status = "AnnouncementPolicyStatus",
    derive = "PartialEq",
    doc = "From which nodes and interfaces services are announced, and when another node takes over.",
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.priority",
        description = "The smallest that matches a service governs it."
    ),
    printcolumn(
        name = "Pools",
        type_ = "string",
        json_path = ".spec.ipAddressPools",
        description = "Pools whose services it matches."
    ),
    printcolumn(
        name = "Interfaces",
        type_ = "string",
        json_path = ".spec.interfaces",
        description = "Interfaces that announce."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".status.services",
        description = "Services that it governs."
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status",
        description = "Whether it can be followed."
    )
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementPolicySpec {
    /// The rank among the policies that match a service: the smallest governs. A policy of which some cannot
    /// be read keeps its rank and matches by the rest: what it governs stays with its owners, and no other
    /// node takes it.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub priority: i32,

    /// The names of the pools whose services the policy matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub ip_address_pools: Vec<String>,

    /// Selectors of pools whose services the policy matches as well. Without names and selectors:
    /// those of all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub ip_address_pool_selectors: Vec<LabelSelector>,

    /// Selectors of the services that the policy matches; one that matches is enough. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub service_selectors: Vec<LabelSelector>,

    /// Selectors of the nodes that may announce; one that matches is enough. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub node_selectors: Vec<LabelSelector>,

    /// Whether a node gives away its addresses as soon as it is cordoned. Else it takes no more, and
    /// gives away what it has once pods begin to leave it, as in a drain.
    #[serde(default)]
    pub drain_on_cordon: bool,

    /// Whether the addresses of a service that has no endpoint anywhere are announced. Else nobody
    /// announces them, and a condition on the service says so.
    #[serde(default)]
    pub announce_without_endpoints: bool,

    /// Which of these nodes are preferred. Of those that can announce, one of the greatest sum of
    /// weights does; among equals the one with the fewest addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred_nodes: Vec<PreferredNodes>,

    /// Whether the addresses of one service are on one node. `PerService`: they are. `PerAddress`: on
    /// different ones, as far as there are nodes that are preferred alike. Addresses that services
    /// share stay together. Changing it interrupts all but the first address of a service for a
    /// moment.
    #[serde(default)]
    pub spread: Spread,

    /// What goes to another node although the one that has it lives. `Never`: nothing.
    /// `Preferred`: what a more preferred node could announce. `Balance`: that as well, and some of
    /// what a node has that announces at least two addresses more than another. Whatever it says, an
    /// address that has been given out for the first time goes within its first minute to a node that
    /// joins, if that evens them out or the node is preferred: so whoever starts first does not keep
    /// everything. `maxMovesPerMinute` counts that, too.
    #[serde(default)]
    pub failback: FailbackMode,

    /// For how long the other node has to have been there, such as `60s`: at most `86400s`.
    #[serde(default = "placement::default_delay")]
    #[schemars(schema_with = "placement::delay_schema")]
    pub failback_delay: DurationText,

    /// How many addresses go to another node within a minute by `failback`, one after another, at
    /// most: from 1 to 600. What a death, a drain or a change of the policy moves does not count.
    #[serde(default = "placement::default_moves")]
    #[schemars(range(min = 1, max = 600))]
    pub max_moves_per_minute: i32,

    /// The interfaces that may carry the addresses, by name or by a pattern of names such as `eth*`
    /// or `bond?`; of several on a node the one whose subnet holds the address. Empty: the one whose subnet holds the address
    /// (the longest prefix); where no node has such a subnet, the one with the default route. Bridges
    /// and veths of containers, tunnels and other virtual devices without a default route are used
    /// only where they are named; bonds, VLANs and bridges of physical interfaces are not among them.
    /// Addresses that services share are carried by interfaces that each of their policies names, if it
    /// names any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub interfaces: Vec<PolicyInterface>,

    /// Whether the addresses are announced. `Layer2`: by ARP and NDP, from one node at a time.
    /// `None`: by no node; who has them gives them up. An address that services share is announced
    /// if the policies of all of them say so.
    #[serde(default)]
    pub mode: AnnouncementMode,

    /// How often the addresses are announced; the most frequent of what services that share an address
    /// ask for.
    #[serde(default)]
    pub announcements: AnnouncementsSpec,

    /// How the death of an owner is told. Services that share an address are watched with the
    /// fastest settings of any of them, and by `LeaseOnly` if any of them says so.
    #[serde(default)]
    pub detection: DetectionSpec,

    /// What becomes of the addresses while the API server does not answer. `Hold`: their owners go
    /// on serving, and where one dies another node takes over until it answers again. `Drop`: an
    /// owner that cannot renew its lease gives up its addresses before the lease has run out.
    #[serde(default)]
    pub on_api_outage: OnApiOutage,

    /// What of a node can be reached by the addresses that it has. `Enabled`: the ports of their
    /// services, and ICMP. `Disabled`: everything that listens on all addresses of the node, and
    /// all node ports. Addresses of services that share a claim are protected if any of them is.
    #[serde(default)]
    pub host_protection: HostProtection,

    /// By which signs it is told that a node can lead traffic from the addresses to pods. `KubeProxy`: where
    /// the node's kube-proxy answers health checks, a new address waits until the rules of its service are
    /// there, 3 seconds at most, and a node whose kube-proxy does not answer any more takes only what no
    /// other node can. `None`: by none, as where something else leads traffic to pods beside a kube-proxy.
    /// What services that share an address ask for counts if the policies of all of them say `KubeProxy`.
    #[serde(default)]
    pub service_proxy: ServiceProxy,
}

/// Whether addresses are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum AnnouncementMode {
    /// By ARP and NDP, from one node at a time.
    #[default]
    Layer2,
    /// By no node.
    None,
}

impl Default for AnnouncementPolicySpec {
    fn default() -> Self {
        Self {
            priority: DEFAULT_PRIORITY,
            ip_address_pools: Vec::new(),
            ip_address_pool_selectors: Vec::new(),
            service_selectors: Vec::new(),
            node_selectors: Vec::new(),
            drain_on_cordon: false,
            announce_without_endpoints: false,
            preferred_nodes: Vec::new(),
            spread: Spread::default(),
            failback: FailbackMode::default(),
            failback_delay: placement::default_delay(),
            max_moves_per_minute: placement::default_moves(),
            interfaces: Vec::new(),
            mode: AnnouncementMode::default(),
            announcements: AnnouncementsSpec::default(),
            detection: DetectionSpec::default(),
            on_api_outage: OnApiOutage::default(),
            host_protection: HostProtection::default(),
            service_proxy: ServiceProxy::default(),
        }
    }
}

/// What becomes of addresses while the API server does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum OnApiOutage {
    /// Their owners hold them, and where one dies, others take over until it answers again.
    #[default]
    Hold,
    /// They lapse before anybody else could own them.
    Drop,
}

/// What of a node can be reached by the addresses that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum HostProtection {
    /// The ports of their services, and ICMP.
    #[default]
    Enabled,
    /// Everything that listens on all addresses of the node, and all node ports.
    Disabled,
}

/// By which signs it is told that a node can lead traffic from addresses to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ServiceProxy {
    /// By those of kube-proxy, where there is one.
    #[default]
    KubeProxy,
    /// By none.
    None,
}

const fn default_priority() -> i32 {
    DEFAULT_PRIORITY
}

/// The name of an interface, or a pattern of names, as a policy writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyInterface(pub InterfacePattern);

impl JsonSchema for PolicyInterface {
    fn schema_name() -> Cow<'static, str> {
        "PolicyInterface".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": 15,
            "x-kubernetes-validations": [{
                "rule": r"self.matches('^[^/:\\s\\[\\]]+$') && !self.contains('**')",
                "messageExpression":
                    "\"'\" + self + \"' is no name of interfaces: write it without '/', ':', '[', ']' and \
                     white space; '*' stands for any characters and is not repeated, '?' for any one\"",
            }],
        })
    }
}

/// What the controller knows of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementPolicyStatus {
    /// How many services the policy governs.
    #[serde(default)]
    pub services: i64,
    /// `Accepted`: the policy can be followed. `Effective`: each of its names and selectors matches
    /// something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn policy(name: &str, spec: serde_json::Value) -> AnnouncementPolicy {
        AnnouncementPolicy::new(name, serde_json::from_value(spec).unwrap())
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn governor(policies: &[AnnouncementPolicy], service: &[(&str, &str)], pool: &str) -> String {
        let pools = ["lan", "dmz"].map(|pool| (pool.to_owned(), BTreeMap::new()));
        let policies = Policies::new(policies).0.of_pools(pools.into());
        match policies.govern(&labels(service), Some(pool)) {
            Governance::Default => "(default)".to_owned(),
            Governance::None => "(none)".to_owned(),
            Governance::Policy(policy) => policy.name.clone(),
            Governance::Unreadable(policy) => format!("({})", policy.name),
        }
    }

    #[test]
    fn the_smallest_priority_that_matches_governs_then_the_first_name() {
        let web = json!({"serviceSelectors": [{"matchLabels": {"app": "web"}}], "priority": 10});
        let policies = [
            policy("b", json!({})),
            policy("a", json!({})),
            policy("web", web),
            policy("pool", json!({"ipAddressPools": ["dmz"], "priority": 5})),
        ];
        assert_eq!(governor(&policies, &[("app", "web")], "lan"), "web");
        assert_eq!(governor(&policies, &[("app", "web")], "dmz"), "pool");
        assert_eq!(governor(&policies, &[], "lan"), "a");
        assert_eq!(governor(&policies[3..], &[], "lan"), "(none)");
        assert_eq!(governor(&[], &[], "lan"), "(default)");
    }

    #[test]
    fn one_node_selector_that_matches_is_enough() {
        let spec = json!({"nodeSelectors": [
            {"matchLabels": {"rack": "1"}},
            {"matchExpressions": [{"key": "edge", "operator": "Exists"}]},
        ]});
        let policy = Policy::parse(&policy("p", spec)).unwrap();
        assert!(policy.allows_node(&labels(&[("rack", "1")])));
        assert!(policy.allows_node(&labels(&[("edge", "")])));
        assert!(!policy.allows_node(&labels(&[("rack", "2")])));
    }

    #[test]
    fn selectors_that_cannot_be_read_are_refused_with_what_to_write() {
        let expression = |operator: &str, values: serde_json::Value| {
            json!({"matchExpressions": [
                {"key": "zone", "operator": "Exists"},
                {"key": "zone", "operator": operator, "values": values},
            ]})
        };
        let refusal = |selector: &serde_json::Value| {
            let specs = [
                json!({"serviceSelectors": [{}, selector]}),
                json!({"nodeSelectors": [selector]}),
                json!({"ipAddressPoolSelectors": [selector]}),
                json!({"preferredNodes": [{"weight": 1, "nodeSelector": selector}]}),
            ];
            let mut refusals = specs.map(|spec| {
                let refused = policy("p", spec).validate_cel().err();
                refused.map(|errors| format!("{errors:?}")).unwrap_or_default()
            });
            for refusal in &mut refusals {
                let said = refusal.split_once("the expression").unwrap_or_default().1;
                *refusal = said.split('"').next().unwrap_or_default().to_owned();
            }
            assert!(refusals.iter().all(|it| *it == refusals[0]), "{refusals:?}");
            refusals[0].clone()
        };
        for (operator, values, says) in [
            ("In", json!(["dmz"]), ""),
            ("NotIn", json!(["dmz", "lan"]), ""),
            ("DoesNotExist", json!([]), ""),
            (
                "Inn",
                json!(["dmz"]),
                " about label 'zone' has the operator 'Inn': write In, NotIn, Exists or DoesNotExist",
            ),
            ("In", json!([]), " about label 'zone' has no values: add at least one"),
            ("NotIn", json!(null), " about label 'zone' has no values: add at least one"),
            ("Exists", json!(["dmz"]), " about label 'zone' has values: drop them, or write In"),
        ] {
            let selector = expression(operator, values.clone());
            assert_eq!(refusal(&selector), says, "{operator} {values}");
            // Both say the same of the same.
            let read = selector::read(&serde_json::from_value(selector).unwrap());
            assert_eq!(read.is_ok(), says.is_empty(), "{operator} {values}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_has_what_it_may_govern_stay_as_it_is() {
        let near = json!({"nodeSelectors": [
            {"matchExpressions": [{"key": "rack", "operator": "Near"}]},
        ]});
        for (spec, reason, says) in [
            (near, "InvalidSelector", "policy `typo`: nodeSelectors[0] is not a selector"),
            (
                json!({"preferredNodes": [{"weight": 0, "nodeSelector": {}}]}),
                "InvalidWeight",
                "policy `typo`: preferredNodes[0].weight '0' is out of bounds: write 1 to 100",
            ),
            (
                json!({"failbackDelay": "1m"}),
                "InvalidFailback",
                "policy `typo`: failbackDelay '1m' is not a duration: write whole milliseconds or \
                 seconds, such as 60s",
            ),
            (
                json!({"maxMovesPerMinute": 0}),
                "InvalidFailback",
                "policy `typo`: maxMovesPerMinute '0' is out of bounds: write 1 to 600",
            ),
            (
                json!({"detection": {"misses": 1}}),
                "InvalidDetection",
                "policy `typo`: detection: misses is out of bounds: write 2 to 10",
            ),
        ] {
            let (policies, errors) = Policies::new(&[policy("typo", spec)]);
            assert_eq!(errors.len(), 1);
            assert_eq!(errors[0].reason(), reason);
            assert!(errors[0].to_string().starts_with(says), "{}", errors[0]);
            assert!(matches!(policies.govern(&labels(&[]), None), Governance::Unreadable(_)));
        }
    }

    #[test]
    fn a_policy_that_cannot_be_read_stands_in_its_place_and_matches_by_what_can_be_read() {
        let typo = json!({"matchExpressions": [
            {"key": "zone", "operator": "Inn", "values": ["dmz"]}]});
        let zone = |zone: &str| json!({"matchLabels": {"zone": zone}});
        let everything = policy("everything", json!({"priority": 1000}));
        let first = policy("first", json!({"priority": 1, "serviceSelectors": [zone("first")]}));
        for (spec, zone, pool, governs) in [
            (json!({"serviceSelectors": [typo]}), "dmz", "lan", "(dmz)"),
            (json!({"serviceSelectors": [typo]}), "office", "lan", "(dmz)"),
            (json!({"serviceSelectors": [typo]}), "first", "lan", "first"),
            (
                json!({"serviceSelectors": [typo], "ipAddressPools": ["dmz"]}),
                "dmz",
                "lan",
                "everything",
            ),
            (json!({"serviceSelectors": [typo], "ipAddressPools": ["dmz"]}), "x", "dmz", "(dmz)"),
            (json!({"ipAddressPoolSelectors": [typo]}), "dmz", "lan", "(dmz)"),
            (
                json!({"serviceSelectors": [zone("dmz")], "nodeSelectors": [typo]}),
                "dmz",
                "lan",
                "(dmz)",
            ),
            (
                json!({"serviceSelectors": [zone("dmz")], "nodeSelectors": [typo]}),
                "office",
                "lan",
                "everything",
            ),
            (
                json!({"serviceSelectors": [zone("dmz")], "detection": {"misses": 1}}),
                "dmz",
                "lan",
                "(dmz)",
            ),
        ] {
            let mut dmz = policy("dmz", spec.clone());
            dmz.spec.priority = 10;
            let policies = [everything.clone(), dmz, first.clone()];
            assert_eq!(
                governor(&policies, &[("zone", zone)], pool),
                governs,
                "{spec} {zone} {pool}"
            );
        }
    }

    #[test]
    fn a_policy_says_how_deaths_are_told_and_what_an_api_outage_means() {
        let read = |spec| Policy::parse(&policy("p", spec)).unwrap();
        let silent = read(json!({}));
        assert_eq!(silent.detection, Detection::default());
        assert_eq!(silent.on_api_outage, OnApiOutage::Hold);
        let strict = read(json!({"onApiOutage": "Drop", "detection": {"mode": "LeaseOnly"}}));
        assert!(!strict.detection.wire);
        assert_eq!(strict.on_api_outage, OnApiOutage::Drop);
    }

    #[test]
    fn no_node_announces_where_a_policy_says_so() {
        let read = |spec| Policy::parse(&policy("p", spec)).unwrap();
        for (spec, mode) in [
            (json!({}), AnnouncementMode::Layer2),
            (json!({"mode": "Layer2"}), AnnouncementMode::Layer2),
            (json!({"mode": "None"}), AnnouncementMode::None),
        ] {
            let policy = read(spec);
            assert_eq!(policy.mode, mode);
            assert_eq!(policy.allows_node(&labels(&[])), mode == AnnouncementMode::Layer2);
        }
    }

    #[test]
    fn the_host_is_protected_unless_a_policy_says_otherwise() {
        let read = |spec| Policy::parse(&policy("p", spec)).unwrap().host_protection;
        assert_eq!(read(json!({})), HostProtection::Enabled);
        assert_eq!(read(json!({"hostProtection": "Enabled"})), HostProtection::Enabled);
        assert_eq!(read(json!({"hostProtection": "Disabled"})), HostProtection::Disabled);
        let wrong =
            serde_json::from_value::<AnnouncementPolicySpec>(json!({"hostProtection": "On"}));
        assert!(wrong.unwrap_err().to_string().contains("expected `Enabled` or `Disabled`"));
    }

    #[test]
    fn signs_of_kube_proxy_count_unless_a_policy_says_otherwise() {
        let read = |spec| Policy::parse(&policy("p", spec)).unwrap().service_proxy;
        assert_eq!(read(json!({})), ServiceProxy::KubeProxy);
        assert_eq!(read(json!({"serviceProxy": "KubeProxy"})), ServiceProxy::KubeProxy);
        assert_eq!(read(json!({"serviceProxy": "None"})), ServiceProxy::None);
    }

    #[test]
    fn the_examples_say_what_their_comments_say() {
        let read = |file: &str| {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let documents = serde_yaml_ng::Deserializer::from_str(&text);
            let parse = |document| {
                Policy::parse(&AnnouncementPolicy::deserialize(document).unwrap()).unwrap()
            };
            documents.map(parse).collect::<Vec<_>>()
        };
        let fast = read("policy-fast.yaml");
        let noticed = |policy: &Policy| policy.detection.retry_interval * policy.detection.misses;
        let (least, most) = (noticed(&fast[0]), noticed(&fast[0]) + fast[0].detection.interval);
        assert_eq!((least.as_millis(), most.as_millis()), (40, 90));
        let fast: Vec<_> = fast.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(fast, ["fast", "everything-else"]);
        let office = &read("policy.yaml")[0];
        assert_eq!(office.detection, Detection::default());
        assert_eq!(office.on_api_outage, OnApiOutage::default());
        assert_eq!(office.host_protection, HostProtection::default());
        assert_eq!(office.service_proxy, ServiceProxy::default());
    }
}
