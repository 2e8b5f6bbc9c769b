//! `AnnouncementPolicy`: which services are announced from where, and which policy governs one.

#![allow(clippy::duplicated_attributes, reason = "printer columns repeat their types")]

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::annotation::ConditionType;
use crate::names::InterfacePattern;
use crate::selector;

mod announcing;
mod connections;
mod detection;
mod govern;
mod layer2;
mod placement;
mod settings;

pub use announcing::{Announcements, AnnouncementsSpec};
pub use connections::DEFAULT_HANDOVER;
pub use detection::{Detection, DetectionError, DetectionMode, DetectionSpec, DurationText};
pub use govern::{Governance, Policies, Policy, PolicyError, PoolLabels};
pub use layer2::{Deprecated, InvalidSettings, Layer2, Layer2Spec};
pub use placement::{Failback, FailbackMode, PreferredNodes, Spread};

/// The condition that says whether a policy can be followed.
pub const ACCEPTED: &str = "Accepted";

/// The condition that says whether each name and selector of a policy matches something.
pub const EFFECTIVE: &str = "Effective";

/// The conditions on a policy.
pub const CONDITIONS: [ConditionType; 2] = [
    ConditionType {
        type_: ACCEPTED,
        object: "AnnouncementPolicy",
        meaning: "The policy is valid. If `False`, the addresses that it governs stay with their owners, and \
                  no other node takes them.",
    },
    ConditionType {
        type_: EFFECTIVE,
        object: "AnnouncementPolicy",
        meaning: "Every name and selector of the policy matches at least one object, and no field is \
                  ignored. Absent while `Accepted` is `False`.",
    },
];

/// The priority of a policy that gives none.
pub const DEFAULT_PRIORITY: i32 = 100;

/// Nodes and interfaces that announce the addresses of Services, and rules for failover.
///
/// The policy with the lowest `priority` among those that match a Service governs it; equal
/// priorities are ordered by name. Without any policy, every Service is announced from any node
/// with the defaults. As soon as one policy exists, a Service that no policy matches is not
/// announced.
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
    doc = "Nodes and interfaces that announce the addresses of Services, and rules for failover.",
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.priority",
        description = "Among matching policies, the lowest value takes precedence."
    ),
    printcolumn(
        name = "Pools",
        type_ = "string",
        json_path = ".spec.ipAddressPools",
        description = "Pools whose Services the policy matches."
    ),
    printcolumn(
        name = "Interfaces",
        type_ = "string",
        json_path = ".spec['layer2.interfaces', 'interfaces']",
        description = "Interfaces that may carry the addresses."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".status.services",
        description = "Number of Services that the policy governs."
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status",
        description = "Whether the policy is valid."
    )
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = layer2::rules()))]
pub struct AnnouncementPolicySpec {
    /// Priority among the policies that match a Service: the lowest value takes precedence. A
    /// policy with an invalid field keeps its priority and matches by its valid fields. The
    /// addresses that it governs stay with their owners, and no other node takes them.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub priority: i32,

    /// Names of the pools whose Services the policy matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub ip_address_pools: Vec<String>,

    /// Label selectors of further pools whose Services the policy matches. If neither names nor
    /// selectors are given, the policy matches the Services of all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub ip_address_pool_selectors: Vec<LabelSelector>,

    /// Label selectors of the Services that the policy matches. One matching selector is
    /// sufficient. An empty list matches all Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub service_selectors: Vec<LabelSelector>,

    /// Label selectors of the nodes that may own the addresses. One matching selector is
    /// sufficient. An empty list matches all nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "selector::up_to_64")]
    pub node_selectors: Vec<LabelSelector>,

    /// Whether a node hands over its addresses as soon as it is cordoned. If false, a cordoned node
    /// takes no further addresses, and hands over its own when pods begin to leave it, as in a
    /// drain.
    #[serde(default)]
    pub drain_on_cordon: bool,

    /// Whether the addresses of a Service without any endpoint are announced. If false, no node
    /// announces them, and the condition `leasehold.dev/Announced` of the Service has the reason
    /// `NoEndpoint`.
    #[serde(default)]
    pub announce_without_endpoints: bool,

    /// Nodes that are preferred as owners. Among the candidates, one with the highest sum of
    /// weights becomes the owner; among equal ones, the one with the fewest addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred_nodes: Vec<PreferredNodes>,

    /// Distribution of the addresses of one Service. `PerService`: one node owns all of them.
    /// `PerAddress`: different nodes own them, as far as enough equally preferred nodes exist.
    /// Addresses that Services share stay together. A change briefly interrupts all addresses of a
    /// Service except the first one.
    #[serde(default)]
    pub spread: Spread,

    /// Addresses that move to another node while their owner is alive. `Never`: none. `Preferred`:
    /// addresses that a more preferred node can own. `Balance`: as `Preferred`, and addresses of a
    /// node that has at least two more than another node. With every value, an address that was
    /// allocated for the first time moves within its first minute to a node that joins, if that
    /// balances the nodes or the node is preferred. These moves count toward `maxMovesPerMinute`.
    #[serde(default)]
    pub failback: FailbackMode,

    /// Time for which the other node must have been available before an address moves to it, such
    /// as `60s`; at most `86400s`.
    #[serde(default = "placement::default_delay")]
    #[schemars(schema_with = "placement::delay_schema")]
    pub failback_delay: DurationText,

    /// Maximum number of addresses that `failback` moves within one minute, in the whole cluster:
    /// from 1 to 600. Moves after a node failure, a drain, or a change of the policy do not count.
    #[serde(default = "placement::default_moves")]
    #[schemars(range(min = 1, max = 600))]
    pub max_moves_per_minute: i32,

    /// How the addresses are announced. `Layer2`: with ARP and NDP, by one node at a time. `None`:
    /// no node announces them, and the owner releases them. A shared address is announced only if
    /// the policies of all its Services set `Layer2`.
    #[serde(default)]
    pub mode: AnnouncementMode,

    /// Settings of `mode: Layer2`. A field that is absent here has the value of the deprecated field
    /// of the same name, or the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer2: Option<Layer2Spec>,

    /// Deprecated: use `layer2.interfaces`. Ignored if that is set.
    #[serde(default, skip_serializing_if = "Deprecated::is_absent")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub interfaces: Deprecated<Vec<PolicyInterface>>,

    /// Deprecated: use `layer2.announcements`. A field that is set there is ignored here.
    #[serde(default, skip_serializing_if = "Deprecated::is_absent")]
    pub announcements: Deprecated<AnnouncementsSpec>,

    /// Deprecated: use `layer2.detection`. A field that is set there is ignored here.
    #[serde(default, skip_serializing_if = "Deprecated::is_absent")]
    pub detection: Deprecated<DetectionSpec>,

    /// Behavior while the API server is unavailable. `Hold`: owners keep their addresses, and if an
    /// owner fails, another node serves its addresses provisionally. `Drop`: an owner that cannot
    /// renew its session removes its addresses before the session expires.
    #[serde(default)]
    pub on_api_outage: OnApiOutage,

    /// What clients can reach on the owner through an address. `Enabled`: only the ports of its
    /// Services, and ICMP. `Disabled`: also every process that listens on all addresses of the
    /// node, and all node ports. The addresses of one claim are protected if any of its Services
    /// requires it.
    #[serde(default)]
    pub host_protection: HostProtection,

    /// How the speaker determines that a node can forward traffic from an address to pods.
    /// `KubeProxy`: if the kube-proxy of the node answers health checks, a new address waits for
    /// the rules of its Service, for at most 3 seconds, and a node whose kube-proxy stops answering
    /// takes only addresses that no other node can take. `None`: no check, for clusters in which
    /// another program forwards the traffic. For a shared address, `KubeProxy` applies only if the
    /// policies of all its Services set it.
    #[serde(default)]
    pub service_proxy: ServiceProxy,

    /// Treatment of endpoints on a node that is down, until Kubernetes removes them. `Detour`: new
    /// connections through the address lead to endpoints on other nodes, and open connections to
    /// those endpoints are reset once the node has been silent for 2 seconds. `Leave`: connections
    /// lead where kube-proxy sends them. Applies to Services with `externalTrafficPolicy: Cluster`;
    /// with `Local`, an address always leads to endpoints on its owner.
    #[serde(default)]
    pub dead_endpoints: DeadEndpoints,

    /// Time for which open connections stay with the former owner of an address after a planned
    /// move: the new owner forwards their packets to it. `0s`: they end at the move; at most `60m`.
    /// For a shared address, the longest time of the policies applies.
    #[serde(default = "connections::default_handover")]
    #[schemars(schema_with = "connections::handover_schema")]
    pub connection_handover: DurationText,

    /// Nodes whose endpoints clients reach through an address of a Service with
    /// `externalTrafficPolicy: Local`. `Owner`: those on the owner; only a node with an endpoint
    /// can own the address. `Spread`: those on all nodes of the owner's segment; the owner forwards
    /// each packet unchanged to a node by a hash of its client, and that node answers the client
    /// directly. Any selected node can own the address. For a shared address, `Spread` applies only
    /// if the policies of all its Services set it. A Service with `Cluster` ignores it.
    #[serde(default)]
    pub data_path: DataPath,

    /// Shares of the nodes with `dataPath: Spread`. `Equal`: all nodes have the same share.
    /// `Endpoints`: the share of a node is proportional to the number of its ready endpoints.
    #[serde(default)]
    pub member_weights: MemberWeights,

    /// Interface by which answers from the addresses leave the owner. `Default`: the one that the
    /// routes of the node choose. `Symmetric`: the one that carries the address, to the gateway of
    /// that interface, for nodes with several interfaces. For a shared address, `Symmetric` applies
    /// if any of the policies sets it.
    #[serde(default)]
    pub return_path: ReturnPath,
}

/// How addresses are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum AnnouncementMode {
    /// With ARP and NDP, by one node at a time.
    #[default]
    Layer2,
    /// By no node.
    None,
}

impl AnnouncementMode {
    /// The number of nodes that announce an address in this mode. The election knows no more of a mode.
    pub const fn holders(self) -> Holders {
        match self {
            Self::Layer2 => Holders::One,
            Self::None => Holders::None,
        }
    }
}

/// The number of nodes that announce an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holders {
    /// No node.
    None,
    /// One node, which owns the claim.
    One,
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
            mode: AnnouncementMode::default(),
            layer2: None,
            interfaces: Deprecated::default(),
            announcements: Deprecated::default(),
            detection: Deprecated::default(),
            on_api_outage: OnApiOutage::default(),
            host_protection: HostProtection::default(),
            service_proxy: ServiceProxy::default(),
            dead_endpoints: DeadEndpoints::default(),
            connection_handover: connections::default_handover(),
            data_path: DataPath::default(),
            member_weights: MemberWeights::default(),
            return_path: ReturnPath::default(),
        }
    }
}

/// Behavior while the API server is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum OnApiOutage {
    /// Owners keep their addresses; if an owner fails, another node serves its addresses
    /// provisionally.
    #[default]
    Hold,
    /// An owner removes its addresses before its session expires.
    Drop,
}

/// What clients can reach on the owner through an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum HostProtection {
    /// Only the ports of its Services, and ICMP.
    #[default]
    Enabled,
    /// Also every process that listens on all addresses of the node, and all node ports.
    Disabled,
}

/// How the speaker determines that a node can forward traffic from an address to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ServiceProxy {
    /// By the health checks and the rules of kube-proxy, if the node has one.
    #[default]
    KubeProxy,
    /// No check.
    None,
}

/// Treatment of endpoints on a node that is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum DeadEndpoints {
    /// New connections lead to endpoints on other nodes.
    #[default]
    Detour,
    /// Connections lead where kube-proxy sends them.
    Leave,
}

/// Nodes whose endpoints clients reach through an address of a Service with
/// `externalTrafficPolicy: Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum DataPath {
    /// Those on the owner.
    #[default]
    Owner,
    /// Those on all nodes of the owner's segment.
    Spread,
}

/// Shares of the nodes with `dataPath: Spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum MemberWeights {
    /// All nodes have the same share.
    #[default]
    Equal,
    /// The share of a node is proportional to the number of its ready endpoints.
    Endpoints,
}

/// Interface by which answers from an address leave its owner.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(inline)]
pub enum ReturnPath {
    /// The one that the routes of the node choose.
    #[default]
    Default,
    /// The one that carries the address.
    Symmetric,
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
                    "\"'\" + self + \"' is not a valid interface name or pattern: do not use '/', ':', '[', \
                     ']', or white space; '*' matches any characters and must not be repeated; '?' matches \
                     one character\"",
            }],
        })
    }
}

/// Observed state of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementPolicyStatus {
    /// Number of Services that the policy governs.
    #[serde(default)]
    pub services: i64,
    /// Conditions. `Accepted`: the policy is valid. `Effective`: every name and selector of the
    /// policy matches at least one object, and no field is ignored.
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
                " for label 'zone' has the invalid operator 'Inn': use In, NotIn, Exists, or \
                 DoesNotExist",
            ),
            ("In", json!([]), " for label 'zone' has no values: add at least one"),
            ("NotIn", json!(null), " for label 'zone' has no values: add at least one"),
            (
                "Exists",
                json!(["dmz"]),
                " for label 'zone' must not have values: remove them, or use In",
            ),
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
            (near, "InvalidSelector", "policy `typo`: nodeSelectors[0] is not a valid selector"),
            (
                json!({"preferredNodes": [{"weight": 0, "nodeSelector": {}}]}),
                "InvalidWeight",
                "policy `typo`: preferredNodes[0].weight '0' is out of bounds: write 1 to 100",
            ),
            (
                json!({"failbackDelay": "1h"}),
                "InvalidFailback",
                "policy `typo`: failbackDelay '1h' is not a duration: write whole milliseconds, \
                 seconds or minutes, such as 60s",
            ),
            (
                json!({"connectionHandover": "61m"}),
                "InvalidConnectionHandover",
                "policy `typo`: connectionHandover '61m' is out of bounds: write 0s to 60m",
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
            (
                json!({"layer2": {"detection": {"misses": 1}}}),
                "InvalidDetection",
                "policy `typo`: layer2.detection: misses is out of bounds: write 2 to 10",
            ),
            (
                json!({"layer2": {"announcements": {"burst": 0}}}),
                "InvalidAnnouncements",
                "policy `typo`: layer2.announcements: burst '0' is out of bounds: write 1 to 20",
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
                json!({"serviceSelectors": [zone("dmz")], "layer2": {"detection": {"misses": 1}}}),
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
        let lease_only = json!({"detection": {"mode": "LeaseOnly"}});
        let strict = read(json!({"onApiOutage": "Drop", "layer2": lease_only}));
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
