//! Events: each is taken in by the room that it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, Session, SessionInterface, Stored};
use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::election::context::facts::{is_begun_anew, is_renewal};
use crate::election::context::state::facts::id_of;
use crate::election::context::state::requests::Purpose;
use crate::election::engine::Election;
use crate::election::io::event::{Action, Answer, Event, RequestId, Target};
use crate::election::outage::state::turn::Outage;
use crate::election::output::state::publication::Output;
use crate::election::session::Sessions;
use crate::election::store::cache::Cache;
use crate::election::wire::Wire;

impl Election {
    /// Takes what has happened, in order, and appends what is to be done.
    ///
    /// What waits to be taken is best taken together: all that has not been settled is looked at once for
    /// all of it. Whether events come together or one by one changes no promise of the core.
    pub fn handle(
        &mut self,
        now: Instant,
        events: impl IntoIterator<Item = Event>,
        actions: &mut Vec<Action>,
    ) {
        self.cx.note_seen(now);
        for event in events {
            self.take(now, event, actions);
        }
        self.advance(now, actions);
    }

    pub(in crate::election) fn take(
        &mut self,
        now: Instant,
        event: Event,
        actions: &mut Vec<Action>,
    ) {
        match event {
            Event::Sessions(all) => {
                self.cx.api_mut().listed_sessions();
                self.noting_all_sessions(now, |sessions| sessions.list(now, all));
            }
            Event::Session(stored) => {
                let name = stored.name.clone();
                self.cx.own_mut().echoed(&stored);
                self.noting_session(now, &name, |all| all.watched(now, &name, Some(stored)));
            }
            Event::SessionGone(name) => {
                self.noting_session(now, &name, |all| all.watched(now, &name, None));
                if &name == self.cx.own_name() {
                    self.cx.own_mut().deleted(now);
                }
            }
            Event::Claims(all) => {
                self.cx.api_mut().listed_claims();
                self.cx.claims_mut().list(now, all);
                self.claims.open_mut().note_all();
                self.cx.watch_mut().note_all();
            }
            Event::Claim(stored) => {
                let name = stored.name.clone();
                self.noting_claim(&name, |claims| claims.watched(now, &name, Some(stored)));
            }
            Event::ClaimGone(name) => {
                self.noting_claim(&name, |claims| claims.watched(now, &name, None));
            }
            Event::Listed { asked, sessions, claims } => {
                self.cx.api_mut().listed_sessions();
                self.cx.api_mut().listed_claims();
                self.noting_all_sessions(now, |known| known.listed_at(now, asked, sessions));
                self.cx.claims_mut().listed_at(now, asked, claims);
                Sessions::go_on(&mut self.cx, asked);
                self.claims.open_mut().note_all();
                self.cx.watch_mut().note_all();
            }
            Event::Desired(desired) => {
                let before = self.cx.desired();
                let changed: Vec<LeaseName> = desired.changed(before).cloned().collect();
                let repolled = before.is_none_or(|before| before.polls != desired.polls);
                self.claims.open_mut().note_desired(before, &desired, &changed);
                self.cx.note_asked_of_proxy(&changed, &desired);
                if repolled {
                    self.cx.watch_mut().note_all();
                }
                self.cx.watch_mut().note_asked(changed);
                self.transfer.improving_mut().note_desired(&desired);
                let own = desired.nodes.get(&self.cx.config().node).copied();
                self.cx.not_ready_mut().note_desired(now, own, &desired);
                self.cx.set_desired(desired);
                self.claims.note_named(&mut self.cx);
            }
            Event::Interfaces(interfaces) => {
                self.cx.watch_mut().note_all();
                self.claims.note_interfaces(&mut self.cx, now, interfaces);
            }
            Event::Hearing(hearing) => self.cx.set_hearing(hearing),
            Event::Heard(heard) => self.heard(now, &heard, actions),
            Event::Missed => self.wire.note_missed(&mut self.cx, &mut self.claims, now),
            Event::Voices(voices) => self.wire.hear_voices(&mut self.cx, now, voices, actions),
            Event::Kernel(view) => {
                self.claims.open_mut().note_changed(&self.cx.kernel().ours, &view.ours);
                self.claims.open_mut().note_changed(&self.cx.kernel().foreign, &view.foreign);
                self.wire.old_owners_mut().note_all();
                self.cx.set_kernel(view);
            }
            Event::Connections(open) => self.handovers.count(&mut self.cx, &open),
            Event::Proxy(view) => self.cx.note_proxy(view),
            Event::DataPath(view) => self.cx.note_data_path(view),
            Event::Answered { request, answer } => self.answered(now, request, &answer, actions),
            Event::Terminate(follower) => self.cx.own_mut().terminate(now, follower),
            Event::Tick => {}
        }
    }

    /// When to call [`Self::handle`] with [`Event::Tick`] if nothing else comes before.
    pub fn next_deadline(&self) -> Option<Instant> {
        [
            Sessions::session_deadline(&self.cx),
            self.session.peers_deadline(&self.cx),
            self.wire.silences_deadline(&self.cx),
            self.wire.listening_deadline(&self.cx),
            self.wire.falls_deadline(&self.cx),
            self.outage.provisional_deadline(&self.cx, &self.claims),
            self.claims.claims_deadline(&self.cx),
            self.transfer.moves_deadline(&self.cx, &self.claims),
            self.wire.conflicts_deadline(&self.cx, &self.claims),
            self.cx.not_ready_deadline(),
            self.cx.proxy_deadline(),
            self.cx.data_path_deadline(),
            self.cx.readdressed_deadline(),
            self.wire.yields_deadline(&self.cx),
            self.handovers.deadline(&self.cx),
            self.spreads.deadline(&self.cx),
            self.cx.first_ahead(self.cx.published().deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The interfaces of the other nodes whose sessions live.
    pub fn peers(&self) -> impl Iterator<Item = &SessionInterface> {
        self.cx
            .live_sessions()
            .filter(|(node, _)| **node != self.cx.config().node)
            .flat_map(|(_, stored)| &stored.record.interfaces)
    }

    /// Differs whenever [`Self::interfaces`], [`Self::peers`] or [`Self::heeded`] may differ.
    pub const fn heeds(&self) -> (u64, u64) {
        (self.cx.published().changes(), self.cx.sessions().revision())
    }

    /// The addresses about which frames matter: what is served here, what is about to be, and what tells that a
    /// node that was fenced is back.
    pub fn heeded(&self) -> impl Iterator<Item = IpAddr> {
        let served = self.cx.serving().vips.keys().copied();
        served.chain(self.cx.published().listed()).chain(Wire::fenced_addresses(&self.cx))
    }

    /// The interfaces on which only leases tell who died.
    pub fn blind(&self) -> impl Iterator<Item = &InterfaceName> {
        self.wire.listening().reported()
    }

    /// How many speakers live, this one among them.
    pub fn speakers(&self) -> usize {
        self.cx.living()
    }

    /// The claims that this speaker holds, as far as it knows.
    pub fn held(&self) -> impl Iterator<Item = &LeaseName> {
        self.claims.tenures().iter().filter(|(_, tenure)| tenure.is_mine()).map(|(name, _)| name)
    }

    pub(in crate::election) fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.cx.note_speakers();
        self.claims.advance_proxy(&mut self.cx, now, actions);
        if self.cx.advance_data_path(now) {
            self.claims.open_mut().note_all();
            self.spreads.note_state();
        }
        Sessions::advance_session(&mut self.cx, &mut self.claims, &self.wire, now, actions);
        if self.cx.is_informed() {
            self.session.advance_peers(&mut self.cx, now, actions);
            self.claims.end_lapsed_provisional(&mut self.cx, now);
            Outage::settle_provisional(&mut self.cx, &mut self.claims, &self.wire, now, actions);
            self.wire.advance_silences(&mut self.cx, &mut self.claims, now, actions);
            self.claims.advance_not_ready(&mut self.cx, now);
            self.claims.settle_readdressed(&mut self.cx, now);
            self.advance_claims(now, actions);
            self.handovers.advance(&mut self.cx, &mut self.claims, &self.wire, now, actions);
            self.spreads.advance(&mut self.cx, &mut self.claims, &self.wire, now, actions);
        }
        self.advance_conflicts(now, actions);
        self.claims.advance_rules(&mut self.cx, now, actions);
        self.output.publish(&mut self.cx, &mut self.claims, &self.wire, now, actions);
        self.wire.listen(&mut self.cx, now, actions);
        if self.cx.is_informed() {
            self.wire.tell_down(&self.cx, now, actions);
            self.handovers.advance(&mut self.cx, &mut self.claims, &self.wire, now, actions);
            self.spreads.advance(&mut self.cx, &mut self.claims, &self.wire, now, actions);
        }
        self.wire.report_blindness(now, actions);
        Output::finish(&mut self.cx, &self.claims, now, actions);
    }

    /// Something is said of a session.
    pub(in crate::election) fn noting_session(
        &mut self,
        now: Instant,
        name: &LeaseName,
        say: impl FnOnce(&mut Cache<Session>) -> bool,
    ) {
        let before = self.cx.sessions().revision();
        let known = self.cx.sessions().get(name).cloned();
        say(self.cx.sessions_mut());
        self.noted_session(now, name, known.as_deref(), true);
        self.session.peers_mut().note_session(now, self.cx.config().lease_duration);
        self.claims.open_mut().note_session(name.clone(), before, self.cx.sessions().revision());
    }

    /// Something is said of all sessions.
    pub(in crate::election) fn noting_all_sessions(
        &mut self,
        now: Instant,
        say: impl FnOnce(&mut Cache<Session>),
    ) {
        let listed = self.cx.sessions().listed();
        let keyed = |stored: &Arc<Stored<Session>>| (stored.name.clone(), Arc::clone(stored));
        let known: BTreeMap<_, _> = self.cx.sessions().stored().map(keyed).collect();
        say(self.cx.sessions_mut());
        let present = self.cx.sessions().stored().map(|stored| &stored.name);
        let names: BTreeSet<LeaseName> = known.keys().chain(present).cloned().collect();
        for name in names {
            self.noted_session(now, &name, known.get(&name).map(|stored| &**stored), listed);
        }
        self.session.peers_mut().note_all();
    }

    /// Something was said of a session that was `before`, if it was there; whether all were known then.
    pub(in crate::election) fn noted_session(
        &mut self,
        now: Instant,
        name: &LeaseName,
        before: Option<&Stored<Session>>,
        listed: bool,
    ) {
        let stored = self.cx.sessions().get(name).cloned();
        if before.zip(stored.as_ref()).is_some_and(|(before, now)| is_renewal(before, now)) {
            return;
        }
        if let Some(before) = before {
            self.cx.unlisted_mut().note(before, stored.as_deref());
        }
        let Some(stored) = stored else {
            self.transfer.improving_mut().note_session_gone(name);
            return;
        };
        if let Some(node) = &stored.record.holder {
            let former = before.filter(|before| before.record.holder.is_some());
            let anew = former.is_some_and(|it| is_begun_anew(node, &id_of(it), &stored));
            let anew = anew && self.claims.joining().is_starting(now);
            self.transfer.improving_mut().note_session(now, node, listed, anew);
        }
    }

    /// Something is said of a claim.
    pub(in crate::election) fn noting_claim(
        &mut self,
        name: &LeaseName,
        say: impl FnOnce(&mut Cache<Claim>) -> bool,
    ) {
        let before = self.cx.claims().revision();
        say(self.cx.claims_mut());
        self.claims.open_mut().note(name);
        let changed = self.cx.claims().revision() != before;
        // What is said again matters only where nobody is heard for the claim: then its holder may be one whose
        // session is not known yet.
        if changed || !self.wire.listening().hears(name) {
            self.cx.watch_mut().note_claim(name, changed);
        }
    }

    pub(in crate::election) fn answered(
        &mut self,
        now: Instant,
        request: RequestId,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        // An answer that nobody waits for any more changes nothing.
        let Some(pending) = self.cx.take_request(request) else { return };
        self.cx.api_mut().note(now, &pending, answer);
        let name = match &pending.target {
            Target::Session(name) | Target::Claim(name) => name.clone(),
        };
        match (&pending.target, answer) {
            (Target::Session(_), Answer::Session(stored)) => {
                let found = Some(stored.clone());
                self.noting_session(now, &name, |all| {
                    all.answered(now, pending.sent, &name, found)
                });
            }
            (Target::Session(_), Answer::Absent) => {
                self.noting_session(now, &name, |all| all.answered(now, pending.sent, &name, None));
            }
            (Target::Claim(_), Answer::Claim(stored)) => {
                let found = Some(stored.clone());
                self.noting_claim(&name, |all| all.answered(now, pending.sent, &name, found));
            }
            (Target::Claim(_), Answer::Absent) => {
                self.noting_claim(&name, |all| all.answered(now, pending.sent, &name, None));
            }
            (Target::Claim(_), _) => self.claims.open_mut().note(&name),
            _ => {}
        }
        match &pending.target {
            Target::Session(name) if name == self.cx.own_name() => {
                Sessions::session_answered(
                    &mut self.cx,
                    &mut self.claims,
                    now,
                    &pending,
                    answer,
                    actions,
                );
            }
            Target::Session(_) => self.session.peer_answered(
                &mut self.cx,
                &mut self.wire,
                &name,
                &pending,
                answer,
                now,
                actions,
            ),
            Target::Claim(_) if pending.purpose == Purpose::Confirm => {
                self.wire.confirmed(now, &name, &pending, answer);
            }
            Target::Claim(_) => {
                self.claims.claim_answered(&mut self.cx, now, &name, &pending, answer);
                self.wire.conflict_answered(
                    &mut self.cx,
                    &mut self.claims,
                    now,
                    &name,
                    &pending,
                    answer,
                    actions,
                );
            }
        }
    }
}
