//! From the addresses to serve to the kernel and the network.
//!
//! ```text
//! Serving ──►┌ address/apply (task): dump ─► plan (pure) ─► netlink ┐──► KernelView
//! Links   ──►└───────────────────── the guard's gate ─┘────────────┘        │
//! Serving, Links ──►┌ layer2/announcer (task): schedule (pure) ┐◄────────────┘
//!                   └────────────────────┬─────────────────────┘
//!                                        ▼ Transmit (to the kernel edge)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`address`] | the kernel's addresses, whatever the mode of announcement |
//! | [`layer2`] | the mode `Layer2`: gratuitous ARP, Neighbor Advertisements, ARP settings of links |
//! | `counters` | counters for metrics |

pub mod address;
mod counters;
#[cfg(test)]
mod fixture;
pub mod layer2;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::announce::address::apply::Applier;
use crate::announce::layer2::announcer::Announcer;
use crate::announce::layer2::confine::Confinement;
use crate::datapath::gates::Gates;
use crate::host::StateFolder;
use crate::net::edge::Edge;
use leasehold_core::election::{KernelView, Serving};

pub use counters::AnnouncementCounters;

/// The running announcement. Dropping it ends its tasks; addresses stay for their lifetimes.
#[derive(Debug)]
pub struct Announcement {
    /// The addresses in the kernel, as of the last dump.
    pub kernel: watch::Receiver<KernelView>,
    /// Counters for metrics.
    pub counters: Arc<AnnouncementCounters>,
    /// The tasks. Both are essential: they end only with the channels that feed them.
    pub tasks: JoinSet<()>,
}

/// Starts, on the runtime that runs the future, to make the kernel and the segments agree with `serving`.
/// Additions pass `gates`. What ARP settings were is kept in `state`; what the kernel holds is published in
/// `view`.
pub fn start(
    serving: watch::Receiver<Serving>,
    view: watch::Sender<KernelView>,
    edge: &Edge,
    gates: Gates,
    state: StateFolder,
) -> impl Future<Output = Announcement> + Send + use<> {
    let kernel = view.subscribe();
    let counters = Arc::new(AnnouncementCounters::default());
    let netlink = edge.netlink.clone();
    let links = (edge.links.clone(), edge.disturbed.clone());
    let confinement = Confinement::new(netlink.clone(), state, Arc::clone(&counters));
    let counted = Arc::clone(&counters);
    let applier = Applier::new(netlink, serving.clone(), links, gates, confinement, view, counted);
    let announcer =
        Announcer::new(serving, kernel.clone(), edge.links.clone(), edge.transmit.clone());
    async {
        let mut tasks = JoinSet::new();
        tasks.spawn(applier.run());
        tasks.spawn(announcer.run());
        Announcement { kernel, counters, tasks }
    }
}
