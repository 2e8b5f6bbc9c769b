//! Return path: answers from an address leave by the interface that carries it.
//!
//! The node sends an answer where its routes lead: with several interfaces that may be another one than the one by which the
//! question came, whose network may not know the address; and where reverse path filtering is strict, the question is dropped
//! before. Where a policy asks for it, an interface that carries addresses has a routing table of its own: the routes of the
//! table `main` by that interface, its gateway among them. Marks lead to it.
//!
//! ```text
//! Serving: addresses, their interfaces ─►┌ apply (own thread): read ─► plan (pure) ─► rules, routes, ┐─► Returned
//! Links: indices, gateways             ─►│ numbers: marks, tables, places of rules   settings, marks │      │
//! changes by others                    ─►└──────────────────────────────────────────────────────────┘      │
//! announce/: additions ──► gate ◄──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! All of it is there as long as there is such an address. What a process leaves that never comes back changes no other
//! packet's way: only what comes in for such an address is marked, and what answers it.
//!
//! | module | what |
//! |---|---|
//! | [`numbers`] | constants: bits of marks, tables, priorities; which interface has which number |
//! | [`plan`] | what the kernel is to have, and what to change |
//! | [`gate`] | holds additions of addresses back |
//! | `apply` | the thread that carries it out |
//! | `marking` | the tables of `nf_tables`: reads and transactions |
//! | `settings` | `src_valid_mark` of interfaces |
//! | `state` | what is in place |
//! | `ruleset` | maps, chains and rules |
//! | `elements` | addresses in the maps |

mod apply;
mod elements;
pub mod gate;
mod marking;
pub mod numbers;
pub mod plan;
mod ruleset;
mod settings;
mod state;

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::datapath::return_path::apply::{Applier, Inputs};
use crate::datapath::return_path::gate::Gate;
use crate::datapath::upkeep;

pub use apply::Sources;
pub use ruleset::TABLE;
pub use state::Returned;

/// The longest wait for all to be gone when the process ends.
const LAST: Duration = Duration::from_millis(500);

/// The running thread.
#[derive(Debug)]
pub struct ReturnPaths {
    /// The return paths that are in place.
    pub returned: watch::Receiver<Returned>,
    /// Waits for the end of the thread, which comes with that of what it is told.
    pub tasks: JoinSet<()>,
    /// Set once nothing is to be left.
    removing: watch::Sender<bool>,
}

impl ReturnPaths {
    /// Starts the thread, in the network namespace of the calling one; and its gate for the announcement. All stays
    /// as it is until it is known what is served.
    pub fn start(sources: Sources) -> io::Result<(Self, Gate)> {
        let (removing, removed) = watch::channel(false);
        let (sender, returned) = watch::channel(Returned::default());
        let gate = Gate::new(sources.serving.clone(), returned.clone());
        let applier = Applier::new(Inputs { sources, removing: removed }, sender);
        let tasks = upkeep::start("return-path", applier.run())?;
        Ok((Self { returned, tasks, removing }, gate))
    }

    /// Removes everything: no process follows.
    pub async fn remove(&mut self) {
        self.removing.send_replace(true);
        let removed = self.returned.wait_for(|it| it.removed);
        drop(tokio::time::timeout(LAST, removed).await);
    }
}
