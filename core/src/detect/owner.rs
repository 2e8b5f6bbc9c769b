//! One owner: its polls, its misses, its silence.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Instant;
use crate::detect::addresses::Addresses;
use crate::detect::clients::Clients;
use crate::detect::counters::WireCounters;
use crate::detect::question::Question;
use crate::detect::testimony::{Answer, Segment};
use crate::election::{Silence, Voice, VoiceId, Watched};

/// A judgement that comes later than this says more of this node than of the owner.
const LATENESS: Duration = Duration::from_millis(20);
/// Polls that are due within this time share a wake-up.
const SHARED: Duration = Duration::from_millis(1);
/// By how much misses may be older than their polls take.
const MEMORY: Duration = Duration::from_millis(100);
/// Time during which witnesses are asked with each poll; then at each interval.
const WITNESSES_URGED: Duration = Duration::from_millis(200);
/// Time during which a silent owner, or one whose silence has no witness, is polled fast.
const FAST: Duration = Duration::from_secs(1);
/// Every so many polls of a silent owner its node is asked, too.
const NODE_ASKED: u32 = 5;
/// Questions before the forms of a question alternate.
const FIRST_FORM: u32 = 2;

/// A poll that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Poll {
    /// The time of the question, as the answer has it.
    asked: Instant,
    /// The time at which it left this node, from which on the answer is awaited.
    sent: Instant,
    /// The time of the second probe of the last wait, until it is sent.
    probe: Option<Instant>,
    /// It did not leave this node, or its answer may have been dropped.
    void: bool,
}

/// The form in which the owner is asked over IPv4: a host without a route back answers only questions from
/// 0.0.0.0, others only those in a neighbour's name.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    answered: Option<bool>,
    asked: u32,
}

impl Form {
    fn next(&mut self) -> bool {
        self.answered.unwrap_or_else(|| {
            let named = self.asked >= FIRST_FORM && self.asked.is_multiple_of(2);
            self.asked = self.asked.saturating_add(1);
            named
        })
    }
}

/// The state of one owner.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    watched: Arc<Watched>,
    /// See [`crate::election::Watchlist::phase`].
    phase: u16,
    addresses: Addresses,
    form: Form,
    clients: Clients,
    /// The address that is polled.
    target: Option<IpAddr>,
    poll: Option<Poll>,
    next_poll: Instant,
    /// The times of the polls that were missed in a row, the last ones.
    misses: VecDeque<Instant>,
    /// The time of the first miss in a row.
    doubted: Option<Instant>,
    witnesses_asked: Option<Instant>,
    /// All polls are missed and nobody testifies: it is this node that is deaf, as far as it knows,
    /// and it asks only each interval.
    starving: bool,
    /// The time of the question that another host, or another interface of the owner, answered for the address
    /// that is polled.
    elsewhere: Option<Instant>,
    /// The time of the question that the owner answered for another address.
    node_answered: Option<Instant>,
    silence: Option<Silence>,
    /// The time of the poll that led to the silence.
    last_poll: Instant,
    silent_polls: u32,
}

/// The surroundings of a question.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    pub now: Instant,
    pub id: &'a VoiceId,
    pub segment: &'a mut Segment,
    pub questions: &'a mut Vec<Question>,
    pub counters: &'a WireCounters,
}

impl Wire<'_> {
    fn unicast(&mut self, ip: IpAddr, named: bool) {
        self.segment.ask(self.now, ip, Some(self.id.mac), named, self.questions);
    }

    fn probe(&mut self, ip: IpAddr) {
        self.segment.ask(self.now, ip, None, false, self.questions);
    }
}

impl Owner {
    pub(super) fn new(now: Instant, id: &VoiceId, watched: &Arc<Watched>, phase: u16) -> Self {
        let mut owner = Self {
            watched: Arc::clone(watched),
            phase,
            addresses: Addresses::default(),
            form: Form::default(),
            clients: Clients::default(),
            target: None,
            poll: None,
            next_poll: now,
            misses: VecDeque::new(),
            doubted: None,
            witnesses_asked: None,
            starving: false,
            elsewhere: None,
            node_answered: None,
            silence: None,
            last_poll: now,
            silent_polls: 0,
        };
        owner.addresses.update(now, &id.node, &watched.vips);
        owner.retarget(now);
        owner
    }

    pub(super) fn update(&mut self, now: Instant, id: &VoiceId, watched: &Arc<Watched>) {
        // Mostly it is the same one: then nothing of it is compared.
        if self.watched == *watched {
            return;
        }
        self.watched = Arc::clone(watched);
        self.addresses.update(now, &id.node, &watched.vips);
        self.next_poll = self.next_poll.min(now + watched.detection.interval);
        self.retarget(now);
    }

    /// Whether that is what is asked of it already.
    pub(super) fn watches(&self, watched: &Arc<Watched>) -> bool {
        Arc::ptr_eq(&self.watched, watched)
    }

    /// An address of the node's own.
    pub(super) fn own(&self) -> Option<IpAddr> {
        self.watched.own.first().copied()
    }

    /// Whether it is polled.
    pub(super) fn is_polled(&self) -> bool {
        self.watched.polled && self.watched.detection.wire
    }

    pub(super) fn voice(&self) -> Voice {
        match &self.silence {
            Some(silence) => Voice::Silent(silence.clone()),
            None if self.addresses.any_heard() => Voice::Heard,
            None => Voice::Unheard,
        }
    }

    /// The time at which [`Self::advance`] is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let poll = self.target.map(|_| match self.poll {
            Some(poll) => poll.probe.unwrap_or(poll.sent + self.watched.detection.retry_interval),
            None => self.next_poll,
        });
        poll.into_iter().chain(self.addresses.next()).min()
    }

    /// The time of the poll after one of this time: the moment of the interval at which this node polls, at the
    /// latest after one interval.
    fn after(&self, sent: Instant) -> Instant {
        let interval = self.watched.detection.interval;
        let offset = interval * u32::from(self.phase) / (1 << u16::BITS);
        // What shared a wake-up was sent a little earlier than its time.
        let latest = sent + interval + SHARED;
        let since = latest.since_boot().saturating_sub(offset).as_nanos();
        let over = since.checked_rem(interval.as_nanos()).unwrap_or(0);
        latest - Duration::from_nanos(u64::try_from(over).unwrap_or(0))
    }

    /// Chooses the address to poll. What was missed of another one, or before its ownership
    /// changed, does not count.
    fn retarget(&mut self, now: Instant) {
        let target = if self.is_polled() { self.addresses.choose(self.target) } else { None };
        if target != self.target || target.is_none_or(|ip| !self.addresses.is_heard(ip)) {
            self.begin_anew();
            self.silence = None;
            self.clients = Clients::default();
        }
        if target != self.target {
            self.target = target;
            self.poll = None;
            self.next_poll = now;
        }
    }

    fn begin_anew(&mut self) {
        self.misses.clear();
        self.doubted = None;
        self.witnesses_asked = None;
        self.starving = false;
        self.elsewhere = None;
    }

    /// An answer of the owner, at `at`.
    pub(super) fn hear(&mut self, at: Instant, answer: Answer) {
        let is_vip = self.addresses.hear(answer.ip, answer.asked);
        if is_vip && answer.ip.is_ipv4() {
            self.form.answered.get_or_insert(answer.named);
            if answer.named {
                self.clients.hear(at);
            }
        }
        if is_vip && self.target == Some(answer.ip) {
            self.begin_anew();
            self.silence = None;
            if let Some(poll) = self.poll.take() {
                self.next_poll = self.after(poll.sent);
            }
        } else if is_vip || self.watched.own.contains(&answer.ip) {
            self.node_answered = self.node_answered.max(Some(answer.asked));
            if let Some(silence) = &mut self.silence {
                silence.node_answers |= answer.asked >= self.last_poll;
            }
            self.retarget(at);
        }
    }

    /// An answer of somebody who is no speaker, or of another interface of the owner, which has moved there
    /// before its claim says so.
    pub(super) fn hear_elsewhere(&mut self, answer: Answer) {
        if self.target == Some(answer.ip) {
            self.elsewhere = self.elsewhere.max(Some(answer.asked));
        }
    }

    /// The poll for `ip`, if there is one, did not leave this node: it says nothing.
    pub(super) fn unsent(&mut self, ip: IpAddr) {
        if self.target == Some(ip) {
            self.void();
        }
    }

    /// The poll, if there is one, says nothing; nor does it that clients' questions were not answered.
    pub(super) fn void(&mut self) {
        if let Some(poll) = &mut self.poll {
            poll.void = true;
        }
        self.clients.void();
    }

    /// Notes that the frame sent at `noted` left this node only at `sent`.
    pub(super) fn delayed(&mut self, noted: Instant, sent: Instant) {
        if let Some(poll) = self.poll.as_mut().filter(|poll| poll.asked == noted) {
            poll.sent = sent;
            let half = self.watched.detection.retry_interval / 2;
            poll.probe = poll.probe.map(|_| sent + half);
        }
    }

    /// Judges and asks what is due. Returns whether witnesses are wanted.
    pub(super) fn advance(&mut self, wire: &mut Wire<'_>) -> bool {
        let witnesses_wanted = self.judge(wire);
        if let Some(target) = self.target {
            self.probe_again(target, wire);
            if self.poll.is_none() && self.next_poll <= wire.now + SHARED {
                self.send_poll(target, wire);
            }
        }
        while let Some(ip) = self.addresses.take_due(wire.now) {
            if self.target != Some(ip) {
                let named = self.form.next();
                wire.unicast(ip, named);
            }
        }
        witnesses_wanted
    }

    /// The second probe of the last wait. One that is so late that the wait is over is not sent,
    /// and the poll does not count.
    fn probe_again(&mut self, target: IpAddr, wire: &mut Wire<'_>) {
        if let Some(poll) = &mut self.poll
            && poll.probe.is_some_and(|at| at <= wire.now)
        {
            poll.probe = None;
            wire.probe(target);
        }
    }

    fn send_poll(&mut self, target: IpAddr, wire: &mut Wire<'_>) {
        self.forget_misses(wire.now);
        let named = self.form.next();
        wire.unicast(target, named);
        wire.counters.polls.fetch_add(1, Ordering::Relaxed);
        let mut probe = None;
        if self.silence.is_some() {
            self.silent_polls = self.silent_polls.wrapping_add(1);
            if self.silent_polls.is_multiple_of(NODE_ASKED) {
                self.ask_node(target, named, wire);
            }
        } else if self.addresses.is_heard(target) && self.misses.len() + 1 >= self.needed() {
            probe = Some(wire.now + self.watched.detection.retry_interval / 2);
            wire.probe(target);
            self.ask_node(target, named, wire);
        }
        self.ask_as_a_client(target, wire);
        self.poll = Some(Poll { asked: wire.now, sent: wire.now, probe, void: false });
    }

    /// Whether it answers this node's questions from 0.0.0.0 alone.
    pub(super) const fn leaves_clients_unanswered(&self) -> bool {
        self.clients.is_unanswered()
    }

    /// Asks in this node's name: an owner that answers questions from 0.0.0.0 may not answer clients.
    fn ask_as_a_client(&mut self, target: IpAddr, wire: &mut Wire<'_>) {
        let heard = self.silence.is_none() && self.doubted.is_none();
        let heard = heard && target.is_ipv4() && self.addresses.is_heard(target);
        if heard && self.form.answered == Some(false) && self.clients.ask(wire.now) {
            wire.unicast(target, true);
        }
    }

    /// Asks for the node's own address and for a second VIP.
    fn ask_node(&self, polled: IpAddr, named: bool, wire: &mut Wire<'_>) {
        let mut own = self.watched.own.iter().copied();
        let same_family = own.clone().find(|ip| ip.is_ipv4() == polled.is_ipv4());
        let own = same_family.or_else(|| own.next());
        for ip in own.into_iter().chain(self.addresses.second(polled)) {
            wire.unicast(ip, named);
        }
    }

    fn needed(&self) -> usize {
        usize::try_from(self.watched.detection.misses).unwrap_or(usize::MAX).max(1)
    }

    /// The duration of all polls of a silence.
    fn all_waits(&self) -> Duration {
        self.watched.detection.retry_interval.saturating_mul(self.watched.detection.misses)
    }

    fn forget_misses(&mut self, now: Instant) {
        let memory = self.all_waits() + MEMORY;
        while self.misses.front().is_some_and(|asked| now.saturating_since(*asked) > memory) {
            self.misses.pop_front();
        }
    }

    /// Judges the poll, if its answer is due. Returns whether witnesses are wanted.
    fn judge(&mut self, wire: &Wire<'_>) -> bool {
        let now = wire.now;
        let Some(poll) = self.poll else { return false };
        let due = poll.sent + self.watched.detection.retry_interval;
        if now < due {
            return false;
        }
        self.poll = None;
        self.next_poll = now;
        let late = now.saturating_since(due) > LATENESS;
        if late || poll.void || poll.probe.is_some() {
            return false;
        }
        if !self.target.is_some_and(|ip| self.addresses.is_heard(ip)) {
            self.next_poll = self.after(poll.sent);
            return false;
        }
        if let Some(silence) = &self.silence {
            if now.saturating_since(silence.since) >= FAST {
                self.next_poll = self.after(poll.sent);
            }
            return false;
        }
        self.missed(poll, wire)
    }

    fn missed(&mut self, poll: Poll, wire: &Wire<'_>) -> bool {
        let Wire { now, id, segment, counters, .. } = wire;
        counters.misses.fetch_add(1, Ordering::Relaxed);
        let interval = self.watched.detection.interval;
        self.forget_misses(*now);
        self.misses.push_back(poll.asked);
        if self.misses.len() > self.needed() {
            self.misses.pop_front();
        }
        let doubted = *self.doubted.get_or_insert(*now);
        let first = self.misses.front().copied().unwrap_or(poll.asked);
        // While starving only the witnesses' last answers count: the owner gets its chance after.
        let since = self.witnesses_asked.filter(|_| self.starving).unwrap_or(first);
        let testimony = segment.testimony(id.mac, since);
        if testimony && self.starving {
            self.starving = false;
            self.misses = [poll.asked].into();
            self.doubted = Some(*now);
        } else if testimony && self.misses.len() >= self.needed() {
            self.conclude(*now, first, poll);
            return false;
        } else if !testimony && now.saturating_since(doubted) >= self.all_waits() + FAST {
            self.starving = true;
            self.misses.clear();
            self.next_poll = self.after(poll.sent);
        }
        let urged = now.saturating_since(doubted) < WITNESSES_URGED;
        let again = self
            .witnesses_asked
            .is_none_or(|asked| urged && !testimony || now.saturating_since(asked) >= interval);
        if again {
            self.witnesses_asked = Some(*now);
        }
        again
    }

    /// All misses are there, and somebody else was heard meanwhile.
    fn conclude(&mut self, now: Instant, first: Instant, last: Poll) {
        let vetoed = self.elsewhere.is_some_and(|asked| asked >= first);
        self.begin_anew();
        if vetoed {
            self.next_poll = self.after(last.sent);
        } else if let Some(address) = self.target {
            let node_answers = self.node_answered.is_some_and(|asked| asked >= last.asked);
            self.silence = Some(Silence { address, first, since: now, node_answers });
            self.last_poll = last.asked;
            self.silent_polls = 0;
        }
    }
}
