//! Addresses whose packets are spread over nodes with endpoints (`dataPath: Spread`).
//!
//! The owner forwards each packet for such an address to a node by a hash of its client: the hash chooses a bucket, and
//! [`table`] says which node has it, from the set of nodes alone. So each owner chooses the same, and a connection outlives
//! its owner. The claim names the set (`members`) and its last changes (`former_members`).
//!
//! When the set changes, some buckets change their node. The packets of what is open through these come to a node that
//! does not know them, and go on from there to the node that had the bucket before. All nodes compute this order of a
//! bucket from the claim. As nodes may go by different versions of it, a node drops what it does not know and was
//! not to get: TCP sends it again when both have heard of the change.
//!
//! A node that is down loses its buckets at once, without a write. One that is added gets its own once the claim names
//! it.

pub(in crate::election) mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, MemberChange, Members};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::{ReturnPath, ServicePort};
use crate::election::claim::Claims;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::io::event::Action;
use crate::election::io::spreading::{Layout, Member, Order, SpreadAddress, Spreading, Trial, Way};
use crate::election::spread::table::{Table, Tables};
use crate::election::wire::Wire;

/// The claims whose addresses are spread.
#[derive(Debug, Default)]
pub(in crate::election) struct Spreads {
    known: BTreeMap<LeaseName, Known>,
    tables: Tables,
    /// As it was told last.
    told: Option<Arc<Spreading>>,
    /// Whether something has changed since.
    stale: bool,
    /// Whether this node can spread packets now and could not before, or the other way round.
    restated: bool,
    /// When the next time ends that changes it.
    next: Option<Instant>,
    /// The revisions of the sessions and of the nodes that are down that it was made from, …
    revisions: (u64, u64),
    /// … the nodes that were lost then, …
    lost: BTreeSet<NodeName>,
    /// … and those that were down.
    down: BTreeSet<NodeName>,
}

/// The set of a claim as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    addresses: AddressSet,
    part: Part,
    holder: Option<NodeName>,
    members: Members,
    changes: Box<[MemberChange]>,
    /// The owners from when it was not spread.
    owners: Box<[NodeName]>,
    /// When the set last changed.
    changed: Instant,
    /// The end of the time in which connections go on to former nodes.
    until: Instant,
    /// Whether that has passed.
    over: bool,
    /// The set that is in use.
    present: Members,
    /// Those that were in use here before, the last one first, each with the end of the time in which connections go on
    /// to its nodes: the claim need not have named them.
    recent: Vec<(Members, Instant)>,
}

/// The part of this node in a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    ports: Arc<BTreeSet<ServicePort>>,
    by_client: bool,
    /// Whether clients' packets come to this node, for all that it knows.
    owns: bool,
    /// The interface that carries the claim here, or would.
    interface: Option<InterfaceName>,
    /// The interface of the return path.
    returns: Option<InterfaceName>,
    /// The interface on the segment of the claim, if it is to be spread.
    tried: Option<InterfaceName>,
    /// Whether this node has endpoints.
    answers: bool,
}

/// The number of speakers to which each sends packets, to be told which of them come through.
const PEERS: usize = 3;

/// The time after a change of the claim in which no node is given buckets: until all have heard of it.
const HEARD: Duration = Duration::from_millis(250);

impl Known {
    /// Whether all nodes have heard of the last change, if there was one.
    fn are_changes_known(&self, now: Instant) -> bool {
        self.changes.is_empty() || now >= self.changed + HEARD
    }

    /// Whether the claim says that these are its members, or were.
    fn names(&self, set: &Members) -> bool {
        let mut before = self.members.before(&self.changes);
        set.is_empty() || *set == self.members || before.any(|before| before == *set)
    }
}

/// The most sets that were in use here and are remembered.
const RECENT: usize = 8;

/// All that a layout is made from, but for sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Basis {
    /// The sets, the present one first.
    sets: Vec<Members>,
    owners: Vec<NodeName>,
    /// The node that clients' packets come from, unless it is down.
    owner: Option<NodeName>,
    six: bool,
}

impl Spreads {
    /// Takes in that the state of this node's data path is another one.
    pub(in crate::election) const fn note_state(&mut self) {
        self.restated = true;
    }

    /// Follows the stored claim, and takes in over which nodes its owner is to spread it.
    pub(in crate::election) fn note(
        &mut self,
        cx: &Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
    ) {
        let stored = cx.claims().get(name).map(|stored| &stored.record);
        let wanted = cx.desired_claim(name).is_some_and(|claim| claim.spread.is_some());
        let spread = stored.filter(|record| wanted || !record.members.is_empty());
        if !wanted && spread.is_none() && !self.known.contains_key(name) {
            // Most claims are not spread, and were not.
            return;
        }
        let asked = Self::asked(cx, claims, &self.down, name);
        self.stale |= claims.set_members(name, asked);
        let Some(record) = spread else {
            self.stale |= self.known.remove(name).is_some();
            return;
        };
        let before = self.known.get(name);
        let same = before.filter(|known| {
            (&known.members, &known.changes, &known.owners)
                == (&record.members, &record.former_members, &record.former)
        });
        let known = Known {
            addresses: record.addresses.clone(),
            part: Self::part(cx, claims, name, record),
            holder: record.holder.clone(),
            members: record.members.clone(),
            changes: record.former_members.clone(),
            owners: record.former.clone(),
            changed: same.map_or(now, |known| known.changed),
            until: same.map_or_else(|| now + Self::lasts(cx, name), |known| known.until),
            over: same.is_some_and(|known| known.over),
            present: before.map(|known| known.present.clone()).unwrap_or_default(),
            recent: before.map(|known| known.recent.clone()).unwrap_or_default(),
        };
        if before != Some(&known) {
            self.known.insert(name.clone(), known);
            self.stale = true;
        }
    }

    /// The part of this node. Each candidate is ready to spread the claim, so that a takeover has nothing to wait for.
    fn part(cx: &Context, claims: &Claims, name: &LeaseName, record: &Claim) -> Part {
        let claim = cx.desired_claim(name);
        let spread = claim.and_then(|claim| claim.spread.as_ref());
        let tenure = claims.tenures().get(name);
        let serves =
            |it: &&Tenure| it.is_mine() || it.yielding().is_some() || it.provisional().is_some();
        let serving = tenure.filter(serves).and_then(Tenure::interface);
        // A process that has just begun does not serve it yet, and the kernel may have it.
        let stored = record.interface.as_ref();
        let owned = stored.filter(|_| record.holder.as_ref() == Some(cx.node()));
        let here = claim.and_then(|claim| cx.local_interface(claim)).map(|(name, _)| name);
        let candidate = here.filter(|_| spread.is_some());
        let interface = serving.or(owned).or(candidate);
        let meets_owner = || {
            let (interface, _) = record.holder.as_ref().and_then(|owner| cx.met(owner))?;
            Some(interface)
        };
        let symmetric = claim.is_some_and(|it| it.return_path == ReturnPath::Symmetric);
        Part {
            ports: claim.map(|claim| Arc::clone(&claim.proxied.ports)).unwrap_or_default(),
            by_client: spread.is_some_and(|spread| spread.by_client),
            owns: tenure.is_some_and(|it| it.is_mine() || it.provisional().is_some()),
            returns: here.filter(|_| symmetric).cloned(),
            tried: interface.or_else(meets_owner).filter(|_| spread.is_some()).cloned(),
            interface: interface.cloned(),
            answers: spread.is_some_and(|spread| spread.members.weight(cx.node()) > 0),
        }
    }

    /// The time for which connections go on to nodes that had their bucket.
    fn lasts(cx: &Context, name: &LeaseName) -> Duration {
        cx.desired_claim(name).map(|claim| claim.connection_handover).unwrap_or_default()
    }

    /// The nodes over which this node is to spread a claim that it owns; `None`: that is not known.
    fn asked(
        cx: &Context,
        claims: &Claims,
        down: &BTreeSet<NodeName>,
        name: &LeaseName,
    ) -> Option<Members> {
        let tenure = claims.tenures().get(name).filter(|tenure| tenure.is_mine())?;
        let claim = cx.desired_claim(name).filter(|claim| !claim.held)?;
        let record = cx.claims().get(name).map(|stored| &stored.record);
        let Some(spread) = &claim.spread else {
            // There may be nothing to end.
            return record.filter(|it| !it.members.is_empty()).map(|_| Members::default());
        };
        let carrying = tenure.interface();
        let is_reached = |node: &NodeName| {
            let hop = |ip: &IpAddr| {
                let (interface, link) = cx.met(node)?;
                let same = carrying.is_some_and(|carrying| cx.share_a_segment(interface, carrying));
                if !same {
                    return None;
                }
                cx.hop(interface, link, *ip).filter(|_| cx.has_same_mtu(interface, link))
            };
            let reached = || claim.addresses.iter().all(|ip| hop(ip).is_some());
            cx.spreads(node) && !down.contains(node) && reached()
        };
        let spreads = cx.spreads(cx.node());
        let members =
            spread.members.filtered(|node| node == cx.node() || spreads && is_reached(node));
        let none = members.is_empty() && !spread.members.is_empty();
        // Those that cannot be reached now are better than none.
        if none { record.map(|record| record.members.clone()) } else { Some(members) }
    }

    /// Tells how packets are to be spread, if that has changed. To be called before anything is served.
    pub(in crate::election) fn advance(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if cx.desired().is_none() {
            // What a former process left stays.
            return;
        }
        let revisions = (cx.sessions().revision(), wire.falls_revision());
        let same = !std::mem::take(&mut self.restated) && revisions == self.revisions;
        let ends = self.next.is_some_and(|next| now >= next);
        if same && !ends && !self.stale && self.told.is_some() {
            return;
        }
        for (name, known) in self.known.iter_mut().filter(|(_, it)| !it.over && now >= it.until) {
            known.over = true;
            claims.with(cx, name, Tenure::forget_former_owners);
        }
        self.revisions = revisions;
        self.lost.clone_from(wire.lost());
        self.down.clone_from(wire.down());
        if !same {
            for name in self.known.keys().cloned().collect::<Vec<_>>() {
                self.note(cx, claims, now, &name);
            }
        }
        self.stale = false;
        self.follow_sets(cx, claims, now);
        self.next = self.ends().filter(|at| *at > now).min();
        let spreading = self.spreading(cx);
        if self.told.as_deref() != Some(&spreading) {
            let spreading = Arc::new(spreading);
            self.told = Some(Arc::clone(&spreading));
            actions.push(Action::Spread(spreading));
        }
    }

    /// Takes in which sets are in use, and remembers which were.
    fn follow_sets(&mut self, cx: &Context, claims: &mut Claims, now: Instant) {
        for (name, known) in &mut self.known {
            let asked = claims.tenures().get(name).and_then(Tenure::members);
            let owns = asked.is_some();
            // What the owner has done all others have to know of before it gives buckets to a node that may not.
            let lasts = Self::lasts(cx, name);
            let named = known.names(&known.present) && known.are_changes_known(now);
            let may_add = lasts.is_zero() || named;
            let there = |node: &NodeName| match asked {
                Some(asked) => {
                    asked.weight(node) > 0 && (may_add || known.present.weight(node) > 0)
                }
                None => node == cx.node() || !self.down.contains(node),
            };
            let mut present = known.members.filtered(there);
            if present.is_empty() {
                present.clone_from(&known.members);
            }
            known.recent.retain(|(_, until)| now < *until);
            if present != known.present {
                let before = std::mem::replace(&mut known.present, present);
                let until = now + lasts;
                if now < until && !before.is_empty() {
                    known.recent.retain(|(set, _)| *set != before);
                    known.recent.insert(0, (before, until));
                    known.recent.truncate(RECENT);
                }
            }
            let unnamed = (owns && !lasts.is_zero() && !known.names(&known.present))
                .then(|| known.present.clone());
            claims.set_unnamed_members(name, unnamed);
        }
    }

    fn spreading(&mut self, cx: &Context) -> Spreading {
        let mut layouts: BTreeMap<Basis, Arc<Layout>> = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        let mut tables = std::mem::take(&mut self.tables);
        for known in self.known.values() {
            let Part { ports, by_client, owns, interface, returns, .. } = &known.part;
            for ip in &known.addresses {
                let basis = self.basis(cx, known, *owns, ip.is_ipv6());
                let layout = match layouts.get(&basis) {
                    Some(layout) => Arc::clone(layout),
                    None => Arc::new(self.layout(cx, &mut tables, &basis, *ip)),
                };
                layouts.entry(basis).or_insert_with(|| Arc::clone(&layout));
                let answers = layout.members.iter().any(|member| member.way == Way::Here);
                let address = SpreadAddress {
                    ports: Arc::clone(ports),
                    by_client: *by_client,
                    interface: interface.clone(),
                    returns: returns.clone().filter(|_| answers),
                    layout,
                };
                addresses.insert(*ip, address);
            }
        }
        tables.forget_unused();
        self.tables = tables;
        let spread = !addresses.is_empty();
        let speakers = spread.then(|| cx.macs_of_others().collect());
        let trials = self.trials(cx);
        Spreading { addresses, speakers: speakers.unwrap_or_default(), trials }
    }

    /// The segments of claims that are to be spread.
    fn trials(&self, cx: &Context) -> Vec<Trial> {
        let mut trials: BTreeMap<(&InterfaceName, bool), Trial> = BTreeMap::new();
        for part in self.known.values() {
            let Some(interface) = &part.part.tried else { continue };
            for ip in &part.addresses {
                let new = || Trial {
                    interface: interface.clone(),
                    address: *ip,
                    answers: None,
                    peers: Self::peers(cx, interface),
                };
                let trial = trials.entry((interface, ip.is_ipv6())).or_insert_with(new);
                if part.part.answers && trial.answers.is_none() {
                    trial.answers = Some(*ip);
                }
            }
        }
        trials.into_values().filter(|trial| !trial.peers.is_empty()).collect()
    }

    /// The next nodes after this one, by their names, that it meets on an interface.
    fn peers(cx: &Context, interface: &InterfaceName) -> Box<[MacAddr]> {
        let met = cx.live_sessions().filter(|(node, _)| *node != cx.node());
        let met = met.filter_map(|(node, stored)| {
            let mut links = stored.record.interfaces.iter();
            Some((node, links.find(|link| cx.meets(link) == Some(interface))?.mac))
        });
        let mut peers: Vec<_> = met.map(|(node, mac)| (node < cx.node(), node, mac)).collect();
        peers.sort_unstable();
        peers.into_iter().map(|(.., mac)| mac).take(PEERS).collect()
    }

    /// The sets of a claim: what is in use now and was in use here, then what the claim says, and said before.
    fn basis(&self, cx: &Context, known: &Known, serves: bool, six: bool) -> Basis {
        let mut sets = vec![known.present.clone()];
        sets.extend(known.recent.iter().map(|(set, _)| set.clone()));
        sets.push(known.members.clone());
        let mut owners = Vec::new();
        if !known.over {
            sets.extend(known.members.before(&known.changes));
            owners.extend_from_slice(&known.owners);
        }
        let mut distinct = BTreeSet::new();
        sets.retain(|set| !set.is_empty() && distinct.insert(set.clone()));
        let holder = known.holder.clone().filter(|holder| !self.down.contains(holder));
        let owner = if serves { Some(cx.node().clone()) } else { holder };
        Basis { sets, owners, owner, six }
    }

    fn layout(&self, cx: &Context, tables: &mut Tables, basis: &Basis, ip: IpAddr) -> Layout {
        let named = basis.sets.iter().flat_map(Members::iter).map(|(node, _)| node);
        let nodes = named.chain(&basis.owners).chain(&basis.owner);
        let nodes: BTreeSet<&NodeName> = nodes.collect();
        let numbered = (0_u16..).zip(&nodes);
        let numbers: BTreeMap<&NodeName, u16> =
            numbered.map(|(number, node)| (*node, number)).collect();
        let of_sets: Vec<(Vec<u16>, Table)> = basis
            .sets
            .iter()
            .map(|set| {
                let positions = set.iter().filter_map(|(node, _)| numbers.get(node).copied());
                (positions.collect(), tables.of(set))
            })
            .collect();
        let owners: Vec<u16> =
            basis.owners.iter().filter_map(|node| numbers.get(node).copied()).collect();
        let count = of_sets.iter().map(|(_, table)| table.len()).max().unwrap_or(0);
        let order = |bucket: usize| {
            let had = of_sets.iter().filter_map(|(nodes, table)| {
                let position = table.get(bucket).copied().map(usize::from)?;
                nodes.get(position).copied()
            });
            Order::of(had.chain(owners.iter().copied()))
        };
        let buckets = (0..count).map(order).collect();
        let members = nodes.into_iter().map(|node| self.member(cx, node, ip)).collect();
        let owner = basis.owner.as_ref().and_then(|owner| numbers.get(owner).copied());
        Layout { members, owner, buckets }
    }

    fn member(&self, cx: &Context, node: &NodeName, ip: IpAddr) -> Member {
        let macs = cx.macs(node).collect();
        if node == cx.node() {
            return Member { macs, way: Way::Here };
        }
        let met = cx.met(node).filter(|_| !self.lost.contains(node));
        let hop = met.and_then(|(interface, link)| cx.hop(interface, link, ip));
        Member { macs, way: hop.map_or(Way::None, Way::To) }
    }

    /// When times end that change it.
    fn ends(&self) -> impl Iterator<Item = Instant> {
        let recent = self.known.values().flat_map(|known| &known.recent).map(|(_, until)| *until);
        let known = self.known.values().flat_map(|known| [known.until, known.changed + HEARD]);
        known.chain(recent)
    }

    /// The end of the first time that ends.
    pub(in crate::election) fn deadline(&self, cx: &Context) -> Option<Instant> {
        cx.first_ahead(self.next)
    }
}
