//! Polls, misses, witnesses, silence: without I/O and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::detect::owner::{Owner, Wire};
use crate::detect::testimony::Segment;
use crate::lease::{Voice, VoiceId, Voices, Watched, Watchlist};

pub use crate::net::hearing::Witnesses;
pub use crate::net::wire::Question;

/// What is known of the voices.
///
/// After each call, in this order: what was received is told by [`Self::hear`], then
/// [`Self::advance`] judges and asks.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    /// The same keys as in `voices`.
    owners: BTreeMap<VoiceId, Owner>,
    segments: BTreeMap<InterfaceName, Segment>,
    speakers: BTreeSet<MacAddr>,
    voices: Voices,
    counters: Arc<WireCounters>,
}

/// What has been counted since the start.
#[derive(Debug, Default)]
pub struct WireCounters {
    /// Polls of owners.
    pub polls: AtomicU64,
    /// Polls of owners that answered before and did not answer in time.
    pub misses: AtomicU64,
}

impl Detector {
    /// One that counts here.
    pub fn counting(counters: Arc<WireCounters>) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Takes over whom to listen to, and who can bear witness. What is known of a voice that stays
    /// on the list is kept.
    pub fn update(&mut self, now: Instant, watchlist: &Watchlist, witnesses: &Witnesses) {
        self.speakers.clone_from(&watchlist.speakers);
        self.owners.retain(|id, _| watchlist.owners.contains_key(id));
        self.voices.owners.retain(|id, _| watchlist.owners.contains_key(id));
        for (id, watched) in &watchlist.owners {
            if let Some(owner) = self.owners.get_mut(id) {
                owner.update(now, id, watched);
            } else {
                self.owners.insert(id.clone(), Owner::new(now, id, watched));
                self.voices.owners.insert(id.clone(), Voice::Unheard);
            }
        }
        let interfaces: BTreeSet<&InterfaceName> =
            self.owners.keys().map(|id| &id.interface).collect();
        self.segments.retain(|interface, _| interfaces.contains(interface));
        for interface in interfaces {
            let there = || watchlist.owners.iter().filter(|(id, _)| id.interface == *interface);
            let node = |(id, watched): (&VoiceId, &Arc<Watched>)| {
                watched.own.first().map(|ip| (*ip, id.mac))
            };
            let nodes = there().filter_map(node).collect();
            let is_polled = |id: &VoiceId| self.owners.get(id).is_some_and(Owner::is_polled);
            let polled = there().filter(|(id, _)| is_polled(id)).map(|(id, _)| id.mac).collect();
            self.segments
                .entry(interface.clone())
                .or_insert_with(|| Segment::new(now, interface.clone()))
                .update(now, witnesses.get(interface), nodes, polled);
        }
        self.publish();
    }

    /// A host answered that it has `ip`. What was not asked is ignored. `at` is when the frame was
    /// read.
    pub fn hear(&mut self, at: Instant, interface: &InterfaceName, ip: IpAddr, mac: MacAddr) {
        let Some(segment) = self.segments.get_mut(interface) else { return };
        let Some(answer) = segment.hear(at, ip, mac) else { return };
        let speaker = self.speakers.contains(&mac);
        for (id, owner) in self.owners.iter_mut().filter(|(id, _)| id.interface == *interface) {
            if id.mac == mac {
                owner.hear(at, answer);
            } else if !speaker {
                owner.hear_stranger(answer);
            }
        }
    }

    /// Judges what is due, and appends what to ask; the questions are to be sent at once. `now` is
    /// taken after everything that had been received by then was told.
    pub fn advance(&mut self, now: Instant, questions: &mut Vec<Question>) {
        let mut suspects = Vec::new();
        let counters = &self.counters;
        for (id, owner) in &mut self.owners {
            let Some(segment) = self.segments.get_mut(&id.interface) else { continue };
            if owner.advance(&mut Wire { now, id, segment, questions, counters }) {
                suspects.push(id);
            }
        }
        for id in suspects {
            if let Some(segment) = self.segments.get_mut(&id.interface) {
                segment.ask_witnesses(now, Some(id.mac), questions);
            }
        }
        for segment in self.segments.values_mut() {
            segment.end_blindness(now, questions);
        }
        self.publish();
    }

    /// When to call [`Self::advance`] at the latest.
    pub fn next(&self) -> Option<Instant> {
        let owners = self.owners.values().filter_map(Owner::next);
        owners.chain(self.segments.values().filter_map(Segment::next)).min()
    }

    /// A question of the last [`Self::advance`] did not leave this node: the poll that it belongs
    /// to says nothing of the owner.
    pub fn unsent(&mut self, question: &Question) {
        for (id, owner) in &mut self.owners {
            let concerned = question.mac.is_none_or(|mac| mac == id.mac);
            if concerned && id.interface == question.interface {
                owner.unsent(question.ip);
            }
        }
    }

    /// The questions of the last [`Self::advance`], at `noted`, left this node only at `sent`:
    /// their answers may take so much longer.
    pub fn delayed(&mut self, noted: Instant, sent: Instant) {
        for owner in self.owners.values_mut() {
            owner.delayed(noted, sent);
        }
    }

    /// What is known now.
    pub fn voices(&self) -> &Voices {
        &self.voices
    }

    fn publish(&mut self) {
        for (voice, owner) in self.voices.owners.values_mut().zip(self.owners.values()) {
            *voice = owner.voice();
        }
        let blind = self.segments.iter().filter(|(_, segment)| segment.is_blind());
        self.voices.blind = blind.map(|(interface, _)| interface.clone()).collect();
    }
}
