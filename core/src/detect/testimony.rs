//! One segment: what was asked there, who answered last, and who can bear witness.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::detect::question::ANSWER_WITHIN;
use crate::detect::question::Question;

/// Interval between rounds of witnesses on a segment where only a suspect has ever answered.
const BLIND_ROUND: Duration = Duration::from_secs(1);
/// The most other owners asked at a time; the next time the next ones are asked.
const OWNERS_AT_ONCE: usize = 16;

/// An answer to a question of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// The address that was asked for.
    pub ip: IpAddr,
    /// The time of the last question for it.
    pub asked: Instant,
    /// The form of the question: in this node's name, or from 0.0.0.0.
    pub named: bool,
}

/// The state of a segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    interface: InterfaceName,
    /// The time of the last question for each address.
    asked: BTreeMap<IpAddr, Instant>,
    pruned: Instant,
    /// The two hosts that answered the newest questions, and when those were asked. Two are
    /// enough to know of every host whether another one has answered since.
    answered: [Option<(MacAddr, Instant)>; 2],
    witnesses: BTreeMap<IpAddr, MacAddr>,
    /// The other owners' own addresses.
    nodes: Vec<(IpAddr, MacAddr)>,
    turn: usize,
    /// The owners that are polled.
    polled: BTreeSet<MacAddr>,
    blind_round: Instant,
}

impl Segment {
    pub(super) fn new(now: Instant, interface: InterfaceName) -> Self {
        Self {
            interface,
            asked: BTreeMap::new(),
            pruned: now,
            answered: [None; 2],
            witnesses: BTreeMap::new(),
            nodes: Vec::new(),
            turn: 0,
            polled: BTreeSet::new(),
            blind_round: now,
        }
    }

    /// Takes over who can be asked there.
    pub(super) fn update(
        &mut self,
        now: Instant,
        witnesses: Option<&BTreeMap<IpAddr, MacAddr>>,
        nodes: Vec<(IpAddr, MacAddr)>,
        polled: BTreeSet<MacAddr>,
    ) {
        let witnesses = witnesses.cloned().unwrap_or_default();
        if self.witnesses != witnesses || self.polled != polled {
            self.blind_round = now;
        }
        self.witnesses = witnesses;
        self.nodes = nodes;
        self.polled = polled;
    }

    /// Notes what is asked.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        ip: IpAddr,
        mac: Option<MacAddr>,
        named: bool,
        questions: &mut Vec<Question>,
    ) {
        if now.saturating_since(self.pruned) > ANSWER_WITHIN {
            self.pruned = now;
            self.asked.retain(|_, at| now.saturating_since(*at) <= ANSWER_WITHIN);
        }
        self.asked.insert(ip, now);
        questions.push(Question { interface: self.interface.clone(), ip, mac, named });
    }

    /// The question to which this is an answer, `named` if it goes to this node's name, if there is one.
    pub(super) fn hear(
        &mut self,
        at: Instant,
        ip: IpAddr,
        mac: MacAddr,
        named: bool,
    ) -> Option<Answer> {
        let asked = self.asked.get(&ip).copied()?;
        if at < asked || at.saturating_since(asked) > ANSWER_WITHIN {
            return None;
        }
        self.answered_by(mac, asked);
        Some(Answer { ip, asked, named })
    }

    fn answered_by(&mut self, mac: MacAddr, asked: Instant) {
        let [first, second] = &mut self.answered;
        let is_of = |entry: &Option<(MacAddr, Instant)>| entry.is_some_and(|(of, _)| of == mac);
        let entry = if is_of(first) {
            first
        } else if is_of(second) {
            second
        } else if first.map(|(_, at)| at) <= second.map(|(_, at)| at) {
            first
        } else {
            second
        };
        if entry.is_none_or(|(_, at)| at <= asked) {
            *entry = Some((mac, asked));
        }
    }

    /// Whether anybody but `suspect` answered a question that was asked at `since` or later.
    pub(super) fn testimony(&self, suspect: MacAddr, since: Instant) -> bool {
        self.answered.iter().flatten().any(|(mac, asked)| *mac != suspect && *asked >= since)
    }

    /// Whether owners are polled here and nobody but one of them has ever answered.
    pub(super) fn is_blind(&self) -> bool {
        let mut answered = self.answered.iter().flatten();
        !self.polled.is_empty()
            && match (answered.next(), answered.next()) {
                (None, _) => true,
                (Some((mac, _)), None) => self.polled.contains(mac),
                (Some(_), Some(_)) => false,
            }
    }

    /// Asks everybody who may testify that this node hears somebody: the witnesses, and the other
    /// owners' nodes in turn.
    pub(super) fn ask_witnesses(
        &mut self,
        now: Instant,
        suspect: Option<MacAddr>,
        questions: &mut Vec<Question>,
    ) {
        let count = self.nodes.len();
        let nodes = self.nodes.iter().cycle().skip(self.turn).take(OWNERS_AT_ONCE.min(count));
        let witnesses = self.witnesses.iter().map(|(ip, mac)| (*ip, *mac));
        let asked = |ip: IpAddr| self.asked.get(&ip).is_some_and(|at| *at == now);
        let whom: BTreeMap<IpAddr, MacAddr> = witnesses
            .chain(nodes.copied())
            .filter(|(ip, mac)| Some(*mac) != suspect && !asked(*ip))
            .collect();
        self.turn = self.turn.wrapping_add(OWNERS_AT_ONCE).checked_rem(count).unwrap_or(0);
        for (ip, mac) in whom {
            self.ask(now, ip, Some(mac), true, questions);
        }
    }

    /// Asks the witnesses when the segment is blind and it is time.
    pub(super) fn end_blindness(&mut self, now: Instant, questions: &mut Vec<Question>) {
        if self.next().is_some_and(|round| round <= now) {
            self.blind_round = now + BLIND_ROUND;
            self.ask_witnesses(now, None, questions);
        }
    }

    /// The time at which [`Self::end_blindness`] is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let can_ask = !self.witnesses.is_empty() || !self.nodes.is_empty();
        (can_ask && self.is_blind()).then_some(self.blind_round)
    }
}
