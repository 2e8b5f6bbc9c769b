//! The speaker of Leasehold: one process per node that contends, by Lease, for the addresses of
//! Services of `type: LoadBalancer`, adds those that it owns to the node's interface and announces them.
//!
//! ```text
//! Kubernetes API                                                                the network
//!    │ watch      ▲ compare-and-swap                                                ▲
//!    ▼            │                                                                 │ ARP/NDP, addresses
//!  watch/ ──► desired/ ──► election/ ─────────────► announce/ (plan, apply) ──► net/ (kernel edge)
//!    streams     pure │      core: no I/O, decides     pure plan, one task        │
//!                     │        ▲ ▲ ▲                        │ additions wait        │ links, addresses, frames
//!                     └────────┼─┼─┼──► datapath/ (own threads)┘ for nf_tables      │
//!                              │ │ └────────────────────────────────────────────────┘
//!                              │ ├─ detect/ (own thread): do the other owners answer?
//!                              │ └─ proxy/ (own thread): is kube-proxy alive, has it the rules?
//!  report/ ◄───────────────────┴── facts become logs, metrics, events, health; the page asks drive/
//! ```
//!
//! The core has the main thread to itself. `announce/` and `net/` share another: however long a decision
//! takes, the kernel is told at once and frames are read. Watches and requests run on the runtime's worker.
//!
//! | module | what |
//! |---|---|
//! | [`leasehold_core`] | `core/`: `desired`, `election`, and the judgement of silence; no I/O, no clock |
//! | [`detect`] | failure detection: do the owners of addresses answer on the wire? |
//! | [`watch`] | watches of the API server, turned into events of the core |
//! | [`api`] | the connection to the API server; Leases by compare-and-swap |
//! | [`announce`] | addresses in the kernel, and their announcement |
//! | [`datapath`] | rules of the kernel that decide where packets for an address lead: host protection, detours, forwarding, spreading, return path |
//! | [`net`] | rtnetlink, nfnetlink, ARP and NDP frames |
//! | [`proxy`] | health of kube-proxy, and its rules for what is about to be announced |
//! | [`drive`] | the task that owns the core: events in, actions out |
//! | [`report`] | logs, metrics, events, the status page, `/livez`, `/readyz` |
//! | [`host`] | identity and lock of the host, the record that outlives the process |
//! | [`config`], [`run`] | flags; the wiring |
//! | [`version`] | version, commit and date of the build |
//! | [`clock`] | the one clock that decisions use |
//!
//! The test `architecture` has the table of which room may import which.
//!
//! `kubectl leasehold` is a package of its own (`plugin/`), which uses [`leasehold_core::explain`].

pub mod announce;
pub mod api;
#[cfg(test)]
mod architecture;
pub mod clock;
pub mod config;
pub mod datapath;
pub mod detect;
pub mod drive;
pub mod host;
pub mod net;
pub mod proxy;
pub mod report;
pub mod run;
pub mod version;
pub mod watch;
