//! The claims: which are valid, who takes the orphans, and what this node holds.
//!
//! Everything here is level-triggered: each pass looks at what is stored, what is asked for and
//! what this node believes to hold, and does what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use super::conflict::Probing;
use super::election::{Election, Pending, Purpose};
use super::event::{Action, Answer, Change, Fact, Interface, Target, Write};
use super::handover::{Handover, Yielding};
use super::rank::{Orphan as Ranked, rank};
use super::record::HeldClaim;
use super::serving::ServedVip;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};

/// How many claim writes may be unanswered at once.
const IN_FLIGHT: usize = 4;
/// Within which time a request of this node must have been answered on an interface.
const HEARING: Duration = Duration::from_secs(2);
/// How long after the claim the address must be seen in the kernel.
const SEEN: Duration = Duration::from_millis(200);
/// How long a node that could not serve is not eligible; doubles each time.
const INELIGIBLE: Duration = Duration::from_secs(30);
const INELIGIBLE_MAX: Duration = Duration::from_mins(10);
/// How long after a failed request on a claim the next is sent.
const RETRY: Duration = Duration::from_millis(250);

/// What this node knows and does about one claim.
#[derive(Debug)]
pub(super) struct Tenure {
    /// This node is the owner, as far as it knows.
    pub(super) mine: bool,
    /// Which ownership this is.
    pub(super) ownership: u64,
    /// The interface that carries the addresses while they are mine.
    pub(super) interface: Option<InterfaceName>,
    /// Since when the addresses are to be in the kernel and are not.
    missing: Option<Instant>,
    /// The claim is being given up, for this reason.
    pub(super) leaving: Option<String>,
    pub(super) handover: Option<Handover>,
    pub(super) yielding: Option<Yielding>,
    pub(super) probing: Option<Probing>,
    orphan: Option<Orphan>,
    /// The last valid ownership that was seen.
    last: Option<LastOwner>,
    /// When this node asked for the claim nobody had ever held it, or its holder had released it:
    /// nobody is to have its addresses.
    vacant: bool,
    pub(super) must_read: bool,
    pub(super) retry: Instant,
    ineligible: Option<Ineligible>,
    /// The address that cannot be served because a node has it, as far as it was reported.
    pub(super) address_of_a_node: Option<IpAddr>,
    /// Nodes that did not serve what was handed to them.
    pub(super) excluded: BTreeMap<NodeName, Instant>,
}

/// A claim without a valid owner.
#[derive(Debug)]
struct Orphan {
    since: Instant,
    ranking: Vec<NodeName>,
    /// Nobody gave it up: its lease or its session's was deleted or edited.
    edited: bool,
}

/// A valid ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastOwner {
    node: NodeName,
    session: SessionId,
    transitions: i32,
}

#[derive(Debug)]
struct Ineligible {
    until: Instant,
    backoff: Duration,
}

/// The turn of refreshes.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    due: Instant,
    last: Option<LeaseName>,
    /// How many claim writes may be unanswered; fewer after the API server asked to slow down.
    allowed: Option<usize>,
}

/// Who owns a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This node, under its present session.
    Me,
    /// Another node whose session lives.
    Other(NodeName),
    /// Nobody.
    Nobody,
}

impl Tenure {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            mine: false,
            ownership: 0,
            interface: None,
            missing: None,
            leaving: None,
            handover: None,
            yielding: None,
            probing: None,
            orphan: None,
            last: None,
            vacant: false,
            must_read: false,
            retry: now,
            ineligible: None,
            address_of_a_node: None,
            excluded: BTreeMap::new(),
        }
    }

    /// Forgets everything that came with owning the claim.
    fn end(&mut self) {
        self.mine = false;
        self.missing = None;
        self.leaving = None;
        self.handover = None;
        self.probing = None;
    }
}

impl Election {
    /// Who owns `stored`, and under which session.
    pub(super) fn owner(&self, stored: &Stored<Claim>) -> Owner {
        let record = &stored.record;
        let (Some(holder), Some(session)) = (&record.holder, &record.session) else {
            return Owner::Nobody;
        };
        // A number below one that was seen is an edit or a restored backup.
        if record.transitions < self.claims.highest(&stored.name) {
            return Owner::Nobody;
        }
        if *holder == self.config.node {
            return if self.own.id.as_ref() == Some(session) { Owner::Me } else { Owner::Nobody };
        }
        match self.live_session(holder) {
            Some(live) if live == *session => Owner::Other(holder.clone()),
            _ => Owner::Nobody,
        }
    }

    pub(super) fn claims_deadline(&self) -> Option<Instant> {
        self.own.id.as_ref()?;
        let mut deadlines = Vec::new();
        let mut holding = false;
        for (name, tenure) in &self.tenures {
            holding |= tenure.mine;
            if self.is_pending(&Target::Claim(name.clone())) {
                continue;
            }
            if let Some(orphan) = &tenure.orphan
                && self.desired_claim(name).is_some()
            {
                deadlines.push(self.turn(orphan, tenure).max(tenure.retry));
                deadlines.push(self.round_ends(orphan));
                deadlines.extend(tenure.ineligible.as_ref().map(|ineligible| ineligible.until));
            }
            deadlines.extend(tenure.missing.map(|since| since + SEEN));
            deadlines.push(tenure.retry);
        }
        deadlines.extend(holding.then_some(self.refresh.due));
        deadlines.extend(self.handover_deadline());
        self.first_ahead(deadlines)
    }

    fn desired_claim(&self, name: &LeaseName) -> Option<&DesiredClaim> {
        self.desired.as_ref().and_then(|desired| desired.claims.get(name))
    }

    pub(super) fn advance_claims(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(desired) = self.desired.clone() else { return };
        for name in desired.claims.keys() {
            if !self.tenures.contains_key(name) {
                self.tenures.insert(name.clone(), Tenure::new(now));
            }
        }
        let asked: BTreeSet<LeaseName> = desired.claims.keys().cloned().collect();
        // A claim that nobody asks for is looked at as long as it is ours to give up.
        for (name, entry) in self.claims.iter() {
            let ours = entry.stored.as_ref().is_some_and(|stored| self.owner(stored) == Owner::Me);
            if ours && !self.tenures.contains_key(name) {
                self.tenures.insert(name.clone(), Tenure::new(now));
            }
        }
        let names: Vec<LeaseName> = self.tenures.keys().cloned().collect();
        for name in &names {
            self.settle_owner(now, name, actions);
        }
        if self.own.id.is_some() {
            self.rank_orphans(now, &desired);
            self.keep_link(now, &names);
            for name in &names {
                self.advance_claim(now, name, desired.claims.get(name), &desired, actions);
            }
            self.advance_handovers(now, &desired, actions);
            self.refresh_in_turn(now, actions);
        }
        self.tenures.retain(|name, tenure| {
            tenure.mine || tenure.yielding.is_some() || asked.contains(name)
        });
        let tenures = &self.tenures;
        self.claims.prune(|name| tenures.contains_key(name));
    }

    /// Brings what this node believes to own in line with what is stored.
    fn settle_owner(&mut self, now: Instant, name: &LeaseName, actions: &mut Vec<Action>) {
        let stored = self.claims.get(name).cloned();
        let owner = stored.as_ref().map_or(Owner::Nobody, |stored| self.owner(stored));
        let live = self.own.id.is_some();
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if let (Some(stored), Owner::Me | Owner::Other(_)) = (&stored, &owner) {
            tenure.last = stored.record.session.clone().zip(stored.record.holder.clone()).map(
                |(session, node)| LastOwner { node, session, transitions: stored.record.transitions },
            );
            tenure.orphan = None;
        }
        match owner {
            Owner::Me if !tenure.mine => {
                let Some(stored) = stored else { return };
                tenure.mine = true;
                tenure.yielding = None;
                self.ownerships += 1;
                tenure.ownership = self.ownerships;
                tenure.interface.clone_from(&stored.record.interface);
                if std::mem::take(&mut tenure.vacant) {
                    self.probe_first(now, name, &stored, actions);
                }
                let cause = stored.record.cause;
                Self::report(Fact::Claimed { claim: name.clone(), cause }, actions);
            }
            Owner::Other(node) if tenure.mine => {
                tenure.yielding = stored.and_then(|stored| {
                    let named = tenure.handover.as_ref().and_then(Handover::successor) == Some(&node);
                    named.then(|| Yielding::new(now, node.clone(), &stored))
                });
                tenure.end();
                let cause = format!("now owned by {node}");
                Self::report(Fact::Yielded { claim: name.clone(), cause }, actions);
            }
            Owner::Nobody if tenure.mine && !live => tenure.end(),
            Owner::Me | Owner::Other(_) | Owner::Nobody => {}
        }
    }

    pub(super) fn lose_all_claims(&mut self, cause: &str, actions: &mut Vec<Action>) {
        for (name, tenure) in &mut self.tenures {
            tenure.yielding = None;
            if tenure.mine {
                tenure.end();
                let (claim, cause) = (name.clone(), cause.to_owned());
                Self::report(Fact::Yielded { claim, cause }, actions);
            }
        }
    }

    /// Notes which claims have become orphans and places them jointly.
    fn rank_orphans(&mut self, now: Instant, desired: &Desired) {
        let mut new = Vec::new();
        for (name, claim) in &desired.claims {
            let Some(tenure) = self.tenures.get(name) else { continue };
            let owned = self.claims.get(name).is_some_and(|s| self.owner(s) != Owner::Nobody);
            if owned || tenure.mine {
                continue;
            }
            // Computed once, and again only when it has become void: a candidate is gone, or all
            // have had their turn.
            let stale = tenure.orphan.as_ref().is_none_or(|orphan| {
                let gone = orphan.ranking.iter().any(|node| self.live_session(node).is_none());
                gone || now >= self.round_ends(orphan)
            });
            if stale {
                new.push((name, claim, tenure.orphan.as_ref()));
            }
        }
        if new.is_empty() {
            return;
        }
        let nodes: BTreeMap<&LeaseName, Vec<&NodeName>> =
            new.iter().map(|(name, claim, _)| (*name, self.candidates(claim, desired))).collect();
        let edited: BTreeMap<&LeaseName, bool> = new
            .iter()
            .map(|(name, _, before)| (*name, before.is_some_and(|o| o.edited) || self.was_edited(name)))
            .collect();
        let orphans: Vec<Ranked<'_>> = new
            .iter()
            .map(|(name, claim, _)| Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: nodes.get(name).cloned().unwrap_or_default(),
                last: (!edited.get(name).copied().unwrap_or(false))
                    .then(|| self.last_owner(name))
                    .flatten(),
            })
            .collect();
        let rankings = rank(&orphans, &self.loads());
        let edited: BTreeMap<LeaseName, bool> =
            edited.into_iter().map(|(name, edited)| (name.clone(), edited)).collect();
        for (name, ranking) in rankings {
            let edited = edited.get(&name).copied().unwrap_or(false);
            if let Some(tenure) = self.tenures.get_mut(&name) {
                tenure.orphan = Some(Orphan { since: now, ranking, edited });
            }
        }
    }

    /// How many addresses each live node owns, or is first in line for.
    pub(super) fn loads(&self) -> BTreeMap<NodeName, usize> {
        let mut loads: BTreeMap<NodeName, usize> =
            self.live_sessions().map(|(node, _)| (node.clone(), 0)).collect();
        for stored in self.claims.stored() {
            let owner = match self.owner(stored) {
                Owner::Me => &self.config.node,
                Owner::Other(_) => match &stored.record.holder {
                    Some(holder) => holder,
                    None => continue,
                },
                Owner::Nobody => continue,
            };
            if let Some(load) = loads.get_mut(owner) {
                *load += stored.record.addresses.len();
            }
        }
        for tenure in self.tenures.values() {
            let first = tenure.orphan.as_ref().and_then(|orphan| orphan.ranking.first());
            if let Some(load) = first.and_then(|node| loads.get_mut(node)) {
                *load += 1;
            }
        }
        loads
    }

    /// The live nodes that may take `claim`, as far as everybody can tell.
    pub(super) fn candidates<'a>(&'a self, claim: &DesiredClaim, desired: &Desired) -> Vec<&'a NodeName> {
        self.live_sessions()
            .filter(|(node, stored)| {
                let facts = desired.nodes.get(*node);
                claim.nodes.contains(*node)
                    && facts.is_some_and(|facts| !facts.cordoned && !facts.leaving)
                    && !stored.record.restarting
                    && stored.record.interfaces.iter().any(|interface| {
                        let addresses = interface.addresses.iter().filter_map(|a| a.parse().ok());
                        fits(claim, &interface.name, &addresses.collect::<Vec<_>>()).is_some()
                    })
            })
            .map(|(node, _)| node)
            .collect()
    }

    fn last_owner(&self, name: &LeaseName) -> Option<&NodeName> {
        let stored = self.claims.get(name)?;
        match &stored.record.holder {
            Some(holder) => Some(holder),
            None => self.tenures.get(name)?.last.as_ref().map(|last| &last.node),
        }
    }

    /// Whether the claim lost its validity by deletion or editing and not by fence or release.
    fn was_edited(&self, name: &LeaseName) -> bool {
        let Some(last) = self.tenures.get(name).and_then(|tenure| tenure.last.as_ref()) else {
            return false;
        };
        let session = self.sessions.get(&LeaseName::session(&last.node));
        let claim = self.claims.get(name);
        match session {
            None => true,
            Some(session) if session.uid != last.session.uid => true,
            Some(session) if session.record.transitions > last.session.transitions => false,
            Some(session) if session.record.transitions < last.session.transitions => true,
            // The session lives: then the claim was released, which adds one, or it was edited.
            Some(session) if session.record.holder.is_some() => {
                claim.is_none_or(|claim| claim.record.transitions <= last.transitions)
            }
            Some(_) => true,
        }
    }

    /// When it is this node's turn to take the orphan.
    fn turn(&self, orphan: &Orphan, tenure: &Tenure) -> Instant {
        let Some(place) = orphan.ranking.iter().position(|node| *node == self.config.node) else {
            return self.round_ends(orphan);
        };
        let mut steps = u32::try_from(place).unwrap_or(u32::MAX);
        let last = tenure.last.as_ref().map(|last| &last.node);
        if orphan.edited && last != Some(&self.config.node) {
            steps = steps.saturating_add(2);
        }
        orphan.since + self.config.rank_step.saturating_mul(steps)
    }

    /// When everybody has had a turn.
    fn round_ends(&self, orphan: &Orphan) -> Instant {
        let steps = u32::try_from(orphan.ranking.len()).unwrap_or(u32::MAX).saturating_add(3);
        orphan.since + self.config.rank_step.saturating_mul(steps)
    }

    /// The interface of this node that is to carry `claim`.
    pub(super) fn local_interface(&self, claim: &DesiredClaim) -> Option<(&InterfaceName, &Interface)> {
        self.interfaces
            .iter()
            .filter(|(_, interface)| interface.carrier)
            .filter_map(|(name, interface)| {
                fits(claim, name, &interface.addresses).map(|fit| (fit, name, interface))
            })
            .max_by_key(|(fit, name, _)| (*fit, std::cmp::Reverse(*name)))
            .map(|(_, name, interface)| (name, interface))
    }

    /// Whether this node may take an orphan now, and through which interface.
    pub(super) fn may_take(&self, now: Instant, tenure: &Tenure, claim: &DesiredClaim) -> Option<(InterfaceName, MacAddr)> {
        if self.own.is_ending() || self.own.release || tenure.ineligible.as_ref().is_some_and(|i| now < i.until) {
            return None;
        }
        let (name, interface) = self.local_interface(claim)?;
        let alone = self.live_sessions().all(|(node, _)| *node == self.config.node);
        let hears = self.hearing.get(name).is_some_and(|at| now.saturating_since(*at) < HEARING);
        let free = self.address_of_a_node(claim).is_none();
        ((hears || alone) && free).then(|| (name.clone(), interface.mac))
    }

    /// Gives up what lost its carrier: all claims with one write where all are concerned.
    fn keep_link(&mut self, now: Instant, names: &[LeaseName]) {
        let mut lost = Vec::new();
        let mut held = 0_usize;
        for name in names {
            let Some(tenure) = self.tenures.get(name).filter(|tenure| tenure.mine) else { continue };
            held += 1;
            let carried = tenure.interface.as_ref().and_then(|name| self.interfaces.get(name));
            if tenure.interface.is_some() && !carried.is_some_and(|interface| interface.carrier) {
                lost.push(name.clone());
            }
        }
        let all = lost.len() > 1 && lost.len() == held;
        self.own.release = all && !self.own.is_ending();
        for name in lost {
            if let Some(tenure) = self.tenures.get_mut(&name)
                && tenure.leaving.is_none()
            {
                tenure.leaving = Some("carrier lost".to_owned());
                tenure.retry = now;
            }
        }
    }

    fn advance_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let target = Target::Claim(name.clone());
        let Some(tenure) = self.tenures.get(name) else { return };
        if self.is_pending(&target) {
            return;
        }
        if tenure.must_read && now >= tenure.retry {
            self.with(name, |tenure| tenure.must_read = false);
            self.read(now, target, actions);
            return;
        }
        if tenure.must_read {
            return;
        }
        if tenure.mine {
            self.hold_claim(now, name, claim, actions);
        } else if let Some(claim) = claim {
            self.take_claim(now, name, claim, desired, actions);
        }
    }

    fn hold_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: Option<&DesiredClaim>,
        actions: &mut Vec<Action>,
    ) {
        let stored = self.claims.get(name).cloned();
        let owned = stored.as_ref().is_some_and(|stored| self.owner(stored) == Owner::Me);
        if !owned {
            // Deleted, edited, or our session was: nobody else owns it, so it is still ours.
            let edited = "lease or session was deleted or edited";
            let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
            match claim {
                Some(claim) if due && self.has_room() => {
                    self.put_taken(now, name, claim, stored, edited, actions);
                }
                Some(_) => {}
                None => self.with(name, Tenure::end),
            }
            return;
        }
        let Some(stored) = stored else { return };
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(claim) = claim else {
            self.leave_claim(now, name, &stored, "nothing asks for it any more", actions);
            return;
        };
        if let Some(cause) = tenure.leaving.clone() {
            self.leave_claim(now, name, &stored, &cause, actions);
            return;
        }
        if self.check_kernel(now, name, claim, &stored, actions) {
            return;
        }
        let listed = stored.record.addresses == claim.addresses && stored.record.services == claim.services;
        // What is listed no longer goes from the kernel before it goes from the claim.
        let gone = stored.record.addresses.difference(&claim.addresses).all(|a| self.is_removed(*a));
        let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
        if !listed && gone && due && self.has_room() {
            let record = self.held_record(&stored, claim);
            self.put_claim(now, name, Some(stored), record, Purpose::Refresh, actions);
        }
    }

    /// Whether the kernel does not hold what this node owns; then the claim is given up.
    fn check_kernel(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: &Stored<Claim>,
        actions: &mut Vec<Action>,
    ) -> bool {
        if self.address_of_a_node(claim).is_some() {
            self.report_address_of_a_node(name, claim, actions);
            self.exclude_self(now, name);
            self.leave_claim(now, name, stored, "address belongs to a node", actions);
            return true;
        }
        let alive = now < self.own.kernel_until;
        let missing = claim.addresses.iter().any(|address| {
            alive && self.is_served(*address) && !self.kernel.ours.contains_key(address)
        });
        let present = claim.addresses.iter().all(|address| {
            self.is_served(*address) && self.kernel.ours.contains_key(address)
        });
        let Some(tenure) = self.tenures.get_mut(name) else { return false };
        tenure.missing = missing.then(|| tenure.missing.unwrap_or(now));
        if present {
            tenure.ineligible = None;
        }
        if tenure.missing.is_none_or(|since| now < since + SEEN) {
            return false;
        }
        let refusal = claim.addresses.iter().find_map(|address| self.kernel.refused.get(address));
        let cause = refusal.cloned().unwrap_or_else(|| "address is not in the kernel".to_owned());
        Self::report(Fact::AddressRefused { claim: name.clone(), cause: cause.clone() }, actions);
        self.exclude_self(now, name);
        self.leave_claim(now, name, stored, &cause, actions);
        true
    }

    pub(super) fn exclude_self(&mut self, now: Instant, name: &LeaseName) {
        self.with(name, |tenure| {
            let backoff =
                tenure.ineligible.as_ref().map_or(INELIGIBLE, |i| (i.backoff * 2).min(INELIGIBLE_MAX));
            tenure.ineligible = Some(Ineligible { until: now + backoff, backoff });
        });
    }

    /// First the addresses go, then the claim.
    pub(super) fn leave_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Stored<Claim>,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let removed = stored.record.addresses.iter().all(|address| self.is_removed(*address));
        let whole_session = self.own.release;
        let room = self.has_room();
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if tenure.leaving.is_none() {
            tenure.leaving = Some(cause.to_owned());
            tenure.retry = now;
        }
        if !removed || whole_session || !room || now < tenure.retry {
            return;
        }
        let record = Claim {
            holder: None,
            session: None,
            successor: None,
            addresses: BTreeSet::new(),
            interface: None,
            mac: None,
            transitions: self.next_claim_transitions(name),
            cause: format!("released by {}: {cause}", self.config.node),
            ..stored.record.clone()
        };
        self.put_claim(now, name, Some(stored.clone()), record, Purpose::Release, actions);
    }

    fn take_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        desired: &Desired,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = self.tenures.get(name) else { return };
        if now < tenure.retry || !self.has_room() {
            return;
        }
        let stored = self.claims.get(name).cloned();
        if let Some(stored) = stored.as_ref().filter(|stored| self.owner(stored) != Owner::Nobody) {
            self.succeed(now, name, claim, stored, desired, actions);
            return;
        }
        let Some(orphan) = &tenure.orphan else { return };
        let turn = self.turn(orphan, tenure);
        if now < turn || !orphan.ranking.contains(&self.config.node) {
            return;
        }
        let (first, edited) = (orphan.ranking.first() == Some(&self.config.node), orphan.edited);
        if first {
            self.report_address_of_a_node(name, claim, actions);
        }
        let Some(tenure) = self.tenures.get(name) else { return };
        if self.may_take(now, tenure, claim).is_none() {
            return;
        }
        let cause = match (self.last_owner(name), edited) {
            (_, true) => "lease was deleted or edited".to_owned(),
            (None, _) => "new service".to_owned(),
            (Some(last), _) => format!("{last} lost or released it"),
        };
        self.put_taken(now, name, claim, stored, &cause, actions);
    }

    /// Makes this node the owner.
    pub(super) fn put_taken(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        base: Option<Stored<Claim>>,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let held = self.tenures.get(name).filter(|tenure| tenure.mine);
        let kept = held.and_then(|tenure| tenure.interface.as_ref());
        let kept = kept.and_then(|name| Some((name.clone(), self.interfaces.get(name)?.mac)));
        let chosen = || self.local_interface(claim).map(|(name, link)| (name.clone(), link.mac));
        let (Some((interface, mac)), Some(session)) = (kept.or_else(chosen), self.own.id.clone()) else {
            return;
        };
        let record = Claim {
            holder: Some(self.config.node.clone()),
            transitions: self.next_claim_transitions(name),
            duration_seconds: self.claim_duration(),
            services: claim.services.clone(),
            addresses: claim.addresses.clone(),
            interface: Some(interface),
            mac: Some(mac),
            session: Some(session),
            cause: cause.to_owned(),
            successor: None,
        };
        let released = base.as_ref().is_some_and(|base| base.record.holder.is_none());
        self.with(name, |tenure| {
            let served = tenure.mine || tenure.yielding.is_some();
            tenure.vacant = !served && (released || tenure.last.is_none());
        });
        self.note_former(name, base.as_ref());
        self.put_claim(now, name, base, record, Purpose::Take, actions);
    }

    /// What a claim of ours says now.
    pub(super) fn held_record(&self, stored: &Stored<Claim>, claim: &DesiredClaim) -> Claim {
        let tenure = self.tenures.get(&stored.name);
        let interface = tenure.and_then(|tenure| tenure.interface.clone());
        Claim {
            services: claim.services.clone(),
            addresses: claim.addresses.clone(),
            duration_seconds: self.claim_duration(),
            mac: interface.as_ref().and_then(|name| self.interfaces.get(name)).map(|link| link.mac),
            interface,
            ..stored.record.clone()
        }
    }

    pub(super) fn next_claim_transitions(&self, name: &LeaseName) -> i32 {
        self.claims.highest(name).saturating_add(1)
    }

    pub(super) fn put_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        base: Option<Stored<Claim>>,
        record: Claim,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let change = Change { name: name.clone(), base, record };
        self.write(now, Write::Claim(change), purpose, actions);
    }

    pub(super) fn has_room(&self) -> bool {
        let writing = |pending: &&Pending| {
            matches!(pending.target, Target::Claim(_)) && pending.purpose != Purpose::Read
        };
        self.requests.values().filter(writing).count() < self.refresh.allowed.unwrap_or(IN_FLIGHT)
    }

    /// p: how often a claim is refreshed per speaker.
    fn refresh_interval(&self) -> Duration {
        let speakers = u32::try_from(self.live_sessions().count()).unwrap_or(u32::MAX);
        Duration::from_millis(1500).max(Duration::from_millis(100).saturating_mul(speakers))
    }

    fn claim_duration(&self) -> i32 {
        let held = self.tenures.values().filter(|tenure| tenure.mine).count().max(1);
        let turns = u32::try_from(held).unwrap_or(u32::MAX).saturating_mul(3);
        let seconds = self.refresh_interval().saturating_mul(turns).as_secs();
        i32::try_from(seconds).unwrap_or(i32::MAX).max(self.config.lease_seconds())
    }

    fn refresh_in_turn(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now < self.refresh.due {
            return;
        }
        self.refresh.due = now + self.refresh_interval();
        let orphans = self.tenures.values().any(|tenure| tenure.orphan.is_some() && !tenure.mine);
        if orphans || self.own.is_ending() || !self.is_api_answering(now) {
            return;
        }
        let held = |after: Option<&LeaseName>| {
            self.tenures
                .iter()
                .find(|(name, tenure)| tenure.mine && after.is_none_or(|after| *name > after))
                .map(|(name, _)| name.clone())
        };
        let Some(name) = held(self.refresh.last.as_ref()).or_else(|| held(None)) else { return };
        self.refresh.last = Some(name.clone());
        let steady = self.tenures.get(&name).is_some_and(|t| t.leaving.is_none() && t.handover.is_none());
        let stored = self.claims.get(&name).filter(|stored| self.owner(stored) == Owner::Me).cloned();
        let claim = self.desired_claim(&name).cloned();
        let (Some(stored), Some(claim), true) = (stored, claim, steady) else { return };
        if !self.is_pending(&Target::Claim(name.clone())) && stored.record.addresses == claim.addresses {
            let record = self.held_record(&stored, &claim);
            self.put_claim(now, &name, Some(stored), record, Purpose::Refresh, actions);
        }
    }

    pub(super) fn claim_answered(
        &mut self,
        now: Instant,
        name: &LeaseName,
        pending: &Pending,
        answer: &Answer,
        actions: &mut Vec<Action>,
    ) {
        if matches!(answer, Answer::Throttled) {
            self.refresh.allowed = Some((self.refresh.allowed.unwrap_or(IN_FLIGHT) / 2).max(1));
        } else if let (Answer::Claim(_), Some(allowed)) = (answer, self.refresh.allowed) {
            self.refresh.allowed = (allowed + 1 < IN_FLIGHT).then_some(allowed + 1);
        }
        let took = pending.purpose == Purpose::Take;
        let released = pending.purpose == Purpose::Release;
        match answer {
            Answer::Claim(stored) if took => {
                if self.owner(stored) == Owner::Me {
                    self.after_take(now, name);
                }
            }
            Answer::Claim(_) if released => self.with(name, |tenure| {
                tenure.end();
                tenure.retry = now;
            }),
            Answer::Claim(_) | Answer::Session(_) | Answer::Absent => {}
            Answer::Conflict => self.with(name, |tenure| {
                tenure.must_read = true;
                tenure.retry = now;
            }),
            Answer::Unknown(_) => self.with(name, |tenure| {
                tenure.must_read = true;
                tenure.retry = now + RETRY;
            }),
            Answer::Throttled | Answer::Refused(_) => {
                let later = now + self.config.renew_interval();
                self.with(name, |tenure| tenure.retry = later);
            }
        }
        self.conflict_answered(now, name, pending, answer, actions);
    }

    pub(super) fn with(&mut self, name: &LeaseName, change: impl FnOnce(&mut Tenure)) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            change(tenure);
        }
    }

    /// The addresses that this node is to have now.
    pub(super) fn served_vips(&self) -> BTreeMap<IpAddr, ServedVip> {
        let mut vips = BTreeMap::new();
        for (name, tenure) in &self.tenures {
            let yielding = tenure.yielding.is_some();
            if !(tenure.mine && tenure.leaving.is_none() && tenure.probing.is_none() || yielding) {
                continue;
            }
            let Some(interface) = tenure.interface.clone() else { continue };
            let Some(claim) = self.desired_claim(name) else { continue };
            for address in &claim.addresses {
                // Exclusion is per address: only what the stored claim lists is served under it.
                let listed = self.claims.get(name).is_none_or(|s| s.record.addresses.contains(address));
                // A successor that gives the claim up lists nothing; the address is still asked for.
                if !(listed || yielding) || self.conflicts.yielded(*address) {
                    continue;
                }
                vips.insert(
                    *address,
                    ServedVip {
                        claim: name.clone(),
                        interface: interface.clone(),
                        until: self.own.kernel_until,
                        ownership: tenure.ownership,
                        announced: !yielding,
                    },
                );
            }
        }
        vips
    }

    /// What the next process is to keep alive.
    pub(super) fn held_claims(&self) -> BTreeMap<LeaseName, HeldClaim> {
        self.tenures
            .iter()
            .filter(|(_, tenure)| tenure.mine && tenure.leaving.is_none())
            .filter_map(|(name, tenure)| {
                let claim = self.desired_claim(name)?;
                let interface = tenure.interface.clone()?;
                Some((name.clone(), HeldClaim { addresses: claim.addresses.clone(), interface }))
            })
            .collect()
    }
}

/// How well an interface with these addresses fits `claim`: the shortest prefix that holds one of
/// the claim's addresses; `None` where it does not fit. An interface that the policy names fits
/// even where none of its subnets holds the addresses, but behind one that does.
pub(super) fn fits(claim: &DesiredClaim, name: &InterfaceName, addresses: &[ipnet::IpNet]) -> Option<u8> {
    let named = claim.interfaces.contains(name);
    if !claim.interfaces.is_empty() && !named {
        return None;
    }
    let prefix = |vip: &IpAddr| {
        addresses
            .iter()
            // A host route says nothing about the segment.
            .filter(|net| net.contains(vip) && net.prefix_len() < net.max_prefix_len())
            .map(ipnet::IpNet::prefix_len)
            .max()
    };
    let fit = claim.addresses.iter().map(prefix).min().flatten();
    fit.or(named.then_some(0))
}
