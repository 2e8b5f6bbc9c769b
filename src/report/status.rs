//! The state of this speaker: the one snapshot from which the page and its JSON are made. The task that owns the
//! core takes it on request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_crds::names::{InterfaceName, NodeName};
use serde::Serialize;

use crate::version;
use leasehold_core::clock::Instant;
use leasehold_core::desired::NodeState;
use leasehold_core::election::{Election, Fact, KernelView, Remark, Story};
use leasehold_core::explain::Share;

/// The number of moves that are kept.
const MOVES: usize = 50;

/// The state of this speaker. Times are in milliseconds unless their names say otherwise.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The node of this speaker.
    pub node: NodeName,
    /// The version of this program, and its commit.
    pub version: &'static str,
    /// Whether the API server answers.
    pub api_answers: bool,
    /// Why this speaker does not take part, a line for each reason; empty: it does.
    pub not_ready: Vec<String>,
    /// The time since each watch last delivered anything.
    pub watch_age: BTreeMap<&'static str, u64>,
    /// The speakers of the cluster.
    pub speakers: Vec<Speaker>,
    /// The claims that the cluster asks for.
    pub claims: Vec<Claim>,
    /// The addresses that the kernel has for this node's claims.
    pub kernel: Vec<KernelAddress>,
    /// The recent changes of owner in which this node took part, the last first.
    pub moves: Vec<Move>,
    /// Interfaces on which only leases tell who died.
    pub blind: BTreeSet<InterfaceName>,
}

/// The speaker of a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Speaker {
    /// The node.
    pub node: NodeName,
    /// `node/transitions`: what logs call a failover of this session.
    pub session: String,
    /// Whether its session lives.
    pub lives: bool,
    /// The time since the last observed change of its session.
    pub age: u64,
    /// For how long it may stay unchanged.
    pub lasts: u64,
    /// Further remarks, in a few words each; empty without any.
    pub remarks: Vec<String>,
    /// The interfaces that can announce, with their addresses.
    pub interfaces: BTreeMap<InterfaceName, Vec<String>>,
    /// Why its session last changed hands.
    pub cause: String,
    /// The number of addresses of this node that each other one would take if it died now; those without a taker under
    /// the empty name.
    pub without: BTreeMap<String, usize>,
}

/// A claim.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Its services, as `namespace/name`.
    pub services: Vec<String>,
    /// The name of its lease.
    pub lease: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The owner.
    pub owner: Option<NodeName>,
    /// The interface of the owner that carries the addresses.
    pub interface: Option<InterfaceName>,
    /// Since when, by the owner's clock.
    pub since: Option<Timestamp>,
    /// Why.
    pub cause: String,
    /// The duration of the change of owner.
    pub took: Option<u64>,
    /// To whom it is being handed over.
    pub successor: Option<NodeName>,
    /// The former owner to which this node forwards packets of connections that it does not know.
    pub forwards_to: Option<NodeName>,
    /// Whether this node serves it while the API server does not answer, although another owns it.
    pub provisional: bool,
    /// The nodes over which its packets are spread, by name; empty if they are not.
    pub shares: Vec<Share>,
}

/// An address that the kernel has.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelAddress {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it.
    pub interface: InterfaceName,
    /// After which time the kernel removes it if nobody renews it.
    pub left: u64,
}

/// A change of owner that this node took part in.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// When, by this node's wall clock.
    pub at: Timestamp,
    /// The name of the claim's lease.
    pub claim: String,
    /// The name of the failover in logs.
    pub failover: Option<String>,
    /// Whether this node took it; otherwise it gave it.
    pub taken: bool,
    /// From whom it was taken, if from anybody.
    pub from: Option<NodeName>,
    /// One word: why it was taken; or why it was given.
    pub cause: String,
    /// The duration from the first sign until the addresses were announced.
    pub took: Option<u64>,
}

/// The recent changes of owner in which this node took part.
#[derive(Debug, Default)]
pub struct Moves(VecDeque<Move>);

impl Moves {
    /// Remembers what `fact` says of a move, at wall time `at`.
    pub fn note(&mut self, at: Timestamp, fact: &Fact) {
        let one = match fact {
            Fact::Serving { claim, story: Story { cause, from, .. }, took, .. } => Move {
                at,
                claim: claim.to_string(),
                failover: from.as_ref().map(ToString::to_string),
                taken: true,
                from: from.as_ref().map(|from| from.node.clone()),
                cause: cause.word().to_owned(),
                took: Some(millis(*took)),
            },
            Fact::Yielded { claim, cause, owner } => Move {
                at,
                claim: claim.to_string(),
                failover: owner.as_ref().map(ToString::to_string),
                taken: false,
                from: None,
                cause: cause.clone(),
                took: None,
            },
            _ => return,
        };
        self.0.truncate(MOVES - 1);
        self.0.push_front(one);
    }
}

/// Everything that a snapshot is made from.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The core.
    pub election: &'a Election,
    /// The addresses in the kernel.
    pub kernel: &'a KernelView,
    /// The recent changes of owner.
    pub moves: &'a Moves,
    /// The time since each watch last delivered anything.
    pub watch_age: BTreeMap<&'static str, Duration>,
    /// The text of `/readyz` while this speaker is not ready.
    pub not_ready: Option<String>,
}

impl Status {
    /// The snapshot at `now`.
    pub fn at(now: Instant, sources: &Sources<'_>) -> Self {
        let Sources { election, kernel, moves, watch_age, not_ready } = sources;
        let kernel = kernel.ours.iter().map(|(address, there)| KernelAddress {
            address: *address,
            interface: there.interface.clone(),
            left: millis(there.until.saturating_since(now)),
        });
        Self {
            node: election.node().clone(),
            version: version::line(),
            api_answers: election.is_api_answering(now),
            not_ready: not_ready.iter().flat_map(|text| text.lines()).map(str::to_owned).collect(),
            watch_age: watch_age.iter().map(|(part, age)| (*part, millis(*age))).collect(),
            speakers: speakers(now, election),
            claims: claims(election),
            kernel: kernel.collect(),
            moves: moves.0.iter().cloned().collect(),
            blind: election.blind().cloned().collect(),
        }
    }

    /// The claims and addresses that `node` owns.
    pub fn owned_by(&self, node: &NodeName) -> impl Iterator<Item = (&Claim, IpAddr)> {
        let owned = self.claims.iter().filter(move |claim| claim.owner.as_ref() == Some(node));
        owned.flat_map(|claim| claim.addresses.iter().map(move |address| (claim, *address)))
    }
}

fn speakers(now: Instant, election: &Election) -> Vec<Speaker> {
    let views = election.speaker_views(now).into_iter().map(|view| {
        let mut remarks: Vec<&str> = Vec::new();
        let state = match view.state {
            None => Some("no such Node"),
            Some(NodeState::Ready) => None,
            Some(NodeState::NotReady) => Some("not ready"),
            Some(NodeState::Cordoned) => Some("cordoned"),
            Some(NodeState::Draining) => Some("drained"),
            Some(NodeState::NetworkUnavailable) => Some("network unavailable"),
            Some(NodeState::Leaving) => Some("being deleted"),
        };
        remarks.extend(state);
        remarks.extend(view.remarks.iter().map(|remark| match remark {
            Remark::Drained => "drained by annotation",
            Remark::Restarting => "speaker is restarting",
            Remark::Silent => "does not answer probes",
            Remark::Down => "down: new connections lead to other nodes",
            Remark::ProxySilent => "kube-proxy does not answer",
            Remark::CannotSpread => "cannot spread packets over other nodes",
        }));
        let mut without = BTreeMap::new();
        for taker in election.without(&view.node).into_values() {
            *without.entry(taker.map(|node| node.to_string()).unwrap_or_default()).or_insert(0) +=
                1;
        }
        Speaker {
            session: format!("{}/{}", view.node, view.transitions),
            lives: view.lives,
            age: millis(view.age),
            lasts: millis(view.lasts),
            remarks: remarks.into_iter().map(str::to_owned).collect(),
            interfaces: view
                .interfaces
                .into_iter()
                .map(|(name, nets)| (name, nets.iter().map(ToString::to_string).collect()))
                .collect(),
            cause: view.cause,
            without,
            node: view.node,
        }
    });
    views.collect()
}

fn claims(election: &Election) -> Vec<Claim> {
    let views = election.claim_views().into_iter().map(|view| Claim {
        services: view.services,
        lease: view.name.to_string(),
        addresses: view.addresses,
        owner: view.owner,
        interface: view.interface,
        since: view.since,
        cause: view.cause,
        took: view.took.map(millis),
        successor: view.successor,
        forwards_to: view.forwards_to,
        provisional: view.provisional,
        shares: Share::of(&view.members),
    });
    views.collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
