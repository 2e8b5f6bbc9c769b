//! The judgement of silence: do the owners of addresses answer on the segments that clients use?
//!
//! Pure: the listener of the speaker sends the questions and passes what it hears.
//!
//! | module | content |
//! |---|---|
//! | [`detector`] | polls, misses, witnesses, silence |
//! | `owner` | one owner: its polls, its misses, its silence |
//! | `addresses` | one owner's addresses: those heard, and the next to ask for |
//! | `clients` | whether an owner answers questions in the form that clients use |
//! | `testimony` | one segment: the other hosts that answered there |
//! | [`question`] | a question to a host |
//! | [`counters`] | counters for metrics |

mod addresses;
mod clients;
pub mod counters;
pub mod detector;
mod owner;
pub mod question;
mod testimony;
#[cfg(test)]
mod tests;
