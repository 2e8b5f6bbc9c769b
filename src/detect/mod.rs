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
//! | `owner` | one owner: its polls, its misses, its silence |
//! | `addresses` | one owner's addresses: which were heard, and when to ask for the others |
//! | `clients` | whether an owner answers clients, as they ask |
//! | `testimony` | one segment: who else answered there |
//! | [`listener`] | the thread: drains the sockets, judges, asks |
//! | `timer` | wakes it on time |

mod addresses;
mod clients;
pub mod detector;
pub mod listener;
mod owner;
mod testimony;
#[cfg(test)]
mod tests;
mod timer;
