//! What the laws allow for a while, and for how long: by what is wrong with whom.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::desired::OnApiOutage;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::{InterfaceName, NodeName};

use super::World;
use super::laws::{Key, Law, broken};
use super::spells::Health;

/// The announcement, the removal, and the questions before it when a fault heals.
const HEALED: Duration = Duration::from_millis(170);
/// Until the old owner has heard or probed, and its last write is done.
const PLANNED: Duration = Duration::from_millis(450);
/// Until a host notices that the API server does not answer it any more.
const NOTICED: Duration = Duration::from_secs(6);
/// A lifetime that was set a moment ago, in whole seconds, and the kernel's lateness.
pub(super) const LIFETIME: Duration = Duration::from_millis(7_900);
/// The same of a speaker that restarts.
pub(super) const GRACE: Duration = Duration::from_millis(33_400);
/// By how much a kernel lifetime outlives the session, at most.
const HUNG: Duration = Duration::from_millis(2_150);
/// Why a claim was taken whose lease somebody deleted or edited.
const EDITED: &str = "lease was deleted or edited";
/// How soon a speaker that is well listens to whom it has to.
const LISTENING: Duration = Duration::from_millis(300);
/// How long everything must have been well before everything must be served.
const SETTLED: Duration = Duration::from_secs(15);
const SERVED: Duration = Duration::from_secs(12);

impl World {
    pub(super) fn plain_overlaps(
        &self,
        holders: &BTreeMap<IpAddr, Vec<usize>>,
        limit: Duration,
        active: &mut Vec<(Key, Duration)>,
    ) {
        for (ip, holders) in holders {
            for (place, one) in holders.iter().enumerate() {
                for other in &holders[place + 1..] {
                    if self.connected(Self::segment_of(*ip), *one, *other) {
                        active.push(((Law::Overlap, *ip, *one, *other), limit));
                    }
                }
            }
        }
    }

    /// Which hosts may have `ip` at the same time, and for how long.
    pub(super) fn allowed_overlaps(
        &self,
        ip: IpAddr,
        holders: &[usize],
        active: &mut Vec<(Key, Duration)>,
    ) {
        let segment = Self::segment_of(ip);
        let claim = self.store.valid_claims().find(|claim| claim.addresses.contains(&ip));
        let owner = claim.and_then(|claim| claim.holder.as_ref());
        let owner = owner.and_then(|owner| self.host_of(owner));
        let planned = claim.is_some_and(|claim| {
            claim.cause.starts_with("moved from") || claim.cause.starts_with("taken back")
        });
        for (place, one) in holders.iter().copied().enumerate() {
            let stopped = self.ill_for(one, Health::Running);
            if !self.hosts[one].paused && stopped.is_some() {
                let left = self.hosts[one].left_until.is_some_and(|until| self.now < until);
                let restarting = self.is_restarting(one) || left;
                let limit = if restarting { GRACE } else { LIFETIME };
                active.push(((Law::Fence, ip, one, one), limit));
            }
            if let Some(owner) = owner.filter(|owner| *owner != one) {
                if self.is_informed(one) {
                    active.push(((Law::Served, ip, one, owner), PLANNED));
                }
                // What somebody deletes or edits is vacant at once, also under another claim that lists
                // it from then on, and what is handed over moves at once: nobody waits for the end of
                // the session then, and what is left of the lifetime may be all of it.
                let edited = self.hosts[one].edited_until.is_some_and(|until| self.now < until);
                let waited =
                    !planned && !edited && claim.is_some_and(|claim| claim.cause != EDITED);
                let hung = waited
                    && !self.hosts[one].paused
                    && stopped.is_some()
                    && !self.is_restarting(one)
                    && self.is_well_for(one, Health::Wire, Duration::from_secs(20))
                    && self.is_well_for(one, Health::Api, Duration::from_secs(20))
                    && self.is_well_for(owner, Health::Api, Duration::from_secs(20));
                if hung {
                    active.push(((Law::Hung, ip, one, owner), HUNG));
                }
            }
            if self.is_informed(one) && !self.is_asked_for(ip) {
                active.push(((Law::Unasked, ip, one, one), Duration::from_secs(2)));
            }
            for other in holders[place + 1..].iter().copied() {
                let both = self.hosts[one].is_running() && self.hosts[other].is_running();
                if both && self.connected(segment, one, other) {
                    let limit = self.limit(one, other, planned);
                    active.push(((Law::Overlap, ip, one, other), limit));
                }
            }
        }
    }

    /// For how long two running hosts that hear each other may have the same address.
    fn limit(&self, one: usize, other: usize, planned: bool) -> Duration {
        let lag = self.hosts[one].lag.max(self.hosts[other].lag) * 4;
        let mut limit = if planned { PLANNED } else { HEALED } + lag;
        for id in [one, other] {
            // What is not current and not known to be gone cannot be told from what is current.
            let well = self.is_well_for(id, Health::Api, NOTICED);
            let gone = self.ill_for(id, Health::Reach).is_some_and(|ill| ill >= NOTICED);
            let new = !self.is_well_for(id, Health::Running, NOTICED)
                || !self.is_well_for(id, Health::Prompt, NOTICED);
            if !(well || gone) || new {
                limit = limit.max(NOTICED);
            }
        }
        limit
    }

    /// Whether a host cannot but know what is stored.
    fn is_informed(&self, id: usize) -> bool {
        [Health::Running, Health::Api, Health::Prompt]
            .into_iter()
            .all(|health| self.is_well_for(id, health, NOTICED))
    }

    fn is_asked_for(&self, ip: IpAddr) -> bool {
        self.desired.claims.values().any(|claim| claim.addresses.contains(&ip))
    }

    fn is_restarting(&self, id: usize) -> bool {
        let host = &self.hosts[id];
        self.store
            .sessions
            .values()
            .any(|s| s.name.as_str() == host.node.as_str() && s.record.restarting)
            || host.exited
    }

    pub(super) fn host_of(&self, node: &NodeName) -> Option<usize> {
        self.hosts.iter().position(|host| host.node == *node)
    }

    /// Which addresses nobody answers for, and for how long that may last.
    pub(super) fn allowed_gaps(
        &self,
        holders: &BTreeMap<IpAddr, Vec<usize>>,
        active: &mut Vec<(Key, Duration)>,
    ) {
        for claim in self.desired.claims.values() {
            for ip in &claim.addresses {
                if holders.contains_key(ip) && self.is_answered(*ip)
                    || self.strangers.contains_key(ip)
                {
                    continue;
                }
                if self.laws.innocent && self.laws.owners.contains_key(ip) {
                    broken(self.now, "L2", &format!("nobody answers for {ip} any more"));
                }
                let able = |id: &usize| {
                    let host = &self.hosts[*id];
                    let state = self.desired.nodes.get(&host.node);
                    claim.nodes.contains(&host.node)
                        && state.is_some_and(|state| state.takes())
                        && [Health::Running, Health::Api, Health::Wire, Health::Prompt]
                            .into_iter()
                            .all(|health| self.is_well_for(*id, health, SETTLED))
                };
                let drop = claim.on_api_outage == OnApiOutage::Drop;
                if !drop
                    && self.is_operator_well_for(SETTLED)
                    && (0..self.hosts.len()).any(|id| able(&id))
                    && !self.is_kept(*ip, claim.detection.wire)
                {
                    active.push(((Law::Unserved, *ip, 0, 0), SERVED));
                }
            }
        }
    }

    /// Notes since when each session lists the links that it lists.
    pub(super) fn note_links(&mut self) {
        let now = self.now;
        let sessions = self.store.sessions.values();
        let live = sessions.filter_map(|stored| Some((stored.record.holder.as_ref()?, stored)));
        for (node, stored) in live {
            let links = stored.record.interfaces.iter().map(|link| link.name.clone());
            let links: Vec<InterfaceName> = links.collect();
            let known = self.laws.links.get(node);
            if known.is_none_or(|(known, _)| *known != links) {
                self.laws.links.insert(node.clone(), (links, now));
            }
        }
    }

    /// Who does not listen to an owner that it could hear: on a link that the owner's session lists, or listed
    /// while this speaker was there to see it.
    pub(super) fn unheard_owners(&self, active: &mut Vec<(Key, Duration)>) {
        for claim in self.store.unedited_claims().map(|stored| &stored.record) {
            let (Some(owner), Some(session)) = (&claim.holder, &claim.session) else { continue };
            let heard = |ip: &IpAddr| {
                self.desired
                    .claims
                    .values()
                    .any(|it| it.detection.wire && it.addresses.contains(ip))
            };
            let Some(ip) = claim.standing().find(heard) else { continue };
            let links = self.laws.links.get(owner);
            let (Some(interface), Some((listed, since))) = (&claim.interface, links) else {
                continue;
            };
            let Some(of) = self.host_of(owner) else { continue };
            let Some(segment) = self.hosts[of].segment(interface) else { continue };
            let seen = self.now.saturating_since(*since) + LISTENING;
            let least = if listed.contains(interface) { NOTICED } else { seen.max(NOTICED) };
            for (id, host) in self.hosts.iter().enumerate().filter(|(id, _)| *id != of) {
                let well = [Health::Running, Health::Api, Health::Prompt]
                    .into_iter()
                    .all(|health| self.is_well_for(id, health, least));
                let carried = host.nics.get(segment).filter(|nic| nic.carrier);
                let takes_part = host.core.as_ref().is_some_and(|core| {
                    core.session().is_some_and(|id| {
                        self.store.live(&LeaseName::session(&host.node)).as_ref() == Some(id)
                    })
                });
                let Some(nic) = carried.filter(|_| well && takes_part && !host.ending) else {
                    continue;
                };
                if !host.listener.listens(&nic.name, owner, session) {
                    active.push(((Law::Unheard, ip, id, of), LISTENING));
                }
            }
        }
    }

    /// Whether the owner of `ip` renews and cannot be told from one that serves: left to the lease
    /// path, where it stays.
    fn is_kept(&self, ip: IpAddr, wire: bool) -> bool {
        let mut valid = self.store.valid_claims();
        let Some(claim) = valid.find(|claim| claim.addresses.contains(&ip)) else { return false };
        let Some(owner) = claim.holder.as_ref().and_then(|owner| self.host_of(owner)) else {
            return false;
        };
        let ill = !self.is_well_for(owner, Health::Wire, SETTLED);
        let off =
            self.hosts[owner].nics.iter().all(|nic| !nic.carrier) || !self.hosts[owner].powered;
        // A session that was lengthened over a restart is waited for.
        self.is_restarting(owner) || ill && !off || !wire && !self.hosts[owner].is_running()
    }
}
