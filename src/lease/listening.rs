//! To which owners this node listens, and which of them it polls.
//!
//! The pollers of an owner on a segment are the first three speakers there by rendezvous hash of
//! (owner, speaker), without those whom this node no longer hears. So the polls of a cluster grow with
//! its nodes and not with its services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_crds::lease::{Claim, LeaseName, Session, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, InterfacePattern, NodeName};
use pnet_base::MacAddr;

use super::election::{Election, is_under};
use super::event::{Action, Fact, Interface};
use super::place::{combined, name_hash, weight};
use super::story::OwnerId;
use super::validity::Owner;
use super::voices::{Ownership, Voice, VoiceId, Voices, Watched, Watchlist};
use crate::clock::Instant;
use crate::desired::Detection;

/// How long a segment has to be blind to be reported.
const BLIND: Duration = Duration::from_secs(5);
/// How many speakers poll an owner.
pub(super) const POLLERS: usize = 3;

/// Where an owner is met: an interface of this node, and what the owner has on that segment.
#[derive(Clone, Debug)]
struct Place {
    interface: InterfaceName,
    mac: MacAddr,
    own: BTreeSet<IpAddr>,
}

impl Election {
    /// What this node has to listen to now, if that has changed.
    pub(super) fn listen(&mut self, actions: &mut Vec<Action>) {
        let takes_part = self.is_informed() && self.own.id.is_some() && !self.own.is_ending();
        let (revision, listening) = (self.sessions.revision(), &mut self.listening);
        listening.take_in(&mut self.watch);
        let other = std::mem::replace(&mut listening.takes_part, takes_part) != takes_part;
        let sessions = std::mem::replace(&mut listening.sessions, revision) != revision;
        let crews = std::mem::take(&mut listening.crews) || sessions;
        let anything = crews || !listening.changed.is_empty();
        let changed = if std::mem::take(&mut listening.stale) || other {
            self.watch_all(takes_part)
        } else {
            takes_part && (self.watch_changed() | (crews && self.watch_crews()))
        };
        debug_assert!(
            !anything || !takes_part || self.watchlist_anew().1 == self.listening.watchlist,
            "whom this node listens to is not whom it has to"
        );
        if changed {
            actions.push(Action::Listen(self.listening.watchlist.clone()));
        }
    }

    /// Makes the watchlist anew; returns whether it has changed.
    fn watch_all(&mut self, takes_part: bool) -> bool {
        let (voices, watchlist) =
            if takes_part { self.watchlist_anew() } else { Default::default() };
        self.listening.voiced = voices;
        self.listening.changed.clear();
        let changed = watchlist != self.listening.watchlist;
        self.listening.watchlist = watchlist;
        changed
    }

    fn watchlist_anew(&self) -> (Voiced, Watchlist) {
        let mut voices = Voiced::default();
        let mut places = BTreeMap::new();
        for stored in self.claims.stored() {
            self.voice(stored, &mut voices, &mut places);
        }
        let mut crews = Crews::default();
        let before = &self.listening.watchlist.owners;
        let watched = |id: &Arc<VoiceId>| {
            let watched = self.watched(id, &voices, None, &mut crews)?;
            let same = before.get(&**id).filter(|before| ***before == watched);
            let watched = same.map_or_else(|| Arc::new(watched), Arc::clone);
            Some((VoiceId::clone(id), watched))
        };
        let owners = voices.owners.keys().filter_map(watched).collect();
        let [high, low, ..] = weight(self.config.node.as_str(), "").to_be_bytes();
        let phase = u16::from_be_bytes([high, low]);
        (voices, Watchlist { owners, speakers: self.all_speakers(), phase })
    }

    /// The MAC addresses of all speakers' interfaces; the same set as long as it holds.
    fn all_speakers(&self) -> Arc<BTreeMap<MacAddr, NodeName>> {
        let interfaces = self.sessions.stored().flat_map(|stored| {
            let node = stored.record.holder.as_ref();
            let listed = stored.record.interfaces.iter();
            listed.filter_map(move |theirs| Some((theirs.mac, node?)))
        });
        let own = self.interfaces.values().map(|interface| (interface.mac, &self.config.node));
        let all: BTreeMap<MacAddr, &NodeName> = interfaces.chain(own).collect();
        let before = &self.listening.watchlist.speakers;
        if before.iter().eq(all.iter().map(|(mac, node)| (mac, *node))) {
            return Arc::clone(before);
        }
        Arc::new(all.into_iter().map(|(mac, node)| (mac, node.clone())).collect())
    }

    /// Brings the watchlist in line with who the speakers are now; returns whether it has changed.
    fn watch_crews(&mut self) -> bool {
        let mut crews = Crews::default();
        let owners = self.listening.watchlist.owners.iter();
        let other: Vec<(VoiceId, Arc<Watched>)> = owners
            .filter_map(|(id, watched)| {
                let polled = self.polls(&id.node, &id.interface, &mut crews);
                let other = || Arc::new(Watched { polled, ..Watched::clone(watched) });
                (polled != watched.polled).then(|| (id.clone(), other()))
            })
            .collect();
        let speakers = self.all_speakers();
        let watchlist = &mut self.listening.watchlist;
        let changed = !other.is_empty() || watchlist.speakers != speakers;
        watchlist.owners.extend(other);
        watchlist.speakers = speakers;
        changed
    }

    /// Brings the watchlist in line with the claims that have changed; returns whether it has changed.
    fn watch_changed(&mut self) -> bool {
        if self.listening.changed.is_empty() && self.listening.voiced.doubtful.is_empty() {
            return false;
        }
        let mut voices = std::mem::take(&mut self.listening.voiced);
        let mut names = std::mem::take(&mut self.listening.changed);
        for name in &voices.doubtful {
            names.entry(name.clone()).or_default();
        }
        let mut concerned: BTreeMap<Arc<VoiceId>, Changes> = BTreeMap::new();
        for (name, says_else) in names {
            let before = voices.remove(&name);
            if let Some(stored) = self.claims.get(&name) {
                self.voice(stored, &mut voices, &mut BTreeMap::new());
            }
            let now = voices.parts.get(&name);
            if !says_else && before.as_ref() == now {
                continue;
            }
            if let Some(now) = now {
                concerned.entry(Arc::clone(&now.id)).or_default().new.push(name.clone());
            }
            if let Some(before) = before {
                concerned.entry(Arc::clone(&before.id)).or_default().gone.push((name, before));
            }
        }
        let mut crews = Crews::default();
        let before = &self.listening.watchlist.owners;
        let watched = concerned.iter().map(|(id, changes)| {
            let before = before.get(&**id).map(|watched| (&**watched, changes));
            (VoiceId::clone(id), self.watched(id, &voices, before, &mut crews))
        });
        let watched: Vec<(VoiceId, Option<Watched>)> = watched.collect();
        let mut changed = false;
        let owners = &mut self.listening.watchlist.owners;
        for (id, watched) in watched {
            if owners.get(&id).map(|watched| &**watched) == watched.as_ref() {
                continue;
            }
            changed = true;
            match watched {
                Some(watched) => drop(owners.insert(id, Arc::new(watched))),
                None => drop(owners.remove(&id)),
            }
        }
        self.listening.voiced = voices;
        changed
    }

    /// Notes by which voice the owner of `stored` is heard, if this node is to hear it.
    fn voice(
        &self,
        stored: &Stored<Claim>,
        voices: &mut Voiced,
        places: &mut BTreeMap<(NodeName, InterfaceName), Option<Place>>,
    ) -> Option<()> {
        // What was set back is left to its owner for a while, which serves it meanwhile.
        let Owner::Other(node) = self.named_owner(stored) else { return None };
        if self.is_in_doubt(stored) {
            voices.doubtful.insert(stored.name.clone());
        }
        let (theirs, session) =
            (stored.record.interface.as_ref()?, stored.record.session.as_ref()?);
        let claim = self.desired_claim(&stored.name).filter(|claim| claim.detection.wire)?;
        let place = places
            .entry((node.clone(), theirs.clone()))
            .or_insert_with(|| self.place(&node, theirs))
            .as_ref()?;
        let (interface, mac) = (place.interface.clone(), place.mac);
        let id = voices.shared(VoiceId { interface, node, session: session.clone(), mac });
        let part = Part {
            id,
            detection: claim.detection,
            transitions: stored.record.transitions,
            vips: stored.record.addresses.intersection(&claim.addresses).copied().collect(),
        };
        voices.insert(&stored.name, part);
        Some(())
    }

    /// What is asked of one owner: from what was asked of it before and what has changed since, or from all of
    /// its claims.
    fn watched<'a>(
        &'a self,
        id: &VoiceId,
        voices: &Voiced,
        before: Option<(&Watched, &Changes)>,
        crews: &mut Crews<'a>,
    ) -> Option<Watched> {
        let parts = voices.owners.get(id)?;
        let mut vips = BTreeMap::new();
        if let Some((before, changes)) = before {
            vips.clone_from(&before.vips);
            changes.apply(voices, &mut vips);
        }
        // All of them where nothing is known, or where two claims list one address.
        if vips.len() != parts.vips {
            vips = voices.vips(parts);
        }
        if vips.is_empty() {
            return None;
        }
        let stored = parts.claims.first().and_then(|name| self.claims.get(name))?;
        Some(Watched {
            polled: self.polls(&id.node, &id.interface, crews),
            detection: parts.fastest()?,
            vips,
            own: self.place(&id.node, stored.record.interface.as_ref()?)?.own,
        })
    }

    /// Where this node meets the interface `theirs` of `node`, or has met it under the same session.
    fn place(&self, node: &NodeName, theirs: &InterfaceName) -> Option<Place> {
        let stored = self.sessions.get(node.as_str())?;
        let listed = stored.record.interfaces.iter().find(|listed| listed.name == *theirs);
        let theirs = listed.or_else(|| self.unlisted.get(stored, theirs))?;
        let interface = self.meets(theirs)?.clone();
        let own = theirs.own_addresses().collect();
        Some(Place { interface, mac: theirs.mac, own })
    }

    /// The interface of this node on the segment of an interface of another.
    pub(super) fn meets(&self, theirs: &SessionInterface) -> Option<&InterfaceName> {
        let carried = || self.interfaces.iter().filter(|(_, interface)| interface.carrier);
        let in_subnet =
            carried().find(|(_, ours)| share_a_subnet(&ours.addresses, &theirs.addresses));
        let presumed = || {
            let presumed = carried().filter(|(name, ours)| self.may_meet(name, ours, theirs));
            presumed.min_by_key(|(name, _)| (**name != theirs.name, *name))
        };
        in_subnet.or_else(presumed).map(|(name, _)| name)
    }

    /// Whether an interface of this node and one of another may be on one segment where no address says so:
    /// policies name both for the same addresses. Where they are not, nobody is heard, and nobody falls
    /// silent.
    fn may_meet(&self, name: &InterfaceName, ours: &Interface, theirs: &SessionInterface) -> bool {
        let bare = ours.addresses.is_empty() || theirs.addresses.is_empty();
        let matching = |patterns: &[InterfacePattern], name| {
            patterns.iter().any(|pattern| pattern.matches(name))
        };
        let mut named = self.named.iter();
        bare && named.any(|them| matching(them, name) && matching(them, &theirs.name))
    }

    /// The voice of the owner of `stored` on the segment where it has the addresses; `None` where
    /// this node is not on that segment.
    pub(super) fn voice_of(&self, stored: &Stored<Claim>) -> Option<VoiceId> {
        let node = stored.record.holder.as_ref()?;
        let place = self.place(node, stored.record.interface.as_ref()?)?;
        let session = stored.record.session.clone()?;
        Some(VoiceId { interface: place.interface, node: node.clone(), session, mac: place.mac })
    }

    /// The speakers that poll `owner` on the segment of this node's `interface`.
    pub(super) fn pollers(&self, owner: &NodeName, interface: &InterfaceName) -> Vec<&NodeName> {
        pollers(owner, &self.speakers_on(interface))
    }

    /// [`Self::speakers_on`], with the hashes of their names.
    pub(super) fn crew<'a, 'b>(
        &'a self,
        interface: &InterfaceName,
        crews: &'b mut Crews<'a>,
    ) -> &'b [(u64, &'a NodeName)] {
        let hashed = |node: &'a NodeName| (name_hash(node.as_str()), node);
        let crew = crews.0.entry(interface.clone());
        crew.or_insert_with(|| self.speakers_on(interface).into_iter().map(hashed).collect())
    }

    /// Whether this node is one of [`Self::pollers`].
    pub(super) fn polls<'a>(
        &'a self,
        owner: &NodeName,
        interface: &InterfaceName,
        crews: &mut Crews<'a>,
    ) -> bool {
        let crew = self.crew(interface, crews);
        let own = &self.config.node;
        let hash = name_hash(owner.as_str());
        let rank = |(speaker, node): &(u64, &'a NodeName)| {
            (std::cmp::Reverse(combined(hash, *speaker)), *node)
        };
        let here = rank(&(name_hash(own.as_str()), own));
        // Most find three that come before them among the first few.
        let before = crew.iter().filter(|it| it.1 != owner && rank(it) < here);
        own != owner && before.take(POLLERS).count() < POLLERS && crew.iter().any(|it| it.1 == own)
    }

    /// The speakers on the segment of this node's `interface` that could poll, as far as it hears.
    fn speakers_on(&self, interface: &InterfaceName) -> Vec<&NodeName> {
        let Some(here) = self.interfaces.get(interface) else { return Vec::new() };
        let on_segment = |stored: &Stored<Session>| {
            stored.record.interfaces.iter().any(|theirs| {
                share_a_subnet(&here.addresses, &theirs.addresses)
                    || self.may_meet(interface, here, theirs)
            })
        };
        self.live_sessions()
            .filter(|(node, stored)| {
                **node == self.config.node
                    || !stored.record.restarting && !self.is_silent(node) && on_segment(stored)
            })
            .map(|(node, _)| node)
            .collect()
    }

    /// When a segment will have been blind for long enough to be reported.
    pub(super) fn listening_deadline(&self) -> Option<Instant> {
        self.first_ahead(self.listening.blind.values().copied())
    }

    /// Reports on which segments the wire path is off.
    pub(super) fn report_blindness(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Listening { blind, reported, .. } = &mut self.listening;
        let lasting: BTreeSet<InterfaceName> =
            blind.iter().filter(|(_, at)| now >= **at).map(|(name, _)| name.clone()).collect();
        for interface in lasting.symmetric_difference(reported) {
            let blind = lasting.contains(interface);
            Self::report(Fact::WireBlind { interface: interface.clone(), blind }, actions);
        }
        *reported = lasting;
    }

    /// What is asked of the owner with this voice.
    pub(super) fn asked_of(&self, id: &VoiceId) -> Option<&Watched> {
        self.listening.watchlist.owners.get(id).map(|watched| &**watched)
    }

    /// Whether a node with a live session no longer answers this one on some segment.
    pub(super) fn is_silent(&self, node: &NodeName) -> bool {
        self.silent.contains(node)
    }

    /// Takes over what the wire says now.
    pub(super) fn hear_voices(&mut self, now: Instant, voices: Voices, actions: &mut Vec<Action>) {
        for (id, voice) in voices.owners.iter() {
            let Voice::Silent(silence) = voice else { continue };
            let known = self.voices.owners.get(id);
            if !matches!(known, Some(Voice::Silent(before)) if before.address == silence.address) {
                let (address, interface) = (silence.address, id.interface.clone());
                let owner = OwnerId { node: id.node.clone(), session: id.session.transitions };
                let after = now.saturating_since(silence.first);
                Self::report(Fact::Silent { owner, interface, address, after }, actions);
            }
        }
        for id in voices.unanswering.symmetric_difference(&self.voices.unanswering) {
            let owner = OwnerId { node: id.node.clone(), session: id.session.transitions };
            let interface = id.interface.clone();
            let unanswered = voices.unanswering.contains(id);
            Self::report(Fact::ClientsUnanswered { owner, interface, unanswered }, actions);
        }
        let blind = &mut self.listening.blind;
        blind.retain(|interface, _| voices.blind.contains(interface));
        for interface in &voices.blind {
            blind.entry(interface.clone()).or_insert(now + BLIND);
        }
        let silent = voices
            .owners
            .iter()
            .filter(|(_, voice)| matches!(voice, Voice::Silent(silence) if !silence.node_answers));
        let silent: BTreeSet<NodeName> = silent.map(|(id, _)| id.node.clone()).collect();
        self.listening.crews |= silent != self.silent;
        self.silent = silent;
        self.voices = voices;
        self.silences.follow(now, &self.voices);
    }

    /// The session that is live under the identity in `id`, if it is.
    pub(super) fn session_of(&self, id: &VoiceId) -> Option<&Arc<Stored<Session>>> {
        let stored = self.sessions.get(id.node.as_str())?;
        let live = stored.record.holder.as_ref() == Some(&id.node) && is_under(stored, &id.session);
        live.then_some(stored)
    }
}

/// Changes since the watchlist was made last.
#[derive(Debug, Default)]
pub(super) struct WatchChanges {
    /// The claims of which something was said or asked: whether it was something else than before.
    claims: BTreeMap<LeaseName, bool>,
    /// Anything else that the watchlist is made from may have changed.
    pub(super) stale: bool,
}

impl WatchChanges {
    /// Something was said of a claim; whether it was something else than before.
    pub(super) fn note_claim(&mut self, name: &LeaseName, says_else: bool) {
        *self.claims.entry(name.clone()).or_default() |= says_else;
    }

    /// Something else is asked for of these claims.
    pub(super) fn note_asked(&mut self, names: Vec<LeaseName>) {
        self.claims.extend(names.into_iter().map(|name| (name, true)));
    }
}

/// Whom this node listens to.
#[derive(Debug, Default)]
pub(super) struct Listening {
    watchlist: Watchlist,
    /// Whether this node takes part, and the revision of the sessions that the watchlist was made from.
    takes_part: bool,
    sessions: u64,
    /// The claims of which something was said or asked since: whether it was something else than before.
    changed: BTreeMap<LeaseName, bool>,
    voiced: Voiced,
    /// Others may poll, …
    crews: bool,
    /// … or anything else that it is made from may have changed.
    stale: bool,
    /// Blind segments, and from when on that is reported: at first every segment is.
    blind: BTreeMap<InterfaceName, Instant>,
    reported: BTreeSet<InterfaceName>,
}

impl Listening {
    /// Takes in what has changed. What was said again of a claim matters only where nobody is heard for it:
    /// then its holder may be one whose session is not known yet.
    fn take_in(&mut self, changes: &mut WatchChanges) {
        self.stale |= std::mem::take(&mut changes.stale);
        for (name, says_else) in std::mem::take(&mut changes.claims) {
            if says_else || !self.voiced.parts.contains_key(&name) {
                *self.changed.entry(name).or_default() |= says_else;
            }
        }
    }

    /// Segments that have been blind for long.
    pub(super) fn reported(&self) -> impl Iterator<Item = &InterfaceName> {
        self.reported.iter()
    }
}

/// The speakers on each segment that could poll, with the hashes of their names.
#[derive(Debug, Default)]
pub(super) struct Crews<'a>(BTreeMap<InterfaceName, Vec<(u64, &'a NodeName)>>);

/// By which voice the owner of each claim is heard.
#[derive(Debug, Default)]
struct Voiced {
    parts: BTreeMap<LeaseName, Part>,
    owners: BTreeMap<Arc<VoiceId>, Parts>,
    /// Claims whose owner may turn out to be none although nothing is said of them.
    doubtful: BTreeSet<LeaseName>,
}

/// What one claim adds to what is asked of its owner.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    id: Arc<VoiceId>,
    detection: Detection,
    transitions: i32,
    vips: Box<[IpAddr]>,
}

/// The claims by which one owner is heard.
#[derive(Debug, Default)]
struct Parts {
    claims: BTreeSet<LeaseName>,
    /// How many addresses they list, all in all.
    vips: usize,
    /// How many claims are detected in each way, by how soon their ranks follow each other.
    detections: BTreeMap<(Duration, Detection), usize>,
}

/// Claims that an owner had, and claims that it has now; what has changed is in both.
#[derive(Debug, Default)]
struct Changes {
    gone: Vec<(LeaseName, Part)>,
    new: Vec<LeaseName>,
}

impl Changes {
    fn apply(&self, voices: &Voiced, vips: &mut BTreeMap<IpAddr, Ownership>) {
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
    fn fastest(&self) -> Option<Detection> {
        self.detections.keys().next().map(|(_, detection)| *detection)
    }
}

impl Voiced {
    /// The identity that claims of the same owner share.
    fn shared(&self, id: VoiceId) -> Arc<VoiceId> {
        self.owners.get_key_value(&id).map_or_else(|| Arc::new(id), |(id, _)| Arc::clone(id))
    }

    fn insert(&mut self, claim: &LeaseName, part: Part) {
        let parts = self.owners.entry(Arc::clone(&part.id)).or_default();
        parts.claims.insert(claim.clone());
        parts.vips += part.vips.len();
        *parts.detections.entry((part.detection.rank_step(), part.detection)).or_default() += 1;
        self.parts.insert(claim.clone(), part);
    }

    fn remove(&mut self, claim: &LeaseName) -> Option<Part> {
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
    fn vips(&self, parts: &Parts) -> BTreeMap<IpAddr, Ownership> {
        let mut vips = BTreeMap::new();
        for name in &parts.claims {
            self.add(name, &mut vips);
        }
        vips
    }

    fn add(&self, name: &LeaseName, vips: &mut BTreeMap<IpAddr, Ownership>) {
        let Some(part) = self.parts.get(name) else { return };
        for ip in &part.vips {
            let (claim, transitions) = (name.clone(), part.transitions);
            vips.insert(*ip, Ownership { claim, transitions });
        }
    }
}

fn share_a_subnet(ours: &[IpNet], theirs: &[IpNet]) -> bool {
    let mut ours = ours.iter().filter(|net| !is_host(net));
    ours.any(|ours| theirs.iter().any(|theirs| theirs.trunc() == ours.trunc()))
}

/// A host route says nothing about the segment.
fn is_host(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// The first of `speakers` by rendezvous hash with `owner`.
fn pollers<'a>(owner: &NodeName, speakers: &[&'a NodeName]) -> Vec<&'a NodeName> {
    let mut weighed: Vec<(std::cmp::Reverse<u64>, &NodeName)> = speakers
        .iter()
        .filter(|node| **node != owner)
        .map(|node| (std::cmp::Reverse(weight(owner.as_str(), node.as_str())), *node))
        .collect();
    weighed.sort_unstable();
    weighed.into_iter().map(|(_, node)| node).take(POLLERS).collect()
}
