//! Polls, misses, witnesses, silence: without I/O and without a clock.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::lease::{Voices, Watchlist};

/// Hosts that have answered this node before, per interface: they tell a deaf node from a silent
/// owner.
pub type Witnesses = BTreeMap<InterfaceName, BTreeMap<IpAddr, MacAddr>>;

/// A question for one host or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where to ask.
    pub interface: InterfaceName,
    /// For which address.
    pub ip: IpAddr,
    /// Whom; none: everybody, without a sender address (RFC 5227 section 2.1.1).
    pub mac: Option<MacAddr>,
    /// In the node's own name; else, for IPv4, from 0.0.0.0.
    pub named: bool,
}

/// What is known of the voices.
///
/// After each call, in this order: what was received is told by [`Self::hear`], then
/// [`Self::advance`] judges and asks.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    voices: Voices,
}

impl Detector {
    /// Takes over whom to listen to, and who can bear witness. What is known of a voice that stays
    /// on the list is kept.
    pub fn update(&mut self, _now: Instant, _watchlist: &Watchlist, _witnesses: &Witnesses) {}

    /// A host said, by answer or announcement, that it has `ip`. `at` is when the frame was read.
    pub fn hear(&mut self, _at: Instant, _interface: &InterfaceName, _ip: IpAddr, _mac: MacAddr) {}

    /// Judges what is due, and appends what to ask; the questions are to be sent at once. `now` is
    /// taken after everything that had been received by then was told.
    pub fn advance(&mut self, _now: Instant, _questions: &mut Vec<Question>) {}

    /// When to call [`Self::advance`] at the latest.
    pub fn next(&self) -> Option<Instant> {
        None
    }

    /// What is known now.
    pub fn voices(&self) -> &Voices {
        &self.voices
    }
}
