//! A host: a speaker's process, and a kernel that outlives it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::Incarnation;
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::lease::{Config, Election, Interface, KernelAddress, KernelView, OwnRecord, Serving};

/// How late the kernel removes an address whose lifetime is over.
const LATE: Duration = Duration::from_millis(80);

/// The addresses of one host.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// With our mark, with the end of their lifetimes.
    pub(crate) ours: BTreeMap<IpAddr, Instant>,
    /// Without our mark.
    pub(crate) foreign: BTreeSet<IpAddr>,
    /// Whether additions fail.
    pub(crate) refuses: bool,
    applied: Serving,
    refused: BTreeMap<IpAddr, String>,
}

impl Kernel {
    /// Follows `serving`; returns the addresses of which announcements are due.
    pub(crate) fn apply(&mut self, now: Instant, serving: Serving) -> Vec<IpAddr> {
        if serving.complete {
            self.ours.retain(|ip, _| serving.vips.contains_key(ip));
        }
        self.refused.clear();
        let mut announced = Vec::new();
        for (ip, vip) in &serving.vips {
            let seconds = vip.until.saturating_since(now).as_secs();
            if self.foreign.contains(ip) || seconds == 0 {
                continue;
            }
            if self.refuses && !self.ours.contains_key(ip) {
                self.refused.insert(*ip, "operation not permitted".to_owned());
                continue;
            }
            self.ours.insert(*ip, now + Duration::from_secs(seconds));
            let known = self.applied.vips.get(ip).map(|vip| vip.ownership);
            if vip.announced && known != Some(vip.ownership) {
                announced.push(*ip);
            }
        }
        self.applied = serving;
        announced
    }

    /// Removes what has expired; returns whether there was any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.ours.len();
        self.ours.retain(|_, until| now < *until + LATE);
        self.ours.len() != before
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.ours.values().min().map(|until| *until + LATE)
    }

    pub(crate) fn view(&self) -> KernelView {
        let ours = self.ours.iter().map(|(ip, until)| {
            (*ip, KernelAddress { interface: "eth0".parse().unwrap(), until: *until })
        });
        let served = |ip: &&IpAddr| self.applied.vips.contains_key(*ip);
        let foreign = self.foreign.iter().filter(served);
        KernelView {
            applied: self.applied.generation,
            ours: ours.collect(),
            foreign: foreign.map(|ip| (*ip, "eth0".parse().unwrap())).collect(),
            refused: self.refused.clone(),
        }
    }

    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.ours.contains_key(&ip) || self.foreign.contains(&ip)
    }

    /// A new process has applied nothing yet.
    pub(crate) fn forget_process(&mut self) {
        self.applied = Serving::default();
        self.refused.clear();
    }
}

#[expect(clippy::struct_excessive_bools, reason = "what can be wrong with a host, one by one")]
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: NodeName,
    pub(crate) mac: MacAddr,
    pub(crate) address: IpAddr,
    pub(crate) boot: String,
    pub(crate) core: Option<Election>,
    /// Counts processes: what was meant for a former one is lost with it.
    pub(crate) process: u64,
    pub(crate) kernel: Kernel,
    pub(crate) carrier: bool,
    /// Reaches the API server.
    pub(crate) api: bool,
    pub(crate) watch_hung: bool,
    pub(crate) watch_delay: Duration,
    pub(crate) record: Option<OwnRecord>,
    pub(crate) exited: bool,
    /// Version up to which lists have told everything.
    pub(crate) listed: u64,
    pub(crate) claim_writes: usize,
    pub(crate) most_claim_writes: usize,
}

impl Host {
    pub(crate) fn new(number: u8, node: &str) -> Self {
        Self {
            node: node.parse().unwrap(),
            mac: MacAddr::new(2, 0, 0, 0, 0, number),
            address: IpAddr::from([10, 0, 255, number]),
            boot: format!("boot-{number}"),
            core: None,
            process: 0,
            kernel: Kernel::default(),
            carrier: true,
            api: true,
            watch_hung: false,
            watch_delay: Duration::from_millis(5),
            record: None,
            exited: false,
            listed: 0,
            claim_writes: 0,
            most_claim_writes: 0,
        }
    }

    pub(crate) fn boot(&mut self, now: Instant) {
        let config = Config {
            node: self.node.clone(),
            incarnation: Incarnation::new("machine", &self.boot),
            lease_duration: Duration::from_secs(5),
            request_timeout: Duration::from_millis(1500),
            restart_grace: Duration::from_secs(30),
        };
        self.process += 1;
        self.exited = false;
        self.claim_writes = 0;
        self.kernel.forget_process();
        self.core = Some(Election::new(now, config, self.record.clone()));
    }

    pub(crate) fn links(&self) -> BTreeMap<leasehold_crds::names::InterfaceName, Interface> {
        let net = format!("{}/16", self.address).parse().unwrap();
        let link = Interface { mac: self.mac, carrier: self.carrier, addresses: vec![net] };
        BTreeMap::from([("eth0".parse().unwrap(), link)])
    }
}
