//! The changes of the facts that are no room's own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::Desired;
use crate::election::context::Context;
use crate::election::context::state::requests::Pending;
use crate::election::context::state::segments::Forsaken;
use crate::election::io::event::RequestId;
use crate::election::io::probes::Voices;
use crate::election::io::serving::{KernelView, ServedVip, Serving};

impl Context {
    /// An event is taken at this time.
    pub(in crate::election) const fn note_seen(&mut self, now: Instant) {
        self.seen = now;
    }

    /// The cluster asks for this.
    pub(in crate::election) fn set_desired(&mut self, desired: Arc<Desired>) {
        self.desired = Some(desired);
    }

    /// The last time at which a frame of another host was received on each interface.
    pub(in crate::election) fn set_hearing(&mut self, hearing: BTreeMap<InterfaceName, Instant>) {
        self.hearing = hearing;
    }

    /// The addresses in the kernel are these.
    pub(in crate::election) fn set_kernel(&mut self, kernel: KernelView) {
        self.kernel = kernel;
    }

    /// A request was answered. Returns the request, if it was not given up before.
    pub(in crate::election) fn take_request(&mut self, request: RequestId) -> Option<Pending> {
        self.requests.remove(&request)
    }

    /// A speaker has sent a frame from this MAC address.
    pub(in crate::election) fn note_speaker(&mut self, mac: MacAddr) {
        self.heard_speakers.insert(mac);
    }

    /// Packets are forwarded to these nodes: whether they answer matters as long as that lasts.
    pub(in crate::election) fn keep_polling(&mut self, nodes: BTreeSet<NodeName>) {
        self.forwarded_to = nodes;
    }

    /// So many connections are open through addresses that this node has handed over.
    pub(in crate::election) const fn set_forwarded_connections(&mut self, count: Option<u64>) {
        self.forwarded_connections = count;
    }

    /// The number of connections that are open through addresses that this node has handed over, once they are
    /// counted.
    pub(in crate::election) const fn forwarded_connections(&self) -> Option<u64> {
        self.forwarded_connections
    }

    /// Whether what is forwarded goes to this node.
    pub(in crate::election) fn is_forwarded_to(&self, node: &NodeName) -> bool {
        self.forwarded_to.contains(node)
    }

    /// The state of the cluster is known: the record of the former process counts no longer.
    pub(in crate::election) fn forget_adopted(&mut self) {
        self.adopted = None;
    }

    /// Serves these addresses and no others.
    pub(in crate::election) fn serve(
        &mut self,
        vips: BTreeMap<IpAddr, ServedVip>,
        complete: bool,
        yielded: BTreeSet<IpAddr>,
    ) {
        let generation = self.serving.generation + 1;
        self.serving = Serving { generation, vips, complete, yielded };
    }

    /// Serves this address, too, in the next generation. Returns whether it was not served before.
    pub(in crate::election) fn add_served(&mut self, address: IpAddr, vip: ServedVip) -> bool {
        self.serving.vips.insert(address, vip).is_none()
    }

    /// Serves this address no longer, from the next generation on. Returns whether it was served before.
    pub(in crate::election) fn remove_served(&mut self, address: IpAddr) -> bool {
        self.serving.vips.remove(&address).is_some()
    }

    /// The served addresses are a new generation.
    pub(in crate::election) const fn count_generation(&mut self) {
        self.serving.generation += 1;
    }

    /// The owners that do not answer on any interface.
    pub(in crate::election) fn set_silent(&mut self, silent: BTreeSet<NodeName>) {
        self.silent = silent;
    }

    /// The addresses and owners to which the listener listens.
    pub(in crate::election) fn set_voices(&mut self, voices: Voices) {
        self.voices = voices;
    }

    /// The claims whose owner cannot be reached by clients although its session is valid.
    pub(in crate::election) fn set_forsaken(&mut self, forsaken: BTreeMap<LeaseName, Forsaken>) {
        self.forsaken = forsaken;
    }
}
