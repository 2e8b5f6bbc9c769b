//! The operator of Leasehold: gives Services of `type: LoadBalancer` addresses from pools.
//!
//! ```text
//!                       Kubernetes API
//!    watch │                                  ▲ status of Services, pools and policies,
//!          ▼                                  │ events, deletion of old leases
//!  reconcile/watch ──► reconcile/index ──► allocate/ ──► reconcile/jobs ──► reconcile/write
//!      streams           rooms of all      pure plan      plan against        calls, each
//!                        that is known                       actual          once in flight
//!
//!  elect/ ── may this replica write, and until when? ── run ── report/ ──► metrics, events, health
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`allocate`] | the addresses of each service; pure |
//! | [`reconcile`] | from watched objects to writes |
//! | [`deploy`] | the speakers, where the operator deploys them itself |
//! | [`elect`] | the election of the active replica |
//! | [`report`] | metrics, events, health |
//! | [`migrate`] | the subcommand that converts MetalLB's objects to ours; pure but for reading |
//! | [`free`] | the subcommand that takes everything back from Services |
//! | [`run`] | wiring |
//! | [`config`] | flags |
//! | [`client`] | calls to the API server, and the meaning of their answers |
//! | [`clock`] | the clocks |
//!
//! The Service is the record: its status has the addresses, its annotations their pool and the claim that
//! governs them, all written at once. Addresses on record are then listed in the claim, which no speaker can
//! take before. A replica that becomes active reads everything anew before it writes.
//!
//! The test `architecture` has the table of which module may import which.

pub mod allocate;
#[cfg(test)]
mod architecture;
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
