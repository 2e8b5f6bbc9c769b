//! The state of the core, and the order in which its parts decide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{
    Claim, Incarnation, LeaseName, Record as _, Session, SessionId, SessionInterface, Stored,
};
use leasehold_crds::names::{InterfaceName, InterfacePattern, NodeName};
use pnet_base::MacAddr;

use super::cache::Cache;
use super::conflict::Conflicts;
use super::event::{Action, Answer, Event, Fact, Frame, Interface, RequestId, Target};
use super::improve::Improving;
use super::joining::Joining;
use super::listening::{Listening, WatchChanges};
use super::old_owners::OldOwners;
use super::open::Open;
use super::own_session::OwnSession;
use super::peers::{Peers, SessionReads};
use super::provisional::{Api, Outage};
use super::proxy::Proxy;
use super::publish::Published;
use super::readiness::NotReady;
use super::record::OwnRecord;
use super::requests::{Pending, Purpose};
use super::serving::{KernelView, Serving};
use super::session::EDITED;
use super::silence::{Forsaken, Silences};
use super::speakers::Speakers;
use super::tenure::Tenures;
use super::unlisted::Unlisted;
use super::voices::Voices;
use super::yielded::Yields;
use crate::clock::Instant;
use crate::desired::Desired;

/// The settings of the core.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node whose speaker this is.
    pub node: NodeName,
    /// This boot of this host.
    pub incarnation: Incarnation,
    /// L: for how long a session may go without renewal, at least; whole seconds. It grows with the
    /// number of speakers, so that all sessions together are written 30 times per second at most.
    pub lease_duration: Duration,
    /// After which time a request counts as unanswered.
    pub request_timeout: Duration,
    /// For how long the addresses of a speaker stay whose pod is being replaced, at least; whole seconds.
    pub restart_grace: Duration,
    /// Whether nodes announce that a label excludes from load balancing: told in the session, for all that
    /// look at nodes without being speakers.
    pub ignores_exclude_label: bool,
}

/// How much longer than the session the kernel is to keep an address. It is told whole seconds,
/// rounded down: so it gets L + 1 s for a renewal that is answered within half a second, and removes
/// 1.0 to 2.03 s after the session's end.
pub(super) const KERNEL_GRACE: Duration = Duration::from_millis(1500);

/// The election core of one speaker.
#[derive(Debug)]
pub struct Election {
    pub(super) config: Config,
    pub(super) own_name: LeaseName,
    pub(super) sessions: Cache<Session>,
    pub(super) claims: Cache<Claim>,
    /// What the cluster asks for; none until it is known.
    pub(super) desired: Option<Arc<Desired>>,
    /// All that the node has, …
    pub(super) all_interfaces: BTreeMap<InterfaceName, Interface>,
    /// … and those of them that matter: with an address, or named by a policy.
    pub(super) interfaces: BTreeMap<InterfaceName, Interface>,
    /// What policies name for any claim.
    pub(super) named: BTreeSet<Vec<InterfacePattern>>,
    /// Those of them that can announce, as the own session says it.
    pub(super) links: Vec<SessionInterface>,
    /// When the addresses or the default routes of an interface changed, until that has lasted.
    pub(super) readdressed: Option<Instant>,
    /// Those that have lost all their addresses since, as they were.
    pub(super) bared: BTreeMap<InterfaceName, Interface>,
    pub(super) hearing: BTreeMap<InterfaceName, Instant>,
    /// When it was last asked whether anybody answers.
    pub(super) asked_around: BTreeMap<InterfaceName, Instant>,
    pub(super) kernel: KernelView,
    pub(super) own: OwnSession,
    pub(super) peers: Peers,
    pub(super) tenures: Tenures,
    pub(super) open: Open,
    pub(super) conflicts: Conflicts,
    pub(super) yields: Yields,
    pub(super) speakers: Speakers,
    pub(super) unlisted: Unlisted,
    pub(super) voices: Voices,
    pub(super) silences: Silences,
    pub(super) listening: Listening,
    pub(super) watch: WatchChanges,
    /// The nodes with a live session that no longer answer on some segment.
    pub(super) silent: BTreeSet<NodeName>,
    /// Valid claims whose owner is silent and that are taken without a fence, since when.
    pub(super) forsaken: BTreeMap<LeaseName, Forsaken>,
    /// The MAC addresses of speakers that were heard, ever.
    pub(super) heard_speakers: BTreeSet<MacAddr>,
    pub(super) reads: SessionReads,
    pub(super) outage: Outage,
    pub(super) api: Api,
    pub(super) old_owners: OldOwners,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    pub(super) refresh: super::refresh::Refresh,
    pub(super) improving: Improving,
    pub(super) joining: Joining,
    pub(super) not_ready: NotReady,
    pub(super) proxy: Proxy,
    /// What a former process left; obeyed until the cluster's state is known.
    pub(super) adopted: Option<OwnRecord>,
    pub(super) serving: Serving,
    pub(super) published: Published,
    pub(super) next_request: u64,
    pub(super) ownerships: u64,
    /// When the last event was taken: all that was due by then has had its turn.
    seen: Instant,
}

impl Election {
    /// The core of a speaker that starts now. `record` is what a former process of the same boot
    /// left; its addresses are kept alive until the cluster's state is known.
    pub fn new(now: Instant, config: Config, record: Option<OwnRecord>) -> Self {
        let adopted = record.filter(|record| {
            record.incarnation == config.incarnation && record.node == config.node
        });
        let own_name = LeaseName::session(&config.node);
        let mut sessions = Cache::default();
        if let Some(record) = &adopted {
            sessions.remember(now, own_name.clone(), record.transitions);
        }
        Self {
            own: OwnSession::new(
                now,
                adopted.as_ref().and_then(|record| record.session.clone()),
                &config,
            ),
            own_name,
            sessions,
            claims: Cache::default(),
            desired: None,
            all_interfaces: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            named: BTreeSet::new(),
            links: Vec::new(),
            readdressed: None,
            bared: BTreeMap::new(),
            hearing: BTreeMap::new(),
            asked_around: BTreeMap::new(),
            kernel: KernelView::default(),
            peers: Peers::default(),
            tenures: Tenures::default(),
            open: Open::default(),
            conflicts: Conflicts::default(),
            yields: Yields::default(),
            speakers: Speakers::default(),
            unlisted: Unlisted::default(),
            voices: Voices::default(),
            silences: Silences::default(),
            listening: Listening::default(),
            watch: WatchChanges::default(),
            silent: BTreeSet::new(),
            forsaken: BTreeMap::new(),
            heard_speakers: BTreeSet::new(),
            reads: SessionReads::default(),
            outage: Outage::default(),
            api: Api::new(now),
            old_owners: OldOwners::default(),
            requests: BTreeMap::new(),
            refresh: super::refresh::Refresh::default(),
            improving: Improving::default(),
            joining: Joining::default(),
            not_ready: NotReady::default(),
            proxy: Proxy::default(),
            published: Published::new(adopted.clone()),
            adopted,
            serving: Serving::default(),
            next_request: 0,
            ownerships: 0,
            seen: now,
            config,
        }
    }

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
        self.seen = now;
        for event in events {
            self.take(now, event, actions);
        }
        self.advance(now, actions);
    }

    fn take(&mut self, now: Instant, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Sessions(all) => {
                self.api.listed_sessions();
                self.noting_all_sessions(now, |sessions| sessions.list(now, all));
            }
            Event::Session(stored) => {
                let name = stored.name.clone();
                self.own.echoed(&stored);
                self.noting_session(now, &name, |all| all.watched(now, &name, Some(stored)));
            }
            Event::SessionGone(name) => {
                self.noting_session(now, &name, |all| all.watched(now, &name, None));
                if name == self.own_name {
                    self.own.deleted(now);
                }
            }
            Event::Claims(all) => {
                self.api.listed_claims();
                self.claims.list(now, all);
                self.open.note_all();
                self.watch.stale = true;
            }
            Event::Claim(stored) => {
                let name = stored.name.clone();
                self.noting_claim(&name, |claims| claims.watched(now, &name, Some(stored)));
            }
            Event::ClaimGone(name) => {
                self.noting_claim(&name, |claims| claims.watched(now, &name, None));
            }
            Event::Listed { asked, sessions, claims } => {
                self.api.listed_sessions();
                self.api.listed_claims();
                self.noting_all_sessions(now, |known| known.listed_at(now, asked, sessions));
                self.claims.listed_at(now, asked, claims);
                self.go_on(asked);
                self.open.note_all();
                self.watch.stale = true;
            }
            Event::Desired(desired) => {
                let before = self.desired.as_deref();
                let changed: Vec<LeaseName> = desired.changed(before).cloned().collect();
                self.open.note_desired(before, &desired, &changed);
                self.note_asked_of_proxy(&changed, &desired);
                self.watch.note_asked(changed);
                self.improving.note_desired(&desired);
                let own = desired.nodes.get(&self.config.node).copied();
                self.not_ready.note_desired(now, own, &desired);
                self.desired = Some(desired);
                self.note_named();
            }
            Event::Interfaces(interfaces) => {
                self.watch.stale = true;
                self.note_interfaces(now, interfaces);
            }
            Event::Hearing(hearing) => self.hearing = hearing,
            Event::Heard(heard) => self.heard(now, &heard, actions),
            Event::Missed => self.note_missed(now),
            Event::Voices(voices) => self.hear_voices(now, voices, actions),
            Event::Kernel(view) => {
                self.open.note_changed(&self.kernel.ours, &view.ours);
                self.open.note_changed(&self.kernel.foreign, &view.foreign);
                self.old_owners.stale = true;
                self.kernel = view;
            }
            Event::Proxy(view) => self.note_proxy(view),
            Event::Answered { request, answer } => self.answered(now, request, &answer, actions),
            Event::Terminate(follower) => self.own.terminate(now, follower),
            Event::Tick => {}
        }
    }

    /// When to call [`Self::handle`] with [`Event::Tick`] if nothing else comes before.
    pub fn next_deadline(&self) -> Option<Instant> {
        [
            self.session_deadline(),
            self.peers_deadline(),
            self.silences_deadline(),
            self.listening_deadline(),
            self.provisional_deadline(),
            self.claims_deadline(),
            self.moves_deadline(),
            self.conflicts_deadline(),
            self.not_ready_deadline(),
            self.proxy_deadline(),
            self.readdressed_deadline(),
            self.yields_deadline(),
            self.first_ahead(self.published.deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The first of `deadlines` that is still to come. What was due and was not done waits for an
    /// event and not for time: to be called again at once would change nothing.
    pub(super) fn first_ahead(
        &self,
        deadlines: impl IntoIterator<Item = Instant>,
    ) -> Option<Instant> {
        deadlines.into_iter().filter(|at| *at > self.seen).min()
    }

    /// The node whose speaker this is.
    pub const fn node(&self) -> &NodeName {
        &self.config.node
    }

    /// The interfaces of this node that can announce anything that is asked for.
    pub fn interfaces(&self) -> impl Iterator<Item = &InterfaceName> {
        self.interfaces.keys()
    }

    /// The interfaces of the other nodes whose sessions live.
    pub fn peers(&self) -> impl Iterator<Item = &SessionInterface> {
        self.live_sessions()
            .filter(|(node, _)| **node != self.config.node)
            .flat_map(|(_, stored)| &stored.record.interfaces)
    }

    /// Differs whenever [`Self::interfaces`], [`Self::peers`] or [`Self::heeded`] may differ.
    pub const fn heeds(&self) -> (u64, u64) {
        (self.published.changes, self.sessions.revision())
    }

    /// The addresses about which frames matter: what is served here, what is about to be, and what tells that a
    /// node that was fenced is back.
    pub fn heeded(&self) -> impl Iterator<Item = IpAddr> {
        let served = self.serving.vips.keys().copied();
        served.chain(self.published.listed()).chain(self.fenced_addresses())
    }

    /// Whether all that decisions rest on has been listed.
    pub fn is_informed(&self) -> bool {
        self.sessions.listed() && self.claims.listed() && self.desired.is_some()
    }

    /// The session that this speaker holds.
    pub fn session(&self) -> Option<&SessionId> {
        self.own.id.as_ref()
    }

    /// Whether the cluster has a Node of this speaker's name; unknown before the lists are in.
    pub fn node_exists(&self) -> Option<bool> {
        self.desired.as_ref().map(|desired| desired.nodes.contains_key(&self.config.node))
    }

    /// The interfaces on which only leases tell who died.
    pub fn blind(&self) -> impl Iterator<Item = &InterfaceName> {
        self.listening.reported()
    }

    /// How many speakers live, this one among them.
    pub fn speakers(&self) -> usize {
        self.living()
    }

    /// The claims that this speaker holds, as far as it knows.
    pub fn held(&self) -> impl Iterator<Item = &LeaseName> {
        self.tenures.iter().filter(|(_, tenure)| tenure.mine).map(|(name, _)| name)
    }

    /// What is served now.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.note_speakers();
        self.advance_proxy(now, actions);
        self.advance_session(now, actions);
        if self.is_informed() {
            self.advance_peers(now, actions);
            self.end_lapsed_provisional(now);
            self.settle_provisional(now, actions);
            self.advance_silences(now, actions);
            self.advance_not_ready(now);
            self.settle_readdressed(now);
            self.advance_claims(now, actions);
        }
        self.advance_conflicts(now, actions);
        self.advance_rules(now, actions);
        self.publish(now, actions);
        self.listen(actions);
        self.report_blindness(now, actions);
        self.finish(now, actions);
    }

    /// Something is said of a session.
    fn noting_session(
        &mut self,
        now: Instant,
        name: &LeaseName,
        say: impl FnOnce(&mut Cache<Session>) -> bool,
    ) {
        let before = self.sessions.revision();
        let known = self.sessions.get(name).cloned();
        say(&mut self.sessions);
        self.noted_session(now, name, known.as_deref(), true);
        self.peers.note_session(now, self.config.lease_duration);
        self.open.note_session(name.clone(), before, self.sessions.revision());
    }

    /// Something is said of all sessions.
    fn noting_all_sessions(&mut self, now: Instant, say: impl FnOnce(&mut Cache<Session>)) {
        let listed = self.sessions.listed();
        let keyed = |stored: &Arc<Stored<Session>>| (stored.name.clone(), Arc::clone(stored));
        let known: BTreeMap<_, _> = self.sessions.stored().map(keyed).collect();
        say(&mut self.sessions);
        let present = self.sessions.stored().map(|stored| &stored.name);
        let names: BTreeSet<LeaseName> = known.keys().chain(present).cloned().collect();
        for name in names {
            self.noted_session(now, &name, known.get(&name).map(|stored| &**stored), listed);
        }
        self.peers.note_all();
    }

    /// Something was said of a session that was `before`, if it was there; whether all were known then.
    fn noted_session(
        &mut self,
        now: Instant,
        name: &LeaseName,
        before: Option<&Stored<Session>>,
        listed: bool,
    ) {
        let stored = self.sessions.get(name);
        if before.zip(stored).is_some_and(|(before, now)| is_renewal(before, now)) {
            return;
        }
        if let Some(before) = before {
            self.unlisted.note(before, stored.map(|stored| &**stored));
        }
        let Some(stored) = stored else {
            self.improving.note_session_gone(name);
            return;
        };
        if let Some(node) = &stored.record.holder {
            let former = before.filter(|before| before.record.holder.is_some());
            let anew = former.is_some_and(|it| is_begun_anew(node, &id_of(it), stored));
            let anew = anew && self.joining.is_starting(now);
            self.improving.note_session(now, node, listed, anew);
        }
    }

    /// Something is said of a claim.
    fn noting_claim(&mut self, name: &LeaseName, say: impl FnOnce(&mut Cache<Claim>) -> bool) {
        let before = self.claims.revision();
        say(&mut self.claims);
        self.open.note(name);
        self.watch.note_claim(name, self.claims.revision() != before);
    }

    fn answered(
        &mut self,
        now: Instant,
        request: RequestId,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        // An answer that nobody waits for any more changes nothing.
        let Some(pending) = self.requests.remove(&request) else { return };
        self.api.note(now, &pending, answer);
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
            (Target::Claim(_), _) => self.open.note(&name),
            _ => {}
        }
        match &pending.target {
            Target::Session(name) if *name == self.own_name => {
                self.session_answered(now, &pending, answer, actions);
            }
            Target::Session(_) => self.peer_answered(&name, &pending, answer, now, actions),
            Target::Claim(_) if pending.purpose == Purpose::Confirm => {
                self.confirmed(now, &name, &pending, answer);
            }
            Target::Claim(_) => {
                self.claim_answered(now, &name, &pending, answer);
                self.conflict_answered(now, &name, &pending, answer, actions);
            }
        }
    }

    /// L: for how long a session may go without renewal.
    pub(super) fn lease_duration(&self) -> Duration {
        let speakers = u64::try_from(self.living()).unwrap_or(u64::MAX);
        self.config.lease_duration.max(Duration::from_secs(speakers.div_ceil(10)))
    }

    /// R: how often the session is renewed.
    pub(super) fn renew_interval(&self) -> Duration {
        self.lease_duration() / 3
    }

    /// L in whole seconds, as leases say it.
    pub(super) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration().as_secs()).unwrap_or(i32::MAX)
    }

    /// For how long the kernel is to have addresses.
    pub(super) fn lifetime(&self) -> Duration {
        self.lease_duration() + KERNEL_GRACE
    }

    /// Sessions that live, ours included.
    pub(super) fn live_sessions(&self) -> impl Iterator<Item = (&NodeName, &Arc<Stored<Session>>)> {
        self.sessions.stored().filter_map(|stored| {
            let holder = stored.record.holder()?;
            (holder.as_str() == stored.name.as_str()).then_some((holder, stored))
        })
    }

    /// The session that `node` holds now.
    pub(super) fn live_session(&self, node: &NodeName) -> Option<&Arc<Stored<Session>>> {
        let stored = self.sessions.get(node.as_str())?;
        (stored.record.holder.as_ref() == Some(node)).then_some(stored)
    }

    /// Whether `session` is the one that `node` holds now.
    pub(super) fn is_live(&self, node: &NodeName, session: &SessionId) -> bool {
        self.live_session(node).is_some_and(|stored| is_under(stored, session))
    }

    /// Whether a renewal that was sent a short time ago was answered: what the API says is current.
    pub fn is_api_answering(&self, now: Instant) -> bool {
        self.api_answers_until().is_some_and(|until| now < until)
    }

    /// Whether none was for some time, and the last one not even refused.
    pub fn is_api_away(&self, now: Instant) -> bool {
        self.own.unanswered && !self.is_api_answering(now)
    }

    /// Until when that holds if nothing more is answered.
    pub(super) fn api_answers_until(&self) -> Option<Instant> {
        Some(self.own.answered? + self.renew_interval() + self.config.request_timeout)
    }

    pub(super) fn announce(interface: &InterfaceName, address: IpAddr, actions: &mut Vec<Action>) {
        let frame = Frame::Announce(address);
        actions.push(Action::Transmit { interface: interface.clone(), frame });
    }

    pub(super) fn report(fact: Fact, actions: &mut Vec<Action>) {
        actions.push(Action::Report(fact));
    }
}

/// Whether a session is as it was `before`, as far as other speakers remember it.
fn is_renewal(before: &Stored<Session>, now: &Stored<Session>) -> bool {
    now.record.transitions == before.record.transitions
        && now.record.holder == before.record.holder
        && now.uid == before.uid
        && now.record.interfaces == before.record.interfaces
}

/// Whether `node` has begun a session after `former`, and nobody had ended that one: it was started anew.
pub(super) fn is_begun_anew(node: &NodeName, former: &SessionId, now: &Stored<Session>) -> bool {
    now.record.holder.as_ref() == Some(node)
        && now.uid == former.uid
        && now.record.transitions == former.transitions.saturating_add(1)
        && now.record.cause != EDITED
}

/// Whether `stored` stands for `session`.
pub(super) fn is_under(stored: &Stored<Session>, session: &SessionId) -> bool {
    stored.record.transitions == session.transitions && stored.uid == session.uid
}

/// The session that `stored` stands for.
pub(super) fn id_of(stored: &Stored<Session>) -> SessionId {
    SessionId { uid: stored.uid.clone(), transitions: stored.record.transitions }
}
