//! The watches: from the API server's streams to events of the core.
//!
//! ```text
//! Leases (sessions, claims) ───────────────────────────► Event::Session, Event::Claim …
//!          what claims list ─────────────────────────┐
//! Services, EndpointSlices, Nodes, Policies, Pools ► Snapshot ► desired::build ► Event::Desired
//!                        nodes that are down ──────────┴──────► detours ──► the data path
//! ```
//!
//! All tasks send into one bounded channel that the driver of the core reads; a full channel makes
//! them wait, and the streams with them.

mod around;
mod leases;
mod objects;
mod renewal;

use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::api::leases::Leases;
use crate::report::gauges::Delivered;
use crate::report::health::Health;
use leasehold_core::election::Event;

pub use around::Around;

/// Starts all watches. The tasks end only when `events` is closed.
pub fn start(
    client: &Client,
    leases: &Leases,
    events: &mpsc::Sender<Event>,
    around: Around,
    health: &watch::Sender<Health>,
    delivered: &Arc<Delivered>,
    ignore_exclude_label: bool,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (events, health) = (|| events.clone(), || health.clone());
    let delivered = || Arc::clone(delivered);
    tasks.spawn(leases::sessions(leases.sessions(), events(), health(), delivered()));
    let (listed, lists) = mpsc::channel(leases::LISTED);
    tasks.spawn(leases::claims(leases.claims(), events(), listed, health(), delivered()));
    tasks.spawn(objects::desired(
        client.clone(),
        lists,
        events(),
        around,
        health(),
        delivered(),
        ignore_exclude_label,
    ));
    tasks
}
