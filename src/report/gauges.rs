//! Gauges that are computed when they are read: they are ages and remaining times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::watch;

use crate::clock;
use crate::report::health::Part;
use leasehold_core::clock::Instant;
use leasehold_core::election::KernelView;

/// When each watch last delivered anything.
#[derive(Debug, Default)]
pub struct Delivered(Mutex<BTreeMap<Part, Instant>>);

impl Delivered {
    /// `part` was delivered, in whole or in part.
    pub fn note(&self, now: Instant, part: Part) {
        if let Ok(mut at) = self.0.lock() {
            at.insert(part, now);
        }
    }

    /// The time since each part was last delivered; parts that never were are left out.
    pub fn ages(&self, now: Instant) -> BTreeMap<Part, Duration> {
        let Ok(at) = self.0.lock() else { return BTreeMap::new() };
        at.iter().map(|(part, at)| (*part, now.saturating_since(*at))).collect()
    }
}

/// The remaining time of the address whose kernel lifetime ends first.
pub fn lifetime_left(now: Instant, kernel: &KernelView) -> Option<Duration> {
    kernel.ours.values().map(|address| address.until.saturating_since(now)).min()
}

/// The gauges.
#[derive(Debug)]
pub struct Gauges {
    /// When watches delivered.
    pub delivered: Arc<Delivered>,
    /// The addresses in the kernel.
    pub kernel: watch::Receiver<KernelView>,
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = clock::now();
        let mut ages = encoder.encode_descriptor(
            "watch_age",
            "Time since the last delivery of the watch on a resource",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for (part, age) in self.delivered.ages(now) {
            let gauge = ConstGauge::new(age.as_secs_f64());
            gauge.encode(ages.encode_family(&[("resource", part.word())])?)?;
        }
        if let Some(left) = lifetime_left(now, &self.kernel.borrow()) {
            let gauge = ConstGauge::new(left.as_secs_f64());
            gauge.encode(encoder.encode_descriptor(
                "kernel_lifetime_left",
                "Time until the kernel removes the first address of this node without a renewal",
                Some(&Unit::Seconds),
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}
