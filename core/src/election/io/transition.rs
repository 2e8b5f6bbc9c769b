//! The report of a change of ownership: why, from whom, and the time from its first sign
//! until the addresses were there.

use std::fmt;

use leasehold_crds::names::NodeName;

use crate::clock::Instant;

/// Why a claim changed its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It had no owner before.
    New,
    /// Its owner did not answer on the wire any more.
    Silence,
    /// Its owner's session was not renewed any more.
    Expiry,
    /// Its owner gave it up before anybody else had it.
    Release,
    /// Its owner handed it over.
    Move,
    /// Its lease, or that of its owner's session, was deleted or edited.
    Edit,
    /// Its owner did not answer on the wire while the API server did not answer either.
    Outage,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::Silence,
        Self::Expiry,
        Self::Release,
        Self::Move,
        Self::Edit,
        Self::Outage,
    ];

    /// One lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Silence => "silence",
            Self::Expiry => "expiry",
            Self::Release => "release",
            Self::Move => "move",
            Self::Edit => "edit",
            Self::Outage => "outage",
        }
    }
}

/// Names what everything has in common that follows from the end of one session, or of one
/// ownership under it, on all nodes: the node and its session's number of transitions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerId {
    /// The node that owned.
    pub node: NodeName,
    /// Its session's number of transitions.
    pub session: i32,
}

impl fmt::Display for OwnerId {
    /// `node-2/17`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.session)
    }
}

/// A change of ownership, as its new owner tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Why.
    pub cause: Cause,
    /// The owner before, if it had one.
    pub from: Option<OwnerId>,
    /// When its first sign was seen: the first poll without an answer, the last renewal, the release,
    /// the hand-over, or the service.
    pub began: Instant,
}
