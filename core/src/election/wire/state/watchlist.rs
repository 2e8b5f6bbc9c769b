//! The owners that this node probes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::desired::Detection;
use crate::election::context::state::segments::WatchChanges;
use crate::election::io::probes::{Ownership, VoiceId, Watchlist};

/// Whom this node listens to.
#[derive(Debug, Default)]
pub(in crate::election) struct Listening {
    pub(in crate::election::wire) watchlist: Watchlist,
    /// Whether this node takes part, and the revision of the sessions that the watchlist was made from.
    pub(in crate::election::wire) takes_part: bool,
    pub(in crate::election::wire) sessions: u64,
    /// The claims of which something was said or asked since: whether it was something else than before.
    pub(in crate::election::wire) changed: BTreeMap<LeaseName, bool>,
    pub(in crate::election::wire) voiced: Voiced,
    /// Others may poll, …
    pub(in crate::election::wire) crews: bool,
    /// … or anything else that it is made from may have changed.
    pub(in crate::election::wire) stale: bool,
    /// Blind segments, and from when on that is reported: at first every segment is.
    pub(in crate::election::wire) blind: BTreeMap<InterfaceName, Instant>,
    pub(in crate::election::wire) reported: BTreeSet<InterfaceName>,
}

impl Listening {
    /// Whether an owner of the claim is heard, or listened to.
    pub(in crate::election) fn hears(&self, claim: &LeaseName) -> bool {
        self.voiced.parts.contains_key(claim)
    }

    /// Takes in what has changed.
    pub(in crate::election) fn take_in(&mut self, changes: &mut WatchChanges) {
        let (all, claims) = changes.take();
        self.stale |= all;
        for (name, says_else) in claims {
            *self.changed.entry(name).or_default() |= says_else;
        }
    }

    /// Segments that have been blind for long.
    pub(in crate::election) fn reported(&self) -> impl Iterator<Item = &InterfaceName> {
        self.reported.iter()
    }
}

/// By which voice the owner of each claim is heard.
#[derive(Debug, Default)]
pub(in crate::election) struct Voiced {
    pub(in crate::election::wire) parts: BTreeMap<LeaseName, Part>,
    pub(in crate::election::wire) owners: BTreeMap<Arc<VoiceId>, Parts>,
    /// Claims whose owner may turn out to be none although nothing is said of them.
    pub(in crate::election::wire) doubtful: BTreeSet<LeaseName>,
}

/// What one claim adds to what is asked of its owner.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::election) struct Part {
    pub(in crate::election::wire) id: Arc<VoiceId>,
    pub(in crate::election::wire) detection: Detection,
    pub(in crate::election::wire) transitions: i32,
    pub(in crate::election::wire) vips: Box<[IpAddr]>,
}

/// The claims by which one owner is heard.
#[derive(Debug, Default)]
pub(in crate::election) struct Parts {
    pub(in crate::election::wire) claims: BTreeSet<LeaseName>,
    /// How many addresses they list, all in all.
    pub(in crate::election::wire) vips: usize,
    /// How many claims are detected in each way, by how soon their ranks follow each other.
    detections: BTreeMap<(Duration, Detection), usize>,
}

/// Claims that an owner had, and claims that it has now; what has changed is in both.
#[derive(Debug, Default)]
pub(in crate::election) struct Changes {
    pub(in crate::election::wire) gone: Vec<(LeaseName, Part)>,
    pub(in crate::election::wire) new: Vec<LeaseName>,
}

impl Changes {
    pub(in crate::election) fn apply(
        &self,
        voices: &Voiced,
        vips: &mut BTreeMap<IpAddr, Ownership>,
    ) {
        for (name, part) in &self.gone {
            for ip in &part.vips {
                if vips.get(ip).is_some_and(|ownership| ownership.claim == *name) {
                    vips.remove(ip);
                }
            }
        }
        for name in &self.new {
            voices.add(name, vips);
        }
    }
}

impl Parts {
    pub(in crate::election) fn fastest(&self) -> Option<Detection> {
        self.detections.keys().next().map(|(_, detection)| *detection)
    }
}

impl Voiced {
    /// The identity that claims of the same owner share.
    pub(in crate::election) fn shared(&self, id: VoiceId) -> Arc<VoiceId> {
        self.owners.get_key_value(&id).map_or_else(|| Arc::new(id), |(id, _)| Arc::clone(id))
    }

    /// Whether anything is owned by this voice that it can be asked for.
    pub(in crate::election) fn owns(&self, id: &VoiceId) -> bool {
        self.owners.get(id).is_some_and(|parts| parts.vips > 0)
    }

    pub(in crate::election) fn insert(&mut self, claim: &LeaseName, part: Part) {
        let parts = self.owners.entry(Arc::clone(&part.id)).or_default();
        parts.claims.insert(claim.clone());
        parts.vips += part.vips.len();
        *parts.detections.entry((part.detection.rank_step(), part.detection)).or_default() += 1;
        self.parts.insert(claim.clone(), part);
    }

    pub(in crate::election) fn remove(&mut self, claim: &LeaseName) -> Option<Part> {
        self.doubtful.remove(claim);
        let part = self.parts.remove(claim)?;
        let parts = self.owners.get_mut(&part.id)?;
        parts.claims.remove(claim);
        parts.vips -= part.vips.len();
        let detection = (part.detection.rank_step(), part.detection);
        if let Some(count) = parts.detections.get_mut(&detection) {
            *count -= 1;
            if *count == 0 {
                parts.detections.remove(&detection);
            }
        }
        if parts.claims.is_empty() {
            self.owners.remove(&part.id);
        }
        Some(part)
    }

    /// The addresses of these claims. Of two claims that list the same address the later one has it.
    pub(in crate::election) fn vips(&self, parts: &Parts) -> BTreeMap<IpAddr, Ownership> {
        let mut vips = BTreeMap::new();
        for name in &parts.claims {
            self.add(name, &mut vips);
        }
        vips
    }

    pub(in crate::election) fn add(
        &self,
        name: &LeaseName,
        vips: &mut BTreeMap<IpAddr, Ownership>,
    ) {
        let Some(part) = self.parts.get(name) else { return };
        for ip in &part.vips {
            let (claim, transitions) = (name.clone(), part.transitions);
            vips.insert(*ip, Ownership { claim, transitions });
        }
    }
}
