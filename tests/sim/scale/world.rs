//! Real speakers and stand-ins, on virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::detect::question::Question;
use leasehold_core::election::{
    Action, Config, Election, Event, Frame, HeldClaim, KernelAddress, KernelView, OwnRecord,
    RequestId, Serving, Target, Unowned, Write, rank,
};
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use super::{Cluster, Counts, obedient};
use crate::agenda::Agenda;
use crate::world::listener::Listener;
use crate::world::store::Store;

/// How long a request takes until it is carried out, and from then until it is answered or a watch tells it.
const REQUEST: Duration = Duration::from_millis(4);
const ANSWER: Duration = Duration::from_millis(1);
const WATCH: Duration = Duration::from_millis(5);
/// How long a question and its answer take on the segment.
const WIRE: Duration = Duration::from_micros(300);
/// How long the kernel takes, and how long it takes until one task's news reach another.
const KERNEL: Duration = Duration::from_micros(200);
const TASK: Duration = Duration::from_micros(100);
/// How often a speaker asks around on its segment.
const AROUND: Duration = Duration::from_millis(500);
/// How many of its neighbours answer that, beside the router.
const NEIGHBOURS: usize = 5;
const ROUTER: (IpAddr, MacAddr) =
    (IpAddr::V4(std::net::Ipv4Addr::new(10, 254, 0, 1)), MacAddr(2, 0, 1, 0, 0, 1));

/// A speaker.
enum Node {
    Real(Box<Real>),
    /// It owns these services; which it refreshes next.
    StandIn {
        owned: Vec<usize>,
        turn: usize,
    },
    Dead,
}

/// A real speaker.
struct Real {
    core: Election,
    listener: Listener,
    has: BTreeSet<IpAddr>,
    tick: Option<Instant>,
}

/// What happens.
enum Item {
    Start(usize),
    Tick(usize),
    Listen(usize),
    Around(usize),
    Tell(usize, Event),
    Commit(usize, RequestId, Box<Write>),
    Read(usize, RequestId, Target),
    List(usize, Instant),
    Watched(Event),
    Apply(usize, Serving),
    Frame(usize, IpAddr, MacAddr),
    Renew(usize),
    Refresh(usize),
}

pub(super) struct World<'a> {
    cluster: &'a Cluster,
    store: Store,
    now: Instant,
    agenda: Agenda<Item>,
    nodes: Vec<Node>,
    /// Which node's kernel has each address.
    having: BTreeMap<IpAddr, usize>,
    /// The addresses of dead nodes that no other has yet.
    lost: BTreeSet<IpAddr>,
    died: Instant,
    recovered: Vec<Duration>,
    pub(super) counts: Counts,
}

impl<'a> World<'a> {
    pub(super) fn new(cluster: &'a Cluster, real: &BTreeSet<usize>) -> Self {
        let now = Instant::from_boot(Duration::from_secs(1000));
        let count = cluster.nodes.len();
        let mut store = Store::default();
        let mut version = || {
            store.version += 1;
            store.version
        };
        let sessions = (0..count).map(|node| cluster.session(node, version()));
        let sessions: Vec<_> = sessions.collect();
        let claims = (0..cluster.claims.len()).map(|number| cluster.claim(number, version()));
        let claims: Vec<_> = claims.collect();
        store.sessions = sessions.into_iter().map(|it| (it.name.clone(), it.into())).collect();
        store.claims = claims.into_iter().map(|it| (it.name.clone(), it.into())).collect();
        let mut owned = vec![Vec::new(); count];
        for (number, owner) in cluster.owners.iter().enumerate() {
            owned[*owner].push(number);
        }
        let having = cluster.owners.iter().enumerate();
        let mut world = Self {
            cluster,
            store,
            now,
            agenda: Agenda::default(),
            nodes: Vec::new(),
            having: having.map(|(number, owner)| (Cluster::address(number), *owner)).collect(),
            lost: BTreeSet::new(),
            died: now,
            recovered: Vec::new(),
            counts: Counts::default(),
        };
        // Spread over the time after which each is due again.
        let nth = |every: Duration, node: usize| {
            every * u32::try_from(node).unwrap() / u32::try_from(count).unwrap()
        };
        let (renewal, refresh) = (world.renewal(), cluster.refresh_interval());
        for (node, owned) in owned.into_iter().enumerate() {
            world.nodes.push(Node::StandIn { owned, turn: 0 });
            if real.contains(&node) {
                world.later(nth(renewal, node), Item::Start(node));
            } else {
                world.later(nth(renewal, node), Item::Renew(node));
                world.later(nth(refresh, node), Item::Refresh(node));
            }
        }
        world
    }

    /// R, after which each session is renewed.
    pub(super) fn renewal(&self) -> Duration {
        Duration::from_secs(self.cluster.lease_seconds()) / 3
    }

    /// Until all real speakers have started, and know whom they poll.
    pub(super) fn settle(&mut self) {
        self.run(self.renewal() + Duration::from_secs(5));
        for node in &self.nodes {
            if let Node::Real(real) = node {
                assert!(real.core.session().is_some(), "{} has no session", real.core.node());
            }
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// These nodes lose their power; returns how many addresses they had.
    pub(super) fn kill(&mut self, rack: &BTreeSet<usize>) -> usize {
        for node in rack {
            self.nodes[*node] = Node::Dead;
        }
        self.died = self.now;
        let had = self.having.iter().filter(|(_, owner)| rack.contains(owner));
        self.lost = had.map(|(ip, _)| *ip).collect();
        self.lost.len()
    }

    /// Goes on until all their addresses are in other kernels; after which time each was.
    pub(super) fn recover(&mut self, patience: Duration) -> Vec<Duration> {
        let until = self.now + patience;
        while !self.lost.is_empty() && self.step(until) {}
        std::mem::take(&mut self.recovered)
    }

    /// The next thing that happens, if any does before `until`.
    fn step(&mut self, until: Instant) -> bool {
        let Some(at) = self.agenda.next().filter(|at| *at <= until) else { return false };
        let Some(item) = self.agenda.pop() else { return false };
        self.now = at;
        self.happen(item);
        true
    }

    fn later(&mut self, delay: Duration, item: Item) {
        self.at(self.now + delay, item);
    }

    fn at(&mut self, at: Instant, item: Item) {
        self.agenda.add(at, item);
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Start(node) => self.start(node),
            Item::Tick(node) => {
                let now = self.now;
                if self.real(node).is_some_and(|real| real.tick == Some(now)) {
                    self.tell(node, Event::Tick);
                }
            }
            Item::Listen(node) => {
                let now = self.now;
                if self.real(node).is_some_and(|real| real.listener.wake == Some(now)) {
                    self.listen(node);
                }
            }
            Item::Around(node) => {
                self.ask_around(node);
                self.later(AROUND, Item::Around(node));
            }
            Item::Tell(node, event) => self.tell(node, event),
            Item::Commit(node, request, write) => self.commit(node, request, &write),
            Item::Read(node, request, target) => {
                let answer = self.store.read(&target);
                self.later(ANSWER, Item::Tell(node, Event::Answered { request, answer }));
            }
            Item::List(node, asked) => {
                let sessions = self.store.sessions.values().cloned().collect();
                let claims = self.store.claims.values().cloned().collect();
                self.later(ANSWER, Item::Tell(node, Event::Listed { asked, sessions, claims }));
            }
            Item::Watched(event) => {
                for node in 0..self.nodes.len() {
                    if self.real(node).is_some() {
                        self.tell(node, event.clone());
                    }
                }
            }
            Item::Apply(node, serving) => self.apply(node, &serving),
            Item::Frame(node, ip, mac) => {
                let now = self.now;
                if let Some(real) = self.real(node) {
                    real.listener.receive(0, ip, mac, true);
                    // What came in the same instant is heard in one turn.
                    if real.listener.is_full() {
                        self.listen(node);
                    } else if real.listener.wake != Some(now) {
                        real.listener.wake_by(now);
                        self.at(now, Item::Listen(node));
                    }
                }
            }
            Item::Renew(node) => {
                if matches!(self.nodes[node], Node::StandIn { .. }) {
                    let name = LeaseName::session(&self.cluster.nodes[node]);
                    let event = self.store.edit_session(&name, |_| {});
                    self.counts.session_writes += 1;
                    self.later(WATCH, Item::Watched(event));
                    self.later(self.renewal(), Item::Renew(node));
                }
            }
            Item::Refresh(node) => {
                let Node::StandIn { owned, turn } = &mut self.nodes[node] else { return };
                *turn += 1;
                if let Some(number) = owned.get(*turn % owned.len().max(1)) {
                    let event = self.store.edit_claim(&self.cluster.claims[*number], |_| {});
                    self.counts.claim_writes += 1;
                    self.later(WATCH, Item::Watched(event));
                }
                self.later(self.cluster.refresh_interval(), Item::Refresh(node));
            }
        }
    }

    fn real(&mut self, node: usize) -> Option<&mut Real> {
        match &mut self.nodes[node] {
            Node::Real(real) => Some(real),
            Node::StandIn { .. } | Node::Dead => None,
        }
    }

    /// A speaker starts where its former process left a session, claims, and addresses.
    fn start(&mut self, node: usize) {
        let cluster = self.cluster;
        let Node::StandIn { owned, .. } = &self.nodes[node] else { return };
        let addresses: Vec<IpAddr> = owned.iter().map(|it| Cluster::address(*it)).collect();
        let held = |number: &usize| {
            let held = HeldClaim {
                addresses: [Cluster::address(*number)].into(),
                interface: cluster.interface.clone(),
                drops: false,
                untold: Box::default(),
            };
            (cluster.claims[*number].clone(), held)
        };
        let incarnation = Cluster::incarnation(node);
        let record = OwnRecord {
            node: cluster.nodes[node].clone(),
            incarnation: incarnation.clone(),
            session: Some(Cluster::session_id(node)),
            transitions: 1,
            claims: owned.iter().map(held).collect(),
        };
        let config = Config {
            node: cluster.nodes[node].clone(),
            incarnation,
            lease_duration: Duration::from_secs(5),
            request_timeout: Duration::from_millis(1500),
            restart_grace: Duration::from_secs(30),
            ignores_exclude_label: false,
        };
        let until = self.now + Duration::from_secs(cluster.lease_seconds());
        let kernel =
            |ip: &IpAddr| (*ip, KernelAddress { interface: cluster.interface.clone(), until });
        let view =
            KernelView { ours: addresses.iter().map(kernel).collect(), ..KernelView::default() };
        self.nodes[node] = Node::Real(Box::new(Real {
            core: Election::new(self.now, config, Some(record)),
            listener: Listener::default(),
            has: addresses.into_iter().collect(),
            tick: None,
        }));
        let link = (cluster.interface.clone(), cluster.link(node));
        self.tell(node, Event::Kernel(view));
        self.tell(node, Event::Interfaces(BTreeMap::from([link])));
        self.ask_around(node);
        self.later(AROUND, Item::Around(node));
        self.tell(node, self.store.list_sessions());
        self.tell(node, self.store.list_claims());
        self.tell(node, Event::Desired(cluster.desired.clone()));
    }

    /// Hands an event to a core, and carries out what it asks for.
    fn tell(&mut self, node: usize, event: Event) {
        let now = self.now;
        let mut actions = Vec::new();
        let Some(real) = self.real(node) else { return };
        real.core.handle(now, [event], &mut actions);
        let tick = real.core.next_deadline().map(|tick| tick.max(now));
        if std::mem::replace(&mut real.tick, tick) != tick
            && let Some(tick) = tick
        {
            self.at(tick, Item::Tick(node));
        }
        for action in actions {
            self.act(node, action);
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        match action {
            Action::Write { request, write } => {
                self.later(REQUEST, Item::Commit(node, request, Box::new(write)));
            }
            Action::Read { request, target } => {
                self.later(REQUEST, Item::Read(node, request, target));
            }
            Action::List { asked } => self.later(REQUEST, Item::List(node, asked)),
            Action::Listen(watchlist) => {
                let now = self.now;
                if let Some(real) = self.real(node) {
                    real.listener.watch(now, watchlist);
                    self.listen(node);
                }
            }
            Action::Serve(serving) => self.later(KERNEL, Item::Apply(node, serving)),
            Action::Transmit { frame: Frame::AskAround, .. } => self.ask_around(node),
            // The dead answer nothing, and nobody else is asked for what was theirs.
            Action::Transmit { frame: Frame::Ask(..), .. } => self.counts.asked += 1,
            Action::Transmit { .. }
            | Action::Persist(_)
            | Action::Report(_)
            | Action::Look(_)
            | Action::Forward(_)
            | Action::Spread(_)
            | Action::Down(_) => {}
            Action::Exit => panic!("{} ends", self.cluster.nodes[node]),
        }
    }

    fn commit(&mut self, node: usize, request: RequestId, write: &Write) {
        let (answer, event) = self.store.write(write);
        match write {
            _ if event.is_none() => self.counts.conflicts += 1,
            Write::Session(_) => self.counts.session_writes += 1,
            Write::Claim(_) => self.counts.claim_writes += 1,
        }
        if let Some(event) = event {
            self.counts.real_writes += 1;
            self.later(WATCH, Item::Watched(event));
        }
        self.later(ANSWER, Item::Tell(node, Event::Answered { request, answer }));
    }

    /// The kernel is as it is told.
    fn apply(&mut self, node: usize, serving: &Serving) {
        let since = self.now.saturating_since(self.died);
        let Some(real) = self.real(node) else { return };
        let view = obedient(serving);
        let has: BTreeSet<IpAddr> = view.ours.keys().copied().collect();
        let new: Vec<IpAddr> = has.difference(&real.has).copied().collect();
        real.has = has;
        for ip in new {
            self.having.insert(ip, node);
            if self.lost.remove(&ip) {
                self.recovered.push(since);
            }
        }
        self.tell(node, Event::Kernel(view));
    }

    /// The router and some neighbours answer a speaker that asks around.
    fn ask_around(&mut self, node: usize) {
        let count = self.nodes.len();
        let near = (1..=NEIGHBOURS).map(|step| (node + step) % count);
        let near = near.filter(|it| *it != node && !matches!(self.nodes[*it], Node::Dead));
        let mut answering: Vec<(IpAddr, MacAddr)> =
            near.map(|it| (Cluster::own(it), Cluster::mac(it))).collect();
        answering.push(ROUTER);
        let (now, interface) = (self.now, self.cluster.interface.clone());
        if let Some(real) = self.real(node) {
            real.listener.heard_around(now, &interface, &answering);
            let hearing = Event::Hearing(BTreeMap::from([(interface, now)]));
            self.later(WIRE, Item::Tell(node, hearing));
        }
    }

    /// A turn of a listener's thread.
    fn listen(&mut self, node: usize) {
        let (now, interfaces) = (self.now, [self.cluster.interface.clone()]);
        let mut questions = Vec::new();
        let Some(real) = self.real(node) else { return };
        let changed = real.listener.turn(now, &interfaces, &mut questions);
        let next = real.listener.next().map(|next| next.max(now));
        real.listener.wake = next;
        let voices = changed.then(|| real.listener.voices.clone());
        if let Some(next) = next {
            self.at(next, Item::Listen(node));
        }
        if let Some(voices) = voices {
            self.later(TASK, Item::Tell(node, Event::Voices(voices)));
        }
        for question in questions {
            self.counts.polls += usize::from(question.mac.is_some());
            if let Some(mac) = self.answer(&question) {
                self.later(WIRE, Item::Frame(node, question.ip, mac));
            }
        }
    }

    /// Who answers a question: only who has the address.
    fn answer(&self, question: &Question) -> Option<MacAddr> {
        if question.ip == ROUTER.0 {
            return Some(ROUTER.1);
        }
        let number = |mac: MacAddr| usize::from(u16::from_be_bytes([mac.4, mac.5])) - 1;
        let asked = question.mac.map(number);
        let own = |node: &usize| Cluster::own(*node) == question.ip;
        let has = match asked {
            Some(node) if own(&node) => Some(node),
            Some(_) | None => self.having.get(&question.ip).copied(),
        };
        let node = has.filter(|node| asked.is_none_or(|asked| asked == *node))?;
        (!matches!(self.nodes[node], Node::Dead)).then(|| Cluster::mac(node))
    }
}

/// The first in line for what the rack has, in whichever order its nodes are fenced.
pub(super) fn takers(cluster: &Cluster, rack: &BTreeSet<usize>) -> BTreeSet<usize> {
    /// How many of those in line for a claim.
    const FIRST: usize = 3;
    let numbers = cluster.nodes.iter().enumerate();
    let numbers: BTreeMap<&NodeName, usize> = numbers.map(|(node, name)| (name, node)).collect();
    let nobody = BTreeMap::new();
    let mut takers = BTreeSet::new();
    let each = rack.iter().map(|dead| BTreeSet::from([*dead]));
    for dead in each.chain([rack.clone()]) {
        let mut loads: BTreeMap<NodeName, usize> = BTreeMap::new();
        for (node, name) in cluster.nodes.iter().enumerate() {
            if !dead.contains(&node) {
                loads.insert(name.clone(), 0);
            }
        }
        for owner in &cluster.owners {
            if let Some(load) = loads.get_mut(&cluster.nodes[*owner]) {
                *load += 1;
            }
        }
        let names = cluster.nodes.iter().enumerate();
        let left = names.filter(|(node, _)| !dead.contains(node)).map(|(_, name)| name);
        let candidates: Rc<[&NodeName]> = left.collect();
        let lost = cluster.owners.iter().zip(&cluster.claims);
        let unowned: Vec<Unowned<'_>> = lost
            .filter(|(owner, _)| dead.contains(owner))
            .map(|(_, name)| Unowned {
                name,
                addresses: 1,
                candidates: Rc::clone(&candidates),
                preference: &nobody,
                last: Vec::new(),
                apart: Vec::new(),
            })
            .collect();
        for order in rank(&unowned, &loads).values() {
            let living = order.iter().map(|name| numbers[name]).filter(|it| !rack.contains(it));
            takers.extend(living.take(FIRST));
        }
    }
    takers
}
