//! Host protection: by an address of Services nothing of the node can be reached but their ports.
//!
//! An address on an interface leads to everything that listens on all addresses of the node, and
//! to all node ports. A table of `nf_tables` drops what comes in for such an address, but for the ports of
//! its Services, and ICMP.
//!
//! ```text
//! addresses served or left ──►┌ apply (own thread): read ─► plan (pure) ─► transaction ┐──► Guarded
//! Desired: ports, policies ──►│ ruleset, elements: the table as netlink messages (pure) │      │
//! changes by others        ──►└─────────────────────────────────────────────────────────┘      │
//! announce/: additions ──► gate ◄────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The protection is in place before the address, and ends after it; an address waits for it for 50 ms at
//! most. The table outlives the process, and remembers for the next one what the cluster's objects
//! do not say yet. No other table is touched.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to change in the table |
//! | [`gate`] | which addresses are to be protected; holds their addition back |
//! | `apply` | the thread that owns the table |
//! | `state` | the addresses to protect, and those that are |
//! | `ruleset` | sets, chains and rules |
//! | `elements` | addresses and ports |

mod apply;
mod elements;
pub mod gate;
pub mod plan;
mod ruleset;
mod state;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::datapath::guard::apply::Applier;
use crate::datapath::guard::gate::Gate;
use crate::datapath::upkeep;
use leasehold_core::desired::Desired;

pub use ruleset::TABLE;
pub use state::{Exposure, Guarded};

/// The longest wait for the last change of the table when the process ends.
const LAST: Duration = Duration::from_millis(500);

/// The running guard.
#[derive(Debug)]
pub struct Guard {
    /// The state that the cluster's objects ask for, once it is known.
    pub desired: watch::Sender<Option<Arc<Desired>>>,
    /// The addresses that are protected.
    pub guarded: watch::Receiver<Guarded>,
    /// Waits for the end of the thread, which comes with that of its gate.
    pub tasks: JoinSet<()>,
}

impl Guard {
    /// Starts the thread, in the network namespace of the calling one; and its gate for the
    /// announcement. The table stays as it is until the gate says which addresses there are.
    pub fn start() -> io::Result<(Self, Gate)> {
        let (wanted, wanted_receiver) = watch::channel(None);
        let (desired, desired_receiver) = watch::channel(None);
        let (sender, guarded) = watch::channel(Guarded::default());
        let applier = Applier::new(wanted_receiver, desired_receiver, sender);
        let tasks = upkeep::start("guard", applier.run())?;
        Ok((Self { desired, guarded: guarded.clone(), tasks }, Gate::new(wanted, guarded)))
    }

    /// Waits until the table is as the gate last wanted it. The gate has to be closed.
    pub async fn finish(&mut self) {
        let _ = tokio::time::timeout(LAST, self.tasks.join_next()).await;
    }
}
