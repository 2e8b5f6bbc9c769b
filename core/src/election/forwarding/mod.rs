//! Connections that outlive a planned move of their address.
//!
//! A claim names its former owners, the last one first. Each of them, and the owner, forwards what belongs to no
//! connection of its own to the next in this order that is there: the kernel of a former owner still knows its
//! connections, and needs neither the address nor a rule for that. So the connections of all former owners survive,
//! however often the address moves, for the time that the policy sets after the last move.
//!
//! No node forwards a packet twice: it forwards those of another speaker only where that one comes before it in the
//! order. The order is that of the last tenures. What a node has heard of others may be old, but it knows its own last
//! tenure: so each step leads to a node whose last tenure is older, whatever versions of the claim the nodes go by.
//!
//! While a claim moves, its nodes go by different versions of it. So what reaches a node that has not the address any more,
//! or comes from one that has not heard of the move, is dropped: it comes again, when all have.
//!
//! What is forwarded to a node that is gone is lost without an answer. So it is passed over once it has been silent for
//! long: then the last in the order answers with a reset, as for any connection that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::election::claim::Claims;
use crate::election::claim::state::moves::Handover;
use crate::election::claim::state::tenure::Tenure;
use crate::election::context::Context;
use crate::election::io::event::Action;
use crate::election::io::forwarding::{Forwarding, Onward, OpenConnections};
use crate::election::wire::Wire;

/// A UDP flow of a former owner that sends nothing for so long after the move counts as a new one: as long as a
/// flow without an answer is remembered (`nf_conntrack_udp_timeout`).
pub(in crate::election) const FLOWS: Duration = Duration::from_secs(30);

/// The claims in whose order of owners this node is.
#[derive(Debug, Default)]
pub(in crate::election) struct Handovers {
    known: BTreeMap<LeaseName, Order>,
    /// As it was told last.
    told: Option<Arc<Forwarding>>,
    /// Whether something has changed since.
    stale: bool,
    /// When the next forwarding ends.
    next: Option<Instant>,
    /// The revisions of the sessions and of the nodes that are down that it was made from, …
    revisions: (u64, u64),
    /// … the nodes that were lost then, …
    lost: BTreeSet<NodeName>,
    /// … and those that were down.
    down: BTreeSet<NodeName>,
}

/// The owners of a claim, by their last tenures, the latest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    transitions: i32,
    owners: Vec<NodeName>,
    addresses: AddressSet,
    /// The node to which this one is handing over.
    successor: Option<NodeName>,
    /// The end of the time in which unknown UDP flows are those of former owners.
    flows_until: Option<Instant>,
    /// The end of the forwarding.
    until: Instant,
    /// Whether that has passed.
    over: bool,
}

impl Handovers {
    /// Follows whom the stored claim names, before the claim's own view of it does.
    pub(in crate::election) fn note_holder(
        &mut self,
        cx: &Context,
        claims: &Claims,
        now: Instant,
        name: &LeaseName,
    ) {
        let record = cx.claims().get(name).map(|stored| &stored.record);
        let own = cx.node();
        let involved = |record: &&Claim| {
            let holds = record.holder.as_ref() == Some(own);
            // Where packets are spread, each node has connections of its own, whoever the owner is.
            let spread = !record.members.is_empty();
            // Who serves it without being its owner is not in the order.
            let provisional =
                || claims.tenures().get(name).is_some_and(|tenure| tenure.provisional().is_some());
            !record.former.is_empty()
                && !spread
                && (holds || record.former.contains(own))
                && !provisional()
        };
        let Some(record) = record.filter(involved) else {
            self.stale |= self.known.remove(name).is_some();
            return;
        };
        let before = self.known.get(name).filter(|it| it.transitions == record.transitions);
        let over = before.is_some_and(|before| before.over);
        let (until, flows_until) = before.map_or_else(
            || Self::times(cx, claims, now, name, record),
            |before| (before.until, before.flows_until),
        );
        let former = record.former.iter().filter(|node| record.holder.as_ref() != Some(*node));
        let order = Order {
            transitions: record.transitions,
            owners: record.holder.iter().chain(former).cloned().collect(),
            addresses: record.addresses.clone(),
            successor: before.and_then(|before| before.successor.clone()),
            flows_until,
            until,
            over,
        };
        if self.known.get(name) != Some(&order) {
            self.known.insert(name.clone(), order);
            self.stale = true;
        }
    }

    /// Takes in to which node this one is handing the claim over: before it can have the address, clients that have not
    /// heard of it are to send again.
    pub(in crate::election) fn note_successor(&mut self, claims: &Claims, name: &LeaseName) {
        let Some(order) = self.known.get_mut(name) else { return };
        let handover = claims.tenures().get(name).and_then(|tenure| tenure.handover());
        let successor = handover.and_then(Handover::successor);
        if order.successor.as_ref() != successor {
            order.successor = successor.cloned();
            self.stale = true;
        }
    }

    /// The ends of the forwarding, and of the time for UDP flows, of a claim that has just moved.
    fn times(
        cx: &Context,
        claims: &Claims,
        now: Instant,
        name: &LeaseName,
        record: &Claim,
    ) -> (Instant, Option<Instant>) {
        let claim = cx.desired_claim(name);
        let lasts = claim.map(|claim| claim.connection_handover).unwrap_or_default();
        // There a former owner may have no endpoint for what is new.
        let everywhere = claim.is_some_and(|claim| !claim.proxied.is_local());
        let shown = claims.tenures().get(name).and_then(|tenure| tenure.shown());
        let takes = record.holder.as_ref() == Some(cx.node())
            && shown.is_some_and(|shown| shown.node() != cx.node());
        let flows = (everywhere && takes).then(|| now + FLOWS.min(lasts));
        (now + lasts, flows)
    }

    /// Tells what is to be forwarded, if that has changed. To be called before anything is served.
    pub(in crate::election) fn advance(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let revisions = (cx.sessions().revision(), wire.falls_revision());
        let ends = self.next.is_some_and(|next| now >= next);
        if revisions == self.revisions && !ends && !self.stale && self.told.is_some() {
            return;
        }
        for (name, order) in self.known.iter_mut().filter(|(_, it)| !it.over && now >= it.until) {
            order.over = true;
            claims.with(cx, name, Tenure::forget_former_owners);
        }
        self.stale = false;
        self.revisions = revisions;
        self.lost.clone_from(wire.lost());
        self.down.clone_from(wire.down());
        self.next = self.lasting().map(|order| order.until).min();
        let forwarding = self.forwarding(cx);
        if self.told.as_deref() == Some(&forwarding) {
            return;
        }
        let handed = self.told.as_ref().is_some_and(|told| told.handed == forwarding.handed);
        if !handed {
            cx.set_forwarded_connections(None);
        }
        let nodes = self.lasting().flat_map(|order| &order.owners).cloned();
        cx.keep_polling(nodes.collect());
        let forwarding = Arc::new(forwarding);
        self.told = Some(Arc::clone(&forwarding));
        actions.push(Action::Forward(forwarding));
    }

    fn forwarding(&self, cx: &Context) -> Forwarding {
        let mut forwarding = Forwarding::default();
        let mut handed = BTreeSet::new();
        let own = cx.node();
        for order in self.lasting() {
            let mut parts = order.owners.splitn(2, |node| node == own);
            let (Some(later), Some(former)) = (parts.next(), parts.next()) else { continue };
            if !later.is_empty() {
                handed.extend(&order.addresses);
            }
            let mut there = former.iter().filter(|node| !self.lost.contains(*node));
            let next = there.find_map(|node| Some((node, cx.met(node)?)));
            let (met, flows) =
                next.map_or((None, false), |(node, met)| (Some(met), !self.down.contains(node)));
            let of = |nodes: &[NodeName]| nodes.iter().flat_map(|node| cx.macs(node)).collect();
            let (later_macs, mut others): (BTreeSet<_>, BTreeSet<_>) = (of(later), of(former));
            others.extend(order.successor.iter().flat_map(|node| cx.macs(node)));
            for address in &order.addresses {
                let onward = Onward {
                    to: met.and_then(|(interface, link)| cx.hop(interface, link, *address)),
                    owned: later.is_empty() && order.successor.is_none(),
                    later: later_macs.clone(),
                    others: others.clone(),
                    flows,
                    flows_until: order.flows_until.filter(|_| flows),
                    until: order.until,
                };
                forwarding.onward.insert(*address, onward);
            }
        }
        forwarding.speakers = cx.macs_of_others().collect();
        forwarding.handed = Arc::new(handed);
        forwarding
    }

    /// Takes in the number of open connections; one of other addresses than those that are handed over now counts for
    /// nothing.
    pub(in crate::election) fn count(&self, cx: &mut Context, open: &OpenConnections) {
        let handed = self.told.as_ref().map(|told| &told.handed);
        let current = handed.is_some_and(|handed| *handed == open.through && !handed.is_empty());
        cx.set_forwarded_connections(current.then_some(open.count));
    }

    fn lasting(&self) -> impl Iterator<Item = &Order> {
        self.known.values().filter(|order| !order.over)
    }

    /// The end of the first forwarding that ends.
    pub(in crate::election) fn deadline(&self, cx: &Context) -> Option<Instant> {
        cx.first_ahead(self.next)
    }

    /// The next in the order of the claim's owners after this node.
    pub(in crate::election) fn former(&self, cx: &Context, name: &LeaseName) -> Option<&NodeName> {
        let owners = &self.known.get(name).filter(|order| !order.over)?.owners;
        owners.iter().skip_while(|node| *node != cx.node()).nth(1)
    }
}
