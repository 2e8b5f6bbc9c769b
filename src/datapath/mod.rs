//! The data path: rules of the kernel that decide where packets for an address lead.
//!
//! Each tenant of this room has the same parts, and the same direction of data:
//!
//! ```text
//! wanted state (watch channels) ──► plan (pure) ──► apply (own thread) ──► kernel
//!   Desired, addresses served                            │
//!                                                        └──► view (watch channel) ──► facts, metrics
//! announce/: additions ──► gate ◄────────────────────────────────┘
//! ```
//!
//! The wanted state is complete, never a list of changes; `plan` compares it with what the kernel has; `apply`
//! carries out the difference on a thread of its own, because the kernel may let a transaction wait. The view says
//! what is in place; by its gate the announcement adds no address before the path of that address is ready.
//!
//! | tenant | what |
//! |---|---|
//! | [`guard`] | host protection: an address leads to the ports of its Services only |
//! | [`detour`] | while a node is down, no new connection leads to its pods |
//! | [`forward`] | after a move of an address, open connections go on where they began |
//! | [`spread`] | the nodes of a Service share its address: a hash of the client leads to one of them |
//! | [`return_path`] | answers from an address leave by the interface that carries it |
//!
//! `upkeep` is what their threads have in common, `tables` what those that keep tables for long do, `packets` what their
//! rules ask, and `gate` what their gates do.

pub mod detour;
pub mod forward;
mod gate;
pub mod gates;
pub mod guard;
mod packets;
pub mod return_path;
pub mod spread;
mod tables;
mod upkeep;
