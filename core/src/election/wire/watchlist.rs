//! To which owners this node listens, and which of them it polls.
//!
//! The pollers of an owner on a segment are the first three speakers there by rendezvous hash of
//! (owner, speaker), without those whom this node no longer hears. So the polls of a cluster grow with
//! its nodes and not with its services. On small segments each polls all others, and the three fence.
//!
//! A node that owns nothing there is polled in the same way, by an address of its own: its pods may be in
//! use. So is one whose speaker has ended its session, for a while: it may be about to be shut down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, SessionInterface, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::facts::{former_id_of, id_of};
use crate::election::context::state::owner::Owner;
use crate::election::context::state::segments::{Crews, Place};
use crate::election::io::event::{Action, Fact};
use crate::election::io::probes::{Ownership, Voice, VoiceId, Voices, Watched, Watchlist};
use crate::election::io::transition::OwnerId;
use crate::election::placement::rank::weight;
use crate::election::wire::Wire;
use crate::election::wire::departed::Departed;
use crate::election::wire::state::watchlist::{Changes, Listening, Part, Voiced};

/// How long a segment has to be blind to be reported.
pub(in crate::election) const BLIND: Duration = Duration::from_secs(5);

impl Wire {
    /// What this node has to listen to now, if that has changed.
    pub(in crate::election) fn listen(
        &mut self,
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let takes_part = cx.is_informed() && cx.own().id().is_some() && !cx.own().is_ending();
        let (revision, listening) = (cx.sessions().revision(), &mut self.listening);
        listening.take_in(cx.watch_mut());
        let other = std::mem::replace(&mut listening.takes_part, takes_part) != takes_part;
        let sessions = std::mem::replace(&mut listening.sessions, revision) != revision;
        let ended = self.departed.note(cx, now, sessions);
        let crews = std::mem::take(&mut listening.crews) || sessions || ended;
        let anything = crews || !listening.changed.is_empty();
        let changed = if std::mem::take(&mut listening.stale) || other {
            self.watch_all(cx, takes_part)
        } else {
            takes_part && (self.watch_changed(cx) | (crews && self.watch_crews(cx)))
        };
        debug_assert!(
            !anything || !takes_part || self.watchlist_anew(cx).1 == self.listening.watchlist,
            "whom this node listens to is not whom it has to"
        );
        if changed {
            actions.push(Action::Listen(self.listening.watchlist.clone()));
        }
    }

    /// Makes the watchlist anew; returns whether it has changed.
    pub(in crate::election) fn watch_all(&mut self, cx: &Context, takes_part: bool) -> bool {
        let (voices, watchlist) =
            if takes_part { self.watchlist_anew(cx) } else { Default::default() };
        self.listening.voiced = voices;
        self.listening.changed.clear();
        let changed = watchlist != self.listening.watchlist;
        self.listening.watchlist = watchlist;
        changed
    }

    pub(in crate::election) fn watchlist_anew(&self, cx: &Context) -> (Voiced, Watchlist) {
        let mut voices = Voiced::default();
        let mut places = BTreeMap::new();
        for stored in cx.claims().stored() {
            Self::voice(cx, stored, &mut voices, &mut places);
        }
        let mut crews = Crews::default();
        let before = &self.listening.watchlist.owners;
        let watched = |id: &Arc<VoiceId>| {
            let watched = Self::watched(cx, id, &voices, None, &mut crews)?;
            let same = before.get(&**id).filter(|before| ***before == watched);
            let watched = same.map_or_else(|| Arc::new(watched), Arc::clone);
            Some((VoiceId::clone(id), watched))
        };
        let mut owners: BTreeMap<VoiceId, Arc<Watched>> =
            voices.owners.keys().filter_map(watched).collect();
        let departed = &self.departed;
        let bystanders = Self::bystanders(cx, departed, &voices, &mut crews);
        owners.extend(bystanders.into_iter().map(|(id, watched)| {
            let same = before.get(&id).filter(|before| ***before == watched);
            let watched = same.map_or_else(|| Arc::new(watched), Arc::clone);
            (id, watched)
        }));
        let [high, low, ..] = weight(cx.config().node.as_str(), "").to_be_bytes();
        let phase = u16::from_be_bytes([high, low]);
        (voices, Watchlist { owners, speakers: self.all_speakers(cx), phase })
    }

    /// The MAC addresses of all speakers' interfaces; the same set as long as it holds.
    pub(in crate::election) fn all_speakers(
        &self,
        cx: &Context,
    ) -> Arc<BTreeMap<MacAddr, NodeName>> {
        let interfaces = cx.sessions().stored().flat_map(|stored| {
            let node = stored.record.holder.as_ref();
            let listed = stored.record.interfaces.iter();
            listed.filter_map(move |theirs| Some((theirs.mac, node?)))
        });
        let own = cx.own_interfaces().values().map(|interface| (interface.mac, &cx.config().node));
        let all: BTreeMap<MacAddr, &NodeName> = interfaces.chain(own).collect();
        let before = &self.listening.watchlist.speakers;
        if before.iter().eq(all.iter().map(|(mac, node)| (mac, *node))) {
            return Arc::clone(before);
        }
        Arc::new(all.into_iter().map(|(mac, node)| (mac, node.clone())).collect())
    }

    /// Brings the watchlist in line with who the speakers are now; returns whether it has changed.
    pub(in crate::election) fn watch_crews(&mut self, cx: &Context) -> bool {
        let mut crews = Crews::default();
        let voiced = &self.listening.voiced;
        let owners = self.listening.watchlist.owners.iter();
        let mut other: Vec<(VoiceId, Arc<Watched>)> = owners
            .filter(|(id, _)| voiced.owns(id))
            .filter_map(|(id, watched)| {
                let polled = cx.watches(&id.node, &id.interface, &mut crews);
                let other = || Arc::new(Watched { polled, ..Watched::clone(watched) });
                (polled != watched.polled).then(|| (id.clone(), other()))
            })
            .collect();
        let departed = &self.departed;
        let mut bystanders = Self::bystanders(cx, departed, voiced, &mut crews);
        let speakers = self.all_speakers(cx);
        let watchlist = &mut self.listening.watchlist;
        let known = watchlist.owners.len();
        watchlist.owners.retain(|id, watched| {
            voiced.owns(id)
                || bystanders.get(id).is_some_and(|bystander| *bystander == **watched)
                    && bystanders.remove(id).is_some()
        });
        let gone = watchlist.owners.len() != known;
        other.extend(bystanders.into_iter().map(|(id, watched)| (id, Arc::new(watched))));
        let changed = gone || !other.is_empty() || watchlist.speakers != speakers;
        watchlist.owners.extend(other);
        watchlist.speakers = speakers;
        changed
    }

    /// Brings the watchlist in line with the claims that have changed; returns whether it has changed.
    pub(in crate::election) fn watch_changed(&mut self, cx: &Context) -> bool {
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
            if let Some(stored) = cx.claims().get(&name) {
                Self::voice(cx, stored, &mut voices, &mut BTreeMap::new());
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
            let owner = Self::watched(cx, id, &voices, before, &mut crews);
            let departed = &self.departed;
            let watched = owner.or_else(|| Self::bystander(cx, departed, id, &mut crews));
            (VoiceId::clone(id), watched)
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
    pub(in crate::election) fn voice(
        cx: &Context,
        stored: &Stored<Claim>,
        voices: &mut Voiced,
        places: &mut BTreeMap<(NodeName, InterfaceName), Option<Place>>,
    ) -> Option<()> {
        // What was set back is left to its owner for a while, which serves it meanwhile.
        let Owner::Other(node) = cx.named_owner(stored) else { return None };
        if cx.is_in_doubt(stored) {
            voices.doubtful.insert(stored.name.clone());
        }
        let (theirs, session) =
            (stored.record.interface.as_ref()?, stored.record.session.as_ref()?);
        let claim = cx.desired_claim(&stored.name).filter(|claim| claim.detection.wire)?;
        let place = places
            .entry((node.clone(), theirs.clone()))
            .or_insert_with(|| cx.place(&node, theirs))
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
    pub(in crate::election) fn watched<'a>(
        cx: &'a Context,
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
        let stored = parts.claims.first().and_then(|name| cx.claims().get(name))?;
        Some(Watched {
            polled: cx.watches(&id.node, &id.interface, crews),
            detection: parts.fastest()?,
            vips,
            own: cx.place(&id.node, stored.record.interface.as_ref()?)?.own,
        })
    }

    /// The links of other nodes that this node polls although they own nothing there.
    pub(in crate::election) fn bystanders<'a>(
        cx: &'a Context,
        departed: &Departed,
        voices: &Voiced,
        crews: &mut Crews<'a>,
    ) -> BTreeMap<VoiceId, Watched> {
        let mut bystanders = BTreeMap::new();
        if cx.desired().is_none_or(|desired| desired.polls.is_none()) {
            return bystanders;
        }
        let live = cx.live_sessions().map(|(node, stored)| (node, stored, id_of(stored)));
        let departed_nodes = departed.nodes().filter_map(|node| {
            let stored = cx.sessions().get(node.as_str())?;
            Some((node, stored, former_id_of(stored)))
        });
        let others = live.chain(departed_nodes).filter(|(node, ..)| *node != cx.node());
        for (node, stored, session) in others {
            for link in &stored.record.interfaces {
                let Some(interface) = cx.meets(link) else { continue };
                let (interface, session) = (interface.clone(), session.clone());
                let id = VoiceId { interface, node: node.clone(), session, mac: link.mac };
                if !voices.owns(&id)
                    && let Some(watched) = Self::bystander(cx, departed, &id, crews)
                {
                    bystanders.insert(id, watched);
                }
            }
        }
        bystanders
    }

    /// The poll of a node that owns nothing there.
    pub(in crate::election) fn bystander<'a>(
        cx: &'a Context,
        departed: &Departed,
        id: &VoiceId,
        crews: &mut Crews<'a>,
    ) -> Option<Watched> {
        let detection = cx.desired()?.polls?;
        let stored = departed.session_of(cx, id)?;
        let met =
            |link: &&SessionInterface| link.mac == id.mac && cx.meets(link) == Some(&id.interface);
        let links = stored.record.interfaces.iter().filter(met);
        let own: BTreeSet<IpAddr> = links.flat_map(SessionInterface::own_addresses).collect();
        let polled = *own.first()?;
        if !cx.watches(&id.node, &id.interface, crews) {
            return None;
        }
        let claim = LeaseName::session(&id.node);
        let transitions = id.session.transitions;
        let vips = [(polled, Ownership { claim, transitions })].into();
        Some(Watched { polled: true, detection, vips, own })
    }

    /// Whether this address is one of the node's own, by which it is polled as it owns nothing.
    pub(in crate::election) fn is_own(&self, id: &VoiceId, address: IpAddr) -> bool {
        let ownership = self.asked_of(id).and_then(|watched| watched.vips.get(&address));
        ownership.is_some_and(|ownership| ownership.claim == LeaseName::session(&id.node))
    }

    /// When a segment will have been blind for long enough to be reported.
    pub(in crate::election) fn listening_deadline(&self, cx: &Context) -> Option<Instant> {
        let departures = self.departed.ends();
        cx.first_ahead(self.listening.blind.values().copied().chain(departures))
    }

    /// Reports on which segments the wire path is off.
    pub(in crate::election) fn report_blindness(
        &mut self,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Listening { blind, reported, .. } = &mut self.listening;
        let lasting: BTreeSet<InterfaceName> =
            blind.iter().filter(|(_, at)| now >= **at).map(|(name, _)| name.clone()).collect();
        for interface in lasting.symmetric_difference(reported) {
            let blind = lasting.contains(interface);
            Context::report(Fact::WireBlind { interface: interface.clone(), blind }, actions);
        }
        *reported = lasting;
    }

    /// What is asked of the owner with this voice.
    pub(in crate::election) fn asked_of(&self, id: &VoiceId) -> Option<&Watched> {
        self.listening.watchlist.owners.get(id).map(|watched| &**watched)
    }

    /// Takes over what the wire says now.
    pub(in crate::election) fn hear_voices(
        &mut self,
        cx: &mut Context,
        now: Instant,
        voices: Voices,
        actions: &mut Vec<Action>,
    ) {
        for (id, voice) in voices.owners.iter() {
            let Voice::Silent(silence) = voice else { continue };
            let known = cx.voices().owners.get(id);
            if !matches!(known, Some(Voice::Silent(before)) if before.address == silence.address)
                && !self.is_own(id, silence.address)
            {
                let (address, interface) = (silence.address, id.interface.clone());
                let owner = OwnerId { node: id.node.clone(), session: id.session.transitions };
                let after = now.saturating_since(silence.first);
                Context::report(Fact::Silent { owner, interface, address, after }, actions);
            }
        }
        for id in voices.unanswering.symmetric_difference(&cx.voices().unanswering) {
            let owner = OwnerId { node: id.node.clone(), session: id.session.transitions };
            let interface = id.interface.clone();
            let unanswered = voices.unanswering.contains(id);
            Context::report(Fact::ClientsUnanswered { owner, interface, unanswered }, actions);
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
        self.listening.crews |= &silent != cx.silent();
        cx.set_silent(silent);
        cx.set_voices(voices);
        self.falls.note_voices();
        self.silences.follow(now, cx.voices());
    }
}
