//! The decisions of Leasehold's speaker: which node owns which addresses, and why.
//!
//! Pure: no I/O, no clock, no runtime, and no client of the API server; the compiler sees to that, as this package
//! depends on none. The speaker (`src/`), the simulator (`tests/sim/`), the plugin (`plugin/`) and the benchmarks use
//! the same code.
//!
//! | module | content |
//! |---|---|
//! | [`election`] | the election core: Leases, failover, handover, outages; placement is a room of it |
//! | [`desired`] | claims, policies and nodes, as a pure function of the cluster's objects |
//! | [`detect`] | the judgement of silence: do the owners of addresses answer on the wire? |
//! | [`bgp`] | BGP: the messages by which nodes announce addresses to routers |
//! | [`bfd`] | BFD: routers and nodes that notice in a fraction of a second that the other one is gone |
//! | [`explain`] | explanations of ownership, and simulations |
//! | [`clock`] | the time that decisions are made on |
//!
//! The test `architecture` has the table of which room may import which.

#[cfg(test)]
mod architecture;
pub mod bfd;
pub mod bgp;
pub mod clock;
pub mod desired;
pub mod detect;
pub mod election;
pub mod explain;
