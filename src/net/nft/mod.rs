//! `nf_tables` by nfnetlink.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | reads, and transactions |
//! | [`news`] | changes by other processes |
//! | [`error`] | refusals of the kernel |

pub mod connection;
pub mod error;
pub mod news;
