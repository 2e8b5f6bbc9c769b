//! The metrics of the operator.

mod samples;

use leasehold::version;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::allocate::{Decision, Plan};

/// Seconds that a plan takes.
const COST: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

/// The label of [`Metrics::failures`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason of the failure.
    pub reason: &'static str,
}

/// The labels of [`Metrics::pool_addresses`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolLabels {
    /// The pool.
    pub pool: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// `assigned` or `available`.
    pub state: &'static str,
}

/// The labels of [`Metrics::pool_info`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolRules {
    /// The pool.
    pub pool: String,
    /// `true` or `false`, as its `autoAssign` says.
    pub auto_assign: &'static str,
    /// `true` or `false`, as its `disabled` says.
    pub disabled: &'static str,
}

/// The labels of [`Metrics::writes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabels {
    /// The kind of object.
    pub kind: &'static str,
    /// `done`, `conflict`, `refused` or `unknown`.
    pub outcome: &'static str,
}

/// The label of [`Metrics::malformed`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    /// The kind of object.
    pub kind: &'static str,
}

/// The label of [`Metrics::services`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabel {
    /// `assigned` or `pending`.
    pub state: &'static str,
}

/// All metrics of the operator. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// 1 while this replica is the active one.
    pub leader: Gauge,
    /// Services that were given addresses.
    pub allocations: Counter,
    /// Requests that could not be met, by reason.
    pub failures: Family<ReasonLabel, Counter>,
    /// Services by state: those with an address, and those that get none.
    pub services: Family<StateLabel, Gauge>,
    /// Addresses of pools.
    pub pool_addresses: Family<PoolLabels, Gauge>,
    /// The Services that each pool admits, as labels (`leasehold_operator_pool_info`).
    pub pool_info: Family<PoolRules, Gauge>,
    /// Nodes that were fenced so often of late that they take addresses after all others.
    pub unsteady_nodes: Gauge,
    /// Writes to the API server.
    pub writes: Family<WriteLabels, Counter>,
    /// Services that another controller writes to again and again.
    pub contested_services: Gauge,
    /// Writes to Services that put right what somebody else had changed.
    pub restored: Counter,
    /// Objects that could not be read.
    pub malformed: Family<KindLabel, Counter>,
    /// The duration of plans, in seconds.
    pub reconciled: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            leader: Gauge::default(),
            allocations: Counter::default(),
            failures: Family::default(),
            services: Family::default(),
            pool_addresses: Family::default(),
            pool_info: Family::default(),
            unsteady_nodes: Gauge::default(),
            writes: Family::default(),
            contested_services: Gauge::default(),
            restored: Counter::default(),
            malformed: Family::default(),
            reconciled: Histogram::new(COST),
        }
    }
}

impl Metrics {
    /// Adds all metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold_operator");
        version::register(registry);
        registry.register("leader", "1 while this replica is active", self.leader.clone());
        registry.register(
            "allocations",
            "Services that received addresses",
            self.allocations.clone(),
        );
        registry.register("allocation_failures", "Failed allocations", self.failures.clone());
        registry.register_with_unit(
            "reconcile_duration",
            "Duration of one allocation pass over the Services with pending changes",
            Unit::Seconds,
            self.reconciled.clone(),
        );
        registry.register("services", "Services that Leasehold serves", self.services.clone());
        registry.register("pool_addresses", "Addresses of pools", self.pool_addresses.clone());
        registry.register(
            "pool_info",
            "1 for each pool, with its settings autoAssign and disabled as labels",
            self.pool_info.clone(),
        );
        registry.register(
            "unsteady_nodes",
            "Nodes that were recently fenced at least three times, including fences before a restart",
            self.unsteady_nodes.clone(),
        );
        registry.register("writes", "Writes to the API server", self.writes.clone());
        registry.register(
            "contested_services",
            "Services whose status or annotations another controller repeatedly reverts",
            self.contested_services.clone(),
        );
        registry.register(
            "restorations",
            "Writes to Services that reverted recent changes of other clients",
            self.restored.clone(),
        );
        registry.register(
            "malformed_objects",
            "Objects that could not be read",
            self.malformed.clone(),
        );
    }

    /// Shows what pools say of whom they serve: name, `autoAssign`, `disabled`.
    pub fn rules<'a>(&self, pools: impl Iterator<Item = (&'a str, bool, bool)>) {
        let word = |says| if says { "true" } else { "false" };
        self.pool_info.clear();
        for (pool, auto_assign, disabled) in pools {
            let (auto_assign, disabled) = (word(auto_assign), word(disabled));
            let labels = PoolRules { pool: pool.to_owned(), auto_assign, disabled };
            self.pool_info.get_or_create(&labels).set(1);
        }
    }

    /// Shows how many nodes were fenced again and again.
    pub fn unsteady(&self, nodes: usize) {
        self.unsteady_nodes.set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Shows nothing of the cluster any more: another replica does.
    pub fn forget(&self) {
        self.pool_addresses.clear();
        self.pool_info.clear();
        self.unsteady_nodes.set(0);
        self.services.clear();
    }

    /// Shows how many Services another controller writes to again and again.
    pub fn contested(&self, services: usize) {
        self.contested_services.set(i64::try_from(services).unwrap_or(i64::MAX));
    }

    /// Shows the state of a plan beside `settled` Services, and how many objects of each kind could not be
    /// read so far.
    pub fn show(
        &self,
        plan: &Plan,
        settled: usize,
        malformed: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        for (kind, count) in malformed {
            let counter = self.malformed.get_or_create(&KindLabel { kind });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let waits =
            |decision: &&Decision| decision.failure.is_some() && decision.addresses.is_empty();
        let pending = plan.services.values().filter(waits).count();
        for (state, count) in
            [("pending", pending), ("assigned", settled + plan.services.len() - pending)]
        {
            self.services.get_or_create(&StateLabel { state }).set(gauge(count));
        }
        self.pool_addresses.clear();
        for (pool, usage) in &plan.pools {
            for (family, state, count) in [
                ("IPv4", "assigned", usage.assigned_v4),
                ("IPv4", "available", usage.available_v4),
                ("IPv6", "assigned", usage.assigned_v6),
                ("IPv6", "available", usage.available_v6),
            ] {
                let labels = PoolLabels { pool: pool.clone(), family, state };
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.pool_addresses.get_or_create(&labels).set(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::{Failure, ServiceKey};

    #[test]
    fn a_service_that_has_an_address_does_not_wait_for_one() {
        let decided = |name: &str, addresses: &[&str], fails: bool| {
            let key = ServiceKey { namespace: "web".to_owned(), name: name.to_owned() };
            let decision = Decision {
                addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
                failure: fails.then_some(Failure::NoPool),
                ..Decision::default()
            };
            (key, decision)
        };
        let services = [
            decided("served", &["10.0.0.1"], false),
            decided("lacks IPv6", &["10.0.0.2"], true),
            decided("waits", &[], true),
        ];
        let metrics = Metrics::default();
        let plan = Plan { services: services.into(), ..Plan::default() };
        metrics.show(&plan, 10, []);
        let count = |state| metrics.services.get_or_create(&StateLabel { state }).get();
        assert_eq!((count("pending"), count("assigned")), (1, 12));
        metrics.forget();
        assert_eq!(count("pending"), 0);
    }
}
