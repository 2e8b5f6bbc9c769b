//! What the core knows, for people: nothing decides by it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use leasehold_crds::lease::{LeaseName, Members, Record as _};
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::clock::Instant;
use crate::desired::NodeState;
use crate::election::claim::Claims;
use crate::election::context::candidates::Candidates;
use crate::election::context::state::owner::Owner;
use crate::election::engine::Election;
use crate::election::placement::rank::{Late, Unowned as Ranked, turns};

/// The speaker of a node, as this node sees it.
#[derive(Clone, Debug)]
pub struct SpeakerView {
    /// The node.
    pub node: NodeName,
    /// The number of transitions of its session.
    pub transitions: i32,
    /// Whether its session lives.
    pub lives: bool,
    /// How long ago its session was last seen to change.
    pub age: Duration,
    /// For how long it may stay unchanged.
    pub lasts: Duration,
    /// What else is to be known of it.
    pub remarks: Vec<Remark>,
    /// What its Node says; none: there is none.
    pub state: Option<NodeState>,
    /// The interfaces that can announce, with their addresses.
    pub interfaces: Vec<(InterfaceName, Vec<IpNet>)>,
    /// Why its session last changed hands.
    pub cause: String,
}

/// What is to be known of a speaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Its addresses do not answer this node on the wire.
    Silent,
    /// No new connection is to lead to pods of its node.
    Down,
    /// It restarts.
    Restarting,
    /// The kube-proxy of its node, which answered before, does not.
    ProxySilent,
    /// It can spread no packets over other nodes.
    CannotSpread,
    /// People asked it to own nothing.
    Drained,
}

/// A claim, as this node sees it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Its name.
    pub name: LeaseName,
    /// Its services, as `namespace/name`.
    pub services: Vec<String>,
    /// The addresses that it governs.
    pub addresses: Vec<IpAddr>,
    /// Who owns it, validly.
    pub owner: Option<NodeName>,
    /// The interface that carries the addresses.
    pub interface: Option<InterfaceName>,
    /// Since when it has this owner, by that node's wall clock.
    pub since: Option<Timestamp>,
    /// Why it last changed its owner.
    pub cause: String,
    /// How long that took.
    pub took: Option<Duration>,
    /// To whom it is being handed over.
    pub successor: Option<NodeName>,
    /// The former owner to which this node forwards packets of connections that it does not know.
    pub forwards_to: Option<NodeName>,
    /// Whether this node serves it although another owns it, while the API server does not answer.
    pub provisional: bool,
    /// The nodes over which its packets are spread; empty if they are not.
    pub members: Members,
}

impl Election {
    /// The Services that a claim lists, each `namespace/name`.
    pub fn services_of(&self, claim: &LeaseName) -> Option<&[String]> {
        self.cx.claims().get(claim).map(|stored| stored.record.services.as_slice())
    }

    /// All speakers that were ever heard of.
    pub fn speaker_views(&self, now: Instant) -> Vec<SpeakerView> {
        let views = self.cx.sessions().iter().filter_map(|(name, entry)| {
            let stored = entry.stored.as_ref()?;
            let node: NodeName = name.as_str().parse().ok()?;
            let record = &stored.record;
            let seconds = u64::try_from(record.duration_seconds()).unwrap_or(0);
            Some(SpeakerView {
                transitions: record.transitions,
                lives: record.holder.as_ref() == Some(&node),
                age: now.saturating_since(entry.changed),
                lasts: Duration::from_secs(seconds),
                remarks: [
                    (Remark::Drained, record.drain),
                    (Remark::Restarting, record.restarting),
                    (Remark::Silent, self.cx.is_silent(&node)),
                    (Remark::Down, self.wire.is_down(&node)),
                    (Remark::ProxySilent, record.proxy_silent),
                    (Remark::CannotSpread, !record.spreads()),
                ]
                .into_iter()
                .filter_map(|(remark, holds)| holds.then_some(remark))
                .collect(),
                state: self.cx.desired().and_then(|it| it.nodes.get(&node).copied()),
                interfaces: record
                    .interfaces
                    .iter()
                    .map(|interface| (interface.name.clone(), interface.addresses.clone()))
                    .collect(),
                cause: record.cause.clone(),
                node,
            })
        });
        views.collect()
    }

    /// All claims that are asked for.
    pub fn claim_views(&self) -> Vec<ClaimView> {
        let Some(desired) = self.cx.desired() else { return Vec::new() };
        let views = desired.claims.iter().map(|(name, claim)| {
            let stored = self.cx.claims().get(name);
            let record = stored.map(|stored| &stored.record);
            let tenure = self.claims.tenures().get(name);
            ClaimView {
                name: name.clone(),
                services: claim.services.clone(),
                addresses: claim.addresses.iter().copied().collect(),
                owner: stored.and_then(|stored| match self.cx.owner(stored) {
                    Owner::Me => Some(self.cx.config().node.clone()),
                    Owner::Other(node) => Some(node),
                    Owner::Nobody => None,
                }),
                interface: record.and_then(|record| record.interface.clone()),
                since: stored.and_then(|stored| stored.acquired),
                cause: record.map(|record| record.cause.clone()).unwrap_or_default(),
                took: tenure
                    .and_then(super::super::claim::state::tenure::Tenure::took)
                    .or_else(|| record.and_then(|record| record.took)),
                successor: record
                    .and_then(|record| record.successor.as_ref())
                    .map(|successor| successor.node.clone()),
                forwards_to: self.handovers.former(&self.cx, name).cloned(),
                provisional: tenure.is_some_and(|tenure| tenure.provisional().is_some()),
                members: record.map(|record| record.members.clone()).unwrap_or_default(),
            }
        });
        views.collect()
    }

    /// How many claims have no owner although they are to be announced.
    pub fn unowned(&self) -> usize {
        let Some(desired) = self.cx.desired() else { return 0 };
        let nobodys = |name: &&LeaseName| {
            let wanted = desired.claims.get(*name).is_some_and(|claim| claim.silence.is_none());
            let stored = self.cx.claims().get(*name);
            wanted && stored.is_none_or(|stored| self.cx.owner(stored) == Owner::Nobody)
        };
        // What has no owner is open, or waits.
        self.claims.open().iter().chain(self.claims.open().waiting()).filter(nobodys).count()
    }

    /// Who would take what `node` owns if it died now; none where nobody could.
    pub fn without(&self, node: &NodeName) -> BTreeMap<LeaseName, Option<NodeName>> {
        let Some(desired) = self.cx.desired() else { return BTreeMap::new() };
        let owned = |name: &LeaseName| {
            let stored = self.cx.claims().get(name)?;
            let valid = self.cx.owner(stored) != Owner::Nobody;
            (valid && stored.record.holder.as_ref() == Some(node)).then_some(())
        };
        let mut lists = Candidates::new(&self.cx, desired);
        let unfit = Claims::last_in_line(&self.cx, desired);
        let unowned: Vec<Ranked<'_>> = desired
            .claims
            .iter()
            .filter(|(name, _)| owned(name).is_some())
            .map(|(name, claim)| Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: lists.of(claim, 0, |candidate| candidate != node),
                preference: &claim.preference,
                last: unfit.of(claim).chain([(node, Late::Gone)]).collect(),
                apart: Claims::apart(&self.cx, claim),
            })
            .collect();
        let mut loads = self.claims.loads(&self.cx);
        loads.remove(node);
        let firsts = turns(&unowned, &loads, node).into_iter().map(|turn| turn.first.cloned());
        unowned.iter().map(|unowned| unowned.name.clone()).zip(firsts).collect()
    }
}
