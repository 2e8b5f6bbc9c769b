//! Detours: while a node is down, no new connection leads to its pods.
//!
//! kube-proxy follows the cluster's objects, which go on to say for 40 seconds and more that these pods are ready.
//! Meanwhile a chain before its own chooses among the endpoints on other nodes, and does what it would do: the
//! connection gets this node as its source, and clients that are to stay with a pod do. Connections to the dead
//! pods that were not answered yet begin anew elsewhere with their next packet, as do UDP flows; those that
//! were end with a reset once the node has been silent for long.
//!
//! ```text
//! Detours: ports, endpoints ──►┌ apply (own thread): read ─► plan (pure) ─► transaction ┐──► Detoured
//! changes by others         ──►│ ruleset, elements: the table as netlink messages (pure) │
//!                              │ ended: connections that are forgotten                    │
//!                              └──────────────────────────────────────────────────────────┘
//! ```
//!
//! All that leads anywhere has a lifetime of seconds, and is renewed: where this process ends, kube-proxy decides again
//! before its endpoints are others. No address waits for a detour: without one it leads where kube-proxy says.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to change in the table |
//! | `apply` | the thread that owns the table |
//! | `clients` | the pods that clients have |
//! | `ended` | connections to endpoints on nodes that are down |
//! | `state` | what is in place |
//! | `ruleset` | sets, chains and rules |
//! | `elements` | ports and endpoints |

mod apply;
mod clients;
mod elements;
mod ended;
pub mod plan;
mod ruleset;
mod state;

use std::io;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::datapath::detour::apply::Applier;
use crate::datapath::upkeep;
use leasehold_core::desired::Detours;

pub use ruleset::TABLE;
pub use state::Detoured;

/// The running thread.
#[derive(Debug)]
pub struct Detour {
    /// The detours that are in place.
    pub detoured: watch::Receiver<Detoured>,
    /// Waits for the end of the thread, which comes with that of what it is told.
    pub tasks: JoinSet<()>,
}

impl Detour {
    /// Starts the thread, in the network namespace of the calling one.
    pub fn start() -> io::Result<(Self, watch::Sender<Detours>)> {
        let (wanted, receiver) = watch::channel(Detours::default());
        let (sender, detoured) = watch::channel(Detoured::default());
        let applier = Applier::new(receiver, sender);
        let tasks = upkeep::start("detour", applier.run())?;
        Ok((Self { detoured, tasks }, wanted))
    }
}
