//! The service proxy between an address on a node and the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_crds::label::SERVICE_PROXY_NAME;
use leasehold_crds::policy::ServiceProxy;

use super::ServicePort;
use super::snapshot::ServiceFacts;

/// The service proxy that leads traffic from the addresses of a claim to pods, and the signs that a node has the
/// rules for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxied {
    /// The service proxy, by policies and labels of Services.
    pub by: ServiceProxy,
    /// The ports of its Services.
    pub ports: Arc<BTreeSet<ServicePort>>,
    /// `spec.healthCheckNodePort` of those Services that have `externalTrafficPolicy: Local`: only some
    /// nodes have endpoints of them, and which ones may change from one moment to the next.
    pub health_checks: Box<[u16]>,
}

impl Proxied {
    pub(super) fn of(service: &ServiceFacts, policy: ServiceProxy) -> Self {
        let by = if takes_another(&service.labels) { ServiceProxy::None } else { policy };
        let health_checks = service.health_check.into_iter().collect();
        Self { by, ports: Arc::clone(&service.ports), health_checks }
    }

    /// Adds what another Service of the claim asks for.
    pub(super) fn join(&mut self, other: &Self) {
        if other.by == ServiceProxy::None {
            self.by = ServiceProxy::None;
        }
        if !other.ports.is_subset(&self.ports) {
            Arc::make_mut(&mut self.ports).extend(other.ports.iter().copied());
        }
        let checks: BTreeSet<u16> =
            self.health_checks.iter().chain(&other.health_checks).copied().collect();
        self.health_checks = checks.into_iter().collect();
    }

    /// Whether signs of kube-proxy count.
    pub fn asks(&self) -> bool {
        self.by == ServiceProxy::KubeProxy
    }

    /// Whether any of its Services is served by the pods of one node only.
    pub const fn is_local(&self) -> bool {
        !self.health_checks.is_empty()
    }
}

fn takes_another(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(SERVICE_PROXY_NAME)
}
