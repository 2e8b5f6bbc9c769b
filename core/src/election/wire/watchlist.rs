//! To which owners this node listens, and which of them it polls.
//!
//! The pollers of an owner on a segment are the first three speakers there by rendezvous hash of
//! (owner, speaker), without those whom this node no longer hears. So the polls of a cluster grow with
//! its nodes and not with its services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::segments::{Crews, Place};
use crate::election::io::event::{Action, Fact};
use crate::election::io::probes::{Voice, VoiceId, Voices, Watched, Watchlist};
use crate::election::io::transition::OwnerId;
use crate::election::placement::rank::weight;
use crate::election::wire::Wire;
use crate::election::wire::state::watchlist::{Changes, Listening, Part, Voiced};

/// How long a segment has to be blind to be reported.
pub(in crate::election) const BLIND: Duration = Duration::from_secs(5);

impl Wire {
    /// What this node has to listen to now, if that has changed.
    pub(in crate::election) fn listen(&mut self, cx: &mut Context, actions: &mut Vec<Action>) {
        let takes_part = cx.is_informed() && cx.own().id().is_some() && !cx.own().is_ending();
        let (revision, listening) = (cx.sessions().revision(), &mut self.listening);
        listening.take_in(cx.watch_mut());
        let other = std::mem::replace(&mut listening.takes_part, takes_part) != takes_part;
        let sessions = std::mem::replace(&mut listening.sessions, revision) != revision;
        let crews = std::mem::take(&mut listening.crews) || sessions;
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
        let owners = voices.owners.keys().filter_map(watched).collect();
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
        let owners = self.listening.watchlist.owners.iter();
        let other: Vec<(VoiceId, Arc<Watched>)> = owners
            .filter_map(|(id, watched)| {
                let polled = cx.polls(&id.node, &id.interface, &mut crews);
                let other = || Arc::new(Watched { polled, ..Watched::clone(watched) });
                (polled != watched.polled).then(|| (id.clone(), other()))
            })
            .collect();
        let speakers = self.all_speakers(cx);
        let watchlist = &mut self.listening.watchlist;
        let changed = !other.is_empty() || watchlist.speakers != speakers;
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
            (VoiceId::clone(id), Self::watched(cx, id, &voices, before, &mut crews))
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
            polled: cx.polls(&id.node, &id.interface, crews),
            detection: parts.fastest()?,
            vips,
            own: cx.place(&id.node, stored.record.interface.as_ref()?)?.own,
        })
    }

    /// When a segment will have been blind for long enough to be reported.
    pub(in crate::election) fn listening_deadline(&self, cx: &Context) -> Option<Instant> {
        cx.first_ahead(self.listening.blind.values().copied())
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
            if !matches!(known, Some(Voice::Silent(before)) if before.address == silence.address) {
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
        self.silences.follow(now, cx.voices());
    }
}
