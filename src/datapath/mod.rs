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

pub mod guard;
