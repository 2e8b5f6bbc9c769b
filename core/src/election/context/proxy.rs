//! A node whose kube-proxy is silent or late.
//!
//! What comes for an address goes to pods by the rules of kube-proxy. Two things are told apart:
//!
//! * **It is silent**: it answered health checks, and for some seconds it does not. What rules there are stay,
//!   so the node serves on, but follows no change of Services and endpoints. Its session says so, and all nodes
//!   have it take only what no other node can. If that lasts it gives away what it has, make before break;
//!   not while as many nodes are silent as are not: then what is wrong is not the node. Where it never
//!   answered there is no kube-proxy, or it answers elsewhere, and nothing is said.
//! * **It is late**: the rules for a claim are not there yet. An address that nobody serves (a new one, one
//!   that was released) waits for them between its probes and its addition; the claim is taken at once, for
//!   who waits is not to be the one whose kube-proxy is quickest. A successor takes what is handed to
//!   it once they are there: its owner serves meanwhile. Both wait for some seconds, then do without.
//!
//! Nothing waits for rules that comes from a dead owner: what it had has been there for long, so the rules are.
//! A speaker in a pod starts no earlier than them: it reaches the API server by kube-proxy.

use std::time::Duration;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::context::Context;
use crate::election::context::state::proxy::{LASTS, SILENT, Wait};
use crate::election::io::event::{Action, Fact};
use crate::election::io::proxy::{ProxyHealth, ProxyView, Rules};

/// How long the rules for an address are waited for that nobody serves.
pub(in crate::election) const LATE: Duration = Duration::from_secs(3);

/// The same for what is handed over of a Service with `externalTrafficPolicy: Local`: its pods have just
/// changed their nodes, and those that terminate on the old one serve on.
pub(in crate::election) const LATE_LOCAL: Duration = Duration::from_secs(10);

impl Context {
    pub(in crate::election) fn note_proxy(&mut self, view: ProxyView) {
        self.proxy.view = view;
    }

    /// Something else is asked for of these claims.
    pub(in crate::election) fn note_asked_of_proxy(
        &mut self,
        changed: &[LeaseName],
        desired: &Desired,
    ) {
        for name in changed {
            let Some(claim) = desired.claim(name).filter(|_| self.proxy.waits.contains_key(name))
            else {
                continue;
            };
            let question = self.proxy.ask(claim);
            if let Some(wait) = self.proxy.waits.get_mut(name) {
                wait.question = question;
            }
        }
    }

    pub(in crate::election) fn proxy_deadline(&self) -> Option<Instant> {
        let silence = self.proxy.silent_since().into_iter();
        let silence = silence.flat_map(|since| [since + SILENT, since + LASTS]);
        let waits = self.proxy.waits.values();
        let waits = waits.flat_map(|wait| [wait.since + LATE, wait.since + LATE_LOCAL]);
        self.first_ahead(silence.chain(waits))
    }

    /// Whether the service proxy of a live node is silent, as far as `claim` minds.
    pub(in crate::election) fn is_proxy_silent(
        &self,
        node: &NodeName,
        claim: &DesiredClaim,
    ) -> bool {
        let silent = || self.live_session(node).is_some_and(|stored| stored.record.proxy_silent);
        claim.proxied.asks() && silent()
    }

    /// The live nodes whose service proxy is silent.
    pub(in crate::election) fn with_silent_proxies(&self) -> Vec<&NodeName> {
        let silent = self.live_sessions().filter(|(_, stored)| stored.record.proxy_silent);
        silent.map(|(node, _)| node).collect()
    }

    /// Whether this node's proxy has been silent for so long that `claim` is to go to another node, and it is
    /// this node's fault.
    pub(in crate::election) fn is_left_by_proxy(&self, claim: &DesiredClaim) -> bool {
        claim.proxied.asks()
            && self.proxy.lasts
            && self.with_silent_proxies().len() * 2 <= self.living()
    }

    /// Begins to wait for the rules of a claim, where that can be told; whether it does.
    pub(in crate::election) fn await_rules(&mut self, now: Instant, name: &LeaseName) -> bool {
        let Some(desired) = self.desired.as_ref().filter(|_| self.minds_rules(name)) else {
            return false;
        };
        if let Some(claim) = desired.claim(name).filter(|_| !self.proxy.waits.contains_key(name)) {
            let question = self.proxy.ask(claim);
            self.proxy.waits.insert(name.clone(), Wait { since: now, question, given_up: false });
        }
        true
    }

    pub(in crate::election) fn minds_rules(&self, name: &LeaseName) -> bool {
        // An owner that only spreads needs none.
        let has_endpoints = |claim: &DesiredClaim| {
            let spread = claim.spread.as_ref();
            spread.is_none_or(|spread| spread.members.weight(self.node()) > 0)
        };
        let minds = |claim: &DesiredClaim| claim.proxied.asks() && has_endpoints(claim);
        self.proxy.view.health != ProxyHealth::Unknown
            && self.desired_claim(name).is_some_and(minds)
    }

    /// Whether what another node hands over can be taken, as far as the rules of its Services go.
    pub(in crate::election) fn may_succeed(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        actions: &mut Vec<Action>,
    ) -> bool {
        let patience = if claim.proxied.is_local() { LATE_LOCAL } else { LATE };
        !self.await_rules(now, name) || self.has_rules(now, name, patience, actions)
    }

    /// Whether the rules are there, or were waited for long enough.
    pub(in crate::election) fn has_rules(
        &mut self,
        now: Instant,
        name: &LeaseName,
        patience: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        match self.proxy.rules(name) {
            Some(Rules::Present | Rules::Unknown) => return true,
            Some(Rules::Absent) | None => {}
        }
        let Some(wait) = self.proxy.waits.get_mut(name) else { return true };
        let late = now >= wait.since + patience;
        if late && !std::mem::replace(&mut wait.given_up, true) {
            let waited = now.saturating_since(wait.since);
            Self::report(Fact::RulesLate { claim: name.clone(), waited }, actions);
        }
        late
    }
}
