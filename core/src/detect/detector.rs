//! Polls, misses, witnesses, silence: without I/O and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::detect::counters::WireCounters;
use crate::detect::owner::{Owner, Wire};
use crate::detect::question::{Question, Witnesses};
use crate::detect::testimony::Segment;
use crate::election::{Voice, VoiceId, Voices, Watchlist};

/// The state of failure detection.
///
/// After each call, in this order: what was received is told by [`Self::hear`], what was not by
/// [`Self::dropped`], then [`Self::advance`] judges and asks.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    /// In the order of their ids; the same as in `voices`.
    owners: Vec<Known>,
    /// The owners that are due at some time: they are polled, or asked for an address. In large clusters these
    /// are a few.
    active: BTreeSet<usize>,
    /// The owners that answer with a MAC address.
    by_mac: BTreeMap<MacAddr, Vec<usize>>,
    /// The owners that are not active and were heard since the last publication.
    heard: Vec<usize>,
    segments: BTreeMap<InterfaceName, Segment>,
    speakers: Arc<BTreeMap<MacAddr, NodeName>>,
    witnesses: Witnesses,
    voices: Voices,
    counters: Arc<WireCounters>,
}

#[derive(Clone, Debug)]
struct Known {
    id: VoiceId,
    owner: Owner,
    /// As it was published.
    voice: Voice,
}

impl Detector {
    /// Creates a detector that counts in `counters`.
    pub fn counting(counters: Arc<WireCounters>) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Takes over whom to listen to, and who can bear witness. What is known of a voice that stays
    /// on the list is kept.
    pub fn update(&mut self, now: Instant, watchlist: &Watchlist, witnesses: &Witnesses) {
        self.speakers = Arc::clone(&watchlist.speakers);
        let same = self.owners.iter().map(|known| &known.id).eq(watchlist.owners.keys());
        if !same {
            self.replace_owners(now, watchlist);
        }
        let mut places_changed = !same || self.witnesses != *witnesses;
        for (number, watched) in watchlist.owners.values().enumerate() {
            let Some(Known { id, owner, .. }) = self.owners.get_mut(number) else { continue };
            if same && owner.watches(watched) {
                continue;
            }
            let place = (owner.is_polled(), owner.own());
            owner.update(now, id, watched);
            places_changed |= (owner.is_polled(), owner.own()) != place;
            if owner.next().is_some() {
                self.active.insert(number);
            } else {
                self.active.remove(&number);
            }
            self.heard.push(number);
        }
        if places_changed {
            self.witnesses.clone_from(witnesses);
            self.update_segments(now);
        }
        self.publish();
    }

    /// Takes over who the owners are. What is known of those that stay is kept.
    fn replace_owners(&mut self, now: Instant, watchlist: &Watchlist) {
        let mut before = std::mem::take(&mut self.owners).into_iter().peekable();
        self.by_mac.clear();
        // Both are in the order of ids.
        for (number, (id, watched)) in watchlist.owners.iter().enumerate() {
            let kept = loop {
                match before.peek() {
                    Some(known) if known.id == *id => break before.next(),
                    Some(known) if known.id < *id => drop(before.next()),
                    _ => break None,
                }
            };
            self.owners.push(kept.unwrap_or_else(|| {
                let owner = Owner::new(now, id, watched, watchlist.phase);
                Known { id: id.clone(), owner, voice: Voice::Unheard }
            }));
            self.by_mac.entry(id.mac).or_default().push(number);
        }
        let voices = self.owners.iter().map(|known| (known.id.clone(), known.voice.clone()));
        self.voices.owners = Arc::new(voices.collect());
        self.active.clear();
        self.heard.clear();
    }

    /// Takes over who is there, and who can bear witness.
    fn update_segments(&mut self, now: Instant) {
        let interfaces: BTreeSet<&InterfaceName> =
            self.owners.iter().map(|known| &known.id.interface).collect();
        self.segments.retain(|interface, _| interfaces.contains(interface));
        for interface in interfaces {
            let there = || self.owners.iter().filter(|known| known.id.interface == *interface);
            let node = |known: &Known| known.owner.own().map(|ip| (ip, known.id.mac));
            let nodes = there().filter_map(node).collect();
            let polled = there().filter(|known| known.owner.is_polled());
            let polled = polled.map(|known| known.id.mac).collect();
            self.segments
                .entry(interface.clone())
                .or_insert_with(|| Segment::new(now, interface.clone()))
                .update(now, self.witnesses.get(interface), nodes, polled);
        }
    }

    /// A host answered that it has `ip`. What was not asked is ignored. `at` is when the frame was
    /// read; `named` says whether it answers a question in this node's name and not one from 0.0.0.0.
    pub fn hear(
        &mut self,
        at: Instant,
        interface: &InterfaceName,
        ip: IpAddr,
        mac: MacAddr,
        named: bool,
    ) {
        let Some(segment) = self.segments.get_mut(interface) else { return };
        let Some(answer) = segment.hear(at, ip, mac, named) else { return };
        for number in self.by_mac.get(&mac).into_iter().flatten() {
            let Some(Known { id, owner, .. }) = self.owners.get_mut(*number) else { continue };
            if id.interface != *interface {
                continue;
            }
            owner.hear(at, answer);
            if owner.next().is_some() {
                self.active.insert(*number);
            } else {
                self.active.remove(number);
                self.heard.push(*number);
            }
        }
        let speaker = self.speakers.get(&mac);
        for number in &self.active {
            if let Some(Known { id, owner, .. }) = self.owners.get_mut(*number)
                && id.interface == *interface
                && id.mac != mac
                && speaker.is_none_or(|node| *node == id.node)
            {
                owner.hear_elsewhere(answer);
            }
        }
    }

    /// Judges what is due, and appends what to ask; the questions are to be sent at once. `now` is
    /// taken after everything that had been received by then was told.
    pub fn advance(&mut self, now: Instant, questions: &mut Vec<Question>) {
        let mut suspects = Vec::new();
        let counters = &self.counters;
        for number in &self.active {
            let Some(Known { id, owner, .. }) = self.owners.get_mut(*number) else { continue };
            let Some(segment) = self.segments.get_mut(&id.interface) else { continue };
            if owner.advance(&mut Wire { now, id, segment, questions, counters }) {
                suspects.push((id.interface.clone(), id.mac));
            }
        }
        for (interface, mac) in suspects {
            if let Some(segment) = self.segments.get_mut(&interface) {
                segment.ask_witnesses(now, Some(mac), questions);
            }
        }
        for segment in self.segments.values_mut() {
            segment.end_blindness(now, questions);
        }
        self.publish();
    }

    /// The latest time of the next call of [`Self::advance`].
    pub fn next(&self) -> Option<Instant> {
        let active = self.active.iter().filter_map(|number| self.owners.get(*number));
        let owners = active.filter_map(|known| known.owner.next());
        owners.chain(self.segments.values().filter_map(Segment::next)).min()
    }

    /// A question of the last [`Self::advance`] did not leave this node: the poll that it belongs
    /// to says nothing of the owner.
    pub fn unsent(&mut self, question: &Question) {
        for number in &self.active {
            let Some(Known { id, owner, .. }) = self.owners.get_mut(*number) else { continue };
            let concerned = question.mac.is_none_or(|mac| mac == id.mac);
            if concerned && id.interface == question.interface {
                owner.unsent(question.ip);
            }
        }
    }

    /// So many frames were dropped since the last [`Self::advance`], of whomever: the polls that still wait say
    /// nothing of the owners.
    pub fn dropped(&mut self, frames: u64) {
        self.counters.dropped.fetch_add(frames, Ordering::Relaxed);
        for number in &self.active {
            if let Some(known) = self.owners.get_mut(*number) {
                known.owner.void();
            }
        }
    }

    /// The questions of the last [`Self::advance`], at `noted`, left this node only at `sent`:
    /// their answers may take so much longer.
    pub fn delayed(&mut self, noted: Instant, sent: Instant) {
        for number in &self.active {
            if let Some(known) = self.owners.get_mut(*number) {
                known.owner.delayed(noted, sent);
            }
        }
    }

    /// The voices as of the last call.
    pub fn voices(&self) -> &Voices {
        &self.voices
    }

    /// Publishes the voices. Only those of active owners and of those that were heard can have changed.
    fn publish(&mut self) {
        for number in self.heard.drain(..).as_slice().iter().chain(&self.active) {
            let Some(known) = self.owners.get_mut(*number) else { continue };
            let voice = known.owner.voice();
            if voice != known.voice {
                known.voice = voice.clone();
                Arc::make_mut(&mut self.voices.owners).insert(known.id.clone(), voice);
            }
        }
        let blind = self.segments.iter().filter(|(_, segment)| segment.is_blind());
        self.voices.blind = blind.map(|(interface, _)| interface.clone()).collect();
        let active = self.active.iter().filter_map(|number| self.owners.get(*number));
        let deaf = active.filter(|known| known.owner.leaves_clients_unanswered());
        self.voices.unanswering = deaf.map(|known| known.id.clone()).collect();
    }
}
