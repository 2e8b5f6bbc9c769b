//! BGP-4: the protocol by which nodes announce addresses to routers. Announce only: routes that a router sends are
//! counted and dropped. No speaker has peers yet: the sessions that send these messages come next.
//!
//! | module | content |
//! |---|---|
//! | [`message`] | messages: encoding of those that are sent, decoding of those that must be read |

pub mod message;
