//! The questions to the wire about owners, and its answers.
//!
//! The core publishes a [`Watchlist`]; the listener ([`crate::detect`]) polls whom it names and
//! publishes [`Voices`]. Both are whole states: the latest counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::{LeaseName, SessionId};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::Detection;

/// One owner on one segment, as long as its session lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VoiceId {
    /// The interface of this node on that segment.
    pub interface: InterfaceName,
    /// The owner.
    pub node: NodeName,
    /// The session under which it owns.
    pub session: SessionId,
    /// Its MAC address there.
    pub mac: MacAddr,
}

/// The owners that this node listens to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watchlist {
    /// All other owners on the segments of this node.
    pub owners: BTreeMap<VoiceId, Arc<Watched>>,
    /// The MAC addresses of all speakers' interfaces, this node's among them, each with its node.
    pub speakers: Arc<BTreeMap<MacAddr, NodeName>>,
    /// When in an interval this node polls, in 65,536ths of it: all owners in one wake-up, and each node at
    /// another time.
    pub phase: u16,
}

/// The poll of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Whether this node is among its pollers; if not, each of its addresses is asked for once,
    /// so that this node can become one.
    pub polled: bool,
    /// The interval of polls, and the number of misses after which the owner is silent.
    pub detection: Detection,
    /// The addresses that it owns there and that may be polled, each with its ownership: only a
    /// voice that was heard since the present ownership began can fall silent.
    pub vips: BTreeMap<IpAddr, Ownership>,
    /// The node's own addresses there.
    pub own: BTreeSet<IpAddr>,
}

/// Under which claim, and which of its transitions, an address is owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The claim.
    pub claim: LeaseName,
    /// Its transitions.
    pub transitions: i32,
}

/// The last observation of the owners on the watchlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voices {
    /// The state of each; the same map as long as none changes.
    pub owners: Arc<BTreeMap<VoiceId, Voice>>,
    /// Segments on which nobody but the polled owners ever answered: whether it is they who are
    /// silent or this node who is deaf cannot be told there, and nothing is.
    pub blind: BTreeSet<InterfaceName>,
    /// The owners that answer what is asked from 0.0.0.0 and nothing that is asked in this node's name, as
    /// clients ask.
    pub unanswering: BTreeSet<VoiceId>,
}

impl Voices {
    /// When the first poll was sent that this owner did not answer, if it is silent.
    pub(in crate::election) fn first(&self, id: &VoiceId) -> Option<Instant> {
        match self.owners.get(id) {
            Some(Voice::Silent(silence)) => Some(silence.first),
            _ => None,
        }
    }

    /// The same of a node's session, on whichever segment it was first.
    pub(in crate::election) fn first_of(
        &self,
        node: &NodeName,
        session: &SessionId,
    ) -> Option<Instant> {
        let of = |id: &&VoiceId| id.node == *node && id.session == *session;
        self.owners.keys().filter(of).filter_map(|id| self.first(id)).min()
    }
}

/// The last observation of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It has not answered this node since its present ownership began: it cannot fall silent.
    Unheard,
    /// It answers, or is not polled.
    Heard,
    /// It answered and does so no longer, while others do.
    Silent(Silence),
}

/// A silence that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The address that was polled.
    pub address: IpAddr,
    /// When the first of the polls was sent that were not answered.
    pub first: Instant,
    /// When the last poll was given up.
    pub since: Instant,
    /// The node itself, or another of its addresses, still answers: only `address` is in question.
    pub node_answers: bool,
}
