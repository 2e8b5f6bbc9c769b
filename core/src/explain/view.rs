//! Ownership, candidates and rankings, as they follow from the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};

use super::world::{ClaimRow, SessionRow, World};
use crate::desired::{Desired, DesiredClaim, LeftOut, NodeState, ReturnPath, Rules, build};
use crate::election::{
    Bar, Late, UNSTEADY, Unowned, answers, bar, has_subnet_of, prefer_answering, rank,
};

/// A cluster as its objects describe it.
#[derive(Debug)]
pub struct View<'a> {
    world: &'a World,
    desired: Desired,
    rules: Rules<'a>,
    loads: BTreeMap<NodeName, usize>,
}

/// An obstacle that keeps a node from taking a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Policies, labels or endpoints leave it out.
    LeftOut(LeftOut),
    /// Its state.
    State(NodeState),
    /// Its speaker has no session.
    NoSession,
    /// People drain it.
    Drained,
    /// Its speaker restarts.
    Restarting,
    /// It has no endpoint, and cannot spread packets over nodes with endpoints.
    CannotSpread,
    /// No interface with a carrier can carry the addresses.
    NoInterface,
}

impl<'a> View<'a> {
    /// Computes the view of `world`.
    pub fn new(world: &'a World) -> Self {
        let (desired, _) = build(&world.snapshot, None);
        let rules = Rules::new(&world.snapshot);
        let mut view = Self { world, desired, rules, loads: BTreeMap::new() };
        view.loads = view.count();
        view
    }

    /// The objects.
    pub const fn world(&self) -> &'a World {
        self.world
    }

    /// The state that the cluster's objects ask for.
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Its policies.
    pub const fn rules(&self) -> &Rules<'a> {
        &self.rules
    }

    /// The session that `node` holds.
    pub fn live(&self, node: &NodeName) -> Option<&'a SessionRow> {
        self.world.sessions.get(node).filter(|session| session.is_live())
    }

    /// The owner of `claim`: its holder, as long as the session is live under which it is held.
    pub fn owner(&self, claim: &ClaimRow) -> Option<&'a NodeName> {
        self.world.owner(claim)
    }

    /// The owner of the claim of this name.
    pub fn owner_of(&self, name: &LeaseName) -> Option<&'a NodeName> {
        self.world.claims.get(name).and_then(|claim| self.owner(claim))
    }

    /// The number of addresses that each node with a session owns.
    pub const fn loads(&self) -> &BTreeMap<NodeName, usize> {
        &self.loads
    }

    fn count(&self) -> BTreeMap<NodeName, usize> {
        let live = self.world.sessions.iter().filter(|(_, session)| session.is_live());
        let mut loads: BTreeMap<NodeName, usize> =
            live.map(|(node, _)| (node.clone(), 0)).collect();
        for claim in self.world.claims.values() {
            if let Some(load) = self.owner(claim).and_then(|owner| loads.get_mut(owner)) {
                *load += claim.stored.record.addresses.len();
            }
        }
        loads
    }

    /// Through which interface `node` could carry `claim`, or why it cannot.
    pub fn candidate(
        &self,
        claim: &DesiredClaim,
        node: &NodeName,
    ) -> Result<&'a InterfaceName, Obstacle> {
        if let Some(left_out) = self.rules.leaves_out(claim, node) {
            return Err(Obstacle::LeftOut(left_out));
        }
        let state = self.desired.nodes.get(node).copied();
        // A cordon counts whether the speaker runs or not.
        if let Some(state) = state.filter(|state| !state.takes()) {
            return Err(Obstacle::State(state));
        }
        let Some(session) = self.live(node) else { return Err(Obstacle::NoSession) };
        if session.stored.record.drain {
            return Err(Obstacle::Drained);
        }
        let record = &session.stored.record;
        bar(claim, node, state, record, |vip| self.is_in_a_subnet(vip)).map_err(|bar| match bar {
            Bar::NotAllowed | Bar::NoNode => Obstacle::LeftOut(LeftOut::NoNode),
            Bar::State(state) => Obstacle::State(state),
            Bar::Restarting => Obstacle::Restarting,
            Bar::CannotSpread => Obstacle::CannotSpread,
            Bar::NoInterface => Obstacle::NoInterface,
        })
    }

    /// The subnet of an address of `claim` whose hosts `node` does not answer on `interface`.
    pub fn unanswered(
        &self,
        claim: &DesiredClaim,
        node: &NodeName,
        interface: &InterfaceName,
    ) -> Option<IpNet> {
        if claim.return_path == ReturnPath::Symmetric {
            return None;
        }
        let listed = &self.live(node)?.stored.record.interfaces;
        let interface = listed.iter().find(|listed| listed.name == *interface)?;
        claim.addresses.iter().find_map(|ip| interface.leaves_unanswered(*ip))
    }

    /// Whether the kube-proxy of `node`, which answered before, does not, as far as `claim` minds.
    pub fn is_proxy_silent(&self, claim: &DesiredClaim, node: &NodeName) -> bool {
        claim.proxied.asks()
            && self.live(node).is_some_and(|session| session.stored.record.proxy_silent)
    }

    /// Whether an interface of any node has a subnet that holds `vip`.
    pub fn is_in_a_subnet(&self, vip: IpAddr) -> bool {
        self.world.sessions.values().any(|session| has_subnet_of(&session.stored.record, vip))
    }

    /// The nodes that would take each of these claims, in the order in which they act, if the claims had no owner
    /// and these nodes had failed: the computation of all speakers.
    pub fn rank(
        &self,
        names: &BTreeSet<&LeaseName>,
        dead: &BTreeSet<NodeName>,
    ) -> BTreeMap<LeaseName, Vec<NodeName>> {
        let mut loads = self.loads.clone();
        loads.retain(|node, _| !dead.contains(node));
        let unsteady = |(node, session): (&'a NodeName, &SessionRow)| {
            (session.is_live() && session.stored.record.fences >= UNSTEADY).then_some(node)
        };
        let unsteady: Vec<_> = self.world.sessions.iter().filter_map(unsteady).collect();
        let owner = |name| self.owner_of(name).filter(|owner| !dead.contains(*owner));
        let unowned: Vec<Unowned<'_>> = names
            .iter()
            .filter_map(|name| {
                let (name, claim) = self.desired.claims.get_key_value(*name)?;
                let holder =
                    self.world.claims.get(name).and_then(|it| it.stored.record.holder.as_ref());
                let nodes = self.world.sessions.keys();
                let silent = nodes.filter(|node| self.is_proxy_silent(claim, node));
                let unfit = unsteady.iter().copied().chain(self.desired.not_ready()).chain(silent);
                let last = unfit.map(|node| (node, Late::Unfit));
                let last = last.chain(holder.map(|node| (node, Late::Gone)));
                let nodes = self.world.snapshot.nodes.keys().filter(|node| !dead.contains(*node));
                let able = nodes.filter_map(|node| {
                    let session = &self.live(node)?.stored.record;
                    let interface = self.candidate(claim, node).ok()?;
                    Some((node, answers(claim, session, interface)))
                });
                Some(Unowned {
                    name,
                    addresses: claim.addresses.len(),
                    candidates: prefer_answering(able.collect()).into(),
                    preference: &claim.preference,
                    last: last.collect(),
                    apart: claim.apart_from.iter().map(|other| (other, owner(other))).collect(),
                })
            })
            .collect();
        for name in names {
            // Unowned claims are nobody's burden yet.
            let load = self.owner_of(name).and_then(|owner| loads.get_mut(owner));
            if let (Some(load), Some(claim)) = (load, self.world.claims.get(*name)) {
                *load = load.saturating_sub(claim.stored.record.addresses.len());
            }
        }
        rank(&unowned, &loads)
    }
}
