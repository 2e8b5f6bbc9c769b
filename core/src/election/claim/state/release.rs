//! The reason for which a claim is given up.

use crate::clock::Instant;

/// A claim is being given up.
#[derive(Clone, Debug)]
pub(in crate::election) struct Leaving {
    /// For people.
    pub(in crate::election::claim) cause: String,
    pub(in crate::election::claim) reason: Obstacle,
    /// Since when the reason is gone.
    pub(in crate::election::claim) over: Option<Instant>,
}

/// The obstacle to keeping a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::election) enum Obstacle {
    /// The link that carries it is lost.
    Link,
    /// Another host has an address of it, or the kernel does not take one.
    Address,
    /// It is to be elsewhere: that is not for this node to say.
    Asked,
    /// It is to be nowhere.
    Unasked,
}

impl Leaving {
    pub(in crate::election) fn new(reason: Obstacle, cause: &str) -> Self {
        Self { cause: cause.to_owned(), reason, over: None }
    }

    /// Nothing is asked of the claim.
    pub(in crate::election) fn unasked() -> Self {
        Self::new(Obstacle::Unasked, "nothing asks for it any more")
    }

    /// Whether only a lost link is in the way.
    pub(in crate::election) fn is_for_a_link(&self) -> bool {
        self.reason == Obstacle::Link
    }

    /// Whether the reason is gone.
    pub(in crate::election) const fn is_over(&self) -> bool {
        self.over.is_some()
    }
}
