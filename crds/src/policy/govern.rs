//! Which policy governs a service, and what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::connections;
use super::{
    AnnouncementMode, AnnouncementPolicy, Announcements, DEFAULT_HANDOVER, DataPath, DeadEndpoints,
    Detection, DetectionError, Failback, Holders, HostProtection, InvalidSettings, Layer2,
    MemberWeights, OnApiOutage, ReturnPath, ServiceProxy, Spread,
};
use crate::names::InterfacePattern;
use crate::selector::{self, SelectorError};

/// The labels of pools, by their names.
pub type PoolLabels = BTreeMap<String, BTreeMap<String, String>>;

/// Why a policy cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyError {
    /// A selector cannot be read.
    #[error("policy `{policy}`: {field}[{index}] is not a valid selector: {source}")]
    Selector {
        /// The name of the policy.
        policy: String,
        /// The field of its `spec`.
        field: &'static str,
        /// Which entry of the field.
        index: usize,
        /// What is wrong with it.
        source: SelectorError,
    },
    /// A weight is out of bounds.
    #[error(
        "policy `{policy}`: preferredNodes[{index}].weight '{weight}' is out of bounds: write 1 to 100"
    )]
    Weight {
        /// The name of the policy.
        policy: String,
        /// Which entry.
        index: usize,
        /// What it says.
        weight: i32,
    },
    /// The settings of `failback` cannot be followed.
    #[error("policy `{policy}`: {source}")]
    Failback {
        /// The name of the policy.
        policy: String,
        /// What is wrong with them.
        source: DetectionError,
    },
    /// The time for which connections are forwarded cannot be followed.
    #[error("policy `{policy}`: {source}")]
    Handover {
        /// The name of the policy.
        policy: String,
        /// The error.
        source: DetectionError,
    },
    /// The settings of announcements cannot be followed.
    #[error("policy `{policy}`: {source}")]
    Announcements {
        /// The name of the policy.
        policy: String,
        /// What is wrong with them, and where.
        source: InvalidSettings,
    },
    /// The detection settings cannot be followed.
    #[error("policy `{policy}`: {source}")]
    Detection {
        /// The name of the policy.
        policy: String,
        /// What is wrong with them, and where.
        source: InvalidSettings,
    },
}

impl PolicyError {
    /// One word for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Selector { .. } => "InvalidSelector",
            Self::Weight { .. } => "InvalidWeight",
            Self::Failback { .. } => "InvalidFailback",
            Self::Handover { .. } => "InvalidConnectionHandover",
            Self::Announcements { .. } => "InvalidAnnouncements",
            Self::Detection { .. } => "InvalidDetection",
        }
    }
}

/// A policy with all that it says read, as far as that can be.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The interfaces that may carry the addresses; empty: chosen by subnet.
    pub interfaces: Vec<InterfacePattern>,
    /// Whether they are announced.
    pub mode: AnnouncementMode,
    /// Whether a node gives them away as soon as it is cordoned.
    pub drain_on_cordon: bool,
    /// Whether they are announced while their services have no endpoint anywhere.
    pub announce_without_endpoints: bool,
    /// How often they are announced.
    pub announcements: Announcements,
    /// How the silence of an owner is told.
    pub detection: Detection,
    /// What becomes of the addresses while the API server does not answer.
    pub on_api_outage: OnApiOutage,
    /// Whether the addresses of one service are on one node.
    pub spread: Spread,
    /// What goes to another node while its owner lives.
    pub failback: Failback,
    /// What of a node can be reached by the addresses that it has.
    pub host_protection: HostProtection,
    /// By which signs it is told that a node can lead traffic from them to pods.
    pub service_proxy: ServiceProxy,
    /// The treatment of connections to endpoints on nodes that are down.
    pub dead_endpoints: DeadEndpoints,
    /// For how long the connections of a former owner are forwarded to it after a planned move.
    pub connection_handover: Duration,
    /// The nodes whose endpoints clients reach, of Services with endpoints on some nodes only.
    pub data_path: DataPath,
    /// The shares of those nodes.
    pub member_weights: MemberWeights,
    /// The interface by which answers from them leave their owner.
    pub return_path: ReturnPath,
    /// Its rank: of those that match a service, the one with the smallest governs it.
    pub priority: i32,
    /// Whether some of it cannot be read.
    unreadable: bool,
    pools: Vec<String>,
    pool_selectors: Vec<Selector>,
    services: Vec<Selector>,
    nodes: Vec<Selector>,
    preferred: Vec<(u32, Selector)>,
}

impl Policy {
    /// Reads what `policy` says.
    pub fn parse(policy: &AnnouncementPolicy) -> Result<Self, PolicyError> {
        match Self::read(policy) {
            (policy, None) => Ok(policy),
            (_, Some(error)) => Err(error),
        }
    }

    /// Reads what can be read of `policy`, and says what is wrong with the rest. What selectors that cannot be
    /// read mean nobody knows: they match everything.
    fn read(policy: &AnnouncementPolicy) -> (Self, Option<PolicyError>) {
        let (name, spec) = (policy.name_any(), &policy.spec);
        let mut first = None;
        let mut wrong = |error: PolicyError| {
            first.get_or_insert(error);
        };
        let mut selector = |field, index, selector: &LabelSelector| {
            selector::read(selector).unwrap_or_else(|source| {
                wrong(PolicyError::Selector { policy: name.clone(), field, index, source });
                Selector::default()
            })
        };
        let mut selectors = |field, all: &[LabelSelector]| -> Vec<Selector> {
            all.iter().enumerate().map(|(index, one)| selector(field, index, one)).collect()
        };
        let pool_selectors = selectors("ipAddressPoolSelectors", &spec.ip_address_pool_selectors);
        let services = selectors("serviceSelectors", &spec.service_selectors);
        let nodes = selectors("nodeSelectors", &spec.node_selectors);
        let mut preferred = Vec::new();
        for (index, entry) in spec.preferred_nodes.iter().enumerate() {
            let weight =
                u32::try_from(entry.weight).ok().filter(|weight| (1..=100).contains(weight));
            let Some(weight) = weight else {
                let weight = entry.weight;
                wrong(PolicyError::Weight { policy: name.clone(), index, weight });
                continue;
            };
            match selector::read(&entry.node_selector) {
                Ok(selector) => preferred.push((weight, selector)),
                Err(source) => {
                    let (policy, field) = (name.clone(), "preferredNodes");
                    wrong(PolicyError::Selector { policy, field, index, source });
                }
            }
        }
        let (delay, moves) = (&spec.failback_delay, spec.max_moves_per_minute);
        let failback = Failback::read(spec.failback, delay, moves).unwrap_or_else(|source| {
            wrong(PolicyError::Failback { policy: name.clone(), source });
            Failback::default()
        });
        let connection_handover =
            connections::handover(&spec.connection_handover).unwrap_or_else(|source| {
                wrong(PolicyError::Handover { policy: name.clone(), source });
                DEFAULT_HANDOVER
            });
        let Layer2 { interfaces, announcements, detection } = spec.layer2();
        let announcements = announcements.unwrap_or_else(|source| {
            wrong(PolicyError::Announcements { policy: name.clone(), source });
            Announcements::default()
        });
        let detection = detection.unwrap_or_else(|source| {
            wrong(PolicyError::Detection { policy: name.clone(), source });
            Detection::default()
        });
        let read = Self {
            mode: spec.mode,
            announcements,
            drain_on_cordon: spec.drain_on_cordon,
            announce_without_endpoints: spec.announce_without_endpoints,
            detection,
            spread: spec.spread,
            failback,
            preferred,
            on_api_outage: spec.on_api_outage,
            host_protection: spec.host_protection,
            service_proxy: spec.service_proxy,
            dead_endpoints: spec.dead_endpoints,
            connection_handover,
            data_path: spec.data_path,
            member_weights: spec.member_weights,
            return_path: spec.return_path,
            interfaces,
            priority: spec.priority,
            unreadable: first.is_some(),
            pools: spec.ip_address_pools.clone(),
            pool_selectors,
            name,
            services,
            nodes,
        };
        (read, first)
    }

    /// Whether all that it says could be read. If not, it is still the one that governs what it matches, and
    /// what it governs stays as it is: it may say anything.
    pub const fn is_readable(&self) -> bool {
        !self.unreadable
    }

    /// Whether the policy matches a service with these labels whose address is from `pool`.
    fn matches_service(
        &self,
        labels: &BTreeMap<String, String>,
        pool: Option<&str>,
        pools: &PoolLabels,
    ) -> bool {
        self.matches_pool(pool, pools) && any(&self.services, labels)
    }

    fn matches_pool(&self, pool: Option<&str>, pools: &PoolLabels) -> bool {
        let everywhere = self.pools.is_empty() && self.pool_selectors.is_empty();
        everywhere
            || pool.is_some_and(|pool| {
                let labels = pools.get(pool);
                let selected = |labels| self.pool_selectors.iter().any(|it| it.matches(labels));
                self.pools.iter().any(|name| name == pool) || labels.is_some_and(selected)
            })
    }

    /// What of the policy matches none of these pools, and none of the nodes with these labels.
    pub fn unmatched(
        &self,
        pools: &PoolLabels,
        nodes: &[&BTreeMap<String, String>],
    ) -> Vec<String> {
        let mut unmatched = Vec::new();
        for name in self.pools.iter().filter(|name| !pools.contains_key(*name)) {
            unmatched.push(format!("IPAddressPool {name} does not exist"));
        }
        let mut note = |field: &str, what, index, found: bool| {
            if !found {
                unmatched.push(format!("{field}[{index}] matches no {what}"));
            }
        };
        for (index, selector) in self.pool_selectors.iter().enumerate() {
            let found = pools.values().any(|labels| selector.matches(labels));
            note("ipAddressPoolSelectors", "IPAddressPool", index, found);
        }
        for (index, selector) in self.nodes.iter().enumerate() {
            let found = nodes.iter().any(|labels| selector.matches(labels));
            note("nodeSelectors", "node", index, found);
        }
        for (index, (_, selector)) in self.preferred.iter().enumerate() {
            let found = nodes.iter().any(|labels| selector.matches(labels));
            note("preferredNodes", "node", index, found);
        }
        unmatched
    }

    /// How much a node with these labels is preferred.
    pub fn preference(&self, labels: &BTreeMap<String, String>) -> u32 {
        let selecting = self.preferred.iter().filter(|(_, selector)| selector.matches(labels));
        selecting.map(|(weight, _)| weight).sum()
    }

    /// Whether a node with these labels may announce under the policy.
    pub fn allows_node(&self, labels: &BTreeMap<String, String>) -> bool {
        self.mode.holders() != Holders::None && any(&self.nodes, labels)
    }
}

/// An empty list of selectors matches all; an empty selector does as well.
fn any(selectors: &[Selector], labels: &BTreeMap<String, String>) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
}

/// What governs one service.
#[derive(Clone, Copy, Debug)]
pub enum Governance<'a> {
    /// No policy exists: announced with the defaults.
    Default,
    /// This policy.
    Policy(&'a Policy),
    /// This policy, of which some cannot be read: who announces it goes on, and nobody else begins.
    Unreadable(&'a Policy),
    /// Policies exist and none matches: not announced.
    None,
}

impl<'a> Governance<'a> {
    /// The policy that governs it, with as much as can be read of it.
    pub const fn policy(self) -> Option<&'a Policy> {
        match self {
            Self::Policy(policy) | Self::Unreadable(policy) => Some(policy),
            Self::Default | Self::None => None,
        }
    }
}

/// The policies of a cluster in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    ordered: Vec<Policy>,
    pools: PoolLabels,
}

impl Policies {
    /// Reads and orders `policies`, and returns beside what of them cannot be read. One that cannot be read
    /// stands in its place all the same: a typing error must not have another policy govern what this one was
    /// for, or the defaults everything.
    pub fn new<'a>(
        policies: impl IntoIterator<Item = &'a AnnouncementPolicy>,
    ) -> (Self, Vec<PolicyError>) {
        let mut read = Self::default();
        let mut errors = Vec::new();
        for policy in policies {
            let (policy, error) = Policy::read(policy);
            read.ordered.push(policy);
            errors.extend(error);
        }
        read.ordered.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
        (read, errors)
    }

    /// The same policies where pools have these labels.
    #[must_use]
    pub fn of_pools(mut self, pools: PoolLabels) -> Self {
        self.pools = pools;
        self
    }

    /// All of them, in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.ordered.iter()
    }

    /// What governs a service with these labels whose address is from `pool`.
    pub fn govern(&self, labels: &BTreeMap<String, String>, pool: Option<&str>) -> Governance<'_> {
        let matches = |policy: &&Policy| policy.matches_service(labels, pool, &self.pools);
        match self.ordered.iter().find(matches) {
            Some(policy) if policy.is_readable() => Governance::Policy(policy),
            Some(policy) => Governance::Unreadable(policy),
            None if self.ordered.is_empty() => Governance::Default,
            None => Governance::None,
        }
    }
}
