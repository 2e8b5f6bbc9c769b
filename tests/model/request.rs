//! Writes on their way to the store.

use std::fmt;

use crate::lease::{Claim, Session};
use crate::names::{ClaimName, Node, Object};

/// A write that was sent and has not been carried out. It may be at any later time, after its sender
/// has given it up, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Who sent it.
    pub from: Node,
    /// The state of the lease on which it rests; none: it creates the lease.
    pub base: Option<Base>,
    /// What it writes.
    pub write: Write,
    /// Why it was sent.
    pub purpose: Purpose,
}

/// The state of a lease on which a write rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base {
    /// The object.
    pub uid: u8,
    /// Whether that is still the present version. A version only ever says this: is it the same or
    /// not. So versions need no numbers, and any number of renewals leads to the same state.
    pub is_newest: bool,
}

/// What is written, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// The session of a node.
    Session(Node, Session),
    /// A claim.
    Claim(ClaimName, Claim),
}

/// Why a write is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// To say that the own session is still held.
    Renew,
    /// To begin an own session.
    Acquire,
    /// To create the own session again that was deleted, or to put right what was edited.
    Repair,
    /// To end the own session.
    ReleaseSession,
    /// To end another's session.
    Fence,
    /// To take a claim that has no valid owner.
    TakeOrphan,
    /// To take a claim from a valid owner that does not answer.
    TakeForsaken,
    /// To take a claim as its named successor.
    Succeed,
    /// To take back a claim whose successor does not serve it.
    TakeBack,
    /// To own a claim again that was deleted or edited.
    Retake,
    /// To say that a claim is still held.
    Refresh,
    /// To name a successor.
    Name,
    /// To give a claim up.
    Release,
}

impl Request {
    /// The lease that it writes.
    pub const fn lease(&self) -> Object {
        match self.write {
            Write::Session(node, _) => Object::Session(node),
            Write::Claim(claim, _) => Object::Claim(claim),
        }
    }
}

impl Purpose {
    /// Whether it makes its sender the owner of a claim.
    pub const fn takes(self) -> bool {
        match self {
            Self::TakeOrphan
            | Self::TakeForsaken
            | Self::Succeed
            | Self::TakeBack
            | Self::Retake => true,
            Self::Renew
            | Self::Acquire
            | Self::Repair
            | Self::ReleaseSession
            | Self::Fence
            | Self::Refresh
            | Self::Name
            | Self::Release => false,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, purpose, .. } = self;
        match self.write {
            Write::Session(of, Session { transitions, standing }) => {
                write!(f, "{from:?}'s {purpose:?} of session {of:?} = {transitions} {standing:?}")
            }
            Write::Claim(claim, Claim { transitions, held, .. }) => {
                write!(f, "{from:?}'s {purpose:?} of claim {claim:?} = {transitions}")?;
                match held {
                    Some((node, id)) => write!(f, " {node:?} {}/{}", id.uid, id.transitions),
                    None => write!(f, " nobody"),
                }
            }
        }
    }
}
