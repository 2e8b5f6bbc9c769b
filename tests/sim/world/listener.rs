//! The listener of one speaker, driven as its thread drives it: what was received is told, then it
//! judges and asks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::detect::detector::Detector;
use leasehold_core::detect::question::{Question, Witnesses};
use leasehold_core::election::{Voices, Watchlist};
use leasehold_crds::lease::SessionId;
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

/// For how long a host that answered can bear witness.
const WITNESS: Duration = Duration::from_millis(1500);
/// How many frames the socket keeps.
const BUFFER: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Listener {
    detector: Detector,
    watchlist: Watchlist,
    witnesses: Witnesses,
    answered: BTreeMap<(InterfaceName, IpAddr), (MacAddr, Instant)>,
    received: Vec<(usize, IpAddr, MacAddr, bool)>,
    pub(crate) voices: Voices,
    /// When the thread runs, by the world's clock.
    pub(crate) wake: Option<Instant>,
}

impl Listener {
    pub(crate) fn receive(&mut self, segment: usize, ip: IpAddr, mac: MacAddr, named: bool) {
        if self.received.len() < BUFFER {
            self.received.push((segment, ip, mac, named));
        }
    }

    /// Whether the next frame would be lost.
    pub(crate) const fn is_full(&self) -> bool {
        self.received.len() >= BUFFER
    }

    pub(crate) fn wake_by(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(crate) fn watch(&mut self, now: Instant, watchlist: Watchlist) {
        self.watchlist = watchlist;
        self.detector.update(now, &self.watchlist, &self.witnesses);
    }

    /// Whether it listens to `node` under `session` on `interface`.
    pub(crate) fn listens(
        &self,
        interface: &InterfaceName,
        node: &NodeName,
        session: &SessionId,
    ) -> bool {
        self.watchlist
            .owners
            .keys()
            .any(|id| id.interface == *interface && id.node == *node && id.session == *session)
    }

    /// The edge has asked around, and these have answered.
    pub(crate) fn heard_around(
        &mut self,
        now: Instant,
        interface: &InterfaceName,
        answering: &[(IpAddr, MacAddr)],
    ) {
        for (ip, mac) in answering {
            self.answered.insert((interface.clone(), *ip), (*mac, now));
        }
        self.answered.retain(|_, (_, at)| now.saturating_since(*at) < WITNESS);
        let mut witnesses = Witnesses::new();
        for ((interface, ip), (mac, _)) in &self.answered {
            witnesses.entry(interface.clone()).or_default().insert(*ip, *mac);
        }
        if witnesses != self.witnesses {
            self.witnesses = witnesses;
            self.detector.update(now, &self.watchlist, &self.witnesses);
        }
    }

    /// One turn of the thread; returns whether the voices changed.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        interfaces: &[InterfaceName],
        questions: &mut Vec<Question>,
    ) -> bool {
        for (segment, ip, mac, named) in self.received.drain(..) {
            if let Some(interface) = interfaces.get(segment) {
                self.detector.hear(now, interface, ip, mac, named);
            }
        }
        self.detector.advance(now, questions);
        let changed = *self.detector.voices() != self.voices;
        if changed {
            self.voices = self.detector.voices().clone();
        }
        changed
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.detector.next()
    }
}
