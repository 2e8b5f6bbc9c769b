//! Speakers that have just joined, as the room knows them.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_crds::names::NodeName;

use crate::clock::Instant;

/// Speakers whose sessions begin within that time started together.
pub(in crate::election) const TOGETHER: Duration = Duration::from_secs(3);

/// The speakers for which one that has just joined waits.
#[derive(Debug, Default)]
pub(in crate::election) struct Joining {
    /// When the own session began, if it was not continued.
    pub(in crate::election::claim) begun: Option<Instant>,
    /// Until when it waits; none: for nobody.
    pub(in crate::election::claim) until: Option<Instant>,
    /// The nodes that may take something and have no session.
    pub(in crate::election::claim) absent: BTreeSet<NodeName>,
}

impl Joining {
    /// When the own session began, if it was not continued.
    pub(in crate::election) const fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Whether what starts now starts together with this speaker.
    pub(in crate::election) fn is_starting(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now < begun + TOGETHER)
    }
}

/// The knowledge of this process of a claim from before it had an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::election) enum Origin {
    /// Nothing.
    #[default]
    Unknown,
    /// It had no owner.
    Nobodys,
    /// It had no owner, and waited for others to join: all such claims are given out together.
    Awaiting,
}
