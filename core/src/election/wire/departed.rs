//! Nodes whose session has ended. Where the speaker ended it in order, as it does when the node is shut down, their pods
//! may be in use for a while, and be gone before anybody says so. Where it was fenced, it may be back before it can say
//! so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_crds::lease::{Reason, Session, Stored};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::election::context::Context;
use crate::election::context::state::facts::former_id_of;
use crate::election::io::probes::VoiceId;
use crate::election::wire::state::down::BELIEVED;

/// The nodes that have left, and are still polled.
#[derive(Debug, Default)]
pub(in crate::election) struct Departed {
    /// Since when.
    nodes: BTreeMap<NodeName, Instant>,
    /// Those that left longer ago: Kubernetes says what their pods are good for.
    before: BTreeSet<NodeName>,
}

impl Departed {
    /// Takes in who has left, if sessions have changed, and for whom it is over; returns whether it is for any.
    pub(in crate::election) fn note(&mut self, cx: &Context, now: Instant, changed: bool) -> bool {
        if changed {
            let mut all = BTreeSet::new();
            for stored in cx.sessions().stored() {
                let cause = &stored.record.cause;
                let left = stored.record.holder.is_none()
                    && (Reason::is_departure(cause) || Reason::is_fence(cause));
                let node = stored.name.as_str().parse::<NodeName>().ok().filter(|_| left);
                all.extend(node.filter(|node| node != cx.node()));
            }
            self.nodes.retain(|node, _| all.contains(node));
            self.before.retain(|node| all.contains(node));
            for node in all {
                if !self.before.contains(&node) {
                    self.nodes.entry(node).or_insert(now);
                }
            }
        }
        let over: Vec<NodeName> = self
            .nodes
            .iter()
            .filter(|(node, at)| now >= **at + BELIEVED && !cx.is_forwarded_to(node))
            .map(|it| it.0.clone())
            .collect();
        for node in &over {
            self.nodes.remove(node);
        }
        let any = !over.is_empty();
        self.before.extend(over);
        any
    }

    /// The nodes.
    pub(in crate::election) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// When it is over for each.
    pub(in crate::election) fn ends(&self) -> impl Iterator<Item = Instant> {
        self.nodes.values().map(|at| *at + BELIEVED)
    }

    /// The session under the identity in `id` that is live, or was the last one of a node that has left.
    pub(in crate::election) fn session_of<'a>(
        &self,
        cx: &'a Context,
        id: &VoiceId,
    ) -> Option<&'a Arc<Stored<Session>>> {
        let left = || {
            let stored = cx.sessions().get(id.node.as_str())?;
            let its = self.nodes.contains_key(&id.node) && former_id_of(stored) == id.session;
            its.then_some(stored)
        };
        cx.session_of(id).or_else(left)
    }
}
