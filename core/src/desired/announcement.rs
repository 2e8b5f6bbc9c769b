//! The way in which the addresses of a claim are announced.

use leasehold_crds::policy::{AnnouncementMode, Announcements, Policy};

/// The way in which a served address is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Not at all: the old owner, whose successor announces it, only answers.
    Silent,
    /// By gratuitous ARP and unsolicited Neighbor Advertisements on its interface.
    Layer2(Announcements),
}

impl Default for Announcement {
    /// The way without a policy.
    fn default() -> Self {
        Self::Layer2(Announcements::default())
    }
}

impl Announcement {
    /// The way that a policy sets.
    pub(super) const fn of(policy: &Policy) -> Self {
        match policy.mode {
            // No node holds what is not to be announced; until its owner has released it, it is announced as before.
            AnnouncementMode::Layer2 | AnnouncementMode::None => Self::Layer2(policy.announcements),
        }
    }

    /// The way for a claim of two Services: as often as either asks for.
    pub(super) fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Layer2(one), Self::Layer2(other)) => Self::Layer2(one.oftener(other)),
            (Self::Silent, way) | (way, Self::Silent) => way,
        }
    }
}
