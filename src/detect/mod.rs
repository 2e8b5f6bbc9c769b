//! Whether the owners of addresses still answer on the segments that clients use.
//!
//! ```text
//! Watchlist (core) ──►┌──────────── listener (thread) ────────────┐
//! Witnesses (edge) ──►│ detector (pure): whom to ask, when, and   │──► Voices (core)
//! Links     (edge) ──►│ what it means; own AF_PACKET sockets      │
//!                     └───────────────────────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`detector`] | polls, misses, witnesses, silence: without I/O |

pub mod detector;
