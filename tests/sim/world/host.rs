//! A host: a speaker's process, and a kernel that outlives it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use leasehold::announce::layer2::schedule::Schedule;
use leasehold::net::rtnl::links::{Link, LinkAddress, Links};
use leasehold_core::clock::Instant;
use leasehold_core::desired::Down;
use leasehold_core::election::{
    Config, DataPathView, Election, Event, Interface, OwnRecord, RequestId, RulesWatch,
};
use leasehold_crds::lease::{DefaultRoutes, Detours, Incarnation};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use super::clock::Clock;
use super::kernel::Kernel;
use super::listener::Listener;
use super::proxy::KubeProxy;
use super::records::{Known, News};
use super::{Happening, TIMEOUT};

/// Which address the node itself has on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// One of the segment's subnet.
    OfSubnet,
    /// That of the link alone.
    OfLink(Ipv6Addr),
    None,
}

/// An interface.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    pub(crate) name: InterfaceName,
    pub(crate) index: u32,
    pub(crate) mac: MacAddr,
    pub(crate) address: IpAddr,
    pub(crate) own: Own,
    pub(crate) carrier: bool,
    pub(crate) mtu: u32,
    pub(crate) default_routes: DefaultRoutes,
    pub(crate) detours: Detours,
    pub(crate) only_if_named: bool,
    /// Its kernel answers what is asked from 0.0.0.0 alone.
    pub(crate) answers_no_clients: bool,
}

impl Nic {
    /// What it answers for beside addresses of Services.
    pub(crate) fn own(&self) -> Option<IpAddr> {
        match self.own {
            Own::OfSubnet => Some(self.address),
            Own::OfLink(link_local) => Some(link_local.into()),
            Own::None => None,
        }
    }
}

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    /// When the speaker gives up, by its own clock.
    pub(crate) until: Instant,
    pub(crate) claim_write: bool,
}

/// What a speaker watches, each on a stream of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sessions,
    Claims,
    Desired,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Sessions, Self::Claims, Self::Desired];
}

/// One watch.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) open: bool,
    /// Counts connections: what was sent on a former one is lost with it.
    pub(crate) epoch: u64,
    /// When the last that was sent arrives.
    pub(crate) last: Instant,
    /// What was sent while nothing arrived.
    pub(crate) stalled: VecDeque<News>,
}

/// When anything is to be done at a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Stale,
    At(Option<Instant>),
}

#[expect(clippy::struct_excessive_bools, reason = "what can be wrong with a host, one by one")]
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) node: NodeName,
    pub(crate) mac: MacAddr,
    pub(crate) address: IpAddr,
    pub(crate) boot: String,
    pub(crate) nics: Vec<Nic>,
    pub(crate) links: Links,
    pub(crate) clock: Clock,
    pub(crate) powered: bool,
    /// The whole node stands still, with all its clocks.
    pub(crate) paused: bool,
    /// The process stands still (SIGSTOP).
    pub(crate) stopped: bool,
    pub(crate) core: Option<Election>,
    /// Counts processes: what was meant for a former one is lost with it.
    pub(crate) process: u64,
    /// What arrived while the process stood still.
    pub(crate) inbox: VecDeque<Happening>,
    /// What the process has read, and not taken yet.
    pub(crate) taken: Vec<Event>,
    pub(crate) kernel: Kernel,
    pub(crate) schedule: Schedule,
    pub(crate) listener: Listener,
    pub(crate) hearing: BTreeMap<InterfaceName, Instant>,
    /// When it asks around on its segments again.
    pub(crate) around: Instant,
    pub(crate) turn: usize,
    /// How late it wakes up, at most.
    pub(crate) lag: Duration,
    /// Of the frames that the core wants so many are dropped, in percent.
    pub(crate) overflows: u64,
    /// Reaches the API server.
    pub(crate) api: bool,
    pub(crate) watch_hung: bool,
    pub(crate) watch_delay: Duration,
    pub(crate) streams: [Stream; 3],
    pub(crate) waiting: Vec<Waiting>,
    pub(super) known: Known,
    pub(crate) record: Option<OwnRecord>,
    pub(crate) proxy: Option<KubeProxy>,
    /// The state of its data path.
    pub(crate) data_path: DataPathView,
    /// The nodes that its speaker sees down.
    pub(crate) down: Down,
    pub(crate) exited: bool,
    /// Its process was asked to end.
    pub(crate) ending: bool,
    /// Until when the kernel keeps what a process left to the next when it exited.
    pub(crate) left_until: Option<Instant>,
    /// Until when the kernel may keep what it had when somebody ended the session by hand.
    pub(crate) edited_until: Option<Instant>,
    pub(crate) claim_writes: usize,
    pub(crate) most_claim_writes: usize,
    /// When the core is to be called again.
    pub(crate) tick: Option<Instant>,
    /// When anything is to be done here, unless that is to be computed anew.
    pub(crate) next: Next,
}

impl Host {
    pub(crate) fn new(number: u8, name: &str, node: &str, segments: u8) -> Self {
        let nics: Vec<Nic> = (0..segments)
            .map(|segment| Nic {
                name: format!("eth{segment}").parse().unwrap(),
                index: 2 + u32::from(segment),
                mac: MacAddr::new(2, 0, 0, segment, 0, number),
                address: IpAddr::from([10, segment, 255, number]),
                own: Own::OfSubnet,
                carrier: true,
                mtu: 1_500,
                default_routes: DefaultRoutes::NONE,
                detours: Detours::default(),
                only_if_named: false,
                answers_no_clients: false,
            })
            .collect();
        let mut host = Self {
            name: name.to_owned(),
            node: node.parse().unwrap(),
            mac: nics[0].mac,
            address: nics[0].address,
            boot: format!("boot-{number}"),
            nics,
            links: Links::default(),
            clock: Clock::true_one(),
            powered: true,
            paused: false,
            stopped: false,
            core: None,
            process: 0,
            inbox: VecDeque::new(),
            taken: Vec::new(),
            kernel: Kernel::default(),
            schedule: Schedule::default(),
            listener: Listener::default(),
            hearing: BTreeMap::new(),
            around: Instant::default(),
            turn: 0,
            lag: Duration::ZERO,
            overflows: 0,
            api: true,
            watch_hung: false,
            watch_delay: Duration::from_millis(5),
            streams: Default::default(),
            waiting: Vec::new(),
            known: Known::default(),
            record: None,
            proxy: None,
            data_path: DataPathView::default(),
            down: Down::default(),
            exited: false,
            ending: false,
            left_until: None,
            edited_until: None,
            claim_writes: 0,
            most_claim_writes: 0,
            tick: None,
            next: Next::Stale,
        };
        host.link_up();
        host
    }

    /// A new process.
    pub(crate) fn boot(&mut self, now: Instant) {
        let config = Config {
            node: self.node.clone(),
            incarnation: Incarnation::new("machine", &self.boot),
            lease_duration: Duration::from_secs(5),
            request_timeout: TIMEOUT,
            restart_grace: Duration::from_secs(30),
            ignores_exclude_label: false,
        };
        self.forget_process();
        self.exited = false;
        self.ending = false;
        self.core = Some(Election::new(self.clock.at(now), config, self.record.clone()));
    }

    /// The process is gone, and what was on its way to it.
    pub(crate) fn forget_process(&mut self) {
        self.core = None;
        self.process += 1;
        self.stopped = false;
        self.inbox.clear();
        self.taken.clear();
        self.waiting.clear();
        self.known = Known::default();
        self.claim_writes = 0;
        self.tick = None;
        self.hearing.clear();
        self.schedule = Schedule::default();
        self.listener = Listener::default();
        self.down = Down::default();
        if let Some(proxy) = &mut self.proxy {
            proxy.asked = RulesWatch::default();
        }
        self.kernel.forget_process();
        for stream in &mut self.streams {
            stream.epoch += 1;
            stream.open = false;
            stream.stalled.clear();
        }
        self.touch();
    }

    /// Whether the process is there and not standing still.
    pub(crate) fn is_running(&self) -> bool {
        self.core.is_some() && !self.stopped && !self.paused
    }

    /// Rebuilds what the process is told about its links.
    pub(crate) fn link_up(&mut self) {
        let links = self.nics.iter().map(|nic| {
            let own = nic.own().map(|ip| LinkAddress { ip, prefix_len: 16, tentative: false });
            let link_local = (nic.own == Own::OfSubnet).then(|| {
                let [.., segment, _, number] = nic.mac.octets().map(u16::from);
                let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, segment, number).into();
                LinkAddress { ip, prefix_len: 64, tentative: false }
            });
            let link = Link {
                index: nic.index,
                name: nic.name.clone(),
                mac: nic.mac,
                mtu: nic.mtu,
                carrier: nic.carrier,
                kind: None,
                master: None,
                lower: None,
                loopback: false,
                addresses: own.into_iter().chain(link_local).collect(),
                gateways: Vec::new(),
                default_routes: nic.default_routes,
                detours: nic.detours.clone(),
            };
            (nic.name.clone(), link)
        });
        self.links = Links(links.collect());
    }

    pub(crate) fn interfaces(&self) -> BTreeMap<InterfaceName, Interface> {
        let interfaces = self.nics.iter().map(|nic| {
            let net = IpNet::new(nic.address, 16).unwrap();
            let bare = nic.own != Own::OfSubnet;
            let addresses = if bare { Vec::new() } else { vec![net] };
            let link_local = if let Own::OfLink(address) = nic.own { Some(address) } else { None };
            let interface = Interface {
                mac: nic.mac,
                mtu: nic.mtu,
                carrier: nic.carrier,
                addresses,
                link_local,
                default_routes: nic.default_routes,
                detours: nic.detours.clone(),
                only_if_named: nic.only_if_named || bare,
            };
            (nic.name.clone(), interface)
        });
        interfaces.collect()
    }

    pub(crate) fn segment(&self, interface: &InterfaceName) -> Option<usize> {
        self.nics.iter().position(|nic| nic.name == *interface)
    }

    pub(crate) const fn touch(&mut self) {
        self.next = Next::Stale;
    }

    /// When anything is to be done here, by the world's clock.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        if let Next::At(next) = self.next {
            return next;
        }
        let mut first: Option<Instant> = None;
        let mut at = |when: Option<Instant>| {
            if let Some(when) = when {
                first = Some(first.map_or(when, |first| first.min(when)));
            }
        };
        if self.powered && !self.paused {
            at(self.kernel.next_expiry().and_then(|ends| self.clock.when(ends)));
        }
        if self.is_running() {
            at(self.tick);
            at(self.listener.wake);
            at(self.kernel.wake.and_then(|wake| self.clock.when(wake)));
            at(self.schedule.next().and_then(|due| self.clock.when(due)));
            let until = self.waiting.iter().map(|waiting| waiting.until).min();
            at(until.and_then(|until| self.clock.when(until)));
            at(Some(self.around));
        }
        self.next = Next::At(first);
        first
    }
}

/// The hosts, by number or by name.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<Host>);

impl Hosts {
    pub(crate) fn push(&mut self, host: Host) {
        self.0.push(host);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn id(&self, name: &str) -> usize {
        self.0.iter().position(|host| host.name == name).unwrap()
    }

    pub(crate) fn of(&mut self, name: &str) -> &mut Host {
        let id = self.id(name);
        &mut self.0[id]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Host> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.0.iter_mut()
    }
}

impl std::ops::Index<usize> for Hosts {
    type Output = Host;

    fn index(&self, id: usize) -> &Host {
        &self.0[id]
    }
}

impl std::ops::IndexMut<usize> for Hosts {
    fn index_mut(&mut self, id: usize) -> &mut Host {
        &mut self.0[id]
    }
}

impl std::ops::Index<&str> for Hosts {
    type Output = Host;

    fn index(&self, name: &str) -> &Host {
        &self.0[self.id(name)]
    }
}
