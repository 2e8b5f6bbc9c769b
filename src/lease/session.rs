//! The own session: acquiring, renewing, losing, releasing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Session, SessionId, SessionInterface, Stored};
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::carrier::CARRIER_LOST;
use super::election::{Election, KERNEL_GRACE, id_of};
use super::ending::{EXIT, Ending};
use super::event::{Action, Answer, Change, Fact, Interface, Target, Write};
use super::requests::{Pending, Purpose};
use crate::clock::Instant;

/// The causes of a session that its holder put right.
pub(super) const DELETED: &str = "lease was deleted";
pub(super) const EDITED: &str = "lease was edited";

/// How long the watch may take to deliver an own renewal.
const ECHO: Duration = Duration::from_secs(1);
/// After which time without a fence one less is counted.
const STEADY: Duration = Duration::from_secs(200);
/// Within which time after a renewal the kernel is told, as a rule.
const APPLIED: Duration = Duration::from_millis(100);
/// How long after a request without an answer the next one is sent.
const RETRY: Duration = Duration::from_millis(250);

/// Those of a node's interfaces that can announce, as its session says it.
pub(super) fn links(interfaces: &BTreeMap<InterfaceName, Interface>) -> Vec<SessionInterface> {
    interfaces
        .iter()
        .filter(|(_, interface)| interface.carrier)
        .map(|(name, interface)| SessionInterface {
            name: name.clone(),
            mac: interface.mac,
            mtu: Some(interface.mtu),
            addresses: interface.addresses.clone(),
            link_local: interface.link_local,
            default_routes: interface.default_routes,
            detours: interface.detours.clone(),
            only_if_named: interface.only_if_named,
        })
        .collect()
}

/// The MAC addresses of those whose link is down.
pub(super) fn links_down(interfaces: &BTreeMap<InterfaceName, Interface>) -> Vec<MacAddr> {
    interfaces.values().filter(|interface| !interface.carrier).map(|down| down.mac).collect()
}

impl Election {
    pub(super) fn session_deadline(&self) -> Option<Instant> {
        let own = &self.own;
        let mut deadlines = vec![own.hold_due];
        if !self.is_pending(&Target::Session(self.own_name.clone())) {
            deadlines.push(own.due);
            if own.id.is_none() {
                deadlines.extend(self.foreign_tenure_ends());
            }
        }
        if self.published.drops_any() {
            deadlines.push(own.renewed_until());
        }
        deadlines.extend(own.echoes.front().map(|(_, due)| *due).filter(|_| !own.watch_void));
        if own.watch_void || own.stood_still.is_some() {
            deadlines.push(own.list_due);
        }
        deadlines.extend(own.stood_still.map(|since| self.api_given_up(since)));
        if let Ending::Restarted { until } | Ending::Leaving { until } = own.ending {
            deadlines.push(until);
        }
        self.first_ahead(deadlines)
    }

    pub(super) fn advance_session(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.hold(now);
        if !self.is_informed() {
            self.own.due = now + RETRY;
            if matches!(self.own.ending, Ending::Asked(_)) {
                // What a former process left stays for its lifetime; nothing is known to leave.
                self.own.ending = Ending::Restarted { until: now };
            }
            return;
        }
        self.check_echoes(now, actions);
        self.go_on_alone(now, actions);
        self.begin_ending(now);
        self.notice_end(now, actions);
        if self.is_pending(&Target::Session(self.own_name.clone())) {
            return;
        }
        if self.own.must_read {
            if now >= self.own.due {
                self.own.must_read = false;
                self.read(now, Target::Session(self.own_name.clone()), actions);
            }
            return;
        }
        if self.own.id.is_some() {
            self.keep_session(now, actions);
        }
        if self.own.id.is_none() {
            self.acquire_session(now, actions);
        }
    }

    /// Without an answer from the API the addresses stay. Those that have lapsed wait until it answers, or is known
    /// not to: others may have them.
    fn hold(&mut self, now: Instant) {
        if now < self.own.hold_due {
            return;
        }
        let interval = self.renew_interval();
        let renewed =
            self.own.answered.is_some_and(|sent| now.saturating_since(sent) < interval * 2);
        let holds = self.own.id.is_some() || !self.own.settled;
        let staying = matches!(self.own.ending, Ending::Restarted { .. } | Ending::Done);
        if !renewed && holds && !staying {
            if !self.own.may_have_lapsed(now) {
                self.own.kernel_until = now + self.lifetime();
            } else if self.own.id.is_some() && self.own.stood_still.is_none() {
                self.own.stood_still = Some(now);
                self.published.all = true;
                self.end_all_provisional(now);
            }
        }
        self.own.hold_due = now + interval;
    }

    fn check_echoes(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.own.echoes.front().is_some_and(|(_, due)| now >= *due) {
            self.own.watch_void = true;
            self.own.echoes.clear();
        }
        let stood_still = self.own.stood_still.is_some();
        if (self.own.watch_void || stood_still) && now >= self.own.list_due {
            self.own.list_due = now + if stood_still { RETRY } else { self.renew_interval() };
            actions.push(Action::List { asked: now });
        }
    }

    /// Serves again what lapsed while this process stood still: all claims were listed as they were at `asked`.
    pub(super) fn go_on(&mut self, asked: Instant) {
        if self.own.stood_still.is_some_and(|since| asked >= since) {
            self.own.stood_still = None;
            self.published.all = true;
        }
    }

    /// The same where the API server does not answer any more: the segment is asked who has it.
    fn go_on_alone(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(since) = self.own.stood_still else { return };
        if !self.is_api_gone(now, since) {
            return;
        }
        self.own.stood_still = None;
        self.published.all = true;
        self.own.kernel_until = self.own.kernel_until.max(now + self.lifetime());
        let mine = self.tenures.iter().filter(|(_, tenure)| tenure.mine && tenure.leaving.is_none());
        let listed = mine.filter_map(|(name, tenure)| {
            let addresses = self.claims.get(name)?.record.addresses.clone();
            Some((name.clone(), tenure.interface.clone()?, addresses))
        });
        for (name, interface, addresses) in listed.collect::<Vec<_>>() {
            self.open.note(&name);
            self.probe_on(now, &name, &interface, &addresses, actions);
        }
    }

    fn own_stored(&self) -> Option<Arc<Stored<Session>>> {
        self.sessions.get(&self.own_name).cloned()
    }

    /// Whether `stored` is a tenure of this boot of this host.
    fn is_ours(&self, stored: &Stored<Session>) -> bool {
        stored.record.holder.as_ref() == Some(&self.config.node)
            && stored.record.incarnation.as_ref() == Some(&self.config.incarnation)
    }

    pub(super) fn own_record(&self, transitions: i32, cause: &str) -> Session {
        Session {
            holder: Some(self.config.node.clone()),
            transitions,
            duration_seconds: self.lease_seconds(),
            incarnation: Some(self.config.incarnation.clone()),
            interfaces: self.links.clone(),
            links_down: links_down(&self.interfaces),
            restarting: false,
            proxy_silent: self.proxy.is_silent(),
            fences: self.own.fences,
            drain: self.own_stored().is_some_and(|stored| stored.record.drain),
            ignores_exclude_label: self.config.ignores_exclude_label,
            log: self.log_filter().map(str::to_owned),
            foreign: self.conflicts.foreign(),
            unanswering: self.voices.unanswering.iter().map(|id| id.node.clone()).collect(),
            silence: None,
            cause: cause.to_owned(),
        }
    }

    /// Whether somebody edited the session that this process holds. A fence is none, even one of a
    /// session that had been set back.
    fn is_edited(stored: &Stored<Session>, id: &SessionId) -> bool {
        let fenced =
            stored.record.holder.is_none() && stored.record.cause.contains(super::peers::FENCED_BY);
        stored.uid == id.uid && stored.record.transitions <= id.transitions && !fenced
    }

    /// Whether the lease of the session that this process holds was deleted, edited or set back.
    fn is_set_back_or_gone(&self, id: &SessionId) -> bool {
        self.own_stored().is_none_or(|stored| {
            let low = stored.record.transitions < self.sessions.highest(&self.own_name);
            low || !self.is_ours(&stored) && Self::is_edited(&stored, id)
        })
    }

    /// A session that was seen to be over is obeyed at once, whatever is under way.
    fn notice_end(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (Some(id), Some(stored)) = (&self.own.id, self.own_stored()) else { return };
        if self.is_ours(&stored) || Self::is_edited(&stored, id) {
            return;
        }
        let cause = match &stored.record.holder {
            None => format!("session ended: {}", stored.record.cause),
            Some(holder) => format!("session is held by {holder} on another host or boot"),
        };
        self.lose_session(now, &cause, actions);
    }

    fn keep_session(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(id) = self.own.id.clone() else { return };
        if self.own.may_have_lapsed(now) && self.is_set_back_or_gone(&id) {
            // What nobody has served for a while is asked for like anything new.
            self.lose_session(
                now,
                "session was deleted or edited, and its addresses lapsed",
                actions,
            );
            return;
        }
        let Some(stored) = self.own_stored() else {
            // Deleted: nobody fenced it. What is held is held on while it is created again.
            if now >= self.own.due {
                self.put_session(now, None, self.next_transitions(), DELETED, actions);
            }
            return;
        };
        // Whoever fences, releases or acquires adds one to the transitions: without that somebody
        // edited the lease, and it is put right.
        if !self.is_ours(&stored) && Self::is_edited(&stored, &id) {
            let transitions = self.next_transitions();
            self.put_session(now, Some(stored), transitions, EDITED, actions);
            return;
        }
        let found = id_of(&stored);
        if found != id {
            if found.transitions < self.sessions.highest(&self.own_name) {
                let transitions = self.next_transitions();
                self.put_session(now, Some(stored), transitions, EDITED, actions);
                return;
            }
            self.own.id = Some(found);
        }
        let said = self.links == stored.record.interfaces
            && self.proxy.is_silent() == stored.record.proxy_silent;
        if self.own.release && self.is_kernel_clear() {
            self.release_session(now, stored, CARRIER_LOST, actions);
        } else if self.own.is_leaving() {
            self.leave(now, stored, actions);
        } else if now >= self.own.due || !said && !self.gives_up_a_link() {
            match self.own.ending {
                Ending::Restarting { asked } => self.lengthen(now, asked, stored, actions),
                Ending::Restarted { .. } | Ending::Left | Ending::Done => {}
                Ending::No | Ending::Asked(_) | Ending::Leaving { .. } => {
                    let (transitions, cause) =
                        (stored.record.transitions, stored.record.cause.clone());
                    self.put_session(now, Some(stored), transitions, &cause, actions);
                }
            }
        }
    }

    fn acquire_session(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.own.is_ending() && self.own.settled {
            self.own.ending = match self.own.ending {
                Ending::Done => Ending::Done,
                _ => Ending::Left,
            };
            return;
        }
        let stored = self.own_stored();
        if let Some(stored) = stored.as_ref().filter(|stored| self.is_ours(stored)) {
            let low = stored.record.transitions < self.sessions.highest(&self.own_name);
            let (stored, transitions) = if low {
                (stored.clone(), self.next_transitions())
            } else {
                (stored.clone(), stored.record.transitions)
            };
            let continued =
                !self.own.settled && self.own.continued.as_ref() == Some(&id_of(&stored));
            if continued && !low {
                // The former process's tenure is ours: what it held stays.
                self.own.id = Some(id_of(&stored));
                self.own.settled = true;
            }
            self.put_session(now, Some(stored), transitions, "speaker restarted", actions);
            return;
        }
        // From here on a former process's session is over: first its addresses go.
        self.own.settled = true;
        if !self.is_kernel_clear() || now < self.own.due {
            return;
        }
        // A node that the cluster does not know takes part in nothing.
        if self.node_exists() != Some(true) {
            self.own.due = now + RETRY;
            return;
        }
        if self.foreign_tenure_ends().is_some_and(|end| now < end) {
            return;
        }
        self.put_session(now, stored, self.next_transitions(), "speaker started", actions);
    }

    /// When another host or boot that holds our session will have been silent for L: one that lives
    /// renews it three times as often.
    fn foreign_tenure_ends(&self) -> Option<Instant> {
        let entry = self.sessions.entry(&self.own_name)?;
        let stored = entry.stored.as_ref().filter(|stored| !self.is_ours(stored))?;
        stored.record.holder.as_ref()?;
        Some(entry.changed + self.lease_duration())
    }

    pub(super) fn next_transitions(&self) -> i32 {
        self.sessions.highest(&self.own_name).saturating_add(1)
    }

    pub(super) fn put_session(
        &mut self,
        now: Instant,
        base: Option<Arc<Stored<Session>>>,
        transitions: i32,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let mut record = self.own_record(transitions, cause);
        if let Some(base) = &base {
            let steady = self.own.id.is_some() && now >= self.own.steady_since + STEADY;
            record.fences = base.record.fences.saturating_sub(u32::from(steady));
        }
        let change = Change { name: self.own_name.clone(), base, record };
        self.write_session(now, change, Purpose::Renew, actions);
    }

    /// Whoever was refused waits, whatever else would be a reason to write.
    pub(super) fn write_session(
        &mut self,
        now: Instant,
        change: Change<Session>,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        if now >= self.own.due || !self.own.refused {
            self.write(now, Write::Session(change), purpose, actions);
        }
    }

    pub(super) fn lose_session(&mut self, now: Instant, cause: &str, actions: &mut Vec<Action>) {
        let owner = self.own_id();
        self.own.id = None;
        self.own.answered = None;
        self.own.release = false;
        self.own.due = now;
        self.own.echoes.clear();
        self.lose_all_claims(cause, owner.as_ref(), actions);
        Self::report(Fact::SessionLost { cause: cause.to_owned() }, actions);
    }

    pub(super) fn session_answered(
        &mut self,
        now: Instant,
        pending: &Pending,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        self.own.refused = matches!(answer, Answer::Refused(_) | Answer::Throttled);
        self.own.unanswered = matches!(answer, Answer::Unknown(_));
        match (pending.purpose, answer) {
            (Purpose::Renew, Answer::Session(stored)) => {
                self.renewed(now, pending.sent, stored, actions);
            }
            (Purpose::Restart, Answer::Session(_)) if self.own.is_leaving() => self.own.due = now,
            (Purpose::Restart, Answer::Session(stored)) => {
                let seconds = u64::try_from(stored.record.duration_seconds).unwrap_or(0);
                self.own.kernel_until = pending.sent + Duration::from_secs(seconds) + KERNEL_GRACE;
                self.own.ending = Ending::Restarted { until: now + EXIT };
                self.end_all_provisional(now);
            }
            (Purpose::ReleaseSession, Answer::Session(stored)) => {
                let leaving = self.own.is_leaving();
                self.lose_session(now, &stored.record.cause, actions);
                if leaving {
                    self.own.ending = Ending::Left;
                }
            }
            (Purpose::Read, Answer::Session(_) | Answer::Absent) | (_, Answer::Absent) => {
                self.own.due = now;
            }
            (_, Answer::Conflict) => {
                self.own.must_read = true;
                self.own.due = now;
            }
            (_, Answer::Unknown(cause)) => {
                self.own.must_read = true;
                self.own.due = now + RETRY;
                Self::renewal_failed(cause, actions);
            }
            (_, Answer::Refused(cause)) => {
                self.own.due = now + self.renew_interval();
                Self::renewal_failed(cause, actions);
            }
            (_, Answer::Throttled) => {
                self.own.due = now + self.renew_interval() / 2;
                Self::renewal_failed("throttled", actions);
            }
            (_, Answer::Session(_) | Answer::Claim(_)) => {}
        }
    }

    fn renewal_failed(cause: &str, actions: &mut Vec<Action>) {
        Self::report(Fact::RenewalFailed { cause: cause.to_owned() }, actions);
    }

    fn renewed(
        &mut self,
        now: Instant,
        sent: Instant,
        stored: &Stored<Session>,
        actions: &mut Vec<Action>,
    ) {
        let interval = self.renew_interval();
        let id = id_of(stored);
        if self.own.id.as_ref() != Some(&id) {
            // Another number while a session is held: its lease was deleted or edited, and what is
            // held is held on.
            if self.own.id.is_none() {
                let transitions = id.transitions;
                Self::report(Fact::SessionAcquired { transitions, continued: false }, actions);
                self.begin_joining(now);
            }
        } else if self.own.answered.is_none() {
            Self::report(
                Fact::SessionAcquired { transitions: id.transitions, continued: true },
                actions,
            );
        }
        // After a gap the others may not have been able to renew either: they get a full L anew.
        if self.own.answered.is_none_or(|last| now.saturating_since(last) > interval * 2) {
            self.own.counting_since = now;
        }
        if self.own.id.is_none() || self.own.fences != stored.record.fences {
            self.own.fences = stored.record.fences;
            self.own.steady_since = now;
        }
        if self.own.answered.is_some() && self.own.may_have_lapsed(now) {
            self.own.stood_still = Some(now);
            self.own.list_due = now;
            self.published.all = true;
        }
        self.own.id = Some(id);
        self.own.settled = true;
        self.own.answered = Some(sent);
        self.own.renewed_for =
            Duration::from_secs(u64::try_from(stored.record.duration_seconds).unwrap_or(0));
        self.own.due = sent + interval;
        if !matches!(self.own.ending, Ending::Restarted { .. }) {
            // Addresses that come later are to end with those that are there.
            let whole = (sent + self.lifetime()).saturating_since(now).as_secs();
            let until = now + Duration::from_secs(whole) + APPLIED;
            self.own.kernel_until = self.own.kernel_until.max(until);
        }
        if !self.own.watch_void || self.own.echoes.is_empty() {
            let seen =
                self.sessions.entry(&self.own_name).is_some_and(super::cache::Entry::is_echoed);
            if !seen {
                self.own.echoes.push_back((stored.resource_version.clone(), now + ECHO));
            }
        }
    }
}
