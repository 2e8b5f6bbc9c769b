//! Claims without a valid owner: who may take them, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, Reason, SessionId};
use leasehold_crds::names::NodeName;

use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};
use crate::election::claim::Claims;
use crate::election::claim::addresses::lists;
use crate::election::claim::state::cold_start::Origin;
use crate::election::claim::state::tenure::Tenure;
use crate::election::claim::state::unowned::Unowned;
use crate::election::context::Context;
use crate::election::context::candidates::Candidates;
use crate::election::context::state::owner::Owner;
use crate::election::io::probes::VoiceId;
use crate::election::placement::rank::{Late, Unowned as Ranked, turns};

/// The owners that were forsaken, each with a number and its pollers.
#[derive(Debug, Default)]
pub(in crate::election) struct Forsakers<'a>(
    pub(in crate::election::claim) BTreeMap<&'a VoiceId, (usize, Vec<&'a NodeName>)>,
);

/// A claim without a valid owner that is to be ranked.
#[derive(Debug)]
pub(in crate::election) struct Unranked<'a> {
    name: &'a LeaseName,
    claim: &'a DesiredClaim,
    /// As it was in the round before.
    before: Option<&'a Unowned>,
    /// Since when somebody has to have answered this node.
    hear_since: Instant,
}

/// Nodes that take an unowned claim only after all others.
#[derive(Debug)]
pub(in crate::election) struct Unfit<'a> {
    for_all: Vec<&'a NodeName>,
    /// Those that do so where the Services of a claim need kube-proxy.
    unproxied: Vec<&'a NodeName>,
}

impl<'a> Unfit<'a> {
    /// Those for `claim`.
    pub(in crate::election) fn of(
        &self,
        claim: &DesiredClaim,
    ) -> impl Iterator<Item = (&'a NodeName, Late)> {
        let unproxied = self.unproxied.iter().filter(|_| claim.proxied.asks());
        self.for_all.iter().chain(unproxied).map(|node| (*node, Late::Unfit))
    }
}

/// The time after its last renewal, or after its session was deleted, for which an owner is expected to restore what
/// was edited.
pub(in crate::election) const LIVES: Duration = Duration::from_secs(3);

/// The time that it may take for that: on a busy API server its writes lose against those of further edits, and of
/// the operator, again and again.
pub(in crate::election) const RESTORED: Duration = Duration::from_secs(8);

/// Who is left out of the candidates: nobody, …
pub(in crate::election) const ALL: usize = 0;

/// … who is not heard, …
pub(in crate::election) const HEARD: usize = 1;

/// … or who does not poll the owner of this number.
pub(in crate::election) const FORSAKEN: usize = 2;

impl Claims {
    /// Notes which claims have lost their owners, and places them jointly.
    pub(in crate::election) fn rank_unowned(
        &mut self,
        cx: &mut Context,
        now: Instant,
        names: &[LeaseName],
        desired: &Desired,
    ) {
        for name in names {
            let listed = cx.claims().get(name).zip(desired.claims.get(name));
            if listed.is_none_or(|(stored, claim)| !lists(stored, claim)) {
                self.with(cx, name, Tenure::end_unowned);
            }
        }
        self.follow_joining(cx, now, names, desired);
        self.strike_out(cx, names, desired);
        let new = self.unranked(cx, now, names, desired);
        if new.is_empty() {
            return;
        }
        let edited: Vec<Option<NodeName>> = new
            .iter()
            .map(|it| {
                let before = it.before.and_then(|before| before.edited.as_ref());
                let owner = before.or_else(|| self.edited_owner(cx, it.name));
                owner.filter(|_| !cx.forsaken().contains_key(it.name)).cloned()
            })
            .collect();
        let mut lists = Candidates::new(cx, desired);
        let mut forsakers = Forsakers::default();
        let unfit = Self::last_in_line(cx, desired);
        let last = |claim: &DesiredClaim, owner: Option<_>| {
            let gone = owner.map(|node| (node, Late::Gone));
            unfit.of(claim).chain(gone).collect()
        };
        let mut unowned: Vec<Ranked<'_>> = new
            .iter()
            .zip(&edited)
            .map(|(Unranked { name, claim, .. }, edited)| Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: Self::takers(cx, name, claim, &mut lists, &mut forsakers),
                preference: &claim.preference,
                last: last(claim, self.last_owner(cx, name).filter(|_| edited.is_none())),
                apart: Self::apart(cx, claim),
            })
            .collect();
        let mut loads = self.loads(cx);
        // What is ranked anew is not its former first's any more.
        let before = new.iter().filter_map(|it| it.before?.first.as_ref());
        for first in before {
            if let Some(load) = loads.get_mut(first) {
                *load = load.saturating_sub(1);
            }
        }
        for (name, former, owner) in self.taken_already(cx, &unowned) {
            let Some(claim) = desired.claims.get(name) else { continue };
            if let Some(load) = loads.get_mut(owner) {
                *load = load.saturating_sub(claim.addresses.len());
            }
            unowned.push(Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: lists.of(claim, ALL, |_| true),
                preference: &claim.preference,
                last: last(claim, former),
                apart: Self::apart(cx, claim),
            });
        }
        let turns = turns(&unowned, &loads, &cx.config().node);
        let mut shared: BTreeMap<*const &NodeName, Arc<[NodeName]>> = BTreeMap::new();
        let ranked: Vec<(LeaseName, Unowned)> = new
            .iter()
            .zip(edited)
            .zip(unowned.iter().zip(turns))
            .map(|((it, edited), (unowned, turn))| {
                let sharing = &unowned.candidates;
                let candidates = shared
                    .entry(sharing.as_ptr())
                    .or_insert_with(|| sharing.iter().copied().cloned().collect());
                let unowned = Unowned {
                    since: now,
                    hear_since: it.hear_since,
                    sign: it
                        .before
                        .map_or_else(|| self.first_sign(cx, now, it.name), |before| before.sign),
                    first: turn.first.cloned(),
                    place: turn.place,
                    ahead: turn.ahead.into_iter().cloned().collect(),
                    candidates: Arc::clone(candidates),
                    step: it.claim.detection.rank_step(),
                    edited,
                };
                (it.name.clone(), unowned)
            })
            .collect();
        for (name, unowned) in ranked {
            if let Some(tenure) = self.tenures.get_mut(&name) {
                tenure.set_unowned(unowned);
            }
        }
    }

    /// Does not wait for nodes that were to act before this one and may not any more: they lost their link, are
    /// cordoned, or restart. The order of the others stays, and so does the beginning of the round: all who see it
    /// agree.
    pub(in crate::election) fn strike_out(
        &mut self,
        cx: &Context,
        names: &[LeaseName],
        desired: &Desired,
    ) {
        let waiting = names.iter().filter_map(|name| {
            let unowned = self.tenures.get(name)?.unowned()?;
            let (name, claim) = desired.claims.get_key_value(name)?;
            (!unowned.ahead.is_empty()).then_some((name, claim, unowned))
        });
        let mut waiting = waiting.peekable();
        if waiting.peek().is_none() {
            return;
        }
        let mut lists = Candidates::new(cx, desired);
        let mut struck: Vec<(&LeaseName, Vec<NodeName>)> = Vec::new();
        for (name, claim, unowned) in waiting {
            let may = lists.of(claim, ALL, |_| true);
            let left = unowned.ahead.iter().filter(|node| may.binary_search(node).is_ok());
            let left: Vec<NodeName> = left.cloned().collect();
            if left.len() < unowned.ahead.len() {
                struck.push((name, left));
            }
        }
        for (name, left) in struck {
            if let Some(tenure) = self.tenures.get_mut(name) {
                tenure.strike_out(&cx.config().node, left);
            }
        }
    }

    /// The unowned claims among `names` that have no rank, or one that has become void: a candidate is gone, or all have
    /// had their turn.
    pub(in crate::election) fn unranked<'a>(
        &'a self,
        cx: &'a Context,
        now: Instant,
        names: &[LeaseName],
        desired: &'a Desired,
    ) -> Vec<Unranked<'a>> {
        let mut new = Vec::new();
        let mut gone: BTreeMap<*const NodeName, bool> = BTreeMap::new();
        for name in names {
            let Some((name, claim)) = desired.claims.get_key_value(name) else { continue };
            let Some(tenure) = self.tenures.get(name) else { continue };
            if tenure.is_mine() || cx.claims().get(name).is_none_or(|stored| !lists(stored, claim))
            {
                continue;
            }
            let owned = cx.claims().get(name).is_some_and(|s| cx.owner(s) != Owner::Nobody);
            if owned && !cx.forsaken().contains_key(name) {
                continue;
            }
            let Some(unowned) = tenure.unowned() else {
                if self.awaits_others(tenure, claim) {
                    continue;
                }
                new.push(Unranked { name, claim, before: None, hear_since: now });
                continue;
            };
            let candidates = &unowned.candidates;
            let any_gone = || candidates.iter().any(|node| cx.live_session(node).is_none());
            if *gone.entry(candidates.as_ptr()).or_insert_with(any_gone) {
                new.push(Unranked { name, claim, before: Some(unowned), hear_since: now });
            } else if now >= Self::round_ends(cx, unowned) {
                new.push(Unranked {
                    name,
                    claim,
                    before: Some(unowned),
                    hear_since: unowned.hear_since,
                });
            }
        }
        new
    }

    /// The nodes that take an unowned claim only after all others: those that are fenced again and again, those that
    /// are not ready, and those whose kube-proxy is silent. The last owner of an unowned claim comes after them.
    pub(in crate::election) fn last_in_line<'a>(
        cx: &'a Context,
        desired: &'a Desired,
    ) -> Unfit<'a> {
        Unfit {
            for_all: cx.unsteady().into_iter().chain(desired.not_ready()).collect(),
            unproxied: cx.with_silent_proxies(),
        }
    }

    /// The claims that are better not where `claim` is, with the owners of those that have one.
    pub(in crate::election) fn apart<'a>(
        cx: &'a Context,
        claim: &'a DesiredClaim,
    ) -> Vec<(&'a LeaseName, Option<&'a NodeName>)> {
        let owner = |name| {
            let stored = cx.claims().get(name)?;
            stored.record.holder.as_ref().filter(|_| cx.owner(stored) != Owner::Nobody)
        };
        claim.apart_from.iter().map(|name| (name, owner(name))).collect()
    }

    /// Claims that lost their owners together with `unowned`, or waited with them for others to join, and are
    /// taken already, with their former and their present owners: all speakers place the same unowned claims on
    /// the same loads, whatever they have seen of one another's takes.
    pub(in crate::election) fn taken_already<'a>(
        &'a self,
        cx: &'a Context,
        unowned: &[Ranked<'_>],
    ) -> Vec<(&'a LeaseName, Option<&'a NodeName>, &'a NodeName)> {
        let ended: BTreeSet<&SessionId> = unowned
            .iter()
            .filter_map(|unowned| cx.claims().get(unowned.name)?.record.session.as_ref())
            .collect();
        let unowned: BTreeSet<&LeaseName> = unowned.iter().map(|unowned| unowned.name).collect();
        let waited = |tenure: &Tenure| tenure.origin() == Origin::Awaiting;
        let waits = |tenure: &Tenure| waited(tenure) && tenure.last().is_none();
        let awaiting = unowned.iter().any(|name| self.tenures.get(name).is_some_and(waits));
        self.tenures
            .iter()
            .filter(|(name, _)| !unowned.contains(name))
            .filter_map(|(name, tenure)| {
                let owner = &tenure.last()?.node;
                let former = tenure.former().filter(|f| ended.contains(&f.session));
                let together = former.is_some() || awaiting && waited(tenure);
                together.then_some((name, former.map(|former| &former.node), owner))
            })
            .collect()
    }

    /// The number of addresses that each live node owns, or is first in line for.
    pub(in crate::election) fn loads(&self, cx: &Context) -> BTreeMap<NodeName, usize> {
        let mut loads = Self::owned_loads(cx);
        for tenure in self.tenures.values() {
            let first = tenure.unowned().and_then(|unowned| unowned.first.as_ref());
            if let Some(load) = first.and_then(|node| loads.get_mut(node)) {
                *load += 1;
            }
        }
        loads
    }

    /// The number of addresses that each live node owns.
    pub(in crate::election) fn owned_loads(cx: &Context) -> BTreeMap<NodeName, usize> {
        let mut loads: BTreeMap<NodeName, usize> =
            cx.live_sessions().map(|(node, _)| (node.clone(), 0)).collect();
        for (_, entry) in cx.claims().iter() {
            let Some(stored) = entry.stored.as_ref().filter(|stored| !entry.was_above(stored))
            else {
                continue;
            };
            let owner = match cx.named_owner(stored) {
                Owner::Me => &cx.config().node,
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
        loads
    }

    /// Who may take `claim` now. Only its pollers know that an owner that was not fenced is silent;
    /// while nothing can be fenced they leave out those whom they do not hear.
    pub(in crate::election) fn takers<'a>(
        cx: &'a Context,
        name: &LeaseName,
        claim: &'a DesiredClaim,
        lists: &mut Candidates<'a>,
        forsakers: &mut Forsakers<'a>,
    ) -> Rc<[&'a NodeName]> {
        if let Some(forsaken) = cx.forsaken().get(name) {
            let next = forsakers.0.len();
            let (number, pollers) = forsakers
                .0
                .entry(&forsaken.id)
                .or_insert_with(|| (next, cx.pollers(&forsaken.id.node, &forsaken.id.interface)));
            lists.of(claim, FORSAKEN + *number, |node| pollers.contains(&node))
        } else if cx.is_api_failing() {
            lists.of(claim, HEARD, |node| !cx.is_silent(node))
        } else {
            lists.of(claim, ALL, |_| true)
        }
    }

    pub(in crate::election) fn last_owner<'a>(
        &'a self,
        cx: &'a Context,
        name: &LeaseName,
    ) -> Option<&'a NodeName> {
        let stored = cx.claims().get(name)?;
        match &stored.record.holder {
            Some(holder) => Some(holder),
            None => self.tenures.get(name)?.last().map(|last| &last.node),
        }
    }

    /// Who owned the claim until its lease or its session's was deleted or edited: it lost its validity by
    /// that, and not by fence or release.
    pub(in crate::election) fn edited_owner<'a>(
        &'a self,
        cx: &'a Context,
        name: &LeaseName,
    ) -> Option<&'a NodeName> {
        let record = cx.claims().get(name).map(|claim| &claim.record);
        let Some(last) = self.tenures.get(name).and_then(|tenure| tenure.last()) else {
            // Whoever takes or keeps a claim names its session, too.
            let record = record.filter(|record| record.session.is_none())?;
            return record.holder.as_ref().filter(|holder| cx.live_session(holder).is_some());
        };
        let edited = match cx.sessions().get(last.node.as_str()) {
            Some(session) if session.uid != last.session.uid => true,
            Some(session) if session.record.transitions > last.session.transitions => {
                session.record.holder.is_some() && Reason::is_edit(&session.record.cause)
            }
            Some(session) if session.record.transitions < last.session.transitions => true,
            // The session lives: then the claim was released, which names nobody and adds one, or it was edited,
            // perhaps after its owner had restored it once more.
            Some(session) if session.record.holder.is_some() => record.is_none_or(|record| {
                record.transitions <= last.transitions || record.holder.as_ref() == Some(&last.node)
            }),
            Some(_) | None => true,
        };
        edited.then_some(&last.node)
    }

    /// When it is this node's turn to take the unowned claim.
    pub(in crate::election) fn turn(cx: &Context, unowned: &Unowned) -> Instant {
        let Some(place) = unowned.place else { return Self::round_ends(cx, unowned) };
        let steps = u32::try_from(place).unwrap_or(u32::MAX);
        let others = unowned.edited.as_ref() != Some(&cx.config().node);
        let left = if others { Self::left_to_its_owner(cx, unowned) } else { Duration::ZERO };
        unowned.since + unowned.step.saturating_mul(steps) + left
    }

    /// When everybody has had a turn.
    pub(in crate::election) fn round_ends(cx: &Context, unowned: &Unowned) -> Instant {
        let steps = u32::try_from(unowned.candidates.len()).unwrap_or(u32::MAX);
        let left = Self::left_to_its_owner(cx, unowned).max(unowned.step.saturating_mul(2));
        unowned.since + unowned.step.saturating_mul(steps.saturating_add(1)) + left
    }

    /// For how long what was edited or deleted is left to its owner to restore, which serves it meanwhile, while this
    /// node hears it.
    pub(in crate::election) fn left_to_its_owner(cx: &Context, unowned: &Unowned) -> Duration {
        let Some(owner) = &unowned.edited else { return Duration::ZERO };
        let least = unowned.step.saturating_mul(2);
        if cx.is_silent(owner) {
            return least;
        }
        let session = cx.live_session(owner);
        let renewed = session.and_then(|session| cx.sessions().entry(&session.name));
        // A session that was deleted lived until that was seen.
        let lived = renewed.map_or(unowned.since, |renewed| renewed.changed);
        (lived + LIVES).saturating_since(unowned.since).clamp(least, RESTORED.max(least))
    }
}
