//! The metrics of the operator.

use leasehold::version;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::allocate::Plan;

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
    /// Services by state.
    pub services: Family<StateLabel, Gauge>,
    /// Addresses of pools.
    pub pool_addresses: Family<PoolLabels, Gauge>,
    /// Writes to the API server.
    pub writes: Family<WriteLabels, Counter>,
    /// Services that another controller writes to again and again.
    pub contested_services: Gauge,
    /// Writes to Services that put right what somebody else had changed.
    pub restored: Counter,
    /// Objects that could not be read.
    pub malformed: Family<KindLabel, Counter>,
    /// What plans cost, in seconds.
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
        registry.register("leader", "1 while this replica is the active one", self.leader.clone());
        registry.register(
            "allocations",
            "Services that were given addresses",
            self.allocations.clone(),
        );
        registry.register(
            "allocation_failures",
            "Requests for addresses that could not be met",
            self.failures.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Time to decide what all Services that something is open about are to have",
            Unit::Seconds,
            self.reconciled.clone(),
        );
        registry.register("services", "Services of Leasehold", self.services.clone());
        registry.register("pool_addresses", "Addresses of pools", self.pool_addresses.clone());
        registry.register("writes", "Writes to the API server", self.writes.clone());
        registry.register(
            "contested_services",
            "Services that another controller writes to again and again",
            self.contested_services.clone(),
        );
        registry.register(
            "restorations",
            "Writes to Services that put right what somebody else had changed of late",
            self.restored.clone(),
        );
        registry.register(
            "malformed_objects",
            "Objects that could not be read",
            self.malformed.clone(),
        );
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
        let pending = plan.services.values().filter(|decision| decision.failure.is_some()).count();
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
