//! Addresses that were yielded, and questions about them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::election::claim::state::probe::ROUNDS;
use crate::election::io::event::{Action, Frame, Heard};

/// How long the answers of a speaker are waited for that was yielded to, one after the other.
pub(in crate::election) const ASK: [Duration; 2] = [Duration::from_millis(500); 2];

/// The same of one that announced the address: a question may be lost, an answer be late, and the way to it be
/// cut. As long as the API does not say whose the address is, it is asked after the last of these again and again.
pub(in crate::election) const ASK_FIRST: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(250)];

/// What another speaker announced.
#[derive(Debug, Default)]
pub(in crate::election) struct Yields {
    /// Addresses that were yielded to a speaker while the API did not answer.
    pub(in crate::election::wire) yielded: BTreeMap<IpAddr, Question>,
    /// Addresses that speakers announced, and no read has said since whose they are: each of them is asked.
    pub(in crate::election::wire) unsettled: BTreeMap<(IpAddr, MacAddr), Question>,
    /// When the claims of what was yielded are read again at the earliest.
    pub(in crate::election::wire) reread: Instant,
}

/// Who is asked for an address, and when next.
#[derive(Clone, Debug)]
pub(in crate::election) struct Question {
    interface: InterfaceName,
    mac: MacAddr,
    pub(in crate::election::wire) ask: Instant,
    asked: usize,
    /// An answer may have been dropped.
    missed: bool,
    /// How often it was asked from the beginning for that.
    round: u32,
}

impl Question {
    /// Who was heard is asked at `ask`.
    pub(in crate::election) fn to(heard: &Heard, ask: Instant) -> Self {
        let (interface, mac) = (heard.interface.clone(), heard.frame.mac);
        Self { interface, mac, ask, asked: 0, missed: false, round: 0 }
    }
}

impl Yields {
    pub(in crate::election) fn any(&self) -> bool {
        !self.yielded.is_empty()
    }

    pub(in crate::election) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.yielded.keys().copied().collect()
    }

    pub(in crate::election) fn contains(&self, address: IpAddr) -> bool {
        self.yielded.contains_key(&address)
    }

    /// Who was yielded to, or another speaker, has a yielded address.
    pub(in crate::election) fn answered(&mut self, address: IpAddr, mac: MacAddr, speaker: bool) {
        let question = self.yielded.get_mut(&address);
        if let Some(question) = question.filter(|question| speaker || question.mac == mac) {
            question.mac = mac;
            question.asked = 0;
            question.round = 0;
        }
    }

    /// Frames were dropped: that a question was not answered says nothing.
    pub(in crate::election) fn note_missed(&mut self) {
        for question in self.yielded.values_mut() {
            question.missed = true;
        }
    }

    /// A speaker announced an address of ours: the API is to say whose it is, or the speaker whether it has it.
    pub(in crate::election) fn doubt(&mut self, now: Instant, heard: &Heard) {
        let key = (heard.frame.ip, heard.frame.mac);
        let question = self.unsettled.entry(key).or_insert_with(|| Question::to(heard, now));
        if question.asked >= ASK_FIRST.len() {
            // It was not there for a while.
            (question.asked, question.ask) = (0, now);
        }
    }

    /// Whether `mac` announced `address`, and is asked whether it has it.
    pub(in crate::election) fn is_doubted(&self, address: IpAddr, mac: MacAddr) -> bool {
        self.unsettled.contains_key(&(address, mac))
    }

    /// Yields an address to the speaker that was heard.
    pub(in crate::election) fn yield_to(&mut self, now: Instant, heard: &Heard) {
        self.trust(heard.frame.ip);
        self.yielded.insert(heard.frame.ip, Question::to(heard, now + ASK[0]));
    }

    /// Without the API what is heard of an address that is served here decides: whoever announces it is asked, and
    /// yielded to if it has it.
    pub(in crate::election) fn hear(&mut self, now: Instant, heard: &Heard) {
        if heard.frame.announcement {
            self.doubt(now, heard);
        } else if self.is_doubted(heard.frame.ip, heard.frame.mac) {
            self.yield_to(now, heard);
        }
    }

    /// The same while everybody is asked.
    pub(in crate::election) fn hear_while_probing(&mut self, now: Instant, heard: &Heard) {
        if heard.frame.announcement {
            self.doubt(now, heard);
        } else {
            self.yield_to(now, heard);
        }
    }

    /// An uncached read has said that the address is ours.
    pub(in crate::election) fn settle(&mut self, address: IpAddr) {
        self.yielded.remove(&address);
        self.trust(address);
    }

    /// Nobody need be asked for this address any more.
    pub(in crate::election) fn trust(&mut self, address: IpAddr) {
        self.unsettled.retain(|(doubted, _), _| *doubted != address);
    }
}

impl Question {
    /// Asks who announced the address, until something else settles it.
    pub(in crate::election) fn ask_on(
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
    pub(in crate::election) fn ask(
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
