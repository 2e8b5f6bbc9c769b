//! The reason for which a claim is given up.

use crate::clock::Instant;

/// A claim is being given up.
#[derive(Clone, Debug)]
pub(in crate::lease) struct Leaving {
    /// For people.
    pub(in crate::lease::claim) cause: String,
    pub(in crate::lease::claim) reason: Reason,
    /// Since when the reason is gone.
    pub(in crate::lease::claim) over: Option<Instant>,
}

/// What has to be otherwise for the claim to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lease) enum Reason {
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
    pub(in crate::lease) fn new(reason: Reason, cause: &str) -> Self {
        Self { cause: cause.to_owned(), reason, over: None }
    }

    /// Nothing is asked of the claim.
    pub(in crate::lease) fn unasked() -> Self {
        Self::new(Reason::Unasked, "nothing asks for it any more")
    }

    /// Whether only a lost link is in the way.
    pub(in crate::lease) fn is_for_a_link(&self) -> bool {
        self.reason == Reason::Link
    }

    /// Whether the reason is gone.
    pub(in crate::lease) const fn is_over(&self) -> bool {
        self.over.is_some()
    }
}
