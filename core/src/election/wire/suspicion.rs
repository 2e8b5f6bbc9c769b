//! wire/suspicion.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, EvidenceKind, LeaseName, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::provisional::Provisional;
use crate::election::context::Context;
use crate::election::context::fence::Evidence;
use crate::election::context::state::owner::Owner;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::context::state::segments::{Crews, Forsaken};
use crate::election::io::event::{Action, Answer, Target};
use crate::election::io::probes::{Silence, Voice, VoiceId};
use crate::election::wire::Wire;
use crate::election::wire::state::lapsed::Lapses;
use crate::election::wire::state::suspicion::{Suspicion, Unheard};

/// How long an address of a node that answers otherwise is left to its owner.
pub(in crate::election) const OWNER_LIVES: Duration = Duration::from_secs(1);

/// How long an owner that is silent on one segment has to answer on another.
pub(in crate::election) const OTHER_SEGMENTS: Duration = Duration::from_millis(200);

/// How long after a request without success the next is sent.
pub(in crate::election) const RETRY: Duration = Duration::from_millis(250);

/// The claims of an owner that it has let lapse although its node answers. The listener polls one address.
pub(in crate::election) fn lapsed(
    now: Instant,
    id: &VoiceId,
    owned: &[Owned],
    polled: Option<IpAddr>,
    questions: &mut Lapses,
    actions: &mut Vec<Action>,
) -> Vec<LeaseName> {
    let may_lapse =
        |owned: &&Owned| owned.voice.as_ref() == Some(id) && owned.wire && owned.held_without_api;
    let owned: Vec<&Stored<Claim>> =
        owned.iter().filter(may_lapse).map(|owned| &*owned.stored).collect();
    let mut addresses: BTreeSet<IpAddr> =
        owned.iter().flat_map(|stored| &stored.record.addresses).copied().collect();
    if let Some(polled) = polled {
        addresses.remove(&polled);
    }
    questions.ask(now, id, &addresses, actions);
    let has_lapsed = |stored: &&&Stored<Claim>| {
        stored.record.addresses.iter().any(|address| questions.has_lapsed(*address))
    };
    owned.iter().filter(has_lapsed).map(|stored| stored.name.clone()).collect()
}

/// A valid claim of a silent owner.
#[derive(Debug)]
pub(in crate::election) struct Owned {
    stored: Arc<Stored<Claim>>,
    /// Where this node would hear its owner.
    voice: Option<VoiceId>,
    /// Silence counts for it.
    wire: bool,
    /// It is served on without the API server.
    held_without_api: bool,
}

impl Wire {
    /// Whether this node has served the claim in place of an owner that has answered for nothing of
    /// the kind for so long, although it was asked.
    pub(in crate::election) fn is_replaced_for(
        &self,
        claims: &Claims,
        now: Instant,
        name: &LeaseName,
        owner: &VoiceId,
        long: Duration,
    ) -> bool {
        let provisional = claims.tenures().get(name).and_then(|tenure| tenure.provisional());
        let since = provisional.map(Provisional::since);
        let answered = self.old_owners.answered(&owner.interface, owner.mac);
        claims.serves_provisionally(name)
            && since.max(answered).is_some_and(|at| now.saturating_since(at) >= long)
    }

    pub(in crate::election) fn silences_deadline(&self, cx: &Context) -> Option<Instant> {
        cx.own().id()?;
        let waits = self.silences.suspicions.iter().flat_map(|(id, suspicion)| {
            let waits = [
                suspicion.next,
                suspicion.since + self.patience(cx, id),
                cx.api_given_up(suspicion.since),
            ];
            waits.into_iter().chain(suspicion.lapses.deadlines())
        });
        let unheard = self.silences.unheard.values().flat_map(|unheard| {
            let gone = cx.api_given_up(unheard.since).max(unheard.since + OWNER_LIVES);
            unheard.lapses.deadlines().chain([gone])
        });
        cx.first_ahead(waits.chain(unheard))
    }

    pub(in crate::election) fn advance_silences(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let mut forsaken = BTreeMap::new();
        if cx.own().id().is_some() && !cx.own().is_ending() {
            let ids: Vec<VoiceId> = self.silences.suspicions.keys().cloned().collect();
            let crews = &mut Crews::default();
            let ids: Vec<VoiceId> =
                ids.into_iter().filter(|id| cx.polls(&id.node, &id.interface, crews)).collect();
            for id in ids {
                for (name, since) in self.suspect_owner(cx, claims, now, &id, actions) {
                    forsaken.insert(name, Forsaken { id: id.clone(), since });
                }
            }
            self.follow_unheard(cx, now);
            let ids: Vec<VoiceId> = self.silences.unheard.keys().cloned().collect();
            for id in ids {
                for (name, since) in self.ask_unheard(cx, now, &id, actions) {
                    forsaken.insert(name, Forsaken { id: id.clone(), since });
                }
            }
        }
        for name in cx.forsaken().keys().chain(forsaken.keys()) {
            claims.open_mut().note(name);
        }
        cx.set_forsaken(forsaken);
    }

    /// Does what is due about one silence; returns the claims that are to be taken without a fence.
    pub(in crate::election) fn suspect_owner(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        id: &VoiceId,
        actions: &mut Vec<Action>,
    ) -> Vec<(LeaseName, Instant)> {
        let Some(suspicion) = self.silences.suspicions.get(id) else { return Vec::new() };
        let (silence, since) = (suspicion.silence.clone(), suspicion.since);
        // Fenced already, or over.
        if cx.session_of(id).is_none() {
            return Vec::new();
        }
        let owned = Self::owned_by(cx, &id.node);
        if self.is_own(id, silence.address) {
            self.suspect_bystander(cx, now, id, &owned, actions);
            return Vec::new();
        }
        let polled = owned.iter().find(|owned| {
            owned.voice.as_ref() == Some(id)
                && owned.stored.record.addresses.contains(&silence.address)
        });
        // Its service has merely gone or moved: another address will be polled.
        let Some(polled) = polled.map(|owned| owned.stored.clone()) else { return Vec::new() };
        let replaced =
            |owned: &Owned| self.is_replaced_for(claims, now, &owned.stored.name, id, OWNER_LIVES);
        let affected = |owned: &&Owned| {
            owned.voice.as_ref() == Some(id)
                && owned.wire
                // What lapses in an outage of the API server is silent, and nobody's.
                && (!silence.node_answers
                    || owned.held_without_api
                        && (owned.stored.name == polled.name || replaced(owned)))
        };
        let affected: Vec<&Owned> = owned.iter().filter(affected).collect();
        if cx.is_api_gone(now, since) {
            let held = affected.iter().filter(|owned| owned.held_without_api);
            let mut held: Vec<_> = held.map(|owned| (owned.stored.name.clone(), since)).collect();
            let suspicion = self.silences.suspicions.get_mut(id);
            if let Some(suspicion) = suspicion.filter(|_| silence.node_answers) {
                let (polled, questions) = (Some(silence.address), &mut suspicion.lapses);
                let more = lapsed(now, id, &owned, polled, questions, actions);
                held.extend(more.into_iter().map(|name| (name, since)));
            }
            return held;
        }
        let Some(suspicion) = self.silences.suspicions.get_mut(id) else { return Vec::new() };
        suspicion.lapses = Lapses::default();
        let tenure = (polled.name.clone(), polled.record.transitions);
        if suspicion.confirmed.as_ref() != Some(&tenure) {
            if now >= suspicion.next && !cx.is_confirming(&polled.name) {
                if let Some(suspicion) = self.silences.suspicions.get_mut(id) {
                    suspicion.next = now + RETRY;
                    suspicion.asked_for = Some(polled.name.clone());
                }
                let target = Target::Claim(polled.name.clone());
                cx.read_for(now, target, Purpose::Confirm, actions);
            }
            return Vec::new();
        }
        if self.may_fence(id, &silence, &owned) {
            self.fence_silent(cx, now, id, actions);
            return Vec::new();
        }
        let waited = now >= since + self.patience(cx, id);
        let taken = affected.iter().filter(|owned| {
            waited
                || silence.node_answers
                    && self.is_replaced_for(claims, now, &owned.stored.name, id, OWNER_LIVES)
        });
        taken.map(|owned| (owned.stored.name.clone(), since)).collect()
    }

    /// Fences a node that owns nothing and is silent, so that those learn of it who do not poll it. First its session is
    /// read: its addresses may be others by now.
    pub(in crate::election) fn suspect_bystander(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: &VoiceId,
        owned: &[Owned],
        actions: &mut Vec<Action>,
    ) {
        let silent = owned.is_empty() && self.silent_everywhere(cx).contains(&id.node);
        let Some(suspicion) = self.silences.suspicions.get_mut(id) else { return };
        if !silent || now < suspicion.next || cx.is_api_gone(now, suspicion.since) {
            return;
        }
        if suspicion.read {
            self.fence_silent(cx, now, id, actions);
            return;
        }
        let target = Target::Session(LeaseName::session(&id.node));
        if !cx.is_pending(&target) {
            suspicion.next = now + RETRY;
            cx.read(now, target, actions);
        }
    }

    /// Notes which owners have never answered this node, as long as the API server does not either.
    pub(in crate::election) fn follow_unheard(&mut self, cx: &Context, now: Instant) {
        let mut before = std::mem::take(&mut self.silences.unheard);
        if !cx.is_api_failing() {
            return;
        }
        let voices = cx.voices().owners.iter();
        let unheard = voices.filter(|(_, voice)| **voice == Voice::Unheard);
        let asked = unheard.filter_map(|(id, _)| Some((id, self.asked_of(id)?)));
        let mut followed = BTreeMap::new();
        let crews = &mut Crews::default();
        for (id, watched) in asked.filter(|(_, watched)| watched.polled) {
            if !cx.polls(&id.node, &id.interface, crews) {
                continue;
            }
            let known = before.remove(id);
            let new = || Unheard { since: now, lapses: Lapses::unheard(now, &watched.own) };
            followed.insert(id.clone(), known.unwrap_or_else(new));
        }
        self.silences.unheard = followed;
    }

    /// Asks an owner that has never answered for what it is to have; returns what it does not have, although
    /// its node answers.
    pub(in crate::election) fn ask_unheard(
        &mut self,
        cx: &Context,
        now: Instant,
        id: &VoiceId,
        actions: &mut Vec<Action>,
    ) -> Vec<(LeaseName, Instant)> {
        let since = self.silences.unheard.get(id).map(|unheard| unheard.since);
        let waited = |since: &Instant| now >= *since + OWNER_LIVES && cx.is_api_gone(now, *since);
        let Some(since) = since.filter(waited).filter(|_| cx.session_of(id).is_some()) else {
            return Vec::new();
        };
        let owned = Self::owned_by(cx, &id.node);
        let Some(unheard) = self.silences.unheard.get_mut(id) else { return Vec::new() };
        let lapsed = lapsed(now, id, &owned, None, &mut unheard.lapses, actions);
        lapsed.into_iter().map(|name| (name, since)).collect()
    }

    /// How long this node waits before it takes claims without a fence: for an owner that lives to
    /// put right what it lost, and for one that may not to fall silent on its other segments, too.
    pub(in crate::election) fn patience(&self, cx: &Context, id: &VoiceId) -> Duration {
        let lives = |suspicion: &Suspicion| suspicion.silence.node_answers;
        if self.silences.suspicions.get(id).is_some_and(lives) {
            return OWNER_LIVES;
        }
        let others = cx.voices().owners.keys().any(|other| {
            other.node == id.node && other.session == id.session && other.interface != id.interface
        });
        if others { OTHER_SEGMENTS } else { Duration::ZERO }
    }

    /// Whether the owner is silent wherever it owns anything.
    pub(in crate::election) fn may_fence(
        &self,
        id: &VoiceId,
        silence: &Silence,
        owned: &[Owned],
    ) -> bool {
        let silent = |owned: &Owned| {
            owned.wire
                && owned.voice.as_ref().is_some_and(|voice| {
                    voice == id
                        || self
                            .silences
                            .suspicions
                            .get(voice)
                            .is_some_and(|suspicion| !suspicion.silence.node_answers)
                })
        };
        !silence.node_answers && owned.iter().all(silent)
    }

    pub(in crate::election) fn fence_silent(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: &VoiceId,
        actions: &mut Vec<Action>,
    ) {
        let Some(stored) = cx.session_of(id).cloned() else { return };
        let target = Target::Session(stored.name.clone());
        let pending = cx.is_pending(&target);
        let Some(suspicion) = self.silences.suspicions.get_mut(id) else { return };
        if pending || now < suspicion.next {
            return;
        }
        suspicion.next = now + RETRY;
        if std::mem::take(&mut suspicion.must_read) {
            cx.read(now, target, actions);
            return;
        }
        let finding = format!("its address {} fell silent", suspicion.silence.address);
        let first = suspicion.silence.first;
        cx.fence(now, Evidence::new(stored, EvidenceKind::Wire, first, finding), actions);
    }

    /// The polled claim was read: does the store say what the cache said?
    pub(in crate::election) fn confirmed(
        &mut self,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
    ) {
        let read = match answer {
            Answer::Claim(stored) => Some(stored),
            _ => None,
        };
        for (id, suspicion) in &mut self.silences.suspicions {
            if suspicion.asked_for.as_ref() != Some(name) {
                continue;
            }
            let still = read.filter(|stored| {
                stored.record.holder.as_ref() == Some(&id.node)
                    && stored.record.session.as_ref() == Some(&id.session)
            });
            // Read before it fell silent, it says nothing about the silence.
            if let Some(stored) = still.filter(|_| pending.sent >= suspicion.since) {
                suspicion.confirmed = Some((name.clone(), stored.record.transitions));
            }
            if matches!(answer, Answer::Claim(_) | Answer::Absent) {
                suspicion.next = now;
            }
        }
    }

    /// A session was read or fenced because of a silence.
    pub(in crate::election) fn silence_answered(
        &mut self,
        now: Instant,
        pending: &Pending,
        answer: &Answer,
    ) {
        let Target::Session(name) = &pending.target else { return };
        let of = |id: &VoiceId| LeaseName::session(&id.node) == *name;
        for (_, suspicion) in self.silences.suspicions.iter_mut().filter(|(id, _)| of(id)) {
            match (pending.purpose, answer) {
                // It renewed just now, or another was quicker: the newest version says.
                (Purpose::Fence, Answer::Conflict) => {
                    suspicion.must_read = true;
                    suspicion.next = now;
                }
                (Purpose::Fence, Answer::Unknown(_)) => suspicion.must_read = true,
                (Purpose::Read, Answer::Session(_) | Answer::Absent) => {
                    suspicion.read |= pending.sent >= suspicion.since;
                    suspicion.next = now;
                }
                (_, _) => {}
            }
        }
    }

    /// The valid claims of `node`.
    pub(in crate::election) fn owned_by(cx: &Context, node: &NodeName) -> Vec<Owned> {
        let theirs = |stored: &&Arc<Stored<Claim>>| {
            stored.record.holder.as_ref() == Some(node)
                && matches!(cx.owner(stored), Owner::Other(_))
        };
        let owned = cx.claims().stored().filter(theirs).map(|stored| {
            let claim = cx.desired_claim(&stored.name);
            Owned {
                voice: cx.voice_of(stored),
                // What nobody asks for any more is given up by its owner.
                wire: claim.is_none_or(|claim| claim.detection.wire),
                held_without_api: claim
                    .is_some_and(|claim| claim.on_api_outage == crate::desired::OnApiOutage::Hold),
                stored: stored.clone(),
            }
        });
        owned.collect()
    }
}
