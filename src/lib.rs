//! The speaker of Leasehold: one process per node that contends, by Lease, for the addresses of
//! Services of `type: LoadBalancer`, puts what it owns on the node's interface and announces it.
//!
//! ```text
//! Kubernetes API                                                                the network
//!    │ watch      ▲ compare-and-swap                                                ▲
//!    ▼            │                                                                 │ ARP/NDP, addresses
//!  watch/ ──► desired/ ──► lease/ (election core) ──► announce/ (plan, apply) ──► net/ (kernel edge)
//!    streams     pure │      sans-IO, decides            pure plan, one task        │
//!                     │        ▲ ▲ ▲                        │ additions wait        │ links, addresses, frames
//!                     └────────┼─┼─┼──► guard/ (own thread) ┘ for nf_tables         │
//!                              │ │ └────────────────────────────────────────────────┘
//!                              │ ├─ detect/ (own thread): do the other owners answer?
//!                              │ └─ proxy/ (own thread): does kube-proxy live, has it the rules?
//!  report/ ◄───────────────────┴── facts become logs, metrics, events, health; the page asks drive/
//! ```
//!
//! The core has the main thread to itself. `announce/` and `net/` share another: however long a decision
//! takes, the kernel is told at once and frames are read. Watches and requests run on the runtime's worker.
//!
//! | module | what |
//! |---|---|
//! | [`lease`] | the election core: who owns which addresses; no I/O, no clock |
//! | [`desired`] | what the cluster asks for, as a pure function of its objects |
//! | [`detect`] | whether the owners of addresses still answer on the wire |
//! | [`watch`] | from the API server's watches to events of the core |
//! | [`api`] | the connection to the API server; leases by compare-and-swap |
//! | [`announce`] | from what is served to the kernel's addresses and to announcements |
//! | [`guard`] | host protection: nothing of the node can be reached by an address but its Services |
//! | [`net`] | rtnetlink, nfnetlink, and ARP and NDP frames |
//! | [`proxy`] | whether kube-proxy lives, and has the rules for what is about to be announced |
//! | [`drive`] | the task that owns the core: events in, actions out |
//! | [`explain`] | why an address is where it is, and who would take it; pure, for people |
//! | [`report`] | logs, metrics, events, the status page, `/livez`, `/readyz` |
//! | [`host`] | identity and lock of the host, the record that outlives the process |
//! | [`config`], [`run`] | flags; the wiring |
//! | [`version`] | which build this is |
//! | [`clock`] | the one clock that decisions use |

pub mod announce;
pub mod api;
pub mod clock;
pub mod config;
pub mod datapath;
pub mod desired;
pub mod detect;
pub mod drive;
pub mod explain;
pub mod host;
pub mod lease;
pub mod net;
pub mod proxy;
pub mod report;
pub mod run;
pub mod version;
pub mod watch;
