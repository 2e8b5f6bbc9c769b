//! Notes for those who probe owners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::io::probes::VoiceId;

/// Where an owner is met: an interface of this node, and what the owner has on that segment.
#[derive(Clone, Debug)]
pub(in crate::election) struct Place {
    pub(in crate::election) interface: InterfaceName,
    pub(in crate::election) mac: MacAddr,
    pub(in crate::election) own: BTreeSet<IpAddr>,
}

/// Changes since the watchlist was made last.
#[derive(Debug, Default)]
pub(in crate::election) struct WatchChanges {
    /// The claims of which something was said or asked: whether it was something else than before.
    claims: BTreeMap<LeaseName, bool>,
    /// Anything else that the watchlist is made from may have changed.
    stale: bool,
}

impl WatchChanges {
    /// Something was said of a claim; whether it was something else than before.
    pub(in crate::election) fn note_claim(&mut self, name: &LeaseName, says_else: bool) {
        *self.claims.entry(name.clone()).or_default() |= says_else;
    }

    /// Anything else that the watchlist is made from may have changed.
    pub(in crate::election) const fn note_all(&mut self) {
        self.stale = true;
    }

    /// What has changed since: whether anything else than these claims.
    pub(in crate::election) fn take(&mut self) -> (bool, BTreeMap<LeaseName, bool>) {
        (std::mem::take(&mut self.stale), std::mem::take(&mut self.claims))
    }

    /// Something else is asked for of these claims.
    pub(in crate::election) fn note_asked(&mut self, names: Vec<LeaseName>) {
        self.claims.extend(names.into_iter().map(|name| (name, true)));
    }
}

/// The speakers on each segment that could poll, with the hashes of their names.
#[derive(Debug, Default)]
pub(in crate::election) struct Crews<'a>(
    pub(in crate::election::context) BTreeMap<InterfaceName, Vec<(u64, &'a NodeName)>>,
);

/// A claim whose owner does not answer and is not fenced.
#[derive(Debug)]
pub(in crate::election) struct Forsaken {
    /// The owner.
    pub(in crate::election) id: VoiceId,
    /// When it fell silent.
    pub(in crate::election) since: Instant,
}
