//! State of a planned move, at the node that hands over.

use std::time::Duration;

use leasehold_crds::lease::{Claim, Stored};
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::clock::Instant;

/// Within which time a successor takes the claim. The two writes of a handover may each take as long as a renewal of a
/// session, where the API server is slow.
pub(in crate::election) const TAKE: Duration = Duration::from_secs(3);

/// The same where the owner is about to end: there may be time for another successor.
pub(in crate::election) const TAKE_LEAVING: Duration = Duration::from_secs(1);

/// For how long the old owner waits for the announcement before it probes.
pub(in crate::election) const ANNOUNCEMENT: Duration = Duration::from_millis(200);

/// Between the two probes, and after the second.
pub(in crate::election) const PROBE: Duration = Duration::from_millis(30);

/// The interval of probes for the address while it is being taken back: the answer to that may not come.
pub(in crate::election) const ASK: Duration = Duration::from_millis(100);

/// The time until another successor is sought.
pub(in crate::election) const AGAIN: Duration = Duration::from_millis(10);

/// A claim of ours that is to go to another node.
#[derive(Debug)]
pub(in crate::election) struct Handover {
    pub(in crate::election::claim) successor: Option<NodeName>,
    pub(in crate::election::claim) until: Instant,
}

impl Handover {
    /// The end of the time in which the successor takes the claim, or in which none is sought.
    pub(in crate::election) const fn until(&self) -> Instant {
        self.until
    }

    pub(in crate::election) const fn successor(&self) -> Option<&NodeName> {
        self.successor.as_ref()
    }
}

/// A claim that was ours until its named successor took it.
#[derive(Debug)]
pub(in crate::election) struct Yielding {
    pub(in crate::election::claim) node: NodeName,
    pub(in crate::election::claim) mac: Option<MacAddr>,
    pub(in crate::election::claim) phase: Phase,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::election) enum Phase {
    /// Waits for the announcement.
    Listening { until: Instant },
    /// The first probe is sent.
    Probed { until: Instant },
    /// The second is sent.
    ProbedTwice { until: Instant },
    /// The claim is being taken back.
    TakingBack { ask: Instant },
}

impl Yielding {
    /// The successor.
    pub(in crate::election) const fn node(&self) -> &NodeName {
        &self.node
    }

    /// The MAC address of the successor, if the Lease contains it.
    pub(in crate::election) const fn mac(&self) -> Option<MacAddr> {
        self.mac
    }

    /// The phase of the wait.
    pub(in crate::election) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(in crate::election) fn new(now: Instant, node: NodeName, stored: &Stored<Claim>) -> Self {
        let phase = Phase::Listening { until: now + ANNOUNCEMENT };
        Self { node, mac: stored.record.mac, phase }
    }

    pub(in crate::election) fn is_served_by(&self, mac: MacAddr) -> bool {
        self.mac.is_none_or(|expected| expected == mac)
    }

    /// Frames were dropped: the answers to probes may have been among them, so it probes anew.
    pub(in crate::election) const fn note_missed(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Probed { .. } | Phase::ProbedTwice { .. }) {
            self.phase = Phase::Listening { until: now };
        }
    }

    pub(in crate::election) const fn deadline(&self) -> Instant {
        match self.phase {
            Phase::Listening { until }
            | Phase::Probed { until }
            | Phase::ProbedTwice { until }
            | Phase::TakingBack { ask: until } => until,
        }
    }
}
