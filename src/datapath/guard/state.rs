//! The input of the guard, and the view that it gives back.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The addresses to protect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The number of changes so far.
    pub(super) generation: u64,
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The addresses that are protected: the view that the guard gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// The generation of the addresses to protect that the rest refers to.
    pub generation: u64,
    /// The addresses for which all was done that could be.
    pub settled: BTreeSet<IpAddr>,
    /// The settled addresses that are protected.
    pub protected: BTreeSet<IpAddr>,
    /// The addresses that should be protected and are not.
    pub exposure: Option<Exposure>,
    /// The number of repairs after a change of the table by another process.
    pub repairs: u64,
}

/// Addresses that should be protected and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The addresses; none where only a change failed.
    pub addresses: BTreeSet<IpAddr>,
    /// The reason.
    pub cause: String,
}
