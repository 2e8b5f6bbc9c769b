//! Claims without a valid owner: who may take them, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_crds::lease::{LeaseName, SessionId};
use leasehold_crds::names::NodeName;

use super::candidate::bar;
use super::election::Election;
use super::listed::lists;
use super::place::{Orphan as Ranked, rank};
use super::session::EDITED;
use super::story::Cause;
use super::tenure::Tenure;
use super::validity::Owner;
use crate::clock::Instant;
use crate::desired::{Desired, DesiredClaim};

/// A claim without a valid owner.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) since: Instant,
    /// Why, and when the first sign of it was seen.
    pub(super) sign: (Cause, Instant),
    pub(super) ranking: Vec<NodeName>,
    /// By how much each rank waits for the one before it.
    pub(super) step: Duration,
    /// Nobody gave it up: its lease or its session's was deleted or edited.
    pub(super) edited: bool,
}

/// A valid ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastOwner {
    pub(super) node: NodeName,
    pub(super) session: SessionId,
    pub(super) transitions: i32,
    /// To whom it was being handed over.
    pub(super) successor: Option<NodeName>,
}

impl Election {
    /// Notes which claims have become orphans and places them jointly.
    pub(super) fn rank_orphans(&mut self, now: Instant, names: &[LeaseName], desired: &Desired) {
        for name in names {
            let listed = self.claims.get(name).zip(desired.claims.get(name));
            if listed.is_none_or(|(stored, claim)| !lists(stored, claim)) {
                self.with(name, |tenure| tenure.orphan = None);
            }
        }
        let mut new = Vec::new();
        for name in names {
            let Some((name, claim)) = desired.claims.get_key_value(name) else { continue };
            let Some(tenure) = self.tenures.get(name) else { continue };
            if tenure.mine || self.claims.get(name).is_none_or(|stored| !lists(stored, claim)) {
                continue;
            }
            let owned = self.claims.get(name).is_some_and(|s| self.owner(s) != Owner::Nobody);
            if owned && self.silences.forsaken(name).is_none() {
                continue;
            }
            // Computed once, and again only when it has become void: a candidate is gone, or all
            // have had their turn.
            let stale = tenure.orphan.as_ref().is_none_or(|orphan| {
                let gone = orphan.ranking.iter().any(|node| self.live_session(node).is_none());
                gone || now >= Self::round_ends(orphan)
            });
            if stale {
                new.push((name, claim, tenure.orphan.as_ref()));
            }
        }
        if new.is_empty() {
            return;
        }
        let edited: Vec<bool> = new
            .iter()
            .map(|(name, _, before)| {
                let forsaken = self.silences.forsaken(name).is_some();
                let edited = before.is_some_and(|o| o.edited) || self.was_edited(name);
                edited && !forsaken
            })
            .collect();
        let mut orphans: Vec<Ranked<'_>> = new
            .iter()
            .zip(&edited)
            .map(|((name, claim, _), edited)| Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: self.takers(name, claim, desired),
                preference: &claim.preference,
                last: self.last_in_line(self.last_owner(name).filter(|_| !edited), desired),
                apart: self.apart(claim),
            })
            .collect();
        let mut loads = self.loads();
        for (name, former, owner) in self.taken_already(&orphans) {
            let Some(claim) = desired.claims.get(name) else { continue };
            if let Some(load) = loads.get_mut(owner) {
                *load = load.saturating_sub(claim.addresses.len());
            }
            orphans.push(Ranked {
                name,
                addresses: claim.addresses.len(),
                candidates: self.candidates(claim, desired),
                preference: &claim.preference,
                last: self.last_in_line(Some(former), desired),
                apart: self.apart(claim),
            });
        }
        let rankings = rank(&orphans, &loads);
        let ranked: Vec<(LeaseName, Orphan)> = new
            .iter()
            .zip(edited)
            .map(|((name, claim, before), edited)| {
                let orphan = Orphan {
                    since: now,
                    sign: before.map_or_else(|| self.first_sign(now, name), |before| before.sign),
                    ranking: rankings.get(*name).cloned().unwrap_or_default(),
                    step: claim.detection.rank_step(),
                    edited,
                };
                ((*name).clone(), orphan)
            })
            .collect();
        for (name, orphan) in ranked {
            if let Some(tenure) = self.tenures.get_mut(&name) {
                tenure.orphan = Some(orphan);
            }
        }
    }

    /// Who takes an orphan only after all others: its last owner, nodes that are fenced again and
    /// again, and those that are not ready.
    pub(super) fn last_in_line<'a>(
        &'a self,
        owner: Option<&'a NodeName>,
        desired: &'a Desired,
    ) -> Vec<&'a NodeName> {
        self.unsteady().into_iter().chain(desired.not_ready()).chain(owner).collect()
    }

    /// The claims that are better not where `claim` is, with the owners of those that have one.
    pub(super) fn apart<'a>(
        &'a self,
        claim: &'a DesiredClaim,
    ) -> Vec<(&'a LeaseName, Option<&'a NodeName>)> {
        let owner = |name| {
            let stored = self.claims.get(name)?;
            stored.record.holder.as_ref().filter(|_| self.owner(stored) != Owner::Nobody)
        };
        claim.apart_from.iter().map(|name| (name, owner(name))).collect()
    }

    /// Claims that became orphans together with `orphans` and are taken already, with their former and
    /// their present owners: all speakers place the same orphans on the same loads, whatever they have
    /// seen of one another's takes.
    fn taken_already<'a>(
        &'a self,
        orphans: &[Ranked<'_>],
    ) -> Vec<(&'a LeaseName, &'a NodeName, &'a NodeName)> {
        let ended: BTreeSet<&SessionId> = orphans
            .iter()
            .filter_map(|orphan| self.claims.get(orphan.name)?.record.session.as_ref())
            .collect();
        let orphans: BTreeSet<&LeaseName> = orphans.iter().map(|orphan| orphan.name).collect();
        self.tenures
            .iter()
            .filter(|(name, _)| !orphans.contains(name))
            .filter_map(|(name, tenure)| {
                let former = tenure.former.as_ref().filter(|f| ended.contains(&f.session))?;
                Some((name, &former.node, &tenure.last.as_ref()?.node))
            })
            .collect()
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

    /// Who may take `claim` now. Only its pollers know that an owner that was not fenced is silent;
    /// while nothing can be fenced they leave out those whom they do not hear.
    fn takers<'a>(
        &'a self,
        name: &LeaseName,
        claim: &DesiredClaim,
        desired: &Desired,
    ) -> Vec<&'a NodeName> {
        let mut candidates = self.candidates(claim, desired);
        if let Some(forsaken) = self.silences.forsaken(name) {
            let pollers = self.pollers(&forsaken.id.node, &forsaken.id.interface);
            candidates.retain(|node| pollers.contains(node));
        } else if self.is_api_failing() {
            candidates.retain(|node| !self.is_silent(node));
        }
        candidates
    }

    /// The live nodes that may take `claim`, as far as everybody can tell.
    pub(super) fn candidates<'a>(
        &'a self,
        claim: &DesiredClaim,
        desired: &Desired,
    ) -> Vec<&'a NodeName> {
        self.live_sessions()
            .filter(|(node, stored)| {
                let state = self.state_of(node, desired);
                let subnets = |vip| self.is_in_a_subnet(vip);
                bar(claim, node, state, &stored.record, subnets).is_ok()
            })
            .map(|(node, _)| node)
            .collect()
    }

    pub(super) fn last_owner(&self, name: &LeaseName) -> Option<&NodeName> {
        let stored = self.claims.get(name)?;
        match &stored.record.holder {
            Some(holder) => Some(holder),
            None => self.tenures.get(name)?.last.as_ref().map(|last| &last.node),
        }
    }

    /// Whether the claim lost its validity by deletion or editing and not by fence or release.
    pub(super) fn was_edited(&self, name: &LeaseName) -> bool {
        let Some(last) = self.tenures.get(name).and_then(|tenure| tenure.last.as_ref()) else {
            return false;
        };
        let session = self.sessions.get(last.node.as_str());
        let claim = self.claims.get(name);
        match session {
            Some(session) if session.uid != last.session.uid => true,
            Some(session) if session.record.transitions > last.session.transitions => {
                session.record.holder.is_some() && session.record.cause == EDITED
            }
            Some(session) if session.record.transitions < last.session.transitions => true,
            // The session lives: then the claim was released, which adds one, or it was edited.
            Some(session) if session.record.holder.is_some() => {
                claim.is_none_or(|claim| claim.record.transitions <= last.transitions)
            }
            Some(_) | None => true,
        }
    }

    /// When it is this node's turn to take the orphan.
    pub(super) fn turn(&self, orphan: &Orphan, tenure: &Tenure) -> Instant {
        let Some(place) = orphan.ranking.iter().position(|node| *node == self.config.node) else {
            return Self::round_ends(orphan);
        };
        let mut steps = u32::try_from(place).unwrap_or(u32::MAX);
        let last = tenure.last.as_ref().map(|last| &last.node);
        if orphan.edited && last != Some(&self.config.node) {
            steps = steps.saturating_add(2);
        }
        orphan.since + orphan.step.saturating_mul(steps)
    }

    /// When everybody has had a turn.
    pub(super) fn round_ends(orphan: &Orphan) -> Instant {
        let steps = u32::try_from(orphan.ranking.len()).unwrap_or(u32::MAX).saturating_add(3);
        orphan.since + orphan.step.saturating_mul(steps)
    }
}
