//! Without the API server a node may answer whose speaker is gone: what it had lapses, all of it. The listener
//! polls one address of an owner, and as no claim changes hands it goes on with that one. So each of the others is
//! asked for here, of the node alone and a few at a time, and what is not answered for is taken over like the
//! one that is polled.
//!
//! The same goes for an owner that has never answered the listener, which may have begun to listen after the
//! speaker was gone: it listens anew whenever this node has had no link. Such an owner may merely not be heard
//! here. So a question counts only if the node has answered for an address of its own since it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Instant;
use crate::election::io::event::{Action, Frame, HeardFrame};
use crate::election::io::probes::VoiceId;

/// How long an answer is waited for, and how many questions in a row have none where an address has lapsed.
pub(in crate::election) const ANSWER: Duration = Duration::from_millis(50);

pub(in crate::election) const UNANSWERED: u32 = 3;

/// Whoever looks so late may have stood still, with the answer still to be read: the question does not count.
pub(in crate::election) const LATE: Duration = Duration::from_millis(200);

/// How often an address is asked for of which it is known.
pub(in crate::election) const AGAIN: Duration = Duration::from_secs(1);

/// How many are asked for at once, and how soon after that the next.
pub(in crate::election) const AT_ONCE: usize = 16;

pub(in crate::election) const PACE: Duration = Duration::from_millis(10);

/// The addresses of an owner beside the one that is polled.
#[derive(Debug, Default)]
pub(in crate::election) struct Lapses {
    addresses: BTreeMap<IpAddr, Asked>,
    /// When the next are asked for at the earliest.
    paced: Instant,
    /// Of an owner that was never heard: what shows that it would be.
    proof: Option<Proof>,
}

/// The node's own addresses, and when it last answered for them.
#[derive(Debug)]
pub(in crate::election) struct Proof {
    own: BTreeMap<IpAddr, Option<Instant>>,
    /// When it is asked for them at the latest.
    next: Instant,
}

impl Proof {
    /// Whether the node has answered since, by the protocol by which `address` is asked for.
    pub(in crate::election) fn answers(&self, address: IpAddr, since: Instant) -> bool {
        let alike = |own: &IpAddr| own.is_ipv4() == address.is_ipv4();
        let mut answers = self.own.iter().filter(|(own, _)| alike(own));
        answers.any(|(_, at)| at.is_some_and(|at| at >= since))
    }
}

/// An address that the owner is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::election) struct Asked {
    /// When the question was sent whose answer is awaited; …
    sent: Option<Instant>,
    /// … and when the next is sent at the earliest.
    next: Instant,
    /// How many questions in a row were not answered.
    unanswered: u32,
}

impl Asked {
    pub(in crate::election) const fn new(next: Instant) -> Self {
        Self { sent: None, next, unanswered: 0 }
    }

    pub(in crate::election) const fn has_lapsed(self) -> bool {
        self.unanswered >= UNANSWERED
    }

    /// Judges the question, if its answer is due; whether the node has answered since it was sent.
    pub(in crate::election) fn judge(&mut self, now: Instant, answers: impl Fn(Instant) -> bool) {
        let Some((sent, due)) = self.sent.map(|at| (at, at + ANSWER)).filter(|it| now >= it.1)
        else {
            return;
        };
        self.sent = None;
        let counts = now < due + LATE && answers(sent);
        self.unanswered = self.unanswered.saturating_add(u32::from(counts));
        self.next = if self.has_lapsed() { now + AGAIN } else { now };
    }
}

impl Lapses {
    /// Those of an owner that was never heard, and whose node has these addresses.
    pub(in crate::election) fn unheard(now: Instant, own: &BTreeSet<IpAddr>) -> Self {
        let own = own.iter().map(|address| (*address, None)).collect();
        Self { proof: Some(Proof { own, next: now }), ..Self::default() }
    }

    /// Asks for what is due of all that the owner is to have beside the address that is polled.
    pub(in crate::election) fn ask(
        &mut self,
        now: Instant,
        id: &VoiceId,
        addresses: &BTreeSet<IpAddr>,
        actions: &mut Vec<Action>,
    ) {
        self.addresses.retain(|address, _| addresses.contains(address));
        for address in addresses {
            let proof = self.proof.as_ref();
            let answers = |sent| proof.is_none_or(|proof| proof.answers(*address, sent));
            self.addresses.entry(*address).or_insert(Asked::new(now)).judge(now, answers);
        }
        if now < self.paced {
            return;
        }
        let proof = self.proof.as_ref();
        let there = |address: IpAddr| {
            proof.is_none_or(|proof| proof.answers(address, now - (AGAIN + ANSWER + LATE)))
        };
        let due = |address: IpAddr, asked: &Asked| {
            asked.sent.is_none() && now >= asked.next && there(address)
        };
        let asked = self.addresses.iter_mut();
        let mut due: Vec<_> = asked.filter(|(address, asked)| due(**address, asked)).collect();
        due.sort_by_key(|(_, asked)| asked.next);
        let mut questions = Vec::new();
        for (address, asked) in due.into_iter().take(AT_ONCE) {
            self.paced = now + PACE;
            asked.sent = Some(now);
            questions.push(*address);
        }
        if let Some(proof) = &mut self.proof
            && (!questions.is_empty() || now >= proof.next)
        {
            proof.next = now + AGAIN;
            questions.extend(proof.own.keys());
        }
        for address in questions {
            let frame = Frame::Ask(address, id.mac);
            actions.push(Action::Transmit { interface: id.interface.clone(), frame });
        }
    }

    /// The node says that it has an address.
    pub(in crate::election) fn heard(&mut self, now: Instant, frame: HeardFrame) {
        let address = frame.ip;
        if let Some(asked) = self.addresses.get_mut(&address) {
            *asked = Asked::new(now + AGAIN);
        }
        let own = self.proof.as_mut().and_then(|proof| proof.own.get_mut(&address));
        // What it announces does not say that it hears this node.
        if let Some(answered) = own.filter(|_| !frame.announcement) {
            *answered = Some(now);
        }
    }

    pub(in crate::election) fn has_lapsed(&self, address: IpAddr) -> bool {
        self.addresses.get(&address).is_some_and(|asked| asked.has_lapsed())
    }

    pub(in crate::election) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let of = |asked: &Asked| {
            asked.sent.map_or_else(|| asked.next.max(self.paced), |sent| sent + ANSWER)
        };
        self.addresses.values().map(of).chain(self.proof.as_ref().map(|proof| proof.next))
    }
}
