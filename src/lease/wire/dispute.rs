//! Addresses of ours that another speaker announced, while the API does not say whose they are.
//!
//! * Gone: the speaker is asked whether it has the address, and yielded to if so; the frame may have been anybody's.
//!   Two may have yielded to each other: so whoever has it is asked from then on, and where nobody answers
//!   it is served again.
//! * Back: the leases decide, by an uncached read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::lease::claim::Claims;
use crate::lease::claim::probe::ROUNDS;
use crate::lease::context::Context;
use crate::lease::io::event::{Action, Frame, Heard, Target};
use crate::lease::wire::Wire;

/// How long the answers of a speaker are waited for that was yielded to, one after the other.
pub(in crate::lease) const ASK: [Duration; 2] = [Duration::from_millis(500); 2];

/// The same of one that announced the address: a question may be lost, an answer be late, and the way to it be
/// cut. As long as the API does not say whose the address is, it is asked after the last of these again and again.
pub(in crate::lease) const ASK_FIRST: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(250)];

/// How soon the next claims are read where not all could be at once.
pub(in crate::lease) const REREAD_OTHERS: Duration = Duration::from_millis(20);

/// How often a claim is read anew because of what was heard, at most.
pub(in crate::lease) const REREAD: Duration = Duration::from_millis(250);

/// What another speaker announced.
#[derive(Debug, Default)]
pub(in crate::lease) struct Yields {
    /// Addresses that were yielded to a speaker while the API did not answer.
    yielded: BTreeMap<IpAddr, Question>,
    /// Addresses that speakers announced, and no read has said since whose they are: each of them is asked.
    unsettled: BTreeMap<(IpAddr, MacAddr), Question>,
    /// When the claims of what was yielded are read again at the earliest.
    reread: Instant,
}

/// Who is asked for an address, and when next.
#[derive(Clone, Debug)]
pub(in crate::lease) struct Question {
    interface: InterfaceName,
    mac: MacAddr,
    ask: Instant,
    asked: usize,
    /// An answer may have been dropped.
    missed: bool,
    /// How often it was asked from the beginning for that.
    round: u32,
}

impl Question {
    /// Who was heard is asked at `ask`.
    pub(in crate::lease) fn to(heard: &Heard, ask: Instant) -> Self {
        let (interface, mac) = (heard.interface.clone(), heard.frame.mac);
        Self { interface, mac, ask, asked: 0, missed: false, round: 0 }
    }
}

impl Yields {
    pub(in crate::lease) fn any(&self) -> bool {
        !self.yielded.is_empty()
    }

    pub(in crate::lease) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.yielded.keys().copied().collect()
    }

    pub(in crate::lease) fn contains(&self, address: IpAddr) -> bool {
        self.yielded.contains_key(&address)
    }

    /// Who was yielded to, or another speaker, has a yielded address.
    pub(in crate::lease) fn answered(&mut self, address: IpAddr, mac: MacAddr, speaker: bool) {
        let question = self.yielded.get_mut(&address);
        if let Some(question) = question.filter(|question| speaker || question.mac == mac) {
            question.mac = mac;
            question.asked = 0;
            question.round = 0;
        }
    }

    /// Frames were dropped: that a question was not answered says nothing.
    pub(in crate::lease) fn note_missed(&mut self) {
        for question in self.yielded.values_mut() {
            question.missed = true;
        }
    }

    /// A speaker announced an address of ours: the API is to say whose it is, or the speaker whether it has it.
    pub(in crate::lease) fn doubt(&mut self, now: Instant, heard: &Heard) {
        let key = (heard.frame.ip, heard.frame.mac);
        let question = self.unsettled.entry(key).or_insert_with(|| Question::to(heard, now));
        if question.asked >= ASK_FIRST.len() {
            // It was not there for a while.
            (question.asked, question.ask) = (0, now);
        }
    }

    /// Whether `mac` announced `address`, and is asked whether it has it.
    pub(in crate::lease) fn is_doubted(&self, address: IpAddr, mac: MacAddr) -> bool {
        self.unsettled.contains_key(&(address, mac))
    }

    /// Yields an address to the speaker that was heard.
    pub(in crate::lease) fn yield_to(&mut self, now: Instant, heard: &Heard) {
        self.trust(heard.frame.ip);
        self.yielded.insert(heard.frame.ip, Question::to(heard, now + ASK[0]));
    }

    /// Without the API what is heard of an address that is served here decides: whoever announces it is asked, and
    /// yielded to if it has it.
    pub(in crate::lease) fn hear(&mut self, now: Instant, heard: &Heard) {
        if heard.frame.announcement {
            self.doubt(now, heard);
        } else if self.is_doubted(heard.frame.ip, heard.frame.mac) {
            self.yield_to(now, heard);
        }
    }

    /// The same while everybody is asked.
    pub(in crate::lease) fn hear_while_probing(&mut self, now: Instant, heard: &Heard) {
        if heard.frame.announcement {
            self.doubt(now, heard);
        } else {
            self.yield_to(now, heard);
        }
    }

    /// An uncached read has said that the address is ours.
    pub(in crate::lease) fn settle(&mut self, address: IpAddr) {
        self.yielded.remove(&address);
        self.trust(address);
    }

    /// Nobody need be asked for this address any more.
    pub(in crate::lease) fn trust(&mut self, address: IpAddr) {
        self.unsettled.retain(|(doubted, _), _| *doubted != address);
    }
}

impl Question {
    /// Asks who announced the address, until something else settles it.
    pub(in crate::lease) fn ask_on(
        &mut self,
        address: IpAddr,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if !self.ask(&ASK_FIRST, address, now, actions) {
            self.asked = ASK_FIRST.len() - 1;
            self.ask(&ASK_FIRST, address, now, actions);
        }
    }

    /// Asks who is due; returns whether an answer, or the next question, is awaited.
    pub(in crate::lease) fn ask(
        &mut self,
        pauses: &[Duration],
        address: IpAddr,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> bool {
        if now < self.ask {
            return true;
        }
        if self.asked >= pauses.len() && self.missed && self.round < ROUNDS {
            self.missed = false;
            self.asked = 0;
            self.round += 1;
        }
        let Some(pause) = pauses.get(self.asked) else { return false };
        self.asked += 1;
        self.ask = now + *pause;
        let frame = Frame::Ask(address, self.mac);
        actions.push(Action::Transmit { interface: self.interface.clone(), frame });
        true
    }
}

impl Wire {
    pub(in crate::lease) fn yields_deadline(&self, cx: &Context) -> Option<Instant> {
        let gone = cx.api_answers_until();
        let unsettled = self.yields.unsettled.values();
        let unsettled =
            unsettled.map(|question| gone.map_or(question.ask, |at| at.max(question.ask)));
        let asks = self.yields.yielded.values().map(|question| question.ask);
        cx.first_ahead(asks.chain(unsettled).chain([self.yields.reread]))
    }

    pub(in crate::lease) fn advance_yielded(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.is_api_answering(now) && cx.is_informed() && cx.own().id().is_some() {
            self.reread_yielded(cx, claims, now, actions);
        } else {
            let Yields { yielded, unsettled, .. } = &mut self.yields;
            yielded.retain(|address, question| question.ask(&ASK, *address, now, actions));
            for ((address, _), question) in unsettled {
                question.ask_on(*address, now, actions);
            }
        }
        let mut unsettled = std::mem::take(&mut self.yields.unsettled);
        unsettled.retain(|(address, _), _| {
            Self::is_left_behind(cx, *address) || !claims.claims_of(*address).is_empty()
        });
        self.yields.unsettled = unsettled;
    }

    /// Whether a former process has left this address, and nothing has decided about it yet.
    pub(in crate::lease) fn is_left_behind(cx: &Context, address: IpAddr) -> bool {
        !cx.own().is_settled() && cx.kernel().ours.contains_key(&address)
    }

    /// The leases decide again: what was yielded and is still ours by an uncached read is served.
    pub(in crate::lease) fn reread_yielded(
        &mut self,
        cx: &mut Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let mut yielded = std::mem::take(&mut self.yields.yielded);
        let names: BTreeSet<LeaseName> =
            yielded.keys().flat_map(|address| claims.claims_of(*address)).collect();
        yielded.retain(|address, _| !claims.claims_of(*address).is_empty());
        self.yields.yielded = yielded;
        if now < self.yields.reread {
            return;
        }
        for name in names {
            let target = Target::Claim(name);
            if cx.is_pending(&target) {
                continue;
            }
            if !cx.has_room_to_read() {
                self.yields.reread = now + REREAD_OTHERS;
                return;
            }
            self.yields.reread = now + REREAD;
            cx.read(now, target, actions);
        }
    }
}
