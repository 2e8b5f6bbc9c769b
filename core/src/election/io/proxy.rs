//! The state of kube-proxy, as the core is told of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::LeaseName;

use crate::clock::Instant;
use crate::desired::{DesiredClaim, ServicePort};

/// The state of the service proxy of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyView {
    /// Whether it answers.
    pub health: ProxyHealth,
    /// Whether it is kube-proxy, as its answers showed.
    pub is_kube_proxy: bool,
    /// Whether it has the rules for the claims that were asked for, each with the number of the question.
    pub rules: BTreeMap<LeaseName, (u64, Rules)>,
}

/// For which claims it is to be told whether the rules are there.
pub type RulesWatch = BTreeMap<LeaseName, Arc<RulesQuestion>>;

/// Whether a service proxy answers health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHealth {
    /// It never did.
    #[default]
    Unknown,
    /// It does.
    Answers,
    /// It did, and does no longer.
    Silent {
        /// When the first check was sent that was not answered.
        since: Instant,
    },
}

/// Whether a service proxy has the rules for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// It has.
    Present,
    /// It has not.
    Absent,
    /// That cannot be told.
    Unknown,
}

/// By what it is told whether they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesQuestion {
    /// Tells it from other questions.
    pub number: u64,
    /// The addresses and ports that must lead to pods.
    pub ports: Vec<(IpAddr, ServicePort)>,
    /// Ports that say whether the node has endpoints (`spec.healthCheckNodePort`).
    pub health_checks: Box<[u16]>,
}

impl RulesQuestion {
    pub(in crate::election) fn of(number: u64, claim: &DesiredClaim) -> Self {
        let ports = &claim.proxied.ports;
        let each = claim.addresses.iter().flat_map(|ip| ports.iter().map(move |port| (*ip, *port)));
        Self { number, ports: each.collect(), health_checks: claim.proxied.health_checks.clone() }
    }
}
