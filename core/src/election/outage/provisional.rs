//! The API server does not answer and an owner dies: candidates take over provisionally.
//!
//! Nothing decides then but the wire: in the order of the ranking, without those that are silent, by
//! asking first who has the address. When the API server answers again the leases decide: a holder that has
//! renewed gets it back; one that is still silent is fenced, and the claim taken by compare-and-swap.

use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{Claim, LeaseName, Session, Stored};
use leasehold_crds::names::NodeName;
use pnet_base::MacAddr;

use crate::clock::Instant;
use crate::desired::{DesiredClaim, OnApiOutage};
use crate::election::claim::Claims;
use crate::election::claim::state::provisional::Provisional;
use crate::election::claim::state::tenure::Tenure;
use crate::election::claim::state::unowned::Unowned;
use crate::election::context::Context;
use crate::election::context::state::owner::Owner;
use crate::election::io::event::{Action, Frame, Heard};
use crate::election::io::transition::{Cause, OwnerId, Story};
use crate::election::outage::state::turn::Outage;
use crate::election::placement::rank::weight;
use crate::election::wire::Wire;

/// A host that announces the address this long after it was told that this node has it is the legitimate owner.
pub(in crate::election) const TOLD: Duration = Duration::from_millis(20);

/// After which time what another was told counts no more.
pub(in crate::election) const FORGOTTEN: Duration = Duration::from_secs(1);

/// The shortest interval of announcements to others that have the address: more than two may answer one
/// another's announcements.
pub(in crate::election) const ANNOUNCE: Duration = Duration::from_millis(5);

/// The interval of probes for one of the addresses, whatever other host may have it.
pub(in crate::election) const PROBE: Duration = Duration::from_millis(20);

/// Where another has one of them, parts of the segment have joined, and all may be served twice: all are
/// asked for, so many at once, and not again for so long.
pub(in crate::election) const PROBES: usize = 32;

pub(in crate::election) const JOINED: Duration = Duration::from_millis(200);

/// The time for which a former owner that has answered counts as one that answers.
pub(in crate::election) const ANSWERED: Duration = Duration::from_millis(500);

/// The time that an owner that is back has to announce its address again.
pub(in crate::election) const RETURN: Duration = Duration::from_secs(2);

impl Outage {
    /// Takes an address whose owner does not answer while the API server does not either.
    pub(in crate::election) fn take_provisionally(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &mut Wire,
        now: Instant,
        name: &LeaseName,
        claim: &DesiredClaim,
        stored: Option<&Stored<Claim>>,
        actions: &mut Vec<Action>,
    ) {
        let Some(stored) = stored.filter(|_| claim.on_api_outage == OnApiOutage::Hold) else {
            return;
        };
        let (Some(from), Some(session)) = (&stored.record.holder, &stored.record.session) else {
            return;
        };
        if *from == cx.config().node {
            return;
        }
        let Some(tenure) = claims.tenures().get(name).filter(|t| t.provisional().is_none()) else {
            return;
        };
        let Some((interface, _)) = Claims::may_take(cx, now, tenure, claim) else { return };
        let version = cx.session_version(from);
        let story = Story {
            cause: Cause::Outage,
            from: Some(OwnerId { node: from.clone(), session: session.transitions }),
            began: tenure.unowned().map_or(now, Unowned::first_sign),
        };
        let provisional = Provisional::new(from.clone(), now, version, story);
        let stored = stored.clone();
        let ownership = claims.next_ownership();
        cx.api_mut().unsettle();
        claims.with(cx, name, |tenure| {
            tenure.take_provisionally(ownership, &interface, provisional);
        });
        wire.old_owners_mut().note(name);
        claims.probe_on(cx, now, name, &interface, &stored.record.addresses, actions);
    }

    /// Whether this node goes on although `mac` has the addresses as well. Each may have ranked by what it
    /// saw alone, in parts of the segment that have joined since: so the names decide, which all know. An
    /// owner without the API server yields as soon as it hears this node, and does not announce: one that
    /// does has read that it is the owner.
    pub(in crate::election) fn outranks(
        cx: &Context,
        name: &LeaseName,
        provisional: &Provisional,
        mac: MacAddr,
    ) -> bool {
        let weight = |node: &NodeName| (weight(name.as_str(), node.as_str()), node.clone());
        Self::node_with(cx, mac).is_some_and(|other| {
            other != provisional.from() && weight(&cx.config().node) > weight(other)
        })
    }

    /// Another host has an address that this node serves provisionally, or is about to.
    pub(in crate::election) fn hear_provisional(
        &mut self,
        cx: &mut Context,
        claims: &mut Claims,
        now: Instant,
        name: &LeaseName,
        heard: &Heard,
        speaker: bool,
        actions: &mut Vec<Action>,
    ) {
        let Some(tenure) = claims.tenures().get(name) else { return };
        let Some(provisional) = tenure.provisional() else { return };
        let by_former = Self::node_with(cx, heard.frame.mac) == Some(provisional.from());
        if tenure.probing().is_some() {
            claims.withdraw_provisional(cx, now, name);
            return;
        }
        // A former owner that answers is told that it has lost it.
        if !speaker || by_former && !heard.frame.announcement {
            return;
        }
        if self.joined.is_none_or(|at| now.saturating_since(at) >= JOINED) {
            self.joined = Some(now);
            self.sweep =
                claims.tenures().values().filter(|tenure| tenure.provisional().is_some()).count();
            self.probe = now;
        }
        let told = provisional.told(heard.frame.mac);
        let told = told.filter(|(_, last)| now.saturating_since(*last) < FORGOTTEN);
        let knows = told.is_some_and(|(first, _)| now >= first + TOLD);
        if knows && heard.frame.announcement
            || !Self::outranks(cx, name, provisional, heard.frame.mac)
        {
            claims.withdraw_provisional(cx, now, name);
            return;
        }
        if told.is_some_and(|(_, last)| now < last + TOLD) {
            return;
        }
        let last = provisional.last_told();
        let announced = last.is_some_and(|at| now < at + ANNOUNCE);
        claims.with(cx, name, |tenure| {
            let first = told.map_or(now, |(first, _)| first);
            tenure.note_told_provisional(heard.frame.mac, first, now);
        });
        if !announced {
            Context::announce(&heard.interface, heard.frame.ip, actions);
        }
    }

    /// Two halves of a segment may each have a provisional owner, or one of them the rightful one: as
    /// long as anything is served provisionally, it is asked for in turn.
    pub(in crate::election) fn probe_provisional(
        &mut self,
        cx: &Context,
        claims: &Claims,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if !cx.api().is_unsettled() || now < self.probe {
            return;
        }
        let served = |tenure: &Tenure| tenure.provisional().is_some() && tenure.probing().is_none();
        for _ in 0..self.sweep.clamp(1, PROBES) {
            let Some(name) = claims.next_in_turn(self.probed.as_ref(), served) else { return };
            self.probe = now + PROBE;
            self.sweep = self.sweep.saturating_sub(1);
            let interface =
                claims.tenures().get(&name).and_then(|tenure| tenure.interface().cloned());
            let address = cx.claims().get(&name).and_then(|s| s.record.addresses.first().copied());
            self.probed = Some(name);
            if let (Some(address), Some(interface)) = (address, interface) {
                actions.push(Action::Transmit { interface, frame: Frame::Probe(address) });
            }
        }
    }

    pub(in crate::election) fn provisional_deadline(
        &self,
        cx: &Context,
        claims: &Claims,
    ) -> Option<Instant> {
        let returning = claims.open().iter().filter_map(|name| {
            let returned = claims.tenures().get(name)?.provisional()?.returned()?;
            Some(returned + RETURN)
        });
        cx.first_ahead(returning.chain(cx.api().is_unsettled().then_some(self.probe)))
    }

    pub(in crate::election) fn node_with(cx: &Context, mac: MacAddr) -> Option<&NodeName> {
        cx.speaker_with(mac).filter(|node| cx.live_session(node).is_some())
    }

    /// The API server answers again: lists first, then the leases decide.
    pub(in crate::election) fn settle_provisional(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if !cx.api().is_unsettled() {
            return;
        }
        if cx.is_api_failing() || !cx.is_api_answering(now) {
            cx.api_mut().forget_lists();
            return;
        }
        if cx.is_settling() {
            if cx.api_mut().ask_for_lists(now) {
                actions.push(Action::List { asked: now });
            }
            return;
        }
        let provisional = |name: &LeaseName| claims.tenures().get(name)?.provisional().cloned();
        let served: Vec<(LeaseName, Provisional)> = claims
            .open()
            .iter()
            .filter_map(|name| Some((name.clone(), provisional(name)?)))
            .collect();
        for (name, provisional) in &served {
            Self::settle_one(cx, claims, wire, now, name, provisional);
        }
        let left = claims.tenures().values().any(|tenure| tenure.provisional().is_some());
        cx.api_mut().settle(left);
    }

    pub(in crate::election) fn settle_one(
        cx: &mut Context,
        claims: &mut Claims,
        wire: &Wire,
        now: Instant,
        name: &LeaseName,
        provisional: &Provisional,
    ) {
        let owner = cx.claims().get(name).map_or(Owner::Nobody, |stored| cx.owner(stored));
        let renewed = cx.session_version(provisional.from()).as_ref() != provisional.version();
        let over = match owner {
            // It is the owner now; or the holder was fenced, and the claim is asked for at once.
            Owner::Me | Owner::Nobody => false,
            Owner::Other(node) if node == *provisional.from() => {
                // It goes on as soon as it has read that it may; its announcement ends this.
                if renewed && provisional.returned().is_none() {
                    claims.with(cx, name, |tenure| tenure.note_returned(now));
                }
                let returned = provisional.returned().is_some_and(|at| now >= at + RETURN);
                returned || Self::has_what_restarts(cx, claims, wire, now, name, provisional.from())
            }
            Owner::Other(_) => true,
        };
        let gone = cx.desired_claim(name).is_none();
        if over || gone {
            claims.end_provisional(cx, name, now);
        }
    }

    /// Whether the node, whose speaker restarts, answers for the claim: there is nobody who could be told
    /// that it lost it.
    pub(in crate::election) fn has_what_restarts(
        cx: &Context,
        claims: &Claims,
        wire: &Wire,
        now: Instant,
        name: &LeaseName,
        from: &NodeName,
    ) -> bool {
        let restarts = |stored: &Arc<Stored<Session>>| stored.record.restarting;
        let mac = cx.claims().get(name).and_then(|stored| stored.record.mac);
        let interface = claims.tenures().get(name).and_then(|tenure| tenure.interface());
        let answered = mac.zip(interface).and_then(|(mac, on)| wire.old_owners().answered(on, mac));
        cx.live_session(from).is_some_and(restarts)
            && answered.is_some_and(|at| now.saturating_since(at) < ANSWERED)
    }
}
