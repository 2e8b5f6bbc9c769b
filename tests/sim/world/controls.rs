//! What a run does to the world, and what it asks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::desired::{
    Announcement, Desired, DesiredClaim, Detection, Failback, NodeState, OnApiOutage, Proxied,
};
use leasehold_core::election::{Event, Follower, Target, Write};
use leasehold_crds::lease::{Claim, LeaseName, Session};
use leasehold_crds::names::NodeName;
use leasehold_crds::policy::{DEFAULT_HANDOVER, ReturnPath};
use pnet_base::MacAddr;

use super::api::Fault;
use super::bounds;
use super::wire::Arriving;
use super::{Down, HEARING, Happening, Host, Hosts, LATENCY, News, Place, Step, Trouble, World};
use crate::agenda::Agenda;
use crate::dice::Dice;

/// The address of the service with this number.
pub(crate) fn vip(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

/// The claim of the service with this number.
pub(crate) fn claim(number: u8) -> LeaseName {
    LeaseName::claim("web", &format!("s{number:03}"))
}

/// The session of a node.
pub(crate) fn session(node: &str) -> LeaseName {
    node.parse().unwrap()
}

/// Whether it is a write on a session.
pub(crate) const fn on_session(write: &Write) -> bool {
    matches!(write, Write::Session(_))
}

/// Whether it is a write on a claim.
pub(crate) const fn on_claim(write: &Write) -> bool {
    matches!(write, Write::Claim(_))
}

/// Only leases count.
pub(crate) fn lease_only() -> Detection {
    Detection { wire: false, ..Detection::default() }
}

impl World {
    /// Nothing yet.
    pub(crate) fn empty(seed: u64) -> Self {
        Self {
            now: Instant::from_boot(Duration::from_secs(1000)),
            dice: Dice::new(seed),
            store: super::Store::default(),
            desired: Desired::default(),
            lost: BTreeMap::new(),
            operator: super::Operator::default(),
            hosts: Hosts::default(),
            cuts: super::Cuts::default(),
            router: true,
            strangers: BTreeMap::new(),
            server: super::Server::default(),
            jitter: false,
            recording: true,
            telling: super::words::is_telling(),
            trace: None,
            facts: Vec::new(),
            committed: Vec::new(),
            sent: Vec::new(),
            laws: super::Laws::default(),
            spells: super::Spells::default(),
            agenda: Agenda::default(),
            questions: Vec::new(),
        }
    }

    /// Hosts of these names, all running and settled.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut world = Self::empty(0);
        // A planned move: 200 ms until the old owner probes, and its two probes.
        world.laws.overlap = Some(Duration::from_millis(270));
        for name in names {
            world.add_host(name, name);
        }
        for name in names {
            world.start(name);
        }
        world.run(HEARING * 2);
        world
    }

    /// Hosts of these names and as many services, all owned; only leases count.
    pub(crate) fn settled(names: &[&str], services: u8) -> Self {
        let mut world = Self::new(names);
        world.add_services(1, services);
        world.run(Duration::from_secs(3));
        world.assert_served();
        world
    }

    /// The same, and their owners are listened to.
    pub(crate) fn listening(names: &[&str], services: u8) -> Self {
        let mut world = Self::new(names);
        world.add_services_with(1, services, Detection::default(), OnApiOutage::Hold);
        world.run(Duration::from_secs(6));
        world.assert_served();
        world
    }

    pub(crate) fn add_host(&mut self, name: &str, node: &str) {
        self.add_host_on(name, node, 1);
    }

    pub(crate) fn add_host_on(&mut self, name: &str, node: &str, segments: u8) {
        let number = u8::try_from(self.hosts.len() + 1).unwrap();
        let host = Host::new(number, name, node, segments);
        self.desired.nodes.insert(host.node.clone(), NodeState::default());
        self.hosts.push(host);
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, name: &str) {
        self.start_host(self.hosts.id(name));
    }

    pub(crate) fn start_host(&mut self, id: usize) {
        self.tell_all(&format!("{} starts", self.hosts[id].name));
        let now = self.now;
        let around = if self.jitter {
            self.dice.between(Duration::from_millis(10), HEARING)
        } else {
            Duration::from_millis(10)
        };
        let host = &mut self.hosts[id];
        host.boot(now);
        host.around = now + around;
        let links = host.interfaces();
        self.laws.dirty = true;
        self.feed(id, Event::Interfaces(links));
        self.settle(id);
        self.tell_proxy(id);
        self.tell_data_path(id);
        self.reset_watches(id, LATENCY);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        self.kill_process(self.hosts.id(name));
    }

    pub(crate) fn kill_process(&mut self, id: usize) {
        self.tell_all(&format!("{} is killed", self.hosts[id].name));
        self.hosts[id].forget_process();
        self.laws.dirty = true;
    }

    /// The whole node.
    pub(crate) fn kill_node(&mut self, name: &str) {
        self.power_off(self.hosts.id(name));
    }

    pub(crate) fn power_off(&mut self, id: usize) {
        self.kill_process(id);
        let host = &mut self.hosts[id];
        host.kernel = super::kernel::Kernel::default();
        host.powered = false;
        host.touch();
        self.trace_addresses(id);
    }

    /// It comes back, as another boot.
    pub(crate) fn power_on(&mut self, id: usize) {
        let host = &mut self.hosts[id];
        host.powered = true;
        host.boot.push('+');
        for nic in &mut host.nics {
            nic.carrier = true;
        }
        host.link_up();
        self.start_host(id);
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self, id: usize, halfway: bool) {
        self.tell_all(&format!("{} is stopped", self.hosts[id].name));
        let host = &mut self.hosts[id];
        let now = host.clock.at(self.now);
        host.stopped = true;
        if halfway {
            host.kernel.stop_halfway(now);
        }
        host.touch();
        self.laws.dirty = true;
    }

    /// SIGCONT.
    pub(crate) fn cont(&mut self, id: usize) {
        self.tell_all(&format!("{} goes on", self.hosts[id].name));
        self.hosts[id].stopped = false;
        self.catch_up(id);
    }

    /// The whole node with all its clocks stands still.
    pub(crate) fn pause(&mut self, id: usize) {
        self.tell_all(&format!("{} is paused", self.hosts[id].name));
        let host = &mut self.hosts[id];
        host.clock.stop(self.now);
        host.paused = true;
        host.touch();
        self.laws.dirty = true;
    }

    pub(crate) fn resume(&mut self, id: usize) {
        self.tell_all(&format!("{} is resumed", self.hosts[id].name));
        let host = &mut self.hosts[id];
        host.clock.go(self.now);
        host.paused = false;
        self.catch_up(id);
    }

    /// What has arrived meanwhile is handed over, the kernel's news first.
    fn catch_up(&mut self, id: usize) {
        let host = &mut self.hosts[id];
        host.touch();
        self.laws.dirty = true;
        if !host.is_running() {
            return;
        }
        let local = host.clock.at(self.now);
        host.kernel.expire(local);
        self.settle(id);
        if self.hosts[id].is_running() {
            let links = self.hosts[id].interfaces();
            self.feed(id, Event::Interfaces(links));
        }
        let inbox = std::mem::take(&mut self.hosts[id].inbox);
        let process = self.hosts[id].process;
        for happening in inbox {
            if self.hosts[id].process == process {
                self.happen_to(id, happening);
            }
        }
        let now = self.now;
        let host = &mut self.hosts[id];
        if host.core.is_some() {
            host.listener.wake_by(now);
            host.touch();
        }
    }

    /// SIGTERM in a roll-out: the pod is being replaced.
    pub(crate) fn terminate(&mut self, name: &str) {
        self.terminate_process(self.hosts.id(name), Follower::Expected);
    }

    /// SIGTERM without a word, as a host sends it that shuts down, and who starts a process again.
    pub(crate) fn shut_down(&mut self, name: &str) {
        self.terminate_process(self.hosts.id(name), Follower::Unknown);
    }

    pub(crate) fn terminate_process(&mut self, id: usize, follower: Follower) {
        self.happen_to(id, Happening::Event(Event::Terminate(follower)));
    }

    /// SIGTERM, and no other process follows.
    pub(crate) fn leave(&mut self, name: &str) {
        let id = self.hosts.id(name);
        self.happen_to(id, Happening::Event(Event::Terminate(Follower::Nobody)));
    }

    pub(crate) fn set_carrier(&mut self, name: &str, carrier: bool) {
        self.set_carrier_of(self.hosts.id(name), 0, carrier);
    }

    /// Packets of another size fit the link of a host.
    pub(crate) fn set_mtu(&mut self, id: usize, mtu: u32) {
        let host = &mut self.hosts[id];
        host.nics[0].mtu = mtu;
        host.link_up();
        let links = host.interfaces();
        self.schedule(id);
        self.feed(id, Event::Interfaces(links));
    }

    pub(crate) fn set_carrier_of(&mut self, id: usize, segment: usize, carrier: bool) {
        let host = &mut self.hosts[id];
        host.nics[segment].carrier = carrier;
        host.link_up();
        self.laws.dirty = true;
        if host.is_running() {
            let links = host.interfaces();
            self.schedule(id);
            self.feed(id, Event::Interfaces(links));
        }
    }

    /// The API server for all.
    pub(crate) fn set_api(&mut self, up: bool) {
        self.set_down((!up).then_some(Down::Silent));
    }

    pub(crate) fn set_down(&mut self, down: Option<Down>) {
        self.tell_all(&format!("the API server: {down:?}"));
        self.server.down = down;
        self.laws.dirty = true;
        for id in 0..self.hosts.len() {
            let delay = if self.jitter {
                self.dice.between(Duration::from_millis(5), Duration::from_secs(3))
            } else {
                LATENCY + Duration::from_millis(300) * u32::try_from(id).unwrap()
            };
            self.reset_watches(id, delay);
        }
    }

    /// The API server for one host.
    pub(crate) fn set_api_of(&mut self, name: &str, up: bool) {
        self.set_reach(self.hosts.id(name), up);
    }

    pub(crate) fn set_reach(&mut self, id: usize, up: bool) {
        self.tell_all(&format!("{} reaches the API server: {up}", self.hosts[id].name));
        self.hosts[id].api = up;
        self.laws.dirty = true;
        self.reset_watches(id, LATENCY);
    }

    pub(crate) fn set_read_only(&mut self, read_only: bool) {
        self.server.read_only = read_only;
        self.laws.dirty = true;
    }

    pub(crate) fn add_services(&mut self, from: u8, to: u8) {
        self.add_services_with(from, to, lease_only(), OnApiOutage::Hold);
    }

    pub(crate) fn add_services_with(
        &mut self,
        from: u8,
        to: u8,
        detection: Detection,
        on_api_outage: OnApiOutage,
    ) {
        for number in from..=to {
            let claimed = self.claimed(number, vip(number), detection, on_api_outage);
            self.desired.claims.insert(claim(number), claimed.into());
        }
        self.publish_desired();
    }

    /// What is asked for of the service with this number.
    pub(crate) fn claimed(
        &self,
        number: u8,
        address: IpAddr,
        detection: Detection,
        on_api_outage: OnApiOutage,
    ) -> DesiredClaim {
        let nodes = Arc::new(self.desired.nodes.keys().cloned().collect());
        let claim = asked_for(format!("web/s{number:03}"), address, nodes);
        DesiredClaim { detection, on_api_outage, ..claim }
    }

    /// Pods leave a cordoned node, or it takes some again.
    pub(crate) fn drain(&mut self, node: &str, drained: bool) {
        self.set_state(node, if drained { NodeState::Draining } else { NodeState::Ready });
    }

    pub(crate) fn set_state(&mut self, node: &str, state: NodeState) {
        self.tell_all(&format!("{node} is {state:?}"));
        self.desired.nodes.insert(node.parse().unwrap(), state);
        self.publish_desired();
    }

    /// What is asked for, seen by each host after a while of its own.
    pub(crate) fn publish_desired_to(&mut self, delay: impl Fn(&str) -> Duration) {
        let objects = self.objects();
        self.laws.dirty = true;
        self.call_operator();
        for id in 0..self.hosts.len() {
            let delay = delay(&self.hosts[id].name);
            let news = News::Objects(Arc::clone(&objects));
            self.send(delay, id, Happening::News(news));
        }
    }

    /// The next `times` such writes of `host`, or of any, meet with trouble.
    pub(crate) fn fault(
        &mut self,
        host: Option<&str>,
        hits: fn(&Write) -> bool,
        trouble: Trouble,
        times: u32,
    ) {
        let host = host.map(str::to_owned);
        self.server.faults.push(Fault { host, hits, trouble, times });
    }

    pub(crate) fn clear_faults(&mut self) {
        self.server.faults.clear();
    }

    /// From its first segment, carrier and all else up.
    pub(crate) fn cut_off(&mut self, name: &str) {
        let id = self.hosts.id(name);
        self.cuts.off(0, id);
        self.laws.dirty = true;
    }

    /// On the first segment it and the other hosts do not hear each other; all hear the router.
    pub(crate) fn isolate(&mut self, name: &str) {
        let id = self.hosts.id(name);
        for other in (0..self.hosts.len()).filter(|other| *other != id) {
            self.cuts.both_ways(0, id, other);
        }
        self.laws.dirty = true;
    }

    /// Nothing is cut any more.
    pub(crate) fn heal_wire(&mut self) {
        self.cuts.clear();
        self.laws.dirty = true;
    }

    pub(crate) fn delete(&mut self, target: &Target) {
        self.tell_all(&format!("somebody deletes {target:?}"));
        if let Some(event) = self.store.delete(target) {
            self.publish(&event);
        }
        if let Target::Session(name) = target {
            self.note_edited(name.as_str());
        }
    }

    pub(crate) fn edit_session(&mut self, node: &str, edit: impl FnOnce(&mut Session)) {
        self.tell_all(&format!("somebody edits the session of {node}"));
        let event = self.store.edit_session(&session(node), edit);
        self.publish(&event);
        self.note_edited(node);
    }

    /// Somebody has ended the session of a node by hand.
    fn note_edited(&mut self, node: &str) {
        let until = self.now + bounds::LIFETIME;
        for host in self.hosts.iter_mut().filter(|host| host.node.as_str() == node) {
            host.edited_until = Some(until);
        }
    }

    pub(crate) fn edit_claim(&mut self, number: u8, edit: impl FnOnce(&mut Claim)) {
        self.tell_all(&format!("somebody edits claim {number}"));
        let event = self.store.edit_claim(&claim(number), edit);
        self.publish(&event);
    }

    /// Somebody announces `ip`, heard by all.
    pub(crate) fn announce_from(&mut self, mac: MacAddr, ip: IpAddr) {
        let arriving = Arriving {
            segment: Self::segment_of(ip),
            ip,
            mac,
            announcement: true,
            answer: false,
            named: false,
        };
        let to = self.others(None);
        self.trace(|| Step::Announcement { from: Place::Stranger, ip, to });
        for id in 0..self.hosts.len() {
            if self.hosts[id].mac != mac {
                self.arrive(id, Duration::ZERO, arriving);
            }
        }
    }

    /// From now on nothing moves, not for a moment.
    pub(crate) fn hold_still(&mut self) {
        let ips = self.desired.claims.values().flat_map(|claim| claim.addresses.iter().copied());
        self.laws.still = Some(ips.map(|ip| (ip, self.having(ip))).collect());
    }
}

/// What is asked for of a service with the default policy.
pub(crate) fn asked_for(
    service: String,
    address: IpAddr,
    nodes: Arc<BTreeSet<NodeName>>,
) -> DesiredClaim {
    DesiredClaim {
        services: vec![service],
        addresses: [address].into(),
        nodes,
        silence: None,
        held: false,
        drain_on_cordon: false,
        preference: Arc::default(),
        apart_from: BTreeSet::new(),
        failback: Failback::default(),
        interfaces: Vec::new(),
        announcement: Announcement::default(),
        detection: Detection::default(),
        on_api_outage: OnApiOutage::Hold,
        connection_handover: DEFAULT_HANDOVER,
        proxied: Proxied::default(),
        spread: None,
        return_path: ReturnPath::default(),
    }
}
