//! Failure detection: do the owners of addresses still answer on the segments that clients use?
//!
//! ```text
//! Watchlist (core) ──►┌──────────── listener (thread) ────────────┐
//! Witnesses (edge) ──►│ detector (pure): probes and verdicts      │──► Voices (core)
//! Links     (edge) ──►│ own AF_PACKET sockets                     │
//!                     └───────────────────────────────────────────┘
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`detector`] | polls, misses, witnesses, silence: without I/O |
//! | `owner` | one owner: its polls, its misses, its silence |
//! | `addresses` | one owner's addresses: those heard, and the next to ask for |
//! | `clients` | whether an owner answers questions in the form that clients use |
//! | `testimony` | one segment: the other hosts that answered there |
//! | [`listener`] | the thread: drains the sockets, judges, asks |
//! | `timer` | wakes it on time |
//! | [`counters`] | counters for metrics |

mod addresses;
mod clients;
pub mod counters;
pub mod detector;
pub mod listener;
mod owner;
mod testimony;
#[cfg(test)]
mod tests;
mod timer;
