//! The state of the cluster as the active replica knows it: the one snapshot from which the page of the cluster and
//! its JSON are made. The task that owns the index takes it on request.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use k8s_openapi::jiff::Timestamp;
use leasehold::version;
use leasehold_core::explain::Share;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};
use serde::Serialize;

use crate::allocate::Usage;
use crate::clock::Instant;
use crate::reconcile::index::Index;
use crate::reconcile::leases::ClaimRow;

/// The number of moves that are kept.
const MOVES: usize = 100;

/// The state of the cluster. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The version of this program.
    pub version: &'static str,
    /// The role of this replica.
    pub role: String,
    /// The nodes of the cluster.
    pub nodes: BTreeMap<String, Node>,
    /// The Services that have an address of Leasehold, or wait for one.
    pub services: Vec<Service>,
    /// The pools.
    pub pools: BTreeMap<String, Pool>,
    /// The changes of owners that this replica saw, the last first.
    pub moves: Vec<Move>,
}

/// A node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Whether its speaker has a session.
    pub lives: bool,
    /// The time since the last observed change of the session.
    pub age: Option<u64>,
    /// Further remarks, in a few words each; empty without any.
    pub remarks: Vec<&'static str>,
}

/// A Service.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its name, as `namespace/name`.
    pub service: String,
    /// The addresses that it has.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from.
    pub pool: Option<String>,
    /// The owners of the addresses: one, without `spread: PerAddress`.
    pub owners: Vec<Owner>,
    /// The obstacle to its allocation or its announcement, if there is one.
    pub trouble: Option<String>,
}

/// The owner of addresses of a Service.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
    /// The node; none: nobody.
    pub node: Option<NodeName>,
    /// The interface that carries them.
    pub interface: Option<InterfaceName>,
    /// Since when, by the owner's clock.
    pub since: Option<Timestamp>,
    /// Why.
    pub cause: String,
    /// The duration of the change of owner.
    pub took: Option<u64>,
    /// The nodes over which packets for the addresses are spread, by name; empty if they are not.
    pub shares: Vec<Share>,
}

/// The usage of a pool, in addresses.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// IPv4: assigned, and available.
    pub ipv4: [u128; 2],
    /// IPv6.
    pub ipv6: [u128; 2],
}

/// A change of owner.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// When it was seen, by this replica's wall clock.
    pub at: Timestamp,
    /// The services.
    pub services: Vec<String>,
    /// The previous owner, if this replica saw it.
    pub from: Option<NodeName>,
    /// The new owner.
    pub to: NodeName,
    /// Why.
    pub cause: String,
    /// The duration of the change, once the owner has written it.
    pub took: Option<u64>,
    #[serde(skip)]
    ownership: (LeaseName, i32),
}

/// The changes of owners that were seen.
#[derive(Debug, Default)]
pub struct Moves {
    owners: BTreeMap<LeaseName, NodeName>,
    seen: VecDeque<Move>,
}

impl Moves {
    /// A claim is `row` now. The first that is seen of each is no change.
    pub fn note(&mut self, at: Timestamp, name: &LeaseName, row: &ClaimRow) {
        let Some(holder) = &row.record.holder else { return };
        let ownership = (name.clone(), row.record.transitions);
        let from = self.owners.insert(name.clone(), holder.clone());
        let is_news = from.as_ref().is_some_and(|from| from != holder);
        if is_news {
            self.seen.truncate(MOVES - 1);
            self.seen.push_front(Move {
                at,
                services: row.record.services.clone(),
                from,
                to: holder.clone(),
                cause: row.record.cause.clone(),
                took: row.record.took.map(millis),
                ownership,
            });
        } else if let Some(took) = row.record.took
            && let Some(told) = self.seen.iter_mut().find(|one| one.ownership == ownership)
        {
            told.took = Some(millis(took));
        }
    }

    /// A claim is gone.
    pub fn forget(&mut self, name: &LeaseName) {
        self.owners.remove(name);
    }
}

impl ClusterStatus {
    /// The snapshot of what `index` knows at `now`.
    pub fn of(
        index: &Index,
        usage: &BTreeMap<String, Usage>,
        moves: &Moves,
        role: String,
        now: Instant,
    ) -> Self {
        let pools = usage.iter().map(|(name, usage)| {
            let Usage { assigned_v4, available_v4, assigned_v6, available_v6 } = *usage;
            let pool =
                Pool { ipv4: [assigned_v4, available_v4], ipv6: [assigned_v6, available_v6] };
            (name.clone(), pool)
        });
        Self {
            version: version::line(),
            role,
            nodes: nodes(index, now),
            services: services(index),
            pools: pools.collect(),
            moves: moves.seen.iter().cloned().collect(),
        }
    }
}

fn nodes(index: &Index, now: Instant) -> BTreeMap<String, Node> {
    let mut nodes: BTreeMap<String, Node> =
        index.tables().nodes().iter().map(|(name, _)| (name.clone(), Node::default())).collect();
    for (name, session) in index.tables().sessions().iter() {
        let known = nodes.contains_key(name.as_str());
        let node = nodes.entry(name.to_string()).or_default();
        node.lives = session.live.is_some();
        node.age = index.tables().session_age(name, now).map(millis);
        node.remarks.extend((!known).then_some("no such Node"));
        node.remarks.extend(session.record.drain.then_some("drained by annotation"));
        node.remarks.extend(session.record.restarting.then_some("speaker restarts"));
    }
    for (name, row) in index.tables().nodes().iter() {
        if let Some(node) = nodes.get_mut(name) {
            let session = name.parse().ok().and_then(|name| index.tables().sessions().get(&name));
            node.remarks.extend(row.is_excluded(session).then_some("excluded"));
        }
    }
    nodes
}

fn services(index: &Index) -> Vec<Service> {
    let wanted =
        index.tables().services().iter().filter(|(_, row)| index.tables().request(row).is_some());
    let rows = wanted.map(|(key, row)| {
        let claims = row
            .claims()
            .into_iter()
            .flat_map(|claims| std::iter::once(&claims.claim).chain(&claims.by_address));
        let owners = claims.filter_map(|name| index.tables().claims().get(name)).map(|claim| {
            let valid = index.tables().is_valid(claim);
            Owner {
                addresses: claim
                    .record
                    .addresses
                    .iter()
                    .filter(|ip| row.present.contains(ip))
                    .copied()
                    .collect(),
                node: claim.record.holder.clone().filter(|_| valid),
                interface: claim.record.interface.clone().filter(|_| valid),
                since: claim.acquired.filter(|_| valid),
                cause: claim.record.cause.clone(),
                took: claim.record.took.map(millis),
                shares: Share::of(&claim.record.members),
            }
        });
        Service {
            service: key.to_string(),
            addresses: row.present.clone(),
            pool: index.tables().request(row).and_then(|request| request.allocated_from.clone()),
            owners: owners.collect(),
            trouble: row.trouble(),
        }
    });
    rows.collect()
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
