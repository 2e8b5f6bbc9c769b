//! The own session: acquiring, renewing, losing, releasing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Reason, Session, SessionId, Stored};

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::context::Context;
use crate::election::context::fence::is_fence;
use crate::election::context::own_links::links_down;
use crate::election::context::state::facts::id_of;
use crate::election::context::state::requests::{Pending, Purpose};
use crate::election::io::config::KERNEL_GRACE;
use crate::election::io::event::{Action, Answer, Change, Fact, Target, Write};
use crate::election::session::Sessions;
use crate::election::session::state::own::{EXIT, Ending};
use crate::election::wire::Wire;

/// The time within which the watch must deliver an own renewal.
pub(in crate::election) const ECHO: Duration = Duration::from_secs(1);

/// After which time without a fence one less is counted.
pub(in crate::election) const STEADY: Duration = Duration::from_secs(200);

/// Within which time after a renewal the kernel is told, as a rule.
pub(in crate::election) const APPLIED: Duration = Duration::from_millis(100);

/// The time between a request without an answer and the next one.
pub(in crate::election) const RETRY: Duration = Duration::from_millis(250);

impl Sessions {
    pub(in crate::election) fn session_deadline(cx: &Context) -> Option<Instant> {
        let own = cx.own();
        let mut deadlines = vec![own.hold_due];
        if !cx.is_pending(&Target::Session(cx.own_name().clone())) {
            deadlines.push(own.due);
            if own.id.is_none() {
                deadlines.extend(Self::foreign_tenure_ends(cx));
            }
        }
        if cx.published().drops_any() {
            deadlines.push(own.renewed_until());
        }
        deadlines.extend(own.echoes.front().map(|(_, due)| *due).filter(|_| !own.watch_void));
        if own.watch_void || own.stood_still.is_some() {
            deadlines.push(own.list_due);
        }
        deadlines.extend(own.stood_still.map(|since| cx.api_given_up(since)));
        if let Ending::Restarted { until } | Ending::Leaving { until } = own.ending {
            deadlines.push(until);
        }
        cx.first_ahead(deadlines)
    }

    pub(in crate::election) fn advance_session(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        Self::hold(cx, claims, now);
        if !cx.is_informed() {
            cx.own_mut().due = now + RETRY;
            if matches!(cx.own().ending, Ending::Asked(_)) {
                // What a former process left stays for its lifetime; nothing is known to leave.
                cx.own_mut().ending = Ending::Restarted { until: now };
            }
            return;
        }
        Self::check_echoes(cx, now, actions);
        Self::go_on_alone(cx, claims, now, actions);
        Self::begin_ending(cx, now);
        Self::notice_end(cx, claims, now, actions);
        if cx.is_pending(&Target::Session(cx.own_name().clone())) {
            return;
        }
        if cx.own().must_read {
            if now >= cx.own().due {
                cx.own_mut().must_read = false;
                cx.read(now, Target::Session(cx.own_name().clone()), actions);
            }
            return;
        }
        if cx.own().id.is_some() {
            Self::keep_session(cx, claims, wire, now, actions);
        }
        if cx.own().id.is_none() {
            Self::acquire_session(cx, wire, now, actions);
        }
    }

    /// Without an answer from the API the addresses stay. Those that have lapsed wait until it answers, or is known
    /// not to: others may have them.
    pub(in crate::election) fn hold(cx: &mut Context, claims: &mut Claims, now: Instant) {
        if now < cx.own().hold_due {
            return;
        }
        let interval = cx.renew_interval();
        let renewed =
            cx.own().answered.is_some_and(|sent| now.saturating_since(sent) < interval * 2);
        let holds = cx.own().id.is_some() || !cx.own().settled;
        let staying = matches!(cx.own().ending, Ending::Restarted { .. } | Ending::Done);
        if !renewed && holds && !staying {
            if !cx.own().may_have_lapsed(now) {
                cx.own_mut().kernel_until = now + cx.lifetime();
            } else if cx.own().id.is_some() && cx.own().stood_still.is_none() {
                cx.own_mut().stood_still = Some(now);
                cx.published_mut().touch_all();
                claims.end_all_provisional(cx, now);
            }
        }
        cx.own_mut().hold_due = now + interval;
    }

    pub(in crate::election) fn check_echoes(
        cx: &mut Context,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.own().echoes.front().is_some_and(|(_, due)| now >= *due) {
            cx.own_mut().watch_void = true;
            cx.own_mut().echoes.clear();
        }
        let stood_still = cx.own().stood_still.is_some();
        if (cx.own().watch_void || stood_still) && now >= cx.own().list_due {
            cx.own_mut().list_due = now + if stood_still { RETRY } else { cx.renew_interval() };
            actions.push(Action::List { asked: now });
        }
    }

    /// Serves again what lapsed while this process stood still: all claims were listed as they were at `asked`.
    pub(in crate::election) fn go_on(cx: &mut Context, asked: Instant) {
        if cx.own().stood_still.is_some_and(|since| asked >= since) {
            cx.own_mut().stood_still = None;
            cx.published_mut().touch_all();
        }
    }

    /// The same where the API server does not answer any more: the segment is asked who has it.
    pub(in crate::election) fn go_on_alone(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(since) = cx.own().stood_still else { return };
        if !cx.is_api_gone(now, since) {
            return;
        }
        cx.own_mut().stood_still = None;
        cx.published_mut().touch_all();
        cx.own_mut().kernel_until = cx.own().kernel_until.max(now + cx.lifetime());
        let mine = claims
            .tenures()
            .iter()
            .filter(|(_, tenure)| tenure.is_mine() && tenure.leaving().is_none());
        let listed = mine.filter_map(|(name, tenure)| {
            let addresses = cx.claims().get(name)?.record.addresses.clone();
            Some((name.clone(), tenure.interface().cloned()?, addresses))
        });
        for (name, interface, addresses) in listed.collect::<Vec<_>>() {
            claims.open_mut().note(&name);
            claims.probe_on(cx, now, &name, &interface, &addresses, actions);
        }
    }

    pub(in crate::election) fn own_stored(cx: &Context) -> Option<Arc<Stored<Session>>> {
        cx.sessions().get(cx.own_name()).cloned()
    }

    /// Whether `stored` is a tenure of this boot of this host.
    pub(in crate::election) fn is_ours(cx: &Context, stored: &Stored<Session>) -> bool {
        stored.record.holder.as_ref() == Some(&cx.config().node)
            && stored.record.incarnation.as_ref() == Some(&cx.config().incarnation)
    }

    pub(in crate::election) fn own_record(
        cx: &Context,
        wire: &Wire,
        transitions: i32,
        cause: String,
    ) -> Session {
        Session {
            holder: Some(cx.config().node.clone()),
            transitions,
            duration_seconds: cx.lease_seconds(),
            incarnation: Some(cx.config().incarnation.clone()),
            interfaces: cx.links().clone(),
            links_down: links_down(cx.own_interfaces()),
            restarting: false,
            proxy_silent: cx.proxy().is_silent(),
            data_path: cx.data_path(),
            forwarded_connections: cx.forwarded_connections(),
            fences: cx.own().fences,
            drain: Self::own_stored(cx).is_some_and(|stored| stored.record.drain),
            ignores_exclude_label: cx.config().ignores_exclude_label,
            log: cx.log_filter().map(str::to_owned),
            foreign: wire.conflicts().foreign(),
            unanswering: cx.voices().unanswering.iter().map(|id| id.node.clone()).collect(),
            silence: None,
            cause,
        }
    }

    /// Whether somebody edited the session that this process holds. A fence is none, even one of a
    /// session that had been set back.
    pub(in crate::election) fn is_edited(stored: &Stored<Session>, id: &SessionId) -> bool {
        let fenced = is_fence(&stored.record);
        stored.uid == id.uid && stored.record.transitions <= id.transitions && !fenced
    }

    /// Whether the lease of the session that this process holds was deleted, edited or set back.
    pub(in crate::election) fn is_set_back_or_gone(cx: &Context, id: &SessionId) -> bool {
        Self::own_stored(cx).is_none_or(|stored| {
            let low = stored.record.transitions < cx.sessions().highest(cx.own_name());
            low || !Self::is_ours(cx, &stored) && Self::is_edited(&stored, id)
        })
    }

    /// A session that was seen to be over is obeyed at once, whatever is under way.
    pub(in crate::election) fn notice_end(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let (Some(id), Some(stored)) = (&cx.own().id, Self::own_stored(cx)) else { return };
        if Self::is_ours(cx, &stored) || Self::is_edited(&stored, id) {
            return;
        }
        let cause = match &stored.record.holder {
            None => format!("session ended: {}", stored.record.cause),
            Some(holder) => format!("session is held by {holder} on another host or boot"),
        };
        Self::lose_session(cx, claims, now, &cause, actions);
    }

    pub(in crate::election) fn keep_session(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(id) = cx.own().id.clone() else { return };
        if cx.own().may_have_lapsed(now) && Self::is_set_back_or_gone(cx, &id) {
            // What nobody has served for a while is asked for like anything new.
            Self::lose_session(
                cx,
                claims,
                now,
                "session was deleted or edited, and its addresses lapsed",
                actions,
            );
            return;
        }
        let Some(stored) = Self::own_stored(cx) else {
            // Deleted: nobody fenced it. What is held is held on while it is created again.
            if now >= cx.own().due {
                Self::put_session(
                    cx,
                    wire,
                    now,
                    None,
                    Self::next_transitions(cx),
                    Reason::SessionDeleted,
                    actions,
                );
            }
            return;
        };
        // Whoever fences, releases or acquires adds one to the transitions: without that somebody
        // edited the lease, and it is put right.
        if !Self::is_ours(cx, &stored) && Self::is_edited(&stored, &id) {
            let transitions = Self::next_transitions(cx);
            Self::put_session(
                cx,
                wire,
                now,
                Some(stored),
                transitions,
                Reason::SessionEdited,
                actions,
            );
            return;
        }
        let found = id_of(&stored);
        if found != id {
            if found.transitions < cx.sessions().highest(cx.own_name()) {
                let transitions = Self::next_transitions(cx);
                Self::put_session(
                    cx,
                    wire,
                    now,
                    Some(stored),
                    transitions,
                    Reason::SessionEdited,
                    actions,
                );
                return;
            }
            cx.own_mut().id = Some(found);
        }
        let said = cx.links() == &stored.record.interfaces
            && cx.proxy().is_silent() == stored.record.proxy_silent
            && cx.data_path() == stored.record.data_path;
        if cx.own().release && cx.is_kernel_clear() {
            Self::release_session(cx, now, stored, &Reason::CarrierLost, actions);
        } else if cx.own().is_leaving() {
            Self::leave(cx, claims, wire, now, stored, actions);
        } else if now >= cx.own().due || !said && !claims.gives_up_a_link(cx) {
            match cx.own().ending {
                Ending::Restarting { asked } => {
                    Self::lengthen(cx, claims, wire, now, asked, stored, actions);
                }
                Ending::Restarted { .. } | Ending::Left | Ending::Done => {}
                Ending::No | Ending::Asked(_) | Ending::Leaving { .. } => {
                    let transitions = stored.record.transitions;
                    Self::put_session(cx, wire, now, Some(stored), transitions, None, actions);
                }
            }
        }
    }

    pub(in crate::election) fn acquire_session(
        cx: &mut Context,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.own().is_ending() && cx.own().settled {
            cx.own_mut().ending = match cx.own().ending {
                Ending::Done => Ending::Done,
                _ => Ending::Left,
            };
            return;
        }
        let stored = Self::own_stored(cx);
        if let Some(stored) = stored.as_ref().filter(|stored| Self::is_ours(cx, stored)) {
            let low = stored.record.transitions < cx.sessions().highest(cx.own_name());
            let (stored, transitions) = if low {
                (stored.clone(), Self::next_transitions(cx))
            } else {
                (stored.clone(), stored.record.transitions)
            };
            let continued =
                !cx.own().settled && cx.own().continued.as_ref() == Some(&id_of(&stored));
            if continued && !low {
                // The former process's tenure is ours: what it held stays.
                cx.own_mut().id = Some(id_of(&stored));
                cx.own_mut().settled = true;
            }
            Self::put_session(cx, wire, now, Some(stored), transitions, Reason::Restarted, actions);
            return;
        }
        // From here on a former process's session is over: first its addresses go.
        cx.own_mut().settled = true;
        if !cx.is_kernel_clear() || now < cx.own().due {
            return;
        }
        // A node that the cluster does not know takes part in nothing.
        if cx.node_exists() != Some(true) {
            cx.own_mut().due = now + RETRY;
            return;
        }
        if Self::foreign_tenure_ends(cx).is_some_and(|end| now < end) {
            return;
        }
        Self::put_session(
            cx,
            wire,
            now,
            stored,
            Self::next_transitions(cx),
            Reason::Started,
            actions,
        );
    }

    /// When another host or boot that holds our session will have been silent for L: one that lives
    /// renews it three times as often.
    pub(in crate::election) fn foreign_tenure_ends(cx: &Context) -> Option<Instant> {
        let entry = cx.sessions().entry(cx.own_name())?;
        let stored = entry.stored.as_ref().filter(|stored| !Self::is_ours(cx, stored))?;
        stored.record.holder.as_ref()?;
        Some(entry.changed + cx.lease_duration())
    }

    pub(in crate::election) fn next_transitions(cx: &Context) -> i32 {
        cx.sessions().highest(cx.own_name()).saturating_add(1)
    }

    pub(in crate::election) fn put_session(
        cx: &mut Context,
        wire: &Wire,
        now: Instant,
        base: Option<Arc<Stored<Session>>>,
        transitions: i32,
        reason: impl Into<Option<Reason>>,
        actions: &mut Vec<Action>,
    ) {
        let reason = reason.into().map(|reason| reason.to_string());
        let cause = reason.or_else(|| base.as_ref().map(|base| base.record.cause.clone()));
        let mut record = Self::own_record(cx, wire, transitions, cause.unwrap_or_default());
        if let Some(base) = &base {
            let steady = cx.own().id.is_some() && now >= cx.own().steady_since + STEADY;
            record.fences = base.record.fences.saturating_sub(u32::from(steady));
        }
        let change = Change { name: cx.own_name().clone(), base, record };
        Self::write_session(cx, now, change, Purpose::Renew, actions);
    }

    /// Writes the own session. After a refusal it waits, whatever else would be a reason to write.
    pub(in crate::election) fn write_session(
        cx: &mut Context,
        now: Instant,
        change: Change<Session>,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        if now >= cx.own().due || !cx.own().refused {
            cx.write(now, Write::Session(change), purpose, actions);
        }
    }

    pub(in crate::election) fn lose_session(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let owner = cx.own_id();
        cx.own_mut().id = None;
        cx.own_mut().answered = None;
        cx.own_mut().release = false;
        cx.own_mut().due = now;
        cx.own_mut().echoes.clear();
        claims.lose_all_claims(cause, owner.as_ref(), actions);
        Context::report(Fact::SessionLost { cause: cause.to_owned() }, actions);
    }

    pub(in crate::election) fn session_answered(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        pending: &Pending,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        cx.own_mut().refused = matches!(answer, Answer::Refused(_) | Answer::Throttled);
        cx.own_mut().unanswered = matches!(answer, Answer::Unknown(_));
        match (pending.purpose, answer) {
            (Purpose::Renew, Answer::Session(stored)) => {
                Self::renewed(cx, claims, now, pending.sent, stored, actions);
            }
            (Purpose::Restart, Answer::Session(_)) if cx.own().is_leaving() => {
                cx.own_mut().due = now;
            }
            (Purpose::Restart, Answer::Session(stored)) => {
                let seconds = u64::try_from(stored.record.duration_seconds).unwrap_or(0);
                cx.own_mut().kernel_until =
                    pending.sent + Duration::from_secs(seconds) + KERNEL_GRACE;
                cx.own_mut().ending = Ending::Restarted { until: now + EXIT };
                claims.end_all_provisional(cx, now);
            }
            (Purpose::ReleaseSession, Answer::Session(stored)) => {
                let leaving = cx.own().is_leaving();
                Self::lose_session(cx, claims, now, &stored.record.cause, actions);
                if leaving {
                    cx.own_mut().ending = Ending::Left;
                }
            }
            (Purpose::Read, Answer::Session(_) | Answer::Absent) | (_, Answer::Absent) => {
                cx.own_mut().due = now;
            }
            (_, Answer::Conflict) => {
                cx.own_mut().must_read = true;
                cx.own_mut().due = now;
            }
            (_, Answer::Unknown(cause)) => {
                cx.own_mut().must_read = true;
                cx.own_mut().due = now + RETRY;
                Self::renewal_failed(cause, actions);
            }
            (_, Answer::Refused(cause)) => {
                cx.own_mut().due = now + cx.renew_interval();
                Self::renewal_failed(cause, actions);
            }
            (_, Answer::Throttled) => {
                cx.own_mut().due = now + cx.renew_interval() / 2;
                Self::renewal_failed("throttled", actions);
            }
            (_, Answer::Session(_) | Answer::Claim(_)) => {}
        }
    }

    pub(in crate::election) fn renewal_failed(cause: &str, actions: &mut Vec<Action>) {
        Context::report(Fact::RenewalFailed { cause: cause.to_owned() }, actions);
    }

    pub(in crate::election) fn renewed(
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        sent: Instant,
        stored: &Stored<Session>,
        actions: &mut Vec<Action>,
    ) {
        let interval = cx.renew_interval();
        let id = id_of(stored);
        if cx.own().id.as_ref() != Some(&id) {
            // Another number while a session is held: its lease was deleted or edited, and what is
            // held is held on.
            if cx.own().id.is_none() {
                let transitions = id.transitions;
                Context::report(Fact::SessionAcquired { transitions, continued: false }, actions);
                claims.begin_joining(now);
            }
        } else if cx.own().answered.is_none() {
            Context::report(
                Fact::SessionAcquired { transitions: id.transitions, continued: true },
                actions,
            );
        }
        // After a gap the others may not have been able to renew either: they get a full L anew.
        if cx.own().answered.is_none_or(|last| now.saturating_since(last) > interval * 2) {
            cx.own_mut().counting_since = now;
        }
        if cx.own().id.is_none() || cx.own().fences != stored.record.fences {
            cx.own_mut().fences = stored.record.fences;
            cx.own_mut().steady_since = now;
        }
        if cx.own().answered.is_some() && cx.own().may_have_lapsed(now) {
            cx.own_mut().stood_still = Some(now);
            cx.own_mut().list_due = now;
            cx.published_mut().touch_all();
        }
        cx.own_mut().id = Some(id);
        cx.own_mut().settled = true;
        cx.own_mut().answered = Some(sent);
        cx.own_mut().renewed_for =
            Duration::from_secs(u64::try_from(stored.record.duration_seconds).unwrap_or(0));
        cx.own_mut().due = sent + interval;
        if !matches!(cx.own().ending, Ending::Restarted { .. }) {
            // Addresses that come later are to end with those that are there.
            let whole = (sent + cx.lifetime()).saturating_since(now).as_secs();
            let until = now + Duration::from_secs(whole) + APPLIED;
            cx.own_mut().kernel_until = cx.own().kernel_until.max(until);
        }
        if !cx.own().watch_void || cx.own().echoes.is_empty() {
            let seen = cx
                .sessions()
                .entry(cx.own_name())
                .is_some_and(crate::election::store::cache::Entry::is_echoed);
            if !seen {
                cx.own_mut().echoes.push_back((stored.resource_version.clone(), now + ECHO));
            }
        }
    }
}
