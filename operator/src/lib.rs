//! The operator of Leasehold: gives Services of `type: LoadBalancer` addresses from pools.
//!
//! ```text
//!                       Kubernetes API
//!    watch │                                  ▲ status of Services, pools and policies,
//!          ▼                                  │ events, deletion of old leases
//!  reconcile/watch ──► reconcile/index ──► allocate/ ──► reconcile/jobs ──► reconcile/write
//!      streams           all that is       pure plan      plan against        calls, each
//!                          known                             actual          once in flight
//!
//!  elect/ ── may this replica write, and until when? ── run ── report/ ──► metrics, events, health
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`allocate`] | which service has which address; pure |
//! | [`reconcile`] | from watched objects to writes |
//! | [`deploy`] | the speakers, where the operator deploys them itself |
//! | [`elect`] | which replica is the active one |
//! | [`report`] | metrics, events, health |
//! | [`migrate`] | the subcommand that makes our objects of MetalLB's; pure but for reading |
//! | [`free`] | the subcommand that takes everything back from Services |
//! | [`run`] | wiring |
//! | [`config`] | flags |
//! | [`client`] | calls to the API server, and what their answers mean |
//! | [`clock`] | the clocks |
//!
//! The Service is the record: its status has the addresses, its annotations the pool that they are
//! from and the claim that governs them, all written at once. What is on record is then listed in the
//! claim, which no speaker can take before. A replica that becomes active
//! reads everything anew before it writes.

pub mod allocate;
pub mod client;
pub mod clock;
pub mod config;
pub mod deploy;
pub mod elect;
pub mod free;
pub mod migrate;
pub mod reconcile;
pub mod report;
pub mod run;
