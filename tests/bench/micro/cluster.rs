//! A cluster on paper: what one core is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold::clock::Instant;
use leasehold::desired::{
    Announcements, Desired, DesiredClaim, Detection, Failback, NodeState, OnApiOutage,
};
use leasehold::lease::{
    Action, Answer, Change, Config, Election, Event, Frame, Interface, KernelAddress, KernelView,
    Orphan, Write,
};
use leasehold_crds::lease::{
    Claim, Incarnation, LeaseName, Session, SessionId, SessionInterface, Stored,
};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

/// Nodes on one segment, and services of one address each. All are owned, in turn by each node but the first,
/// which is the one whose core is measured.
pub struct Cluster {
    nodes: Vec<NodeName>,
    claims: Vec<LeaseName>,
    desired: Arc<Desired>,
    interface: InterfaceName,
}

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
                    let (applied, told) = (serving.generation, serving.generation);
                    let had = serving.vips.into_iter().map(|(ip, vip)| {
                        let address = KernelAddress { interface: vip.interface, until: vip.until };
                        (ip, address)
                    });
                    let ours = had.collect();
                    self.tell(Event::Kernel(KernelView {
                        applied,
                        told,
                        ours,
                        ..Default::default()
                    }));
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
        let name = |number| format!("worker-{number:03}").parse();
        let nodes: Vec<NodeName> =
            (0..nodes).map(|number| name(number).expect("a node's name")).collect();
        let claims: Vec<LeaseName> = (0..services)
            .map(|number| LeaseName::claim("shop", &format!("service-{number:05}")))
            .collect();
        let all: Arc<BTreeSet<NodeName>> = Arc::new(nodes.iter().cloned().collect());
        let asked = claims.iter().enumerate().map(|(number, name)| {
            let claim = DesiredClaim {
                services: vec![name.to_string()],
                addresses: BTreeSet::from([address(number)]),
                nodes: Arc::clone(&all),
                silence: None,
                drain_on_cordon: false,
                preference: Arc::default(),
                apart_from: BTreeSet::new(),
                failback: Failback::default(),
                interfaces: Vec::new(),
                announcements: Announcements::default(),
                detection: Detection::default(),
                on_api_outage: OnApiOutage::Hold,
            };
            (name.clone(), Arc::new(claim))
        });
        let desired = Desired {
            claims: asked.collect(),
            nodes: nodes.iter().map(|node| (node.clone(), NodeState::Ready)).collect(),
            reach: BTreeMap::new(),
        };
        let interface = "eth0".parse().expect("an interface's name");
        Self { nodes, claims, desired: Arc::new(desired), interface }
    }

    pub fn node(&self, number: usize) -> NodeName {
        self.nodes[number].clone()
    }

    /// Nobody has anything.
    pub fn loads(&self) -> BTreeMap<NodeName, usize> {
        self.nodes.iter().map(|node| (node.clone(), 0)).collect()
    }

    /// All claims, which all nodes may take.
    pub fn orphans(&self) -> Vec<Orphan<'_>> {
        static ANYONE: BTreeMap<NodeName, u32> = BTreeMap::new();
        let candidates: Rc<[&NodeName]> = self.nodes.iter().collect();
        let orphan = |name| Orphan {
            name,
            addresses: 1,
            candidates: Rc::clone(&candidates),
            preference: &ANYONE,
            last: Vec::new(),
            apart: Vec::new(),
        };
        self.claims.iter().map(orphan).collect()
    }

    /// A core that has a session and knows all of this.
    pub fn settled_core(&self) -> Core {
        let now = Instant::from_boot(Duration::from_secs(1000));
        let config = Config {
            node: self.node(0),
            incarnation: Incarnation::new("machine", "boot"),
            lease_duration: Duration::from_secs(5),
            request_timeout: Duration::from_secs(1),
            restart_grace: Duration::from_secs(60),
        };
        let mut core =
            Core { election: Election::new(now, config, None), now, actions: Vec::new() };
        core.tell(Event::Interfaces(BTreeMap::from([(self.interface.clone(), self.link(0))])));
        core.tell(Event::Hearing(BTreeMap::from([(self.interface.clone(), now)])));
        core.tell(Event::Sessions((1..self.nodes.len()).map(|it| self.session(it, 0)).collect()));
        core.tell(Event::Claims((0..self.claims.len()).map(|it| self.claim(it, 0)).collect()));
        core.tell(Event::Desired(Arc::clone(&self.desired)));
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

    fn link(&self, node: usize) -> Interface {
        let link = self.listed(node);
        Interface {
            mac: link.mac,
            mtu: 1500,
            carrier: true,
            addresses: link.addresses,
            default_route: true,
            only_if_named: false,
        }
    }

    fn listed(&self, node: usize) -> SessionInterface {
        let [high, low] = u16::try_from(node + 1).expect("few nodes").to_be_bytes();
        let own = IpAddr::from(Ipv4Addr::new(10, 255, high, low));
        SessionInterface {
            name: self.interface.clone(),
            mac: MacAddr::new(2, 0, 0, 0, high, low),
            mtu: Some(1500),
            addresses: vec![IpNet::new(own, 8).expect("a prefix")],
            default_route: true,
            only_if_named: false,
        }
    }

    fn session(&self, node: usize, version: u64) -> Arc<Stored<Session>> {
        Arc::new(Stored {
            name: LeaseName::session(&self.nodes[node]),
            uid: format!("uid-{node}").into(),
            resource_version: version.to_string().into(),
            acquired: None,
            record: Session {
                holder: Some(self.node(node)),
                transitions: 1,
                duration_seconds: 5,
                incarnation: Some(Incarnation::new(&format!("machine-{node}"), "boot")),
                interfaces: vec![self.listed(node)],
                ..Session::default()
            },
        })
    }

    fn claim(&self, number: usize, version: u64) -> Arc<Stored<Claim>> {
        let owner = 1 + number % (self.nodes.len() - 1);
        let name = self.claims[number].clone();
        Arc::new(Stored {
            uid: format!("uid-of-{name}").into(),
            resource_version: version.to_string().into(),
            acquired: None,
            record: Claim {
                holder: Some(self.node(owner)),
                transitions: 1,
                duration_seconds: 60,
                services: vec![name.to_string()],
                addresses: BTreeSet::from([address(number)]),
                interface: Some(self.interface.clone()),
                mac: Some(self.listed(owner).mac),
                session: Some(SessionId { uid: format!("uid-{owner}").into(), transitions: 1 }),
                cause: "new service".to_owned(),
                took: None,
                successor: None,
                move_to: None,
            },
            name,
        })
    }

    /// This node has renewed its session.
    pub fn renewed(&self, node: usize, version: u64) -> Arc<Stored<Session>> {
        self.session(node, version)
    }

    /// The owner of this claim has refreshed it.
    pub fn refreshed(&self, number: usize, version: u64) -> Arc<Stored<Claim>> {
        self.claim(number, version)
    }

    /// The session of this node was ended by another.
    pub fn fenced(&self, node: usize) -> Arc<Stored<Session>> {
        let mut ended = Stored::clone(&self.session(node, 1));
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

fn address(number: usize) -> IpAddr {
    let [_, a, b, c] = u32::try_from(number + 1).expect("few services").to_be_bytes();
    IpAddr::from(Ipv4Addr::new(10, a, b, c))
}
