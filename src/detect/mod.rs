//! Failure detection: do the owners of addresses still answer on the segments that clients use?
//!
//! ```text
//! Watchlist (core) ──►┌──────────── listener (thread) ────────────┐
//! Witnesses (edge) ──►│ detector (core): probes and verdicts      │──► Voices (core)
//! Links     (edge) ──►│ own AF_PACKET sockets                     │
//!                     └───────────────────────────────────────────┘
//! ```
//!
//! [`leasehold_core::detect`] judges; [`listener`] is the thread that drains the sockets and asks, and `timer` wakes it
//! on time.

pub mod listener;
mod timer;
