//! What is told of a change of ownership: why, from whom, and how long it took from its first sign
//! until the addresses were there.

use std::fmt;
use std::time::Duration;

use leasehold_crds::lease::{Evidence, LeaseName, Silenced};
use leasehold_crds::names::NodeName;

use super::election::Election;
use super::event::{Action, Fact};
use crate::clock::Instant;

/// Why a claim changed its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Nobody had it before.
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
    /// Who owned before; none: nobody.
    pub from: Option<OwnerId>,
    /// When its first sign was seen: the first poll without an answer, the last renewal, the release,
    /// the hand-over, or the service.
    pub began: Instant,
}

impl Election {
    /// Why a claim has no owner, and since when.
    pub(super) fn first_sign(&self, now: Instant, name: &LeaseName) -> (Cause, Instant) {
        if let Some(forsaken) = self.forsaken.get(name) {
            return (Cause::Silence, self.voices.first(&forsaken.id).unwrap_or(now));
        }
        let last = self.tenures.get(name).and_then(|tenure| tenure.last.as_ref());
        let Some(last) = last else { return (Cause::New, now) };
        let ended = self.sessions.get(last.node.as_str()).filter(|stored| {
            stored.uid == last.session.uid && stored.record.transitions > last.session.transitions
        });
        match ended.and_then(|session| session.record.silence) {
            Some(Silenced { evidence: Evidence::Wire, lasted }) => {
                let own = self.voices.first_of(&last.node, &last.session);
                (Cause::Silence, own.unwrap_or(now - lasted))
            }
            Some(Silenced { evidence: Evidence::Lease, lasted }) => (Cause::Expiry, now - lasted),
            None if self.edited_owner(name).is_some() => (Cause::Edit, now),
            None => (Cause::Release, now),
        }
    }

    /// Who owned this claim before this node.
    pub(super) fn former_owner(&self, name: &LeaseName) -> Option<OwnerId> {
        let last = self.tenures.get(name)?.last.as_ref()?;
        let former = OwnerId { node: last.node.clone(), session: last.session.transitions };
        (former.node != self.config.node).then_some(former)
    }

    /// This node as an owner, while it has a session.
    pub(super) fn own_id(&self) -> Option<OwnerId> {
        let session = self.own.id.as_ref()?.transitions;
        Some(OwnerId { node: self.config.node.clone(), session })
    }

    /// Tells how long a change took, once the kernel has all addresses of the claim: they are
    /// announced in the same moment.
    pub(super) fn tell_served(
        &mut self,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.story.is_some()) else {
            return;
        };
        let serves = tenure.mine || tenure.provisional.is_some();
        let (Some(claim), Some(interface), true) =
            (self.desired_claim(name), tenure.interface.clone(), serves)
        else {
            return;
        };
        let listed = |ip: &&std::net::IpAddr| {
            tenure.provisional.is_some() || tenure.list.addresses.contains(ip)
        };
        let addresses: Vec<_> = claim.addresses.iter().filter(listed).copied().collect();
        let present = addresses
            .iter()
            .all(|address| self.is_served(*address) && self.kernel.ours.contains_key(address));
        if addresses.is_empty() || !present {
            return;
        }
        let Some(story) = self.tenures.get_mut(name).and_then(|tenure| tenure.story.take()) else {
            return;
        };
        // As leases have it: whole milliseconds.
        let millis = now.saturating_since(story.began).as_millis();
        let took = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self.with(name, |tenure| tenure.took = Some(took));
        let services = self.claims.get(name).map(|stored| stored.record.services.clone());
        let (claim, services) = (name.clone(), services.unwrap_or_default());
        Self::report(
            Fact::Serving { claim, services, addresses, interface, story: *story, took },
            actions,
        );
    }
}
