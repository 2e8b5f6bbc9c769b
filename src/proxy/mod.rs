//! The node's service proxy: whether kube-proxy lives, and has the rules for what is about to be announced.
//!
//! ```text
//!  kube-proxy /livez ◄── health: each second ──► state (pure) ──► ProxyHealth ┐
//!  RulesWatch ──► look: until the rules are there ──► rules (nf_tables)        ├──► ProxyView ──► lease/
//!                              └──► healthCheckNodePort ──► Rules ─────────────┘
//! ```
//!
//! What is decided by that is in `lease/`. Signs, and what they do not say:
//!
//! * `GET /livez` (KEP-3836) of kube-proxy says whether it lives and writes what it is told within a minute,
//!   whatever becomes of the Node, which `/healthz` says as well. Others that serve Services and answer there,
//!   such as Cilium, have `/healthz` only.
//! * kube-proxy in the mode nftables has the maps `service-ips` and `no-endpoint-services` in the tables
//!   `ip kube-proxy` and `ip6 kube-proxy`, with a key for each address and port: one is asked for in a few
//!   microseconds, however many there are. Where they are missing the rules are, if `GET /proxyMode` (port 10249)
//!   once said that this is its mode: it has just started, or something flushed the ruleset. Its other modes have
//!   nothing that is found so cheaply: there nothing is known of the rules, and nothing waits for them.
//! * `healthCheckNodePort` says, in each mode, whether the rules for a Service with `externalTrafficPolicy: Local`
//!   lead to a pod of this node. kube-proxy listens where it serves node ports, which may be on one address only.
//!
//! The questions block, if only for microseconds; and a kube-proxy that stands still answers none. So they have a
//! thread of their own.
//!
//! | module | what |
//! |---|---|
//! | `state` | from answers to whether it is silent |
//! | `health` | the task that asks for them |
//! | `look` | the task that looks for rules |
//! | `rules` | whether nf_tables has them |
//! | [`replacement`] | whether a CNI may have replaced kube-proxy |
//! | `http` | what is answered to a request |

mod health;
mod http;
mod look;
pub mod replacement;
pub mod rules;
mod state;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::net::rtnl::links::Links;
use leasehold_core::election::{ProxyView, RulesWatch};

const STACK: usize = 512 * 1024;

/// The running look-out.
#[derive(Debug)]
pub struct Proxy {
    /// For which claims it is to be told whether the rules are there.
    pub watched: watch::Sender<RulesWatch>,
    /// The state of kube-proxy and of its rules.
    pub view: watch::Receiver<ProxyView>,
    /// Waits for the end of the thread, which there is none of while the rest is there.
    pub tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts the thread, in the network namespace of the calling one. kube-proxy answers health checks at
    /// `health_address`, and at its `healthCheckNodePort`s on addresses of `links`.
    pub fn start(health_address: SocketAddr, links: watch::Receiver<Links>) -> io::Result<Self> {
        let (watched, watching) = watch::channel(RulesWatch::default());
        let (sender, view) = watch::channel(ProxyView::default());
        let sender = Arc::new(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let has_tables = Arc::new(AtomicBool::new(false));
        let health = health::run(health_address, Arc::clone(&sender), Arc::clone(&has_tables));
        let look = look::Look::new(watching, links, sender, has_tables).run();
        let work = move || {
            runtime.block_on(async { tokio::select!(() = health => {}, () = look => {}) });
            drop(end);
        };
        std::thread::Builder::new().name("proxy".to_owned()).stack_size(STACK).spawn(work)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(ended.await) });
        Ok(Self { watched, view, tasks })
    }
}
