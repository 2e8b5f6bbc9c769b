//! A sample of each metric, for the reference of the book.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

use super::{Metrics, ReasonLabel, WriteLabels};
use crate::allocate::{Failure, Plan, Usage};
use crate::reconcile::index::Index;

impl Metrics {
    /// A registry with all metrics of the operator, each with a sample for each value of a label that has
    /// a fixed set of them.
    pub fn samples() -> Registry {
        let (metrics, mut registry) = (Self::default(), Registry::default());
        metrics.register(&mut registry);
        let reason = Failure::EXHAUSTED;
        drop(metrics.failures.get_or_create(&ReasonLabel { reason }));
        for outcome in ["done", "conflict", "refused", "unknown"] {
            drop(metrics.writes.get_or_create(&WriteLabels { kind: "Service", outcome }));
        }
        metrics.rules([("lan", true, false), ("lan", false, true)].into_iter());
        let pools = BTreeMap::from([("lan".to_owned(), Usage::default())]);
        let plan = Plan { pools, ..Plan::default() };
        metrics.show(&plan, 0, Index::default().tables().malformed());
        registry
    }
}
