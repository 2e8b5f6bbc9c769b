//! The API server does not answer and an owner dies: candidates take over provisionally.
//!
//! Nothing decides then but the wire: in the order of the ranking, without those that are silent, by
//! asking first who has the address. When the API server answers again the leases decide: a holder that has
//! renewed gets it back; one that is still silent is fenced, and the claim taken by compare-and-swap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Session, Stored};
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use super::election::Election;
use super::event::{Action, Answer, Fact, Frame, Heard};
use super::place::weight;
use super::requests::Pending;
use super::story::{Cause, OwnerId, Story};
use super::tenure::Tenure;
use super::validity::Owner;
use super::voices::VoiceId;
use crate::clock::Instant;
use crate::desired::{DesiredClaim, OnApiOutage};

/// After which time without success the API server counts as gone.
const GONE: Duration = Duration::from_secs(2);
/// How long an API server that has only just stopped answering is waited for: longer than the steps
/// of the ranking, so that somebody who reaches it acts first.
const STOPPED: Duration = Duration::from_millis(400);
/// How long after another served it the address is asked for again.
const SERVED_BY_ANOTHER: Duration = Duration::from_secs(5);
/// Whoever announces the address again so long after it was told that this node has it has authority.
const TOLD: Duration = Duration::from_millis(20);
/// After which time what another was told counts no more.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// How often the address is announced to others that have it, at most: more than two may answer one
/// another's announcements.
const ANNOUNCE: Duration = Duration::from_millis(5);
/// How often one of the addresses is asked for, whoever else may have it.
const PROBE: Duration = Duration::from_millis(20);
/// Where another has one of them, parts of the segment have joined, and all may be served twice: all are
/// asked for, so many at once, and not again for so long.
const PROBES: usize = 32;
const JOINED: Duration = Duration::from_millis(200);
/// How long a former owner that has answered counts as one that answers.
const ANSWERED: Duration = Duration::from_millis(500);
/// How long an owner that is back has to announce its address again.
const RETURN: Duration = Duration::from_secs(2);

/// How the API server answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Api {
    /// When it last carried out, or refused for good reason, what this node asked.
    answered: Instant,
    /// Since when it has not.
    failing: Option<Instant>,
    /// Lists are to be awaited before anything provisional is settled.
    unsettled: bool,
    asked: Option<Instant>,
    sessions_listed: bool,
    claims_listed: bool,
}

/// The turn of what is served provisionally.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// When the next provisional address is asked for, and which was last.
    probe: Instant,
    probed: Option<LeaseName>,
    /// When another was heard to have an address that is served here provisionally, and how many are to
    /// be asked for because of that.
    joined: Option<Instant>,
    sweep: usize,
}

impl Api {
    pub(super) fn new(now: Instant) -> Self {
        Self { answered: now, ..Self::default() }
    }

    /// A request was answered, or was not.
    pub(super) fn note(&mut self, now: Instant, pending: &Pending, answer: &Answer) {
        match answer {
            Answer::Session(_) | Answer::Claim(_) | Answer::Absent | Answer::Conflict => {
                // A store that is read-only answers reads.
                if !pending.purpose.is_read() || self.failing.is_none() {
                    self.answered = now;
                    self.failing = None;
                }
            }
            Answer::Unknown(_) | Answer::Refused(_) | Answer::Throttled => {
                self.failing = self.failing.or(Some(now));
            }
        }
    }

    /// A complete list came.
    pub(super) fn listed_sessions(&mut self) {
        self.sessions_listed = true;
    }

    /// A complete list came.
    pub(super) fn listed_claims(&mut self) {
        self.claims_listed = true;
    }
}

/// An address that this node serves without being its owner, until the API server answers.
#[derive(Clone, Debug)]
pub(super) struct Provisional {
    /// The owner that died.
    pub(super) from: NodeName,
    /// Since when this node asks for it, or serves it.
    since: Instant,
    /// The version of its session when it did: another one says that it lives.
    version: Option<Arc<str>>,
    /// When each of the others that have it was told first, and last, that this node has it.
    told: BTreeMap<MacAddr, (Instant, Instant)>,
    /// How this node comes to serve it.
    pub(super) story: Story,
    /// Since when its owner is known to be back: it is about to serve again.
    returned: Option<Instant>,
}

impl Election {
    /// Whether the last write was not answered, or was refused.
    pub(super) const fn is_api_failing(&self) -> bool {
        self.api.failing.is_some()
    }

    /// When a silence that began at `since` has waited long enough for the API server.
    pub(super) fn api_given_up(&self, since: Instant) -> Instant {
        since.max(self.api.answered) + STOPPED
    }

    /// Whether the API server is of no help with what happened at `since`.
    pub(super) fn is_api_gone(&self, now: Instant, since: Instant) -> bool {
        if self.api.failing.is_some_and(|failing| now.saturating_since(failing) >= GONE) {
            return true;
        }
        let waits = |pending: &Pending| now.saturating_since(pending.sent) >= STOPPED;
        let unanswered = self.api.failing.is_some() || self.requests.values().any(waits);
        unanswered && now >= self.api_given_up(since)
    }

    /// Takes an address whose owner does not answer while the API server does not either.
    pub(super) fn take_provisionally(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: Option<&Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) {
        let Some(stored) = stored.filter(|_| claim.on_api_outage == OnApiOutage::Hold) else {
            return;
        };
        let (Some(from), Some(session)) = (&stored.record.holder, &stored.record.session) else {
            return;
        };
        if *from == self.config.node {
            return;
        }
        let Some(tenure) = self.tenures.get(name).filter(|t| t.provisional.is_none()) else {
            return;
        };
        let Some((interface, _)) = self.may_take(now, tenure, claim) else { return };
        let version = self.session_version(from);
        let provisional = Provisional {
            from: from.clone(),
            since: now,
            version,
            told: BTreeMap::new(),
            story: Story {
                cause: Cause::Outage,
                from: Some(OwnerId { node: from.clone(), session: session.transitions }),
                began: tenure.orphan.as_ref().map_or(now, |orphan| orphan.sign.1),
            },
            returned: None,
        };
        let stored = stored.clone();
        self.ownerships += 1;
        let ownership = self.ownerships;
        self.api.unsettled = true;
        self.with(name, |tenure| {
            tenure.ownership = ownership;
            tenure.interface = Some(interface.clone());
            tenure.story = Some(Box::new(provisional.story.clone()));
            tenure.provisional = Some(Box::new(provisional.clone()));
        });
        self.old_owners.note(name);
        self.probe_on(now, name, &interface, &stored.record.addresses, actions);
    }

    /// Nobody else has it.
    pub(super) fn serve_provisionally(
        &mut self,
        now: Instant,
        name: &LeaseName,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(provisional) = tenure.provisional.clone() else { return };
        self.own.kernel_until = self.own.kernel_until.max(now + self.lifetime());
        let Some(owner) = provisional.story.from else { return };
        Self::report(Fact::TookProvisionally { claim: name.clone(), owner }, actions);
    }

    /// Another serves it: this node waits.
    pub(super) fn withdraw_provisional(&mut self, now: Instant, name: &LeaseName) {
        self.end_provisional(name, now + SERVED_BY_ANOTHER);
    }

    fn end_provisional(&mut self, name: &LeaseName, retry: Instant) {
        self.with(name, |tenure| {
            tenure.provisional = None;
            tenure.probing = None;
            tenure.retry = retry;
        });
    }

    /// What is served without a claim is not left behind: until the next process is there, nobody would
    /// yield it to its owner.
    pub(super) fn end_all_provisional(&mut self, now: Instant) {
        let provisional = |name: &&LeaseName| {
            self.tenures.get(name).is_some_and(|tenure| tenure.provisional.is_some())
        };
        let names: Vec<LeaseName> = self.open.iter().filter(provisional).cloned().collect();
        for name in names {
            self.end_provisional(&name, now);
        }
    }

    /// Whether this node goes on although `mac` has the addresses as well. Each may have ranked by what it
    /// saw alone, in parts of the segment that have joined since: so the names decide, which all know. An
    /// owner without the API server yields as soon as it hears this node, and does not announce: one that
    /// does has read that it is the owner.
    fn outranks(&self, name: &LeaseName, provisional: &Provisional, mac: MacAddr) -> bool {
        let weight = |node: &NodeName| (weight(name.as_str(), node.as_str()), node.clone());
        self.node_with(mac).is_some_and(|other| {
            *other != provisional.from && weight(&self.config.node) > weight(other)
        })
    }

    /// Somebody else has an address that this node serves provisionally, or is about to.
    pub(super) fn hear_provisional(
        &mut self,
        now: Instant,
        name: &LeaseName,
        heard: &Heard,
        speaker: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(provisional) = &tenure.provisional else { return };
        let by_former = self.node_with(heard.frame.mac) == Some(&provisional.from);
        if tenure.probing.is_some() {
            self.withdraw_provisional(now, name);
            return;
        }
        // A former owner that answers is told that it has lost it.
        if !speaker || by_former && !heard.frame.announcement {
            return;
        }
        if self.outage.joined.is_none_or(|at| now.saturating_since(at) >= JOINED) {
            self.outage.joined = Some(now);
            self.outage.sweep =
                self.tenures.values().filter(|tenure| tenure.provisional.is_some()).count();
            self.outage.probe = now;
        }
        let told = provisional.told.get(&heard.frame.mac).copied();
        let told = told.filter(|(_, last)| now.saturating_since(*last) < FORGOTTEN);
        let knows = told.is_some_and(|(first, _)| now >= first + TOLD);
        if knows && heard.frame.announcement || !self.outranks(name, provisional, heard.frame.mac) {
            self.withdraw_provisional(now, name);
            return;
        }
        if told.is_some_and(|(_, last)| now < last + TOLD) {
            return;
        }
        let last = provisional.told.values().map(|(_, last)| *last).max();
        let announced = last.is_some_and(|at| now < at + ANNOUNCE);
        self.with(name, |tenure| {
            if let Some(provisional) = &mut tenure.provisional {
                let first = told.map_or(now, |(first, _)| first);
                provisional.told.insert(heard.frame.mac, (first, now));
            }
        });
        if !announced {
            Self::announce(&heard.interface, heard.frame.ip, actions);
        }
    }

    /// Two halves of a segment may each have a provisional owner, or one of them the rightful one: as
    /// long as anything is served provisionally, it is asked for in turn.
    pub(super) fn probe_provisional(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.api.unsettled || now < self.outage.probe {
            return;
        }
        let served = |tenure: &Tenure| tenure.provisional.is_some() && tenure.probing.is_none();
        for _ in 0..self.outage.sweep.clamp(1, PROBES) {
            let Some(name) = self.next_in_turn(self.outage.probed.as_ref(), served) else { return };
            self.outage.probe = now + PROBE;
            self.outage.sweep = self.outage.sweep.saturating_sub(1);
            let interface = self.tenures.get(&name).and_then(|tenure| tenure.interface.clone());
            let address = self.claims.get(&name).and_then(|s| s.record.addresses.first().copied());
            self.outage.probed = Some(name);
            if let (Some(address), Some(interface)) = (address, interface) {
                actions.push(Action::Transmit { interface, frame: Frame::Probe(address) });
            }
        }
    }

    pub(super) fn provisional_deadline(&self) -> Option<Instant> {
        let returning = self.open.iter().filter_map(|name| {
            let returned = self.tenures.get(name)?.provisional.as_ref()?.returned?;
            Some(returned + RETURN)
        });
        self.first_ahead(returning.chain(self.api.unsettled.then_some(self.outage.probe)))
    }

    fn node_with(&self, mac: MacAddr) -> Option<&NodeName> {
        self.speaker_with(mac).filter(|node| self.live_session(node).is_some())
    }

    /// What the kernel has let lapse, or does not take, is nobody's again: while this process stood
    /// still its owner may have come back, or another may have taken it.
    pub(super) fn end_lapsed_provisional(&mut self, now: Instant) {
        if !self.api.unsettled || self.kernel.applied < self.serving.generation {
            return;
        }
        let lapsed = |name: &&LeaseName| {
            let Some(stored) = self.claims.get(*name) else { return false };
            self.serves_provisionally(name)
                && stored.record.addresses.iter().any(|address| {
                    self.is_served(*address) && !self.kernel.ours.contains_key(address)
                })
        };
        let names: Vec<LeaseName> = self.open.iter().filter(lapsed).cloned().collect();
        for name in names {
            let addresses = self.claims.get(&name).map(|stored| &stored.record.addresses);
            let refused = |address| self.kernel.refused.contains_key(address);
            if addresses.is_some_and(|addresses| addresses.iter().any(refused)) {
                self.exclude_self(now, &name);
            }
            self.end_provisional(&name, now);
        }
    }

    /// The API server answers again: lists first, then the leases decide.
    pub(super) fn settle_provisional(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.api.unsettled {
            return;
        }
        if self.api.failing.is_some() || !self.is_api_answering(now) {
            self.api.asked = None;
            return;
        }
        if self.is_settling() {
            if self.api.asked.is_none_or(|at| now >= at + GONE) {
                self.api.asked = Some(now);
                self.api.sessions_listed = false;
                self.api.claims_listed = false;
                actions.push(Action::List { asked: now });
            }
            return;
        }
        let provisional = |name: &LeaseName| self.tenures.get(name)?.provisional.clone();
        let served: Vec<(LeaseName, Box<Provisional>)> =
            self.open.iter().filter_map(|name| Some((name.clone(), provisional(name)?))).collect();
        for (name, provisional) in &served {
            self.settle_one(now, name, provisional);
        }
        let left = self.tenures.values().any(|tenure| tenure.provisional.is_some());
        self.api.unsettled = left;
        if !left {
            self.api.asked = None;
        }
    }

    fn settle_one(&mut self, now: Instant, name: &LeaseName, provisional: &Provisional) {
        let owner = self.claims.get(name).map_or(Owner::Nobody, |stored| self.owner(stored));
        let renewed = self.session_version(&provisional.from) != provisional.version;
        let over = match owner {
            // It is the owner now; or the holder was fenced, and the claim is asked for at once.
            Owner::Me | Owner::Nobody => false,
            Owner::Other(node) if node == provisional.from => {
                // It goes on as soon as it has read that it may; its announcement ends this.
                if renewed && provisional.returned.is_none() {
                    self.with(name, |tenure| {
                        if let Some(provisional) = &mut tenure.provisional {
                            provisional.returned = Some(now);
                        }
                    });
                }
                let returned = provisional.returned.is_some_and(|at| now >= at + RETURN);
                returned || self.has_what_restarts(now, name, &provisional.from)
            }
            Owner::Other(_) => true,
        };
        let gone = self.desired_claim(name).is_none();
        if over || gone {
            self.end_provisional(name, now);
        }
    }

    /// Whether the node, whose speaker restarts, answers for the claim: there is nobody who could be told
    /// that it lost it.
    fn has_what_restarts(&self, now: Instant, name: &LeaseName, from: &NodeName) -> bool {
        let restarts = |stored: &Arc<Stored<Session>>| stored.record.restarting;
        let mac = self.claims.get(name).and_then(|stored| stored.record.mac);
        let interface = self.tenures.get(name).and_then(|tenure| tenure.interface.as_ref());
        let answered = mac.zip(interface).and_then(|(mac, on)| self.old_owners.answered(on, mac));
        self.live_session(from).is_some_and(restarts)
            && answered.is_some_and(|at| now.saturating_since(at) < ANSWERED)
    }

    /// Whether the lists that come before anything provisional is settled are still awaited.
    pub(super) const fn is_settling(&self) -> bool {
        let api = &self.api;
        api.unsettled && !(api.asked.is_some() && api.sessions_listed && api.claims_listed)
    }

    /// Whether the owner is back and about to serve again.
    pub(super) fn is_returning(&self, name: &LeaseName) -> bool {
        let provisional = self.tenures.get(name).and_then(|tenure| tenure.provisional.as_ref());
        provisional.is_some_and(|provisional| provisional.returned.is_some())
    }

    /// Whether this node has served the claim in place of an owner that has answered for nothing of
    /// the kind for so long, although it was asked.
    pub(super) fn is_replaced_for(
        &self,
        now: Instant,
        name: &LeaseName,
        owner: &VoiceId,
        long: Duration,
    ) -> bool {
        let provisional = self.tenures.get(name).and_then(|tenure| tenure.provisional.as_ref());
        let since = provisional.map(|provisional| provisional.since);
        let answered = self.old_owners.answered(&owner.interface, owner.mac);
        self.serves_provisionally(name)
            && since.max(answered).is_some_and(|at| now.saturating_since(at) >= long)
    }

    /// Whether this node serves an orphan already: it asks for it before all others.
    pub(super) fn serves_provisionally(&self, name: &LeaseName) -> bool {
        self.tenures
            .get(name)
            .is_some_and(|tenure| tenure.provisional.is_some() && tenure.probing.is_none())
    }
}
