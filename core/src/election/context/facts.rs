//! Questions about the stored Leases, the own session and the API server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Reason, Record as _, Session, SessionId, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::context::Context;
use crate::election::context::state::facts::{former_id_of, is_under};
use crate::election::io::config::KERNEL_GRACE;
use crate::election::io::event::{Action, Fact, Frame};
use crate::election::io::serving::Serving;
use crate::election::io::transition::OwnerId;

/// Whether a session is as it was `before`, as far as other speakers remember it.
pub(in crate::election) fn is_renewal(before: &Stored<Session>, now: &Stored<Session>) -> bool {
    now.record.transitions == before.record.transitions
        && now.record.holder == before.record.holder
        && now.uid == before.uid
        && now.record.interfaces == before.record.interfaces
}

/// Whether `node` has begun a session after `former`, and nobody had ended that one: it was started anew.
pub(in crate::election) fn is_begun_anew(
    node: &NodeName,
    former: &SessionId,
    now: &Stored<Session>,
) -> bool {
    now.record.holder.as_ref() == Some(node)
        && now.uid == former.uid
        && now.record.transitions == former.transitions.saturating_add(1)
        && !Reason::is_edit(&now.record.cause)
}

impl Context {
    pub(in crate::election) fn desired_claim(&self, name: &LeaseName) -> Option<&DesiredClaim> {
        self.desired.as_ref().and_then(|desired| desired.claim(name))
    }

    /// The first of `deadlines` that is still to come. What was due and was not done waits for an
    /// event and not for time: to be called again at once would change nothing.
    pub(in crate::election) fn first_ahead(
        &self,
        deadlines: impl IntoIterator<Item = Instant>,
    ) -> Option<Instant> {
        deadlines.into_iter().filter(|at| *at > self.seen).min()
    }

    /// The node whose speaker this is.
    pub(in crate::election) const fn node(&self) -> &NodeName {
        &self.config.node
    }

    /// The interfaces of this node that can announce anything that is asked for.
    pub(in crate::election) fn interfaces(&self) -> impl Iterator<Item = &InterfaceName> {
        self.interfaces.keys()
    }

    /// Whether all that decisions rest on has been listed.
    pub(in crate::election) fn is_informed(&self) -> bool {
        self.sessions.listed() && self.claims.listed() && self.desired.is_some()
    }

    /// The session that this speaker holds.
    pub(in crate::election) fn session(&self) -> Option<&SessionId> {
        self.own.id()
    }

    /// Whether the cluster has a Node of this speaker's name; unknown before the lists are in.
    pub(in crate::election) fn node_exists(&self) -> Option<bool> {
        self.desired.as_ref().map(|desired| desired.nodes.contains_key(&self.config.node))
    }

    /// What is served now.
    pub(in crate::election) fn serving(&self) -> &Serving {
        &self.serving
    }

    /// L: for how long a session may go without renewal.
    pub(in crate::election) fn lease_duration(&self) -> Duration {
        let speakers = u64::try_from(self.living()).unwrap_or(u64::MAX);
        self.config.lease_duration.max(Duration::from_secs(speakers.div_ceil(10)))
    }

    /// R: how often the session is renewed.
    pub(in crate::election) fn renew_interval(&self) -> Duration {
        self.lease_duration() / 3
    }

    /// L in whole seconds, as leases say it.
    pub(in crate::election) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration().as_secs()).unwrap_or(i32::MAX)
    }

    /// For how long the kernel is to have addresses.
    pub(in crate::election) fn lifetime(&self) -> Duration {
        self.lease_duration() + KERNEL_GRACE
    }

    /// Sessions that live, ours included.
    pub(in crate::election) fn live_sessions(
        &self,
    ) -> impl Iterator<Item = (&NodeName, &Arc<Stored<Session>>)> {
        self.sessions.stored().filter_map(|stored| {
            let holder = stored.record.holder()?;
            (holder.as_str() == stored.name.as_str()).then_some((holder, stored))
        })
    }

    /// The session that `node` holds now.
    pub(in crate::election) fn live_session(
        &self,
        node: &NodeName,
    ) -> Option<&Arc<Stored<Session>>> {
        let stored = self.sessions.get(node.as_str())?;
        (stored.record.holder.as_ref() == Some(node)).then_some(stored)
    }

    /// Whether `session` is the one that `node` holds now.
    pub(in crate::election) fn is_live(&self, node: &NodeName, session: &SessionId) -> bool {
        self.live_session(node).is_some_and(|stored| is_under(stored, session))
    }

    /// Whether a node is there that has, or had last, this session: it lives, or its speaker has ended it in order.
    pub(in crate::election) fn is_there(&self, node: &NodeName, session: &SessionId) -> bool {
        let stored = self.sessions.get(node.as_str());
        let left = stored.is_some_and(|stored| {
            Reason::has_left(&stored.record.cause) && former_id_of(stored) == *session
        });
        left || self.is_live(node, session)
    }

    /// Whether a renewal that was sent a short time ago was answered: what the API says is current.
    pub(in crate::election) fn is_api_answering(&self, now: Instant) -> bool {
        self.api_answers_until().is_some_and(|until| now < until)
    }

    /// Whether none was for some time, and the last one not even refused.
    pub(in crate::election) fn is_api_away(&self, now: Instant) -> bool {
        self.own.is_unanswered() && !self.is_api_answering(now)
    }

    /// Until when that holds if nothing more is answered.
    pub(in crate::election) fn api_answers_until(&self) -> Option<Instant> {
        Some(self.own.answered()? + self.renew_interval() + self.config.request_timeout)
    }

    pub(in crate::election) fn announce(
        interface: &InterfaceName,
        address: IpAddr,
        actions: &mut Vec<Action>,
    ) {
        let frame = Frame::Announce(address);
        actions.push(Action::Transmit { interface: interface.clone(), frame });
    }

    pub(in crate::election) fn report(fact: Fact, actions: &mut Vec<Action>) {
        actions.push(Action::Report(fact));
    }

    pub(in crate::election) fn session_version(&self, node: &NodeName) -> Option<Arc<str>> {
        Some(self.sessions.get(node.as_str())?.resource_version.clone())
    }

    /// This node as an owner, while it has a session.
    pub(in crate::election) fn own_id(&self) -> Option<OwnerId> {
        let session = self.own.id()?.transitions;
        Some(OwnerId { node: self.config.node.clone(), session })
    }
}
