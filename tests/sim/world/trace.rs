//! The record of a run, from which sequence diagrams are drawn.

use std::collections::BTreeSet;
use std::net::IpAddr;

use leasehold_core::clock::Instant;
use leasehold_core::election::{Action, Event};

use super::World;

/// A sender or receiver of frames and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Server,
    Host(usize),
    /// The router, and the clients beside it.
    Router,
    /// A host of the segment that is no node.
    Stranger,
}

/// One entry of the record.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a record is short")]
pub(crate) enum Step {
    /// A fault, a repair, or an input of the run; `works` says whether the place works from now on.
    Note { text: String, works: Option<(Place, bool)> },
    /// A speaker receives an event.
    Event(usize, Event),
    /// A speaker requests an action.
    Action(usize, Action),
    /// The API server stored a change of the operator.
    Operator(Event),
    /// An ARP request or a Neighbor Solicitation.
    Question(Question),
    /// A gratuitous ARP request or an unsolicited Neighbor Advertisement.
    Announcement { from: Place, ip: IpAddr, to: Vec<Place> },
    /// The addresses of Services in the kernel of a host, after a change.
    Addresses(usize, BTreeSet<IpAddr>),
}

/// A request for the MAC address of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) from: usize,
    pub(crate) ip: IpAddr,
    /// The receiver; `None`: all hosts of the segment.
    pub(crate) to: Option<Place>,
    /// The host that replies.
    pub(crate) reply: Option<Place>,
}

/// The entries of a run, oldest first, and the addresses in each kernel at the beginning and now.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) steps: Vec<(Instant, Step)>,
    pub(crate) began: Vec<BTreeSet<IpAddr>>,
    addresses: Vec<BTreeSet<IpAddr>>,
}

impl World {
    /// Begins a record; an earlier one is dropped.
    pub(crate) fn begin_trace(&mut self) {
        let began: Vec<_> = (0..self.hosts.len()).map(|id| self.addresses(id)).collect();
        self.trace = Some(Trace { steps: Vec::new(), addresses: began.clone(), began });
    }

    pub(crate) fn trace(&mut self, step: impl FnOnce() -> Step) {
        if let Some(trace) = &mut self.trace {
            trace.steps.push((self.now, step()));
        }
    }

    /// The addresses of Services in the kernel of a host.
    pub(crate) fn addresses(&self, id: usize) -> BTreeSet<IpAddr> {
        self.hosts[id].kernel.ours.keys().copied().collect()
    }

    /// Records the change of a kernel since the last call.
    pub(super) fn trace_addresses(&mut self, id: usize) {
        if self.trace.is_none() {
            return;
        }
        let (now, hosts, addresses) = (self.now, self.hosts.len(), self.addresses(id));
        let Some(trace) = &mut self.trace else { return };
        trace.addresses.resize(hosts, BTreeSet::new());
        if trace.addresses[id] != addresses {
            trace.addresses[id].clone_from(&addresses);
            trace.steps.push((now, Step::Addresses(id, addresses)));
        }
    }
}
