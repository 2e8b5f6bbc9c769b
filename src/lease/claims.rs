//! The claims: which are valid, who takes the orphans, and what this node holds.
//!
//! Everything here is level-triggered: each pass looks at what is stored, what is asked for and
//! what this node believes to hold, and does what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use super::conflict::Probing;
use super::election::{Election, Pending, Purpose, is_under};
use super::eligible::{Ineligible, SEEN};
use super::event::{Action, Answer, Change, Fact, Target, Write};
use super::handover::{Handover, Yielding};
use super::old_owners::Former;
use super::orphans::{LastOwner, Orphan};
use super::provisional::Provisional;
use super::record::HeldClaim;
use super::refresh::IN_FLIGHT;
use super::serving::ServedVip;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim, OnApiOutage};

/// How long after a failed request on a claim the next is sent.
const RETRY: Duration = Duration::from_millis(250);
/// How long an address that no service asks for stays on the list of a claim: the watch on the services
/// may be behind the operator, which has just put it there.
const UNASKED: Duration = Duration::from_secs(1);

/// What this node knows and does about one claim.
#[derive(Debug)]
pub(super) struct Tenure {
    /// This node is the owner, as far as it knows.
    pub(super) mine: bool,
    /// Which ownership this is.
    pub(super) ownership: u64,
    /// The interface that carries the addresses while they are mine.
    pub(super) interface: Option<InterfaceName>,
    /// What the lease listed while it was mine.
    list: List,
    /// What is served although no lease lists it: somebody deleted the lease, and the operator has not
    /// listed the addresses again.
    unlisted: BTreeSet<IpAddr>,
    /// Since when it lists an address that no service asks for.
    unasked: Option<Instant>,
    /// Since when the addresses are to be in the kernel and are not.
    pub(super) missing: Option<Instant>,
    /// The claim is being given up, for this reason.
    pub(super) leaving: Option<String>,
    pub(super) handover: Option<Handover>,
    pub(super) yielding: Option<Yielding>,
    pub(super) probing: Option<Probing>,
    /// This node serves it, or is about to, although another is the owner.
    pub(super) provisional: Option<Provisional>,
    pub(super) orphan: Option<Orphan>,
    /// The last valid ownership that was seen.
    pub(super) last: Option<LastOwner>,
    /// The one before, if the claim was taken from it.
    pub(super) former: Option<LastOwner>,
    /// Whom the claim names.
    pub(super) shown: Option<Former>,
    /// Those from whom it was taken, by whomever, and who may not know.
    pub(super) untold: Vec<Former>,
    /// When this node asked for the claim nobody had ever held it, or its holder had released it:
    /// nobody is to have its addresses.
    pub(super) vacant: bool,
    pub(super) must_read: bool,
    pub(super) retry: Instant,
    pub(super) ineligible: Option<Ineligible>,
    /// The address that cannot be served because a node has it, as far as it was reported.
    pub(super) address_of_a_node: Option<IpAddr>,
    /// Nodes that did not serve what was handed to them.
    pub(super) excluded: BTreeMap<NodeName, Instant>,
}

/// The services of a claim, and their addresses. Only the operator puts an address there, and only when
/// no other claim lists it: however old a speaker's view of the services is, an address is never on the
/// lists of two claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    services: Vec<String>,
    addresses: BTreeSet<IpAddr>,
}

impl List {
    fn is_of(&self, record: &Claim) -> bool {
        self.addresses == record.addresses && self.services == record.services
    }

    fn of(record: &Claim) -> Self {
        Self { services: record.services.clone(), addresses: record.addresses.clone() }
    }
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
            list: List::default(),
            unlisted: BTreeSet::new(),
            unasked: None,
            missing: None,
            leaving: None,
            handover: None,
            yielding: None,
            probing: None,
            provisional: None,
            orphan: None,
            last: None,
            former: None,
            shown: None,
            untold: Vec::new(),
            vacant: false,
            must_read: false,
            retry: now,
            ineligible: None,
            address_of_a_node: None,
            excluded: BTreeMap::new(),
        }
    }

    /// The claim has a valid owner.
    fn note_owner(&mut self, owner: Option<LastOwner>) {
        let changed = |before: &LastOwner| {
            owner.as_ref().is_some_and(|owner| {
                owner.session != before.session && before.successor.as_ref() != Some(&owner.node)
            })
        };
        if let Some(before) = self.last.take_if(|before| changed(before)) {
            self.former = Some(before);
        }
        self.last = owner;
    }

    /// This node serves it, or is about to, or has done so until a moment ago.
    pub(super) const fn counts(&self) -> bool {
        self.mine || self.yielding.is_some() || self.provisional.is_some()
    }

    /// Forgets everything that came with owning the claim.
    fn end(&mut self) {
        self.mine = false;
        self.unlisted.clear();
        self.unasked = None;
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
        // A number below one that was seen of this lease is an edit or a restored backup.
        if self.claims.is_set_back(stored) {
            return Owner::Nobody;
        }
        if *holder == self.config.node {
            return if self.own.id.as_ref() == Some(session) { Owner::Me } else { Owner::Nobody };
        }
        if !self.is_live(holder, session) && !self.is_in_doubt(stored) {
            return Owner::Nobody;
        }
        Owner::Other(holder.clone())
    }

    /// Whether `stored` is held under a session that this node does not know: the watch on the claims
    /// may be ahead of the one on the sessions. Until the session was read, its holder owns it.
    pub(super) fn is_in_doubt(&self, stored: &Stored<Claim>) -> bool {
        let (Some(holder), Some(session)) = (&stored.record.holder, &stored.record.session) else {
            return false;
        };
        if *holder == self.config.node || self.is_live(holder, session) {
            return false;
        }
        let known = self.sessions.get(holder.as_str());
        let later = known.is_some_and(|known| {
            known.uid == session.uid && known.record.transitions > session.transitions
        });
        let same = known.is_some_and(|known| is_under(known, session));
        let seen = self.claims.entry(&stored.name).map(|entry| entry.changed);
        let read = self.peers.read(holder);
        !later && !same && read.is_none_or(|read| seen.is_some_and(|seen| read < seen))
    }

    /// Reads the sessions that claims name and that this node does not know.
    fn resolve_doubts(&mut self, now: Instant, names: &[LeaseName], actions: &mut Vec<Action>) {
        let doubtful: BTreeSet<LeaseName> = names
            .iter()
            .filter_map(|name| self.claims.get(name))
            .filter(|stored| self.is_in_doubt(stored))
            .filter_map(|stored| stored.record.holder.as_ref().map(LeaseName::session))
            .collect();
        for name in doubtful {
            let target = Target::Session(name.clone());
            if !self.is_pending(&target) && self.peers.may_read(now, &name) {
                self.read(now, target, actions);
            }
        }
    }

    pub(super) fn claims_deadline(&self) -> Option<Instant> {
        self.own.id.as_ref()?;
        let mut deadlines = Vec::new();
        for name in self.open.iter() {
            let Some(tenure) = self.tenures.get(name) else { continue };
            if self.is_pending(&Target::Claim(name.clone())) {
                continue;
            }
            if let Some(orphan) = &tenure.orphan
                && self.desired_claim(name).is_some()
            {
                deadlines.push(self.turn(orphan, tenure).max(tenure.retry));
                deadlines.push(Self::round_ends(orphan));
                deadlines.push(self.api_given_up(orphan.since));
                deadlines.extend(tenure.ineligible.as_ref().map(|ineligible| ineligible.until));
            }
            deadlines.extend(tenure.missing.map(|since| since + SEEN));
            deadlines.extend(tenure.unasked.map(|since| since + UNASKED));
            deadlines.push(tenure.retry);
        }
        deadlines.extend(self.open.holding.then_some(self.refresh.due));
        deadlines.extend(self.asking_around());
        deadlines.extend(self.handover_deadline());
        self.first_ahead(deadlines)
    }

    pub(super) fn desired_claim(&self, name: &LeaseName) -> Option<&DesiredClaim> {
        self.desired.as_ref().and_then(|desired| desired.claims.get(name))
    }

    pub(super) fn advance_claims(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(desired) = self.desired.clone() else { return };
        let names = self.open_claims();
        for name in &names {
            // A claim that nobody asks for is looked at as long as it is ours to give up.
            let ours = || self.claims.get(name).is_some_and(|s| self.owner(s) == Owner::Me);
            if !self.tenures.contains_key(name) && (desired.claims.contains_key(name) || ours()) {
                self.tenures.insert(name.clone(), Tenure::new(now));
            }
        }
        self.open.stale |= self.counts_any(&names);
        for name in &names {
            self.note_holder(name);
            self.settle_owner(now, name, actions);
        }
        if self.own.id.is_some() {
            self.resolve_doubts(now, &names, actions);
            self.rank_orphans(now, &names, &desired);
            self.keep_link(now, &names);
            for name in &names {
                self.advance_claim(now, name, desired.claims.get(name), &desired, actions);
            }
            self.advance_handovers(now, &names, &desired, actions);
            self.refresh_in_turn(now, actions);
        }
        self.open.stale |= self.counts_any(&names);
        for name in &names {
            let kept = |tenure: &Tenure| tenure.mine || tenure.yielding.is_some();
            if !desired.claims.contains_key(name) && !self.tenures.get(name).is_some_and(kept) {
                self.tenures.remove(name);
                self.claims.prune(name);
            }
        }
        self.close_settled(now, &names, &desired);
    }

    /// Whether what is served rests on any of these claims.
    fn counts_any(&self, names: &[LeaseName]) -> bool {
        names.iter().any(|name| self.tenures.get(name).is_some_and(Tenure::counts))
    }

    /// Brings what this node believes to own in line with what is stored.
    fn settle_owner(&mut self, now: Instant, name: &LeaseName, actions: &mut Vec<Action>) {
        let stored = self.claims.get(name).cloned();
        let owner = stored.as_ref().map_or(Owner::Nobody, |stored| self.owner(stored));
        let live = self.own.id.is_some();
        // An owner goes on until it is known whether another one is valid.
        let doubtful = stored.as_ref().is_some_and(|stored| self.is_in_doubt(stored));
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if doubtful && tenure.mine && live {
            return;
        }
        if let (Some(stored), Owner::Me | Owner::Other(_)) = (&stored, &owner) {
            let record = &stored.record;
            let last = record.session.clone().zip(record.holder.clone()).map(|(session, node)| {
                let successor = record.successor.as_ref().map(|successor| successor.node.clone());
                LastOwner { node, session, transitions: record.transitions, successor }
            });
            tenure.note_owner(last);
            if self.silences.forsaken(name).is_none() {
                tenure.orphan = None;
            }
        }
        match owner {
            Owner::Me if !tenure.mine => {
                let Some(stored) = stored else { return };
                tenure.mine = true;
                tenure.yielding = None;
                tenure.orphan = None;
                let served = tenure.provisional.take().is_some() && tenure.probing.is_none();
                if !served {
                    self.ownerships += 1;
                    tenure.ownership = self.ownerships;
                }
                tenure.interface.clone_from(&stored.record.interface);
                tenure.list = List::of(&stored.record);
                if std::mem::take(&mut tenure.vacant) {
                    self.probe_first(now, name, &stored, actions);
                }
                let cause = stored.record.cause.clone();
                Self::report(Fact::Claimed { claim: name.clone(), cause }, actions);
            }
            Owner::Other(node) if tenure.mine => {
                tenure.yielding = stored.and_then(|stored| {
                    let named =
                        tenure.handover.as_ref().and_then(Handover::successor) == Some(&node);
                    named.then(|| Yielding::new(now, node.clone(), &stored))
                });
                tenure.end();
                let cause = format!("now owned by {node}");
                Self::report(Fact::Yielded { claim: name.clone(), cause }, actions);
            }
            Owner::Nobody if tenure.mine && !live => tenure.end(),
            Owner::Me => {
                if let Some(stored) = stored.filter(|stored| !tenure.list.is_of(&stored.record)) {
                    tenure.list = List::of(&stored.record);
                }
            }
            Owner::Nobody if tenure.mine && stored.is_none() => {
                tenure.unlisted.append(&mut tenure.list.addresses);
            }
            Owner::Other(_) | Owner::Nobody => {}
        }
        self.give_up_listed(name);
    }

    /// Of what no lease listed, what one lists now is governed by that.
    fn give_up_listed(&mut self, name: &LeaseName) {
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        if tenure.unlisted.is_empty() {
            return;
        }
        for stored in self.claims.stored() {
            tenure.unlisted.retain(|address| !stored.record.addresses.contains(address));
        }
    }

    /// Somebody else has `address`, which the lease of this claim of ours does not list.
    pub(super) fn give_up_unlisted(&mut self, name: &LeaseName, address: IpAddr) {
        self.with(name, |tenure| {
            tenure.unlisted.remove(&address);
        });
    }

    pub(super) fn lose_all_claims(&mut self, cause: &str, actions: &mut Vec<Action>) {
        self.open.note_all();
        for (name, tenure) in &mut self.tenures {
            tenure.yielding = None;
            if tenure.provisional.take().is_some() {
                tenure.probing = None;
            }
            if tenure.mine {
                tenure.end();
                let (claim, cause) = (name.clone(), cause.to_owned());
                Self::report(Fact::Yielded { claim, cause }, actions);
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
        if stored.as_ref().is_some_and(|stored| self.is_in_doubt(stored)) {
            return;
        }
        if !owned {
            // Deleted, edited, or our session was: nobody else owns it, so it is still ours.
            let edited = "lease or session was deleted or edited";
            let due = self.tenures.get(name).is_some_and(|tenure| now >= tenure.retry);
            let released = stored.as_ref().is_some_and(|stored| stored.record.holder.is_none());
            let leaving = self.tenures.get(name).is_some_and(|tenure| tenure.leaving.is_some());
            match claim {
                // Its release was carried out, and the answer lost.
                Some(_) if leaving && released => self.with(name, Tenure::end),
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
        let unasked = !stored.record.addresses.is_subset(&claim.addresses);
        let Some(tenure) = self.tenures.get_mut(name) else { return };
        tenure.unasked = unasked.then(|| tenure.unasked.unwrap_or(now));
        let due = now >= tenure.retry && tenure.unasked.is_some_and(|since| now >= since + UNASKED);
        // What is listed no longer goes from the kernel before it goes from the claim.
        let gone =
            stored.record.addresses.difference(&claim.addresses).all(|a| self.is_removed(*a));
        if gone && due && self.has_room() {
            let mut record = self.held_record(&stored);
            record.addresses.retain(|address| claim.addresses.contains(address));
            self.put_claim(now, name, Some(stored), record, Purpose::Refresh, actions);
        }
    }

    /// First the addresses go, then the claim.
    pub(super) fn leave_claim(
        &mut self,
        now: Instant,
        name: &LeaseName,
        stored: &Arc<Stored<Claim>>,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let unlisted = self.tenures.get(name).map(|tenure| &tenure.unlisted);
        let mut addresses = stored.record.addresses.iter().chain(unlisted.into_iter().flatten());
        let removed = addresses.all(|address| self.is_removed(*address));
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
            interface: None,
            mac: None,
            transitions: self.next_claim_transitions(name),
            cause: format!("released by {}: {cause}", self.config.node),
            ..stored.record.clone()
        };
        self.put_claim(now, name, Some(Arc::clone(stored)), record, Purpose::Release, actions);
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
        let forsaken = self.silences.forsaken(name).map(|forsaken| forsaken.since);
        let owned = stored.as_ref().filter(|stored| self.owner(stored) != Owner::Nobody);
        if let Some(stored) = owned.filter(|_| forsaken.is_none()) {
            self.succeed(now, name, claim, stored, desired, actions);
            return;
        }
        let Some(orphan) = &tenure.orphan else { return };
        // Who serves it already need not wait for its turn.
        let served = self.serves_provisionally(name);
        let turn = self.turn(orphan, tenure);
        if !served && (now < turn || !orphan.ranking.contains(&self.config.node)) {
            return;
        }
        let since = orphan.since;
        if !served && !self.hears_since(now, since, claim, actions) {
            return;
        }
        let Some(tenure) = self.tenures.get(name) else { return };
        let Some(orphan) = &tenure.orphan else { return };
        if self.is_api_gone(now, forsaken.unwrap_or(since)) {
            self.take_provisionally(now, name, claim, stored.as_deref(), actions);
            return;
        }
        if served && (self.is_settling() || forsaken.is_some() && self.is_returning(name)) {
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
            (Some(last), _) if forsaken.is_some() => {
                format!("taken over: {last} does not answer for it any more")
            }
            (_, true) => "lease was deleted or edited".to_owned(),
            (None, _) => "new service".to_owned(),
            (Some(last), _) => self.why_vacant(last, stored.as_deref()),
        };
        self.put_taken(now, name, claim, stored, &cause, actions);
    }

    /// How the last owner lost the claim, as its session or the claim itself says.
    fn why_vacant(&self, last: &NodeName, stored: Option<&Stored<Claim>>) -> String {
        let session = self.sessions.get(last.as_str());
        let ended = session.filter(|session| session.record.holder.is_none());
        let released = stored.filter(|stored| stored.record.holder.is_none());
        let cause = ended.map(|s| &s.record.cause).or_else(|| released.map(|s| &s.record.cause));
        cause.filter(|cause| !cause.is_empty()).map_or_else(
            || format!("the session of {last} under which it was held is over"),
            |cause| format!("taken over: {cause}"),
        )
    }

    /// Makes this node the owner.
    pub(super) fn put_taken(
        &mut self,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        base: Option<Arc<Stored<Claim>>>,
        cause: &str,
        actions: &mut Vec<Action>,
    ) {
        let held = self.tenures.get(name).filter(|tenure| tenure.mine);
        let kept = held.and_then(|tenure| tenure.interface.as_ref());
        let kept = kept.and_then(|name| Some((name.clone(), self.interfaces.get(name)?.mac)));
        let chosen = || self.local_interface(claim).map(|(name, link)| (name.clone(), link.mac));
        let (Some((interface, mac)), Some(session)) = (kept.or_else(chosen), self.own.id.clone())
        else {
            return;
        };
        // One that is created anew lists nothing: its addresses may be another claim's meanwhile.
        let services = self.tenures.get(name).map(|tenure| tenure.list.services.clone());
        let list = base.as_ref().map_or_else(
            || List { services: services.unwrap_or_default(), addresses: BTreeSet::new() },
            |base| List::of(&base.record),
        );
        if base.is_some() && list.addresses.is_empty() {
            return;
        }
        let record = Claim {
            holder: Some(self.config.node.clone()),
            transitions: self.next_claim_transitions(name),
            duration_seconds: self.claim_duration(),
            services: list.services,
            addresses: list.addresses,
            interface: Some(interface),
            mac: Some(mac),
            session: Some(session),
            cause: cause.to_owned(),
            successor: None,
        };
        let released = base.as_ref().is_some_and(|base| base.record.holder.is_none());
        self.with(name, |tenure| {
            let served = tenure.mine || tenure.yielding.is_some() || tenure.provisional.is_some();
            tenure.vacant = !served && (released || tenure.last.is_none());
        });
        self.put_claim(now, name, base, record, Purpose::Take, actions);
    }

    /// What a claim of ours says now.
    pub(super) fn held_record(&self, stored: &Stored<Claim>) -> Claim {
        let tenure = self.tenures.get(&stored.name);
        let interface = tenure.and_then(|tenure| tenure.interface.clone());
        Claim {
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
        base: Option<Arc<Stored<Claim>>>,
        record: Claim,
        purpose: Purpose,
        actions: &mut Vec<Action>,
    ) {
        let change = Change { name: name.clone(), base, record };
        self.write(now, Write::Claim(change), purpose, actions);
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
        let released = pending.purpose == Purpose::Release;
        match answer {
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
                let later = now + self.renew_interval();
                self.with(name, |tenure| tenure.retry = later);
            }
        }
        self.conflict_answered(now, name, pending, answer, actions);
    }

    pub(super) fn with(&mut self, name: &LeaseName, change: impl FnOnce(&mut Tenure)) {
        if let Some(tenure) = self.tenures.get_mut(name) {
            self.open.stale |= tenure.counts();
            change(tenure);
            self.open.stale |= tenure.counts();
        }
    }

    /// Whether `address` may be served under the claim. Exclusion is per address: only what the stored
    /// claim lists is, and what it listed before somebody deleted it.
    fn may_serve(&self, name: &LeaseName, tenure: &Tenure, address: IpAddr) -> bool {
        let stored = self.claims.get(name);
        let listed = stored.map_or(&tenure.list.addresses, |stored| &stored.record.addresses);
        listed.contains(&address) || tenure.unlisted.contains(&address)
    }

    /// The addresses that this node is to have now.
    pub(super) fn served_vips(&self, now: Instant) -> BTreeMap<IpAddr, ServedVip> {
        let mut vips = BTreeMap::new();
        for (name, tenure) in &self.tenures {
            let yielding = tenure.yielding.is_some();
            let mine = tenure.mine && tenure.leaving.is_none();
            if !((mine || tenure.provisional.is_some()) && tenure.probing.is_none() || yielding) {
                continue;
            }
            let Some(interface) = tenure.interface.clone() else { continue };
            let Some(claim) = self.desired_claim(name) else { continue };
            let drops = claim.on_api_outage == OnApiOutage::Drop;
            if drops && now >= self.own.renewed_until() {
                continue;
            }
            for address in &claim.addresses {
                if !self.may_serve(name, tenure, *address) || self.conflicts.yielded(*address) {
                    continue;
                }
                vips.insert(
                    *address,
                    ServedVip {
                        claim: name.clone(),
                        interface: interface.clone(),
                        until: if drops { self.own.dropped_at() } else { self.own.kernel_until },
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
                let drops = claim.on_api_outage == OnApiOutage::Drop;
                let served = |address: &&IpAddr| self.may_serve(name, tenure, **address);
                let addresses = claim.addresses.iter().filter(served).copied().collect();
                Some((name.clone(), HeldClaim { addresses, interface, drops }))
            })
            .collect()
    }
}
