//! A cluster on paper: nodes on one segment, services of one address each, and what is stored of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use leasehold_core::desired::{Desired, NodeState};
use leasehold_core::election::{Interface, KernelAddress, KernelView, Serving};
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{
    Claim, DefaultRoutes, Detours, Incarnation, LeaseName, Session, SessionId, SessionInterface,
    Stored,
};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::world::controls::asked_for;

/// The prefix length of the segment, which holds nodes and services.
const PREFIX: u8 = 8;

/// Nodes and services, and who has which.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// The claims of the services.
    pub claims: Vec<LeaseName>,
    /// The node that owns each of them.
    pub owners: Vec<usize>,
    /// How many each node owns.
    counts: Vec<u32>,
    /// What is asked for.
    pub desired: Arc<Desired>,
    /// The one interface that each node has.
    pub interface: InterfaceName,
}

impl Cluster {
    /// How many nodes there may be.
    pub const MOST_NODES: usize = 65_000;
    /// How many services there may be.
    pub const MOST_SERVICES: usize = 1 << 23;

    /// So many nodes and services; `owner` says by its number which node has a service.
    pub fn new(nodes: usize, services: usize, owner: impl Fn(usize) -> usize) -> Self {
        let nodes: Vec<NodeName> =
            (0..nodes).map(|number| format!("worker-{number:04}").parse().unwrap()).collect();
        let claims: Vec<LeaseName> = (0..services)
            .map(|number| LeaseName::claim("shop", &format!("service-{number:05}")))
            .collect();
        let all: Arc<BTreeSet<NodeName>> = Arc::new(nodes.iter().cloned().collect());
        let asked = claims.iter().enumerate().map(|(number, name)| {
            let claim = asked_for(name.to_string(), Self::address(number), Arc::clone(&all));
            (name.clone(), Arc::new(claim))
        });
        let asked = asked.collect();
        let desired = Desired {
            polls: Desired::polls_of(&asked),
            claims: asked,
            nodes: nodes.iter().map(|node| (node.clone(), NodeState::Ready)).collect(),
            reach: BTreeMap::new(),
        };
        let owners: Vec<usize> = (0..services).map(owner).collect();
        let mut counts = vec![0; nodes.len()];
        for owner in &owners {
            counts[*owner] += 1;
        }
        Self {
            nodes,
            claims,
            owners,
            counts,
            desired: Arc::new(desired),
            interface: "eth0".parse().unwrap(),
        }
    }

    /// The address of the service with this number.
    pub fn address(number: usize) -> IpAddr {
        let [_, a, b, c] = u32::try_from(number + 1).unwrap().to_be_bytes();
        IpAddr::from(Ipv4Addr::new(10, a, b, c))
    }

    /// The address of a node.
    pub fn own(node: usize) -> IpAddr {
        let [high, low] = u16::try_from(node + 1).unwrap().to_be_bytes();
        IpAddr::from(Ipv4Addr::new(10, 255, high, low))
    }

    /// The MAC address of a node.
    pub fn mac(node: usize) -> MacAddr {
        let [high, low] = u16::try_from(node + 1).unwrap().to_be_bytes();
        MacAddr::new(2, 0, 0, 0, high, low)
    }

    /// What a node's speaker is told of its interface.
    pub fn link(&self, node: usize) -> Interface {
        let link = self.listed(node);
        Interface {
            mac: link.mac,
            mtu: 1500,
            carrier: true,
            addresses: link.addresses,
            link_local: None,
            default_routes: DefaultRoutes::BOTH,
            detours: Detours::default(),
            only_if_named: false,
        }
    }

    /// The same as its session lists it.
    pub fn listed(&self, node: usize) -> SessionInterface {
        SessionInterface {
            name: self.interface.clone(),
            mac: Self::mac(node),
            mtu: Some(1500),
            addresses: vec![IpNet::new(Self::own(node), PREFIX).unwrap()],
            link_local: None,
            default_routes: DefaultRoutes::BOTH,
            detours: Detours::default(),
            only_if_named: false,
        }
    }

    /// The host and boot of a node.
    pub fn incarnation(node: usize) -> Incarnation {
        Incarnation::new(&format!("machine-{node}"), "boot")
    }

    /// L, in seconds: at most 30 sessions are written per second.
    pub fn lease_seconds(&self) -> u64 {
        u64::try_from(self.nodes.len().div_ceil(10)).unwrap().max(5)
    }

    /// p, after which each speaker refreshes a claim.
    pub fn refresh_interval(&self) -> Duration {
        let speakers = u32::try_from(self.nodes.len()).unwrap();
        Duration::from_millis(1500).max(Duration::from_millis(100) * speakers)
    }

    /// The session of a node, as it is stored; as its speaker writes it, so that to renew it changes nothing.
    pub fn session(&self, node: usize, version: u64) -> Stored<Session> {
        Stored {
            name: LeaseName::session(&self.nodes[node]),
            uid: format!("uid-{node}").into(),
            resource_version: version.to_string().into(),
            acquired: None,
            record: Session {
                holder: Some(self.nodes[node].clone()),
                transitions: 1,
                duration_seconds: i32::try_from(self.lease_seconds()).unwrap(),
                incarnation: Some(Self::incarnation(node)),
                interfaces: vec![self.listed(node)],
                cause: "speaker restarted".to_owned(),
                ..Session::default()
            },
        }
    }

    /// The tenure of that session.
    pub fn session_id(node: usize) -> SessionId {
        SessionId { uid: format!("uid-{node}").into(), transitions: 1 }
    }

    /// The claim of the service with this number, as it is stored; as its owner writes it.
    pub fn claim(&self, number: usize, version: u64) -> Stored<Claim> {
        let owner = self.owners[number];
        let name = self.claims[number].clone();
        let turn = self.refresh_interval() * self.counts[owner] * 3;
        Stored {
            uid: format!("uid-{}", self.nodes.len() + number).into(),
            resource_version: version.to_string().into(),
            acquired: None,
            record: Claim {
                holder: Some(self.nodes[owner].clone()),
                transitions: 1,
                duration_seconds: i32::try_from(turn.as_secs().max(self.lease_seconds())).unwrap(),
                services: vec![name.to_string()],
                addresses: AddressSet::from([Self::address(number)]),
                interface: Some(self.interface.clone()),
                mac: Some(Self::mac(owner)),
                session: Some(Self::session_id(owner)),
                cause: "new service".to_owned(),
                ..Claim::default()
            },
            name,
        }
    }
}

/// What a kernel says that did all it was told.
pub fn obedient(serving: &Serving) -> KernelView {
    let ours = serving.vips.iter().filter_map(|(ip, vip)| {
        let interface = vip.attachment.interface()?.clone();
        Some((*ip, KernelAddress { interface, until: vip.until }))
    });
    KernelView {
        applied: serving.generation,
        told: serving.generation,
        ours: ours.collect(),
        ..KernelView::default()
    }
}
