//! Addresses of ours that another speaker announced, while the API does not say whose they are.
//!
//! * Known to be gone: the address is yielded. Two may have yielded to each other: so whoever has it
//!   is asked, and where nobody answers it is served again.
//! * Gone before it could be asked: the speaker is asked whether it has the address still, and is
//!   yielded to if so.
//! * Back: the leases decide, by an uncached read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use super::election::Election;
use super::event::{Action, Frame, Heard, Target};
use crate::clock::Instant;

/// How often a speaker is asked for an address, and how often without an answer.
const ASK: Duration = Duration::from_millis(500);
const ASKED: u32 = 2;
/// How often a claim is read anew because of what was heard, at most.
pub(super) const REREAD: Duration = Duration::from_millis(250);

/// What another speaker announced.
#[derive(Debug, Default)]
pub(super) struct Yields {
    /// Addresses that were yielded to a speaker while the API did not answer.
    yielded: BTreeMap<IpAddr, Question>,
    /// Addresses that a speaker announced, and no read has said since whose they are.
    unsettled: BTreeMap<IpAddr, Question>,
    /// When the claims of what was yielded are read again at the earliest.
    reread: Instant,
}

/// Who is asked for an address, and when next.
#[derive(Clone, Debug)]
struct Question {
    interface: InterfaceName,
    mac: MacAddr,
    ask: Instant,
    asked: u32,
}

impl Question {
    /// Who was heard is asked at `ask`.
    fn to(heard: &Heard, ask: Instant) -> Self {
        let (interface, mac) = (heard.interface.clone(), heard.frame.mac);
        Self { interface, mac, ask, asked: 0 }
    }
}

impl Yields {
    pub(super) fn any(&self) -> bool {
        !self.yielded.is_empty()
    }

    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.yielded.keys().copied().collect()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.yielded.contains_key(&address)
    }

    /// A speaker has a yielded address still.
    pub(super) fn answered(&mut self, address: IpAddr, mac: MacAddr) {
        if let Some(question) = self.yielded.get_mut(&address) {
            question.mac = mac;
            question.asked = 0;
        }
    }

    /// A speaker announced an address of ours, and the API is to say whose it is.
    pub(super) fn doubt(&mut self, now: Instant, heard: &Heard) {
        self.unsettled.insert(heard.frame.ip, Question::to(heard, now));
    }

    /// Whether `mac` announced `address` before the API went.
    pub(super) fn is_doubted(&self, address: IpAddr, mac: MacAddr) -> bool {
        self.unsettled.get(&address).is_some_and(|question| question.mac == mac)
    }

    /// Yields an address to the speaker that was heard.
    pub(super) fn yield_to(&mut self, now: Instant, heard: &Heard) {
        self.unsettled.remove(&heard.frame.ip);
        self.yielded.insert(heard.frame.ip, Question::to(heard, now + ASK));
    }

    /// An uncached read has said that the address is ours.
    pub(super) fn settle(&mut self, address: IpAddr) {
        self.yielded.remove(&address);
        self.unsettled.remove(&address);
    }
}

/// Asks those who are due; forgets those who did not answer.
fn ask(questions: &mut BTreeMap<IpAddr, Question>, now: Instant, actions: &mut Vec<Action>) {
    questions.retain(|address, question| {
        if now < question.ask {
            return true;
        }
        if question.asked >= ASKED {
            return false;
        }
        question.asked += 1;
        question.ask = now + ASK;
        let frame = Frame::Ask(*address, question.mac);
        actions.push(Action::Transmit { interface: question.interface.clone(), frame });
        true
    });
}

impl Election {
    pub(super) fn yields_deadline(&self) -> Option<Instant> {
        let gone = self.api_answers_until();
        let unsettled = self.yields.unsettled.values();
        let unsettled = unsettled.filter_map(|question| Some(question.ask.max(gone?)));
        let asks = self.yields.yielded.values().map(|question| question.ask);
        self.first_ahead(asks.chain(unsettled).chain([self.yields.reread]))
    }

    pub(super) fn advance_yielded(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.is_api_answering(now) && self.is_informed() && self.own.id.is_some() {
            self.reread_yielded(now, actions);
        } else if self.is_informed() {
            ask(&mut self.yields.yielded, now, actions);
            ask(&mut self.yields.unsettled, now, actions);
        }
        let mut unsettled = std::mem::take(&mut self.yields.unsettled);
        unsettled.retain(|address, _| !self.claims_of(*address).is_empty());
        self.yields.unsettled = unsettled;
    }

    /// The leases decide again: what was yielded and is still ours by an uncached read is served.
    fn reread_yielded(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut yielded = std::mem::take(&mut self.yields.yielded);
        let names: BTreeSet<LeaseName> =
            yielded.keys().flat_map(|address| self.claims_of(*address)).collect();
        yielded.retain(|address, _| !self.claims_of(*address).is_empty());
        self.yields.yielded = yielded;
        if now < self.yields.reread {
            return;
        }
        for name in names {
            let target = Target::Claim(name);
            if !self.is_pending(&target) {
                self.yields.reread = now + REREAD;
                self.read(now, target, actions);
            }
        }
    }
}
