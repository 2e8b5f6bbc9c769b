//! What a test does to the world, and what it asks of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Session};
use pnet_base::MacAddr;

use super::host::Host;
use super::{Committed, Fault, HEARING, Happening, Item, LATENCY, Trouble, World};
use crate::clock::Instant;
use crate::desired::{DesiredClaim, NodeFacts};
use crate::lease::{Event, Fact, Frame, Target, Write};

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

impl World {
    /// Hosts of these names, all running and settled.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut world = Self {
            now: Instant::from_boot(Duration::from_secs(1000)),
            store: super::Store::default(),
            desired: crate::desired::Desired::default(),
            hosts: BTreeMap::new(),
            cuts: std::collections::BTreeSet::new(),
            strangers: BTreeMap::new(),
            facts: Vec::new(),
            committed: Vec::new(),
            sent: Vec::new(),
            laws: super::Laws::default(),
            api: true,
            read_only: false,
            faults: Vec::new(),
            agenda: BTreeMap::new(),
            count: 0,
        };
        for name in names {
            world.add_host(name, name);
        }
        for name in names {
            world.start(name);
        }
        world.later(Duration::from_millis(10), Item::Hearing);
        world.run(HEARING * 2);
        world
    }

    /// Hosts of these names and as many services, all owned.
    pub(crate) fn settled(names: &[&str], services: u8) -> Self {
        let mut world = Self::new(names);
        world.add_services(1, services);
        world.run(Duration::from_secs(3));
        world.assert_served();
        world
    }

    pub(crate) fn add_host(&mut self, name: &str, node: &str) {
        let number = u8::try_from(self.hosts.len() + 1).unwrap();
        let host = Host::new(number, node);
        self.desired.nodes.insert(host.node.clone(), NodeFacts::default());
        self.hosts.insert(name.to_owned(), host);
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, name: &str) {
        let now = self.now;
        let host = self.hosts.get_mut(name).unwrap();
        host.boot(now);
        let (links, view) = (host.links(), host.kernel.view());
        self.feed(name, Event::Interfaces(links));
        self.feed(name, Event::Kernel(view));
        self.send(LATENCY * 2, name, Happening::Lists);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        let host = self.hosts.get_mut(name).unwrap();
        host.core = None;
        host.process += 1;
    }

    /// The whole node.
    pub(crate) fn kill_node(&mut self, name: &str) {
        self.kill(name);
        let host = self.hosts.get_mut(name).unwrap();
        host.kernel = super::host::Kernel::default();
        host.carrier = false;
    }

    /// SIGTERM.
    pub(crate) fn terminate(&mut self, name: &str) {
        self.feed(name, Event::Terminate);
    }

    pub(crate) fn set_carrier(&mut self, name: &str, carrier: bool) {
        self.hosts.get_mut(name).unwrap().carrier = carrier;
        let links = self.hosts[name].links();
        self.feed(name, Event::Interfaces(links));
    }

    /// The API server for all.
    pub(crate) fn set_api(&mut self, up: bool) {
        self.api = up;
        if up {
            self.relist();
        }
    }

    /// The API server for one host.
    pub(crate) fn set_api_of(&mut self, name: &str, up: bool) {
        self.hosts.get_mut(name).unwrap().api = up;
        if up {
            self.send(LATENCY, name, Happening::Lists);
        }
    }

    pub(crate) fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    /// All watches begin anew; later hosts later.
    fn relist(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for (place, name) in names.iter().enumerate() {
            let delay = Duration::from_millis(300) * u32::try_from(place).unwrap();
            self.send(LATENCY + delay, name, Happening::Lists);
        }
    }

    pub(crate) fn add_services(&mut self, from: u8, to: u8) {
        for number in from..=to {
            let claimed = DesiredClaim {
                services: vec![format!("web/s{number:03}")],
                addresses: [vip(number)].into(),
                nodes: Arc::new(self.desired.nodes.keys().cloned().collect()),
                interfaces: Vec::new(),
                detection: crate::desired::Detection::default(),
                on_api_outage: crate::desired::OnApiOutage::default(),
            };
            self.desired.claims.insert(claim(number), claimed);
        }
        self.publish_desired();
    }

    pub(crate) fn cordon(&mut self, node: &str, cordoned: bool) {
        self.desired.nodes.get_mut(&node.parse().unwrap()).unwrap().cordoned = cordoned;
        self.publish_desired();
    }

    pub(crate) fn publish_desired(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            let desired = Arc::new(self.desired.clone());
            self.send(LATENCY, &name, Happening::Event(Event::Desired(desired)));
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
        self.faults.push(Fault { host: host.map(str::to_owned), hits, trouble, times });
    }

    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// On the segment.
    pub(crate) fn cut_off(&mut self, name: &str) {
        let others: Vec<String> = self.hosts.keys().cloned().collect();
        self.cuts.extend(others.into_iter().map(|other| (name.to_owned(), other)));
    }

    pub(crate) fn delete(&mut self, target: &Target) {
        let event = self.store.delete(target).unwrap();
        self.publish(&event);
    }

    pub(crate) fn edit_session(&mut self, node: &str, edit: impl FnOnce(&mut Session)) {
        let event = self.store.edit_session(&session(node), edit);
        self.publish(&event);
    }

    pub(crate) fn edit_claim(&mut self, number: u8, edit: impl FnOnce(&mut Claim)) {
        let event = self.store.edit_claim(&claim(number), edit);
        self.publish(&event);
    }

    /// Somebody announces `ip`, heard by all.
    pub(crate) fn announce_from(&mut self, mac: MacAddr, ip: IpAddr) {
        let others = self.hosts.iter().filter(|(_, host)| host.mac != mac);
        let names: Vec<String> = others.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.hear(&name, ip, mac, true);
        }
    }

    /// From now on nothing moves, not for a moment.
    pub(crate) fn hold_still(&mut self) {
        let ips = self.desired.claims.values().flat_map(|claim| claim.addresses.iter().copied());
        self.laws.still = Some(ips.map(|ip| (ip, self.having(ip))).collect());
    }

    pub(crate) fn owner(&self, number: u8) -> Option<String> {
        let mut valid = self.valid_claims();
        valid.find(|(claim, _)| claim.addresses.contains(&vip(number))).map(|(_, o)| o.to_owned())
    }

    /// How many claims each node owns.
    pub(crate) fn loads(&self) -> BTreeMap<String, usize> {
        let mut loads = BTreeMap::new();
        for (_, owner) in self.valid_claims() {
            *loads.entry(owner.to_owned()).or_default() += 1;
        }
        loads
    }

    /// Every address is on its claim's owner alone.
    pub(crate) fn assert_served(&self) {
        for (name, claim) in &self.desired.claims {
            for ip in &claim.addresses {
                let mut valid = self.valid_claims();
                let owner = valid.find(|(claim, _)| claim.addresses.contains(ip));
                let owner = owner.map(|(_, owner)| owner.to_owned());
                let owner = owner.unwrap_or_else(|| panic!("{}: {name} has no owner", self.now));
                assert_eq!(self.having(*ip), [owner].into(), "{}: {name}", self.now);
            }
        }
    }

    /// The writes on `node`'s session that others carried out since `since`.
    pub(crate) fn fences(&self, node: &str, since: Instant) -> Vec<&Committed> {
        let of = |committed: &&Committed| {
            let Write::Session(change) = &committed.write else { return false };
            committed.at >= since && change.name == session(node) && committed.host != node
        };
        self.committed.iter().filter(of).collect()
    }

    pub(crate) fn facts_since(&self, since: Instant) -> impl Iterator<Item = (&str, &Fact)> {
        let new = self.facts.iter().filter(move |(at, ..)| *at >= since);
        new.map(|(_, host, fact)| (host.as_str(), fact))
    }

    pub(crate) fn frames_since(&self, since: Instant) -> impl Iterator<Item = (&str, &Frame)> {
        let new = self.sent.iter().filter(move |(at, ..)| *at >= since);
        new.map(|(_, host, frame)| (host.as_str(), frame))
    }

    /// Runs until `done`; returns how long that took.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !done(self) {
            let end = self.now + Duration::from_secs(60);
            assert!(
                self.now.saturating_since(start) < Duration::from_secs(120),
                "it never happened"
            );
            self.step(end);
        }
        self.now.saturating_since(start)
    }
}
