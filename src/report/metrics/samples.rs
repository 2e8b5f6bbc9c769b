//! A sample of each metric, for the reference of the book.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::{ByCause, Metrics, OUTCOMES, OnInterface, Request, RequestKind};
use crate::report::gauges::{Delivered, Gauges};
use crate::report::health::Part;
use leasehold_core::clock::Instant;
use leasehold_core::election::{Cause, KernelAddress, KernelView};

impl Metrics {
    /// A registry with all metrics of the speaker, each with a sample for each value of a label that has
    /// a fixed set of them.
    pub fn samples() -> Registry {
        let metrics = Self::default();
        for cause in Cause::ALL {
            drop(metrics.takeovers.get_or_create(&ByCause { cause: cause.word() }));
        }
        for kind in RequestKind::ALL {
            for outcome in OUTCOMES {
                drop(metrics.requests.get_or_create(&Request { kind: kind.word(), outcome }));
            }
        }
        let on = OnInterface { interface: "eth0".to_owned() };
        drop(metrics.wire_blind.get_or_create(&on));
        drop(metrics.unanswering.get_or_create(&on));
        let mut registry = Registry::default();
        metrics.register(&mut registry, gauges());
        registry
    }
}

fn gauges() -> Gauges {
    let (now, delivered) = (Instant::default(), Delivered::default());
    for part in Part::ALL {
        delivered.note(now, part);
    }
    let mut kernel = KernelView::default();
    if let Ok(interface) = "eth0".parse() {
        let address = KernelAddress { interface, until: now };
        kernel.ours.insert([192, 0, 2, 1].into(), address);
    }
    let (_, kernel) = watch::channel(kernel);
    Gauges { delivered: Arc::new(delivered), kernel }
}
