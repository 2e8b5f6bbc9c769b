//! BFD: the protocol by which a router and a node notice within a fraction of a second that the other one is gone
//! (RFC 5880; for one hop and for several: RFC 5881 and 5883). Asynchronous mode, without authentication and echo. No
//! speaker has such sessions yet.
//!
//! ```text
//!  a received packet ──► Packet::read ──► Session::receive ──► a new state, an answer
//!  a timer (Session::deadline) ─────────► Session::advance ──► a new state, a packet to send
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`packet`] | control packets |
//! | [`session`] | the state machine of one session, and its timers |

pub mod packet;
pub mod session;
#[cfg(test)]
mod tests;
