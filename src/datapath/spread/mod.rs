//! Spreading: the nodes of a Service share its address.
//!
//! Clients send to the node that has the address; it forwards each packet, as it came, to a node with an endpoint, by a hash of
//! the client. That node leads it to its pod and answers the client itself. The owner keeps nothing of the connection: the
//! next one, by the same hash, sends to the same nodes. Where a bucket of the hash gets another node, that one sends what
//! it does not know, and what does not begin a connection, to the node before.
//!
//! ```text
//! Spreading: addresses, layouts ──►┌ apply (own thread): read ─► plan (pure) ─► transactions ┐──► Placed
//! Links: their indices          ──►│ chains: layouts as this node reads them (pure)           │      │
//! changes by others             ──►│ ruleset, rules, elements: tables as messages (pure)      │      │
//!                                  └──────────────────────────────────────────────────────────┘      │
//! announce/: additions ──► gate ◄──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A table for what devices receive forwards most packets, and where the kernel refuses it, those of the two families all.
//! The tables are there while there is something to spread, whether this process lives or not; the next one takes them
//! over. Each candidate has them, so that a takeover waits for none: no packet is forwarded for an address that the kernel
//! does not have. An address waits for 120 ms at most, until clients' packets go to the nodes of their buckets.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what to change in a table |
//! | [`chains`] | the chains that decide by the bucket of a packet |
//! | `state` | what is in place; holds additions of addresses back |
//! | `apply` | the thread that owns the tables |
//! | `ruleset` | sets, chains and rules |
//! | `rules` | those of the chains that decide by the bucket |
//! | `elements` | addresses, ports, speakers |
//! | `passage` | whether the network lets through what this node sends for others |

mod apply;
pub mod chains;
mod elements;
mod passage;
pub mod plan;
mod rules;
mod ruleset;
mod state;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::datapath::spread::apply::Applier;
use crate::datapath::upkeep::{self, Told};
use crate::net::rtnl::links::Links;
use leasehold_core::election::Spreading;

pub use ruleset::TABLE;
pub use state::{Gate, Placed};

/// The longest wait for the tables to be gone when the process ends.
const LAST: Duration = Duration::from_millis(500);

/// The running thread.
#[derive(Debug)]
pub struct Spread {
    /// The spreading that is wanted, once it is known. It is sent before the addresses are served that it is about: the
    /// gate looks at it when they are added.
    pub wanted: watch::Sender<Option<Arc<Spreading>>>,
    /// The spreading that is in place.
    pub placed: watch::Receiver<Placed>,
    /// Says whether the network drops packets that this node sends for others.
    pub filtered: watch::Receiver<bool>,
    /// Waits for the end of the thread, which comes with that of what it is told.
    pub tasks: JoinSet<()>,
}

impl Spread {
    /// Starts the thread, in the network namespace of the calling one; and its gate for the announcement. The
    /// tables stay as they are until it is known what is wanted.
    pub fn start(links: watch::Receiver<Links>) -> io::Result<(Self, Gate)> {
        let (wanted, receiver) = watch::channel(None);
        let (sender, placed) = watch::channel(Placed::default());
        let gate = Gate::new(receiver.clone(), placed.clone());
        let (judged, filtered) = watch::channel(false);
        let tried = passage::Told { wanted: receiver.clone(), links: links.clone() };
        let told = Told { wanted: receiver, links };
        let mut tasks = upkeep::start("spread", upkeep::run(Applier::new(sender), told))?;
        let mut passage = upkeep::start("passage", passage::run(tried, judged))?;
        tasks.spawn(async move { while passage.join_next().await.is_some() {} });
        Ok((Self { wanted, placed, filtered, tasks }, gate))
    }

    /// Removes the tables: no process follows.
    pub async fn remove(&mut self) {
        let none = Arc::new(Spreading::default());
        self.wanted.send_replace(Some(Arc::clone(&none)));
        let removed = self.placed.wait_for(|it| it.applied.as_ref() == Some(&none));
        drop(tokio::time::timeout(LAST, removed).await);
    }
}
