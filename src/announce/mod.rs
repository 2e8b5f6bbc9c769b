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
    /// The tasks. Both are essential: they end only with the channels that feed them.
    pub tasks: JoinSet<()>,
}

/// Starts to make the kernel and the segments agree with `serving`. Additions pass `gate`.
/// What ARP settings were is kept in `state`.
pub fn start(
    serving: watch::Receiver<Serving>,
    edge: &Edge,
    gate: Gate,
    state: StateFolder,
) -> Announcement {
    let mut tasks = JoinSet::new();
    let (view, kernel) = watch::channel(KernelView::default());
    let (netlink, links) = (edge.netlink.clone(), edge.links.clone());
    let confinement = Confinement::new(netlink.clone(), state);
    let applier = Applier::new(netlink, serving.clone(), links, gate, confinement, view);
    tasks.spawn(applier.run());
    let announcer =
        Announcer::new(serving, kernel.clone(), edge.links.clone(), edge.transmit.clone());
    tasks.spawn(announcer.run());
    Announcement { kernel, tasks }
}
