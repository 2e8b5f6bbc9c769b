//! Forwarding: connections that outlive a move of their address.
//!
//! A connection is known to the node that the address was on when it began: the connection tracking there leads it to its
//! pod. After a planned move its packets come to the next owner, which knows nothing of it. A table there sends what it does
//! not know, and what does not begin a connection, to the owner before.
//!
//! ```text
//! Forwarding: owners before ──►┌ apply (own thread): read ─► plan (pure) ─► transaction ┐──► Forwarded
//! Links: their indices      ──►│ ruleset, elements: a table as netlink messages (pure)  │      │
//! changes by others         ──►└────────────────────────────────────────────────────────┘      │
//! announce/: additions ──► gate ◄────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each family has a table of its own, as long as there is something to send on. Its elements end by themselves, whether
//! this process lives or not. An address waits for it for 120 ms at most.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to change in a table |
//! | [`gate`] | holds additions of addresses back |
//! | `apply` | the thread that owns the tables |
//! | `counting` | open connections through addresses that were handed over |
//! | `state` | what is in place |
//! | `ruleset` | sets, chains and rules |
//! | `elements` | owners, speakers, and addresses |

mod apply;
mod counting;
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

use crate::datapath::forward::apply::Applier;
use crate::datapath::forward::gate::Gate;
use crate::datapath::upkeep::{self, Told};
use crate::net::rtnl::links::Links;
use leasehold_core::election::Forwarding;

pub use ruleset::TABLE;
pub use state::Forwarded;

/// The longest wait for the tables to be gone when the process ends.
const LAST: Duration = Duration::from_millis(500);

/// The running thread.
#[derive(Debug)]
pub struct Forward {
    /// The forwarding that is wanted, once it is known. It is sent before the addresses are served that it is about: the
    /// gate looks at it when they are added.
    pub wanted: watch::Sender<Option<Arc<Forwarding>>>,
    /// The forwarding that is in place.
    pub forwarded: watch::Receiver<Forwarded>,
    /// Waits for the end of the thread, which comes with that of what it is told.
    pub tasks: JoinSet<()>,
}

impl Forward {
    /// Starts the thread, in the network namespace of the calling one; and its gate for the announcement. The
    /// tables stay as they are until it is known what is wanted.
    pub fn start(links: watch::Receiver<Links>) -> io::Result<(Self, Gate)> {
        let (wanted, receiver) = watch::channel(None);
        let (sender, forwarded) = watch::channel(Forwarded::default());
        let gate = Gate::new(receiver.clone(), forwarded.clone());
        let told = Told { wanted: receiver, links };
        let tasks = upkeep::start("forward", upkeep::run(Applier::new(sender), told))?;
        Ok((Self { wanted, forwarded, tasks }, gate))
    }

    /// Removes the tables: no process follows.
    pub async fn remove(&mut self) {
        let none = Arc::new(Forwarding::default());
        self.wanted.send_replace(Some(Arc::clone(&none)));
        let removed = self.forwarded.wait_for(|it| it.applied.as_ref() == Some(&none));
        // Elements end by themselves.
        drop(tokio::time::timeout(LAST, removed).await);
    }
}
