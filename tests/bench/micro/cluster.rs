//! The input of one core in a cluster on paper.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::election::{
    Action, Answer, Change, Config, Election, Event, Frame, Unowned, Write,
};
use leasehold_crds::lease::{Claim, Session, Stored};
use leasehold_crds::names::NodeName;
use leasehold_sim::scale::{Cluster as OnPaper, obedient};

/// All services are owned, in turn by each node but the first, which is the one whose core is measured.
pub struct Cluster(OnPaper);

/// A core, and the time that it is told.
pub struct Core {
    election: Election,
    now: Instant,
    actions: Vec<Action>,
}

impl Core {
    pub fn handle(&mut self, event: Event) {
        self.actions.clear();
        self.tell(event);
    }

    fn tell(&mut self, event: Event) {
        self.now = self.now + Duration::from_micros(10);
        self.election.handle(self.now, [event], &mut self.actions);
    }

    /// Carries out what the core has decided: the API server answers at once, its watch says the same,
    /// the kernel takes every address, and others are heard. Returns how many claims were written.
    fn carry_out(&mut self) -> usize {
        let mut written = 0;
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Write { request, write: Write::Claim(change) } => {
                    let claim = Arc::new(stored(change));
                    self.tell(Event::Answered { request, answer: Answer::Claim(claim.clone()) });
                    self.tell(Event::Claim(claim));
                    written += 1;
                }
                Action::Write { request, write: Write::Session(change) } => {
                    let answer = Answer::Session(Arc::new(stored(change)));
                    self.tell(Event::Answered { request, answer });
                }
                Action::Read { request, .. } => {
                    self.tell(Event::Answered { request, answer: Answer::Absent });
                }
                Action::Serve(serving) => {
                    self.tell(Event::Kernel(obedient(&serving)));
                }
                Action::Transmit { interface, frame: Frame::AskAround } => {
                    self.tell(Event::Hearing(BTreeMap::from([(interface, self.now)])));
                }
                _ => {}
            }
        }
        written
    }

    /// Goes on until every claim has an owner; how many this one took.
    pub fn take_all(&mut self) -> usize {
        let mut taken = 0;
        loop {
            taken += self.carry_out();
            if self.actions.is_empty() {
                if self.election.unowned() == 0 {
                    return taken;
                }
                self.now = self.now + Duration::from_millis(1);
                self.tell(Event::Tick);
            }
        }
    }
}

impl Cluster {
    pub fn new(nodes: usize, services: usize) -> Self {
        Self(OnPaper::new(nodes, services, |number| 1 + number % (nodes - 1)))
    }

    pub fn node(&self, number: usize) -> NodeName {
        self.0.nodes[number].clone()
    }

    /// Nobody has anything.
    pub fn loads(&self) -> BTreeMap<NodeName, usize> {
        self.0.nodes.iter().map(|node| (node.clone(), 0)).collect()
    }

    /// All claims, which all nodes may take.
    pub fn unowned(&self) -> Vec<Unowned<'_>> {
        static ANYONE: BTreeMap<NodeName, u32> = BTreeMap::new();
        let candidates: Rc<[&NodeName]> = self.0.nodes.iter().collect();
        let unowned = |name| Unowned {
            name,
            addresses: 1,
            candidates: Rc::clone(&candidates),
            preference: &ANYONE,
            last: Vec::new(),
            apart: Vec::new(),
        };
        self.0.claims.iter().map(unowned).collect()
    }

    /// A core that has a session and knows all of this.
    pub fn settled_core(&self) -> Core {
        let (now, interface) = (Instant::from_boot(Duration::from_secs(1000)), &self.0.interface);
        let config = Config {
            node: self.node(0),
            incarnation: OnPaper::incarnation(0),
            lease_duration: Duration::from_secs(5),
            request_timeout: Duration::from_secs(1),
            restart_grace: Duration::from_secs(60),
            ignores_exclude_label: false,
        };
        let mut core =
            Core { election: Election::new(now, config, None), now, actions: Vec::new() };
        core.tell(Event::Interfaces(BTreeMap::from([(interface.clone(), self.0.link(0))])));
        core.tell(Event::Hearing(BTreeMap::from([(interface.clone(), now)])));
        let sessions = (1..self.0.nodes.len()).map(|it| self.renewed(it, 0));
        core.tell(Event::Sessions(sessions.collect()));
        core.tell(Event::Claims(
            (0..self.0.claims.len()).map(|it| self.refreshed(it, 0)).collect(),
        ));
        core.tell(Event::Desired(Arc::clone(&self.0.desired)));
        for _ in 0..100 {
            if core.election.session().is_some() {
                break;
            }
            core.carry_out();
            core.now = core.now + Duration::from_millis(10);
            core.tell(Event::Tick);
        }
        assert!(core.election.session().is_some(), "the core has no session");
        assert_eq!(core.election.unowned(), 0, "claims have no owner");
        core
    }

    /// This node has renewed its session.
    pub fn renewed(&self, node: usize, version: u64) -> Arc<Stored<Session>> {
        Arc::new(self.0.session(node, version))
    }

    /// The owner of this claim has refreshed it.
    pub fn refreshed(&self, number: usize, version: u64) -> Arc<Stored<Claim>> {
        Arc::new(self.0.claim(number, version))
    }

    /// The session of this node was ended by another.
    pub fn fenced(&self, node: usize) -> Arc<Stored<Session>> {
        let mut ended = self.0.session(node, 1);
        ended.record.holder = None;
        ended.record.transitions += 1;
        Arc::new(ended)
    }
}

/// What is stored after such a write.
fn stored<T>(change: Change<T>) -> Stored<T> {
    let version =
        change.base.as_ref().map_or(0, |base| base.resource_version.parse().unwrap_or(0_u64));
    Stored {
        uid: change.base.map_or_else(|| "uid-0".into(), |base| base.uid.clone()),
        resource_version: (version + 1).to_string().into(),
        acquired: None,
        name: change.name,
        record: change.record,
    }
}
