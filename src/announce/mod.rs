//! From what is served to what the kernel and the network are told.
//!
//! ```text
//! Serving ──►┌ apply (task): dump ─► plan (pure) ─► netlink ┐──► KernelView
//! Links   ──►└───────────────── guard's gate ─┘──────────────┘        │
//! Serving, Links ──►┌ announcer (task): schedule (pure) ┐◄────────────┘
//!                   └────────────────┬──────────────────┘
//!                                    ▼ Transmit (to the kernel edge)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to add, refresh and delete |
//! | [`apply`] | the task that owns the kernel's addresses |
//! | [`confine`] | ARP settings of links, and how they were |
//! | [`schedule`] | when each address is announced |
//! | [`announcer`] | the task that has the announcements sent |

pub mod announcer;
pub mod apply;
pub mod confine;
pub mod plan;
pub mod schedule;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::announce::announcer::Announcer;
use crate::announce::apply::Applier;
use crate::announce::confine::Confinement;
use crate::guard::gate::Gate;
use crate::host::StateFolder;
use crate::lease::{KernelView, Serving};
use crate::net::edge::Edge;

/// The running announcement. Dropping it ends its tasks; addresses stay for their lifetimes.
#[derive(Debug)]
pub struct Announcement {
    /// What the kernel was last seen to hold.
    pub kernel: watch::Receiver<KernelView>,
    /// What was counted.
    pub counters: Arc<AnnouncementCounters>,
    /// The tasks. Both are essential: they end only with the channels that feed them.
    pub tasks: JoinSet<()>,
}

/// What has been counted since the start.
#[derive(Debug, Default)]
pub struct AnnouncementCounters {
    /// How many addresses went from the kernel before the end of their lifetimes although nothing here
    /// removed them: by hand, with their link, or when it went down.
    pub vanished: AtomicU64,
    /// How often the ARP settings of a link were set again because somebody had set them back.
    pub confined_again: AtomicU64,
}

/// Starts, on the runtime that runs the future, to make the kernel and the segments agree with `serving`.
/// Additions pass `gate`. What ARP settings were is kept in `state`; what the kernel holds is published in
/// `view`.
pub fn start(
    serving: watch::Receiver<Serving>,
    view: watch::Sender<KernelView>,
    edge: &Edge,
    gate: Gate,
    state: StateFolder,
) -> impl Future<Output = Announcement> + Send + use<> {
    let kernel = view.subscribe();
    let counters = Arc::new(AnnouncementCounters::default());
    let netlink = edge.netlink.clone();
    let links = (edge.links.clone(), edge.disturbed.clone());
    let confinement = Confinement::new(netlink.clone(), state, Arc::clone(&counters));
    let counted = Arc::clone(&counters);
    let applier = Applier::new(netlink, serving.clone(), links, gate, confinement, view, counted);
    let announcer =
        Announcer::new(serving, kernel.clone(), edge.links.clone(), edge.transmit.clone());
    async {
        let mut tasks = JoinSet::new();
        tasks.spawn(applier.run());
        tasks.spawn(announcer.run());
        Announcement { kernel, counters, tasks }
    }
}
