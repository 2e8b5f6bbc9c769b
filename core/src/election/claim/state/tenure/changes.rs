//! The changes of a tenure.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{CARRIER_LOST, Claim, Members, Reason, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::DesiredClaim;
use crate::election::claim::state::addresses::List;
use crate::election::claim::state::cold_start::Origin;
use crate::election::claim::state::former::Former;
use crate::election::claim::state::moves::{Handover, Phase, Yielding};
use crate::election::claim::state::preflight::{INELIGIBLE, INELIGIBLE_MAX, Ineligible, Missing};
use crate::election::claim::state::probe::Probing;
use crate::election::claim::state::provisional::Provisional;
use crate::election::claim::state::release::Leaving;
use crate::election::claim::state::tenure::{GivenUp, TOGETHER, Tenure};
use crate::election::claim::state::unowned::{LastOwner, Unowned};
use crate::election::io::transition::Story;

impl Tenure {
    /// The claim has a valid owner. Returns whether it has been given out just now.
    pub(in crate::election) fn note_owner(
        &mut self,
        now: Instant,
        owner: Option<LastOwner>,
    ) -> bool {
        let anew = std::mem::take(&mut self.anew);
        let changed = |before: &LastOwner| {
            owner.as_ref().is_some_and(|owner| {
                owner.session != before.session && before.successor.as_ref() != Some(&owner.node)
            })
        };
        let owners = self.last.as_ref().zip(owner.as_ref());
        if owners.is_some_and(|(before, owner)| before.session != owner.session) {
            self.given_out = None;
        }
        if let Some(before) = self.last.take_if(|before| changed(before)) {
            self.former = Some(Box::new(before));
            self.origin = Origin::Unknown;
        }
        let first = self.former.is_none() && self.origin != Origin::Unknown;
        let given_out = self.last.is_none() && owner.is_some() && (first || anew);
        if given_out {
            // Of those that started together nobody knew all.
            let together = anew || self.origin == Origin::Awaiting;
            self.given_out = Some(if together { now - TOGETHER } else { now });
        }
        self.given_up = None;
        self.last = owner;
        given_out
    }

    /// The claim has no owner: notes whether the last one gave it up because its link was lost.
    pub(in crate::election) fn note_given_up(&mut self, now: Instant, stored: &Stored<Claim>) {
        let Some(last) = self.last.as_ref().filter(|_| self.given_up.is_none()) else { return };
        let record = &stored.record;
        let next = record.transitions == last.transitions.saturating_add(1);
        let given_up =
            || Reason::ReleasedBy(last.node.clone(), CARRIER_LOST.to_owned()).to_string();
        if record.holder.is_none() && next && record.cause == given_up() {
            let version = Arc::clone(&stored.resource_version);
            self.given_up = Some(Box::new(GivenUp { at: now, version }));
        }
    }

    /// The lease lists something else while the claim is mine. What it does not list any more was not
    /// taken off by anybody who may: it is served on.
    pub(in crate::election) fn relist(&mut self, list: List, claim: Option<&DesiredClaim>) {
        let before = std::mem::replace(&mut self.list, list);
        let gone = before.addresses.difference(&self.list.addresses);
        let asked = |address: &&IpAddr| claim.is_some_and(|it| it.addresses.contains(address));
        self.unlisted.extend(gone.filter(asked).copied());
    }

    /// Forgets everything that came with owning the claim.
    pub(in crate::election) fn end(&mut self) {
        self.mine = false;
        self.story = None;
        self.took = None;
        self.unlisted.clear();
        self.unasked = None;
        self.missing = None;
        self.leaving = None;
        self.handover = None;
        self.probing = None;
        self.unproxied = false;
    }

    /// Notes whether the last owner's node, and its session, start together with this speaker.
    pub(in crate::election) const fn set_anew(&mut self, anew: bool) {
        self.anew = anew;
    }

    /// This node becomes the owner. Returns the provisional ownership that ends with this, if it was served.
    pub(in crate::election) fn own(&mut self, record: &Claim) -> Option<Provisional> {
        self.mine = true;
        self.forgets = false;
        self.yielding = None;
        self.unowned = None;
        self.interface.clone_from(&record.interface);
        self.list = List::of(record);
        self.provisional.take().filter(|_| self.probing.is_none()).map(|it| *it)
    }

    /// Begins a new ownership of the addresses: the kernel and the announcements begin anew.
    pub(in crate::election) const fn set_ownership(&mut self, ownership: u64) {
        self.ownership = ownership;
    }

    /// Whether the claim was vacant when this node asked for it; from now on it no longer was.
    pub(in crate::election) const fn take_vacant(&mut self) -> bool {
        std::mem::replace(&mut self.vacant, false)
    }

    /// Whether the addresses wait for the rules of kube-proxy.
    pub(in crate::election) const fn set_awaits_rules(&mut self, waits: bool) {
        self.unproxied = waits;
    }

    /// Another node becomes the owner. If it is the named successor, this node serves the addresses until the
    /// successor announces them.
    pub(in crate::election) fn lose(
        &mut self,
        now: Instant,
        to: &NodeName,
        stored: Option<&Stored<Claim>>,
    ) {
        let named = self.handover.as_ref().and_then(Handover::successor) == Some(to);
        let yielding =
            stored.filter(|_| named).map(|stored| Yielding::new(now, to.clone(), stored));
        self.yielding = yielding.map(Box::new);
        self.end();
    }

    /// The session of this node has ended: it owns and serves nothing. Returns whether it owned the claim.
    pub(in crate::election) fn lose_session(&mut self) -> bool {
        self.yielding = None;
        if self.provisional.take().is_some() {
            self.probing = None;
        }
        let owned = self.mine;
        if owned {
            self.end();
        }
        owned
    }

    /// This node asks for the claim.
    pub(in crate::election) fn ask(&mut self, vacant: bool, story: Story) {
        self.vacant = vacant;
        if !self.mine && self.provisional.is_none() {
            self.story = Some(Box::new(story));
        }
    }

    /// The request for the claim was refused: another node asked as well.
    pub(in crate::election) fn forget_story(&mut self) {
        self.story = None;
    }

    /// Takes the reason for the change of ownership: this node serves the addresses now.
    pub(in crate::election) fn take_story(&mut self) -> Option<Story> {
        self.story.take().map(|story| *story)
    }

    /// The Lease is to name former owners no longer.
    pub(in crate::election) const fn forget_former_owners(&mut self) {
        self.forgets = true;
    }

    /// Takes in over which nodes this one is to spread packets; returns whether that is new.
    pub(in crate::election) fn ask_members(&mut self, asked: Option<Members>) -> bool {
        if self.members.as_deref() == asked.as_ref() {
            return false;
        }
        self.members = asked.map(Box::new);
        // The change is to be remembered for as long as connections may be older.
        self.forgets = false;
        true
    }

    /// Takes in over which nodes this one spreads packets although the Lease has never named them; returns whether that
    /// is new.
    pub(in crate::election) fn set_unnamed_members(&mut self, unnamed: Option<Members>) -> bool {
        let changed = self.unnamed_members.as_deref() != unnamed.as_ref();
        self.unnamed_members = unnamed.map(Box::new);
        changed
    }

    /// The duration of the change of ownership, which the Lease does not contain yet.
    pub(in crate::election) const fn set_took(&mut self, took: Duration) {
        self.took = Some(took);
    }

    /// The Lease contains this duration of the change of ownership.
    pub(in crate::election) fn note_told(&mut self, took: Option<Duration>) {
        if self.took == took {
            self.took = None;
        }
    }

    /// Serves the addresses on another interface.
    pub(in crate::election) fn set_interface(&mut self, interface: InterfaceName) {
        self.interface = Some(interface);
    }

    /// Gives the claim up, unless it does so already. The first request may be sent at once.
    pub(in crate::election) fn leave(&mut self, now: Instant, leaving: &Leaving) {
        if self.leaving.is_none() {
            self.leaving = Some(leaving.clone());
            self.retry = now;
        }
    }

    /// Notes whether the reason for which the claim is given up has ended.
    pub(in crate::election) fn note_reason(&mut self, now: Instant, gone: bool) {
        if let Some(leaving) = &mut self.leaving {
            leaving.over = leaving.over.or(Some(now)).filter(|_| gone);
        }
    }

    /// Keeps the claim after all, as a new ownership.
    pub(in crate::election) fn stay(&mut self, ownership: u64) {
        self.leaving = None;
        self.missing = None;
        self.ownership = ownership;
    }

    /// Another host has an address: gives the claim up.
    pub(in crate::election) fn refuse(&mut self, leaving: Leaving) {
        self.probing = None;
        self.leaving = Some(leaving);
    }

    /// Begins to probe for the addresses.
    pub(in crate::election) fn probe(&mut self, now: Instant, round: u32) {
        self.probing = Some(Probing::new(now, round));
    }

    /// The second probe has been sent.
    pub(in crate::election) const fn note_second_probe(&mut self) {
        if let Some(probing) = &mut self.probing {
            probing.second = None;
        }
    }

    /// No other host answered the probes.
    pub(in crate::election) fn end_probing(&mut self) {
        self.probing = None;
    }

    /// Frames were dropped: an answer to a probe may have been among them.
    pub(in crate::election) fn note_missed(&mut self, now: Instant) {
        if let Some(probing) = &mut self.probing {
            probing.missed = true;
        }
        if let Some(yielding) = &mut self.yielding {
            yielding.note_missed(now);
        }
    }

    /// Begins to hand the claim over, or to look for a successor again at `until`.
    pub(in crate::election) fn hand_over(&mut self, successor: Option<NodeName>, until: Instant) {
        self.handover = Some(Handover { successor, until });
    }

    /// Hands the claim over no longer.
    pub(in crate::election) fn end_handover(&mut self) {
        self.handover = None;
    }

    /// Hands the claim over to no node that failed to serve it, until then.
    pub(in crate::election) fn exclude(&mut self, node: NodeName, until: Instant) {
        self.excluded.insert(node, until);
    }

    /// Waits for the announcement of the node that owns the claim now.
    pub(in crate::election) fn yield_to(&mut self, yielding: Option<Yielding>) {
        self.yielding = yielding.map(Box::new);
    }

    /// The successor serves the addresses, or this node serves them no longer.
    pub(in crate::election) fn end_yielding(&mut self) {
        self.yielding = None;
    }

    /// The wait for the announcement of the successor enters the next phase.
    pub(in crate::election) const fn set_phase(&mut self, phase: Phase) {
        if let Some(yielding) = &mut self.yielding {
            yielding.phase = phase;
        }
    }

    /// Begins to serve the addresses provisionally.
    pub(in crate::election) fn take_provisionally(
        &mut self,
        ownership: u64,
        interface: &InterfaceName,
        provisional: Provisional,
    ) {
        self.ownership = ownership;
        self.interface = Some(interface.clone());
        self.story = Some(Box::new(provisional.story.clone()));
        self.provisional = Some(Box::new(provisional));
    }

    /// The host with this MAC address, which has the addresses as well, was told that this node serves them.
    pub(in crate::election) fn note_told_provisional(
        &mut self,
        mac: MacAddr,
        first: Instant,
        now: Instant,
    ) {
        if let Some(provisional) = &mut self.provisional {
            provisional.told.insert(mac, (first, now));
        }
    }

    /// The owner for which this node serves the addresses has renewed its session.
    pub(in crate::election) fn note_returned(&mut self, now: Instant) {
        if let Some(provisional) = &mut self.provisional {
            provisional.returned = Some(now);
        }
    }

    /// Serves the addresses provisionally no longer, and does not take them again before `retry`.
    pub(in crate::election) fn end_provisional(&mut self, retry: Instant) {
        self.provisional = None;
        self.probing = None;
        self.retry = retry;
    }

    /// The claim has no valid owner, and this node has this rank.
    pub(in crate::election) fn set_unowned(&mut self, unowned: Unowned) {
        self.unowned = Some(Box::new(unowned));
    }

    /// The claim has an owner, or lists nothing.
    pub(in crate::election) fn end_unowned(&mut self) {
        self.unowned = None;
    }

    /// Some of those that act before this node cannot take the claim any more; `left` remain.
    pub(in crate::election) fn strike_out(&mut self, own: &NodeName, left: Vec<NodeName>) {
        let Some(unowned) = &mut self.unowned else { return };
        let gone = unowned.ahead.len().saturating_sub(left.len());
        unowned.place = unowned.place.map(|place| place.saturating_sub(gone));
        let first = left.first().cloned();
        unowned.first = first.or_else(|| (unowned.place == Some(0)).then(|| own.clone()));
        unowned.ahead = left;
    }

    /// The knowledge of this process from before the claim had an owner.
    pub(in crate::election) const fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Of the addresses that no Lease listed, those that one lists now are governed by that Lease.
    pub(in crate::election) fn forget_unlisted(&mut self, listed: impl Fn(&IpAddr) -> bool) {
        self.unlisted.retain(|address| !listed(address));
    }

    /// Notes whether the Lease lists an address that no Service asks for.
    pub(in crate::election) fn note_unasked(&mut self, now: Instant, unasked: bool) {
        self.unasked = unasked.then(|| self.unasked.unwrap_or(now));
    }

    /// Notes whether an address should be in the kernel and is not. `served` is the generation of the state that the
    /// kernel should have, `told` the one that it was told.
    pub(in crate::election) fn note_missing(
        &mut self,
        now: Instant,
        missing: bool,
        served: u64,
        told: u64,
    ) {
        self.missing = missing.then(|| {
            let first = Missing { since: now, generation: served, told: None };
            let missing = self.missing.unwrap_or(first);
            let told = (told >= missing.generation).then_some(now);
            Missing { told: missing.told.or(told), ..missing }
        });
    }

    /// This node cannot serve the claim: it does not take it for a time that doubles with each failure.
    pub(in crate::election) fn exclude_self(&mut self, now: Instant) {
        let last = self.ineligible.as_ref().map(|last| last.backoff);
        let backoff = last.map_or(INELIGIBLE, |last| (last * 2).min(INELIGIBLE_MAX));
        self.ineligible = Some(Ineligible { until: now + backoff, backoff });
    }

    /// All addresses are in the kernel: the next failure is the first one.
    pub(in crate::election) fn forget_failures(&mut self) {
        self.ineligible = None;
    }

    /// Notes the address that cannot be served because a node has it. Returns the one that was noted before.
    pub(in crate::election) const fn set_address_of_a_node(
        &mut self,
        address: Option<IpAddr>,
    ) -> Option<IpAddr> {
        std::mem::replace(&mut self.address_of_a_node, address)
    }

    /// The Lease must be read before the next write, from `at` on.
    pub(in crate::election) const fn require_read(&mut self, at: Instant) {
        self.must_read = true;
        self.retry = at;
    }

    /// The Lease is being read.
    pub(in crate::election) const fn note_reading(&mut self) {
        self.must_read = false;
    }

    /// Sends no request for the claim before `at`.
    pub(in crate::election) const fn retry_at(&mut self, at: Instant) {
        self.retry = at;
    }

    /// Notes the owner that the Lease names, and the one that may not have observed its loss.
    pub(in crate::election) fn show(
        &mut self,
        shown: Option<Former>,
        holder: Option<&NodeName>,
        lost: Option<Former>,
    ) {
        self.untold.retain(|former| {
            let lost = lost.as_ref().is_some_and(|lost| lost.node == former.node);
            !lost && holder != Some(&former.node)
        });
        self.untold.extend(lost);
        self.shown = shown;
    }

    /// Notes a previous owner that may not have observed its loss.
    pub(in crate::election) fn add_untold(&mut self, former: Former) {
        self.untold.push(former);
    }

    /// Keeps those of the previous owners that have not shown that they observed their loss.
    pub(in crate::election) fn retain_untold(&mut self, unaware: impl FnMut(&mut Former) -> bool) {
        self.untold.retain_mut(unaware);
    }
}
