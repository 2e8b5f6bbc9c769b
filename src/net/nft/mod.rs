//! `nf_tables` by nfnetlink.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | reads, and transactions |
//! | [`news`] | changes by other processes |
//! | [`rules`] | tables, chains, rules and sets as messages |
//! | [`expressions`] | the expressions of rules |
//! | [`elements`] | elements of sets and maps |
//! | [`family`] | IPv4 and IPv6 headers |
//! | [`error`] | refusals of the kernel |

pub mod connection;
pub mod elements;
pub mod error;
pub mod expressions;
pub mod family;
pub mod news;
pub mod rules;
