//! All that is known, in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use leasehold::desired::Slice;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::{Governance, Spread};
use leasehold_crds::service::Claims;

use super::announcing::{Handed, UNOWNED};
use super::endpoints::{Concerned, Endpoints};
use super::families::Families;
use super::governing::Governing;
use super::jobs::{Job, Target};
use super::leases::{ClaimRow, NamespaceRow, NodeRow, SessionRow};
use super::lists::Listing;
use super::policy::PolicyRow;
use super::pool::PoolRow;
use super::record::{Memory, Naming};
use super::resting::Resting;
use super::rivals::{Mark, Rivals};
use super::service::{ServiceRow, ServiceWrite};
use super::settled::{Ledger, Rest};
use super::table::Table;
use super::watch::{Change, Kind};
use crate::allocate::{
    self, Decision, Departing, Listed, Plan, PoolMap, ServiceKey, State, Unusable, plan,
};
use crate::clock::Instant;

/// For how long after a pool was deleted nobody is told that it has gone: tools replace an object by
/// deleting it and creating it again.
const REPLACING: Duration = Duration::from_secs(2);

/// How many Services are open at most when further ones are opened to tell who announces them, how many are
/// all the same, and the pause before the next.
const TELLING_AT_ONCE: usize = 64;
const TELLING_LEAST: usize = 8;
const TELLING_PAUSE: Duration = Duration::from_millis(20);

/// A write to a Service whose outcome is not known yet. Until it is, the Service may have these
/// addresses as well as those that were last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The version that the write replaces: with any newer one, its outcome is known.
    pub version: u64,
    /// The addresses that it gives.
    pub addresses: Vec<IpAddr>,
    /// The pool that they are from.
    pub allocated_from: Option<String>,
    /// The claims that govern them.
    pub claims: Option<Claims>,
}

/// All that is known.
#[derive(Debug, Default)]
pub struct Index {
    default_class: bool,
    /// The Services.
    pub services: Table<ServiceRow>,
    /// The Namespaces.
    pub namespaces: Table<NamespaceRow>,
    /// The pools.
    pub pools: Table<PoolRow>,
    /// The policies.
    pub policies: Table<PolicyRow>,
    /// The Nodes.
    pub nodes: Table<NodeRow>,
    /// The claims.
    pub claims: Table<ClaimRow>,
    /// The sessions.
    pub sessions: Table<SessionRow>,
    pending: BTreeMap<ServiceKey, Pending>,
    listings: BTreeMap<LeaseName, Listing>,
    /// When each session was last seen to change.
    session_changes: BTreeMap<LeaseName, Instant>,
    /// When a pool was last seen to be gone.
    pool_gone: Option<Instant>,
    pub(super) rivals: Rivals,
    resting: Resting,
    pub(super) pool_map: PoolMap,
    pub(super) governing: Governing,
    pub(super) handed: Handed,
    /// The settled Services of which something is to be told, and when.
    untold: BTreeMap<ServiceKey, Instant>,
    /// Which Services have endpoints.
    pub endpoints: Endpoints,
    /// When the last change came.
    now: Instant,
    listed: Listed,
    pub(super) naming: Naming,
    pub(super) memory: Memory,
    pub(super) ledger: Ledger,
    pub(super) families: Families,
    node_addresses: BTreeMap<IpAddr, String>,
    unusable: Unusable,
}

impl Index {
    /// Knows nothing yet. With `default_class`, Services without a class are ours.
    pub fn new(default_class: bool) -> Self {
        Self { default_class, ..Self::default() }
    }

    /// Takes in a change at `now`; returns whether something may have to be done about it.
    pub fn apply(&mut self, change: Change, now: Instant) -> bool {
        self.now = now;
        match change {
            Change::Service(event) => self.service(*event, now),
            Change::Namespace(event) => {
                let one = match event.as_ref() {
                    Event::Apply(namespace) | Event::Delete(namespace) => {
                        Some(namespace.name_any())
                    }
                    Event::Init | Event::InitApply(_) | Event::InitDone => None,
                };
                let changed = self.namespaces.apply(*event);
                match one {
                    Some(name) if changed => self.ledger.open_namespace(&name, &self.pool_map),
                    None if changed => self.open_all(),
                    _ => {}
                }
                changed
            }
            Change::Pool(event) => {
                let pools = |index: &Self| -> Vec<String> {
                    index.pools.iter().map(|(name, _)| name.clone()).collect()
                };
                let before = pools(self);
                let changed = self.pools.apply(*event);
                if before.iter().any(|name| self.pools.get(name).is_none()) {
                    self.pool_gone = Some(now);
                }
                if changed {
                    self.update_territory();
                    self.update_governing();
                }
                changed
            }
            Change::Policy(event) => {
                let changed = self.policies.apply(*event);
                if changed {
                    self.update_governing();
                }
                changed
            }
            Change::Node(event) => {
                let changed = self.nodes.apply(*event);
                if changed {
                    self.update_governing();
                    self.open_unowned();
                }
                self.collect_node_addresses(changed)
            }
            Change::Slice(event) => self.slice(*event),
            Change::Claim(event) => {
                let one: Option<LeaseName> = match event.as_ref() {
                    Event::Apply(lease) | Event::Delete(lease) => lease.name_any().parse().ok(),
                    Event::Init | Event::InitApply(_) | Event::InitDone => None,
                };
                let before = one.as_ref().map(|name| self.announcement(name));
                let changed = self.claims.apply(*event);
                match (&one, before) {
                    (Some(name), Some(before)) if self.announcement(name) != before => {
                        self.handed.note(name, now);
                    }
                    (None, _) if changed => self.note_unowned(),
                    _ => {}
                }
                let before = self.listings.len();
                self.resolve_listings();
                match one {
                    Some(name) if changed => self.claim_changed(&name),
                    None if changed => self.open_all(),
                    _ => {}
                }
                changed || self.listings.len() < before
            }
            Change::Session(event) => self.session(*event, now),
            Change::Failed(..) => false,
        }
    }

    fn session(&mut self, event: Event<DeserializeGuard<Lease>>, now: Instant) -> bool {
        let name = |lease: &DeserializeGuard<Lease>| lease.name_any().parse::<LeaseName>().ok();
        let one = match &event {
            Event::Apply(lease) | Event::InitApply(lease) => {
                let name = name(lease);
                self.session_changes.extend(name.clone().map(|name| (name, now)));
                name.filter(|_| matches!(event, Event::Apply(_)))
            }
            Event::Delete(lease) => {
                let name = name(lease);
                if let Some(name) = &name {
                    self.session_changes.remove(name);
                }
                name
            }
            Event::Init | Event::InitDone => None,
        };
        let live = |index: &Self, name| {
            let row = index.sessions.get(name)?;
            let unanswered = row.record.interfaces.iter().map(|it| it.detours.unanswered.clone());
            Some((row.live.clone(), unanswered.collect::<Vec<_>>()))
        };
        let before = one.as_ref().map(|name| live(self, name));
        let announces = |index: &Self, name| {
            index.sessions.get(name).is_some_and(|row| row.record.ignores_exclude_label)
        };
        let ignored = one.as_ref().map(|name| announces(self, name));
        let changed = self.sessions.apply(event);
        let same = one.is_some() && one.as_ref().map(|name| announces(self, name)) == ignored;
        if changed && !same {
            self.update_governing();
        }
        match (&one, before) {
            (Some(name), Some(before)) if live(self, name) != before => {
                let theirs = self.claims.iter().filter(|(_, claim)| {
                    claim.record.holder.as_ref().is_some_and(|it| it.as_str() == name.as_str())
                });
                for claim in theirs.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                    self.handed.note(&claim, now);
                    self.claim_changed(&claim);
                }
            }
            (None, _) if changed => self.open_all(),
            _ => {}
        }
        if changed {
            self.families.doubt();
            self.open_unowned();
        }
        self.collect_node_addresses(changed)
    }

    /// Other nodes may be able to take what nobody owns now, or cannot for other reasons.
    fn open_unowned(&mut self) {
        self.note_unowned();
        let due = self.now + UNOWNED;
        for key in self.ledger.unowned() {
            self.untold.entry(key.clone()).and_modify(|at| *at = due.min(*at)).or_insert(due);
        }
    }

    /// Gives somebody time to take what nobody owns.
    fn note_unowned(&mut self) {
        let unowned = self.claims.iter().filter(|(_, claim)| !self.is_valid(claim));
        for name in unowned.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.handed.put_off(&name, self.now);
        }
    }

    /// How long ago a session was last seen to change.
    pub fn session_age(&self, name: &LeaseName, now: Instant) -> Option<Duration> {
        self.session_changes.get(name).map(|at| now.saturating_sub(*at))
    }

    /// Takes in the answer to an own write or read of a Service, at `now`.
    pub fn answered(&mut self, key: &ServiceKey, service: Service, now: Instant) -> bool {
        let before = self.effective(key);
        let (had, known) = (self.present(key), self.before(key));
        self.services.answered(service);
        self.compare(key, known, now);
        self.resting.note(key, &had, &self.services, now);
        self.service_changed(key);
        self.resolve(key);
        self.effective(key) != before
    }

    /// Takes in the answer to an own write of a claim.
    pub fn claim_answered(&mut self, lease: Lease) {
        let name: Option<LeaseName> = lease.name_any().parse().ok();
        let changed = self.claims.answered(lease);
        if let Some(name) = name.filter(|_| changed) {
            self.claim_changed(&name);
        }
        self.resolve_listings();
    }

    /// Writes to Services whose outcome is not known.
    pub fn pending(&self) -> &BTreeMap<ServiceKey, Pending> {
        &self.pending
    }

    /// Notes that a write to a Service is under way.
    pub fn sent(&mut self, key: &ServiceKey, pending: Pending) {
        self.pending.insert(key.clone(), pending);
        self.service_changed(key);
    }

    /// Writes to the lists of claims that have not been seen.
    pub fn listings(&self) -> &BTreeMap<LeaseName, Listing> {
        &self.listings
    }

    /// Notes that a write to the list of a claim is under way.
    pub fn list_sent(&mut self, name: &LeaseName, listing: Listing) {
        self.listings.insert(name.clone(), listing);
        self.claim_changed(name);
    }

    /// Notes that a write to the list of a claim may still be carried out.
    pub fn list_unanswered(&mut self, name: &LeaseName) {
        if let Some(listing) = self.listings.get_mut(name) {
            listing.unanswered = true;
        }
    }

    /// Forgets a write to the list of a claim that was not carried out.
    pub fn list_failed(&mut self, name: &LeaseName) {
        self.listings.remove(name);
        self.claim_changed(name);
    }

    /// Forgets the writes of lists that were carried out and seen, or cannot be any more: something else
    /// was.
    fn resolve_listings(&mut self) {
        let waits = |name: &LeaseName, listing: &Listing| match self.claims.version(name) {
            None => listing.version.is_none(),
            seen => listing.version == seen,
        };
        let over = self.listings.iter().filter(|(name, listing)| !waits(name, listing));
        for name in over.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.listings.remove(&name);
            self.claim_changed(&name);
        }
    }

    // === what is open ===

    /// Pools have changed, or the subnets that nodes are in.
    fn update_territory(&mut self) {
        let pools = self.pools.iter().map(|(name, row)| (name.clone(), row.pool.clone()));
        let pool_map = PoolMap::new(&pools.collect(), self.unusable.clone());
        // Not if only a status has changed.
        if pool_map != self.pool_map {
            self.pool_map = pool_map;
            self.open_all();
        }
    }

    /// Policies, pools or nodes have changed, or what sessions say of these.
    fn update_governing(&mut self) {
        self.families.doubt();
        if self.governing.update(&self.policies, &self.pools, &self.nodes, &self.sessions) {
            self.note_unowned();
            self.open_all();
        }
    }

    fn slice(&mut self, event: Event<Slice>) -> bool {
        match self.endpoints.apply(event) {
            Concerned::All => {
                self.open_all();
                true
            }
            Concerned::These(services) => {
                for service in &services {
                    let claims = self.services.get(service).and_then(ServiceRow::claims);
                    for claim in
                        claims.iter().flat_map(|it| it.by_address.iter().chain([&it.claim]))
                    {
                        self.handed.note(claim, self.now);
                    }
                    self.service_changed(service);
                }
                !services.is_empty()
            }
        }
    }

    fn service_changed(&mut self, key: &ServiceKey) {
        let row = self.services.get(key).map(|row| (row, self.wish(row).is_some()));
        self.endpoints.note(key, row.is_some_and(|(_, ours)| ours), self.now);
        self.ledger.service(key, row, self.pending.get(key), &self.pool_map);
    }

    fn claim_changed(&mut self, name: &LeaseName) {
        let row = self.claims.get(name);
        let seen = row.iter().flat_map(|row| &row.record.addresses);
        let sent = self.listings.get(name);
        let addresses = seen.chain(sent.iter().flat_map(|listing| &listing.addresses));
        let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
        let exists = row.is_some();
        self.listed.set(name, addresses);
        for key in self.naming.set(name, self.claims.get(name)) {
            self.ledger.open_again(&key, &self.pool_map);
        }
        self.ledger.claim(name, exists, &self.pool_map);
    }

    /// Everything is to be looked at.
    fn open_all(&mut self) {
        self.ledger.clear();
        self.untold.clear();
        self.listed = Listed::default();
        self.naming = Naming::default();
        let keys: Vec<_> = self.services.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.service_changed(&key);
        }
        let names = self.claims.iter().map(|(name, _)| name).chain(self.listings.keys());
        for name in names.cloned().collect::<Vec<_>>() {
            self.claim_changed(&name);
        }
    }

    /// The claims about which something may be to be done, with the versions of their leases.
    pub fn open_claims(&self) -> impl Iterator<Item = (&LeaseName, u64, &ClaimRow)> {
        self.ledger.claims().filter_map(|name| self.claims.entry(name))
    }

    /// Leaves out of the next plans what is as `plan` says, and what no job is about.
    pub fn settle(&mut self, plan: &Plan, jobs: &[Job], now: Instant) {
        let busy: BTreeSet<Target> = jobs.iter().map(Job::target).collect();
        let (mut addresses, mut claims) = (BTreeMap::new(), BTreeMap::new());
        for key in self.ledger.open() {
            let (row, pending) = (self.services.get(key), self.pending.get(key));
            let named = row.iter().flat_map(|row| &row.present);
            for ip in named.chain(pending.iter().flat_map(|pending| &pending.addresses)) {
                *addresses.entry(*ip).or_insert(0) += 1;
            }
            let named = row.and_then(ServiceRow::claim);
            let sent = pending.and_then(|it| it.claims.as_ref()).map(|claims| &claims.claim);
            for claim in named.into_iter().chain(sent) {
                *claims.entry(claim).or_insert(0) += 1;
            }
        }
        let (mut settled, mut looks) = (Vec::new(), Vec::new());
        for (key, _, row, decision) in self.decided(plan) {
            let (Some(wish), Some(decision)) = (self.wish(row), decision) else { continue };
            let own = &wish.own_claim;
            let alone = || {
                claims.get(own) == Some(&1)
                    && row.present.iter().all(|ip| addresses.get(ip) == Some(&1))
            };
            let written = || {
                let is_listed = |claim: &ClaimRow| {
                    claim.record.addresses.iter().eq(row.present.iter().collect::<BTreeSet<_>>())
                };
                self.claims.get(own).is_some_and(is_listed)
                    && !self.listings.contains_key(own)
                    && !self.pending.contains_key(key)
                    && !busy.contains(&Target::Service(key.clone()))
                    && !busy.contains(&Target::Claim(own.clone()))
            };
            let apart = || {
                row.claims().is_some_and(|claims| !claims.by_address.is_empty())
                    || self.naming.of(key).next().is_some()
            };
            let contested =
                || self.rivals.contest(key).is_some() || row.says_that_it_is_contested();
            if decision.is_final(wish) && !contested() && alone() && written() && !apart() {
                let policy = self.governance(row, decision).and_then(Governance::policy);
                let policy = policy.map(|policy| policy.name.clone());
                let unowned = self.announcer(own).is_none();
                let due = self.looked_at(key, row, decision, now);
                looks.extend(due.map(|due| (key.clone(), due)));
                let addresses = row.present.clone();
                settled.push((key.clone(), Rest { addresses, policy, unowned }));
            }
        }
        for (key, rest) in settled {
            self.ledger.settle(key, rest, &self.pool_map);
        }
        self.untold.extend(looks);
    }

    /// Opens some of the settled Services of which something is to be told by `now`: few at a time, so
    /// that plans stay cheap.
    pub fn open_due(&mut self, now: Instant) {
        // Those that share an address are always open.
        let room = TELLING_AT_ONCE.saturating_sub(self.ledger.open().count()).max(TELLING_LEAST);
        let due = self.untold.iter().filter(|(_, at)| **at <= now).take(room);
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.untold.remove(&key);
            self.ledger.open_again(&key, &self.pool_map);
        }
    }

    /// How many Services are left out of plans.
    pub fn settled(&self) -> usize {
        self.ledger.count()
    }

    /// Notes that a write to a Service was carried out at `now`, as this version of it; returns whether it
    /// put right what others had changed.
    pub(super) fn written(
        &mut self,
        key: &ServiceKey,
        write: &ServiceWrite,
        version: Option<u64>,
        now: Instant,
    ) -> bool {
        let Some(row) = self.services.get(key) else { return false };
        let (mark, rival) = (row.mark(), row.rival().cloned());
        let newer = self.services.version(key) > version;
        let told = write.tells_of_contest();
        let given = write.given();
        // Somebody was faster than the answer: how it was written is not known.
        let ours = if newer { Mark { whole: 0, shape: 0 } } else { mark };
        let restored = self.rivals.written(key, given, ours, told, now);
        if newer {
            self.rivals.changed(key, mark, rival.as_ref(), now);
        }
        restored
    }

    /// Forgets the write to a Service that is known not to have been carried out.
    pub fn failed(&mut self, key: &ServiceKey) {
        if self.pending.remove(key).is_some() {
            self.service_changed(key);
        }
    }

    fn service(&mut self, event: Event<DeserializeGuard<Service>>, now: Instant) -> bool {
        let key = match &event {
            Event::Apply(service) | Event::Delete(service) => {
                let (namespace, name) = (service.namespace(), service.name_any());
                namespace.map(|namespace| ServiceKey { namespace, name })
            }
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        let Some(key) = key else {
            let had: Vec<_> = match &event {
                Event::InitDone => {
                    let rows = self.services.iter();
                    let known = |(key, row): (&ServiceKey, &ServiceRow)| {
                        (key.clone(), row.present.clone(), self.before(key))
                    };
                    rows.map(known).collect()
                }
                _ => Vec::new(),
            };
            let changed = self.services.apply(event);
            for (key, had, known) in had {
                self.compare(&key, known, now);
                self.resting.note(&key, &had, &self.services, now);
            }
            if changed {
                self.open_all();
            }
            return changed;
        };
        let (had, known) = (self.present(&key), self.before(&key));
        let before = self.effective(&key);
        let changed = self.services.apply(event);
        self.compare(&key, known, now);
        self.resting.note(&key, &had, &self.services, now);
        if changed {
            self.service_changed(&key);
        }
        // The echo of an own write is no news.
        if self.pending.contains_key(&key) { self.effective(&key) != before } else { changed }
    }

    /// The addresses in the status of a Service.
    fn present(&self, key: &ServiceKey) -> Vec<IpAddr> {
        self.services.get(key).map(|row| row.present.clone()).unwrap_or_default()
    }

    /// Forgets at `now` what was freed, or contested, long ago.
    pub fn forget(&mut self, now: Instant) {
        self.resting.forget(now);
        self.rivals.forget(now);
        self.handed.forget(now);
    }

    /// Until when at most pools may be about to be created again.
    pub fn replaced_by(&self) -> Option<Instant> {
        self.pool_gone.map(|gone| gone + REPLACING)
    }

    /// Drops the pending write of a Service once a newer version than it replaces was seen.
    pub fn resolve(&mut self, key: &ServiceKey) {
        let version = self.services.version(key);
        if let Some(pending) = self.pending.get(key)
            && version.is_none_or(|version| version > pending.version)
        {
            self.failed(key);
        }
    }

    fn collect_node_addresses(&mut self, changed: bool) -> bool {
        if changed {
            let nodes = self.nodes.iter().map(|(name, row)| (name.as_str(), &row.addresses));
            let sessions = self.sessions.iter().map(|(name, row)| (name.as_str(), &row.addresses));
            self.node_addresses = nodes
                .chain(sessions)
                .flat_map(|(name, addresses)| addresses.iter().map(|ip| (*ip, name.to_owned())))
                .collect();
            let links = self.sessions.iter().flat_map(|(_, row)| &row.record.interfaces);
            let unusable = Unusable::new(links.flat_map(|link| &link.addresses).copied());
            if unusable != self.unusable {
                self.unusable = unusable;
                self.update_territory();
            }
        }
        changed
    }

    /// The kinds whose list is not complete yet.
    pub fn missing(&self) -> Vec<&'static str> {
        let listed = |kind| match kind {
            Kind::Service => self.services.is_listed(),
            Kind::Namespace => self.namespaces.is_listed(),
            Kind::Pool => self.pools.is_listed(),
            Kind::Policy => self.policies.is_listed(),
            Kind::Node => self.nodes.is_listed(),
            Kind::Slice => self.endpoints.is_listed(),
            Kind::Claim => self.claims.is_listed(),
            Kind::Session => self.sessions.is_listed(),
        };
        Kind::ALL.into_iter().filter(|kind| !listed(*kind)).map(Kind::name).collect()
    }

    /// How many objects of each kind could not be read so far.
    pub fn malformed(&self) -> [(&'static str, u64); 7] {
        [
            ("Service", self.services.malformed()),
            ("Namespace", self.namespaces.malformed()),
            ("IPAddressPool", self.pools.malformed()),
            ("AnnouncementPolicy", self.policies.malformed()),
            ("Node", self.nodes.malformed()),
            ("Claim", self.claims.malformed()),
            ("Session", self.sessions.malformed()),
        ]
    }

    /// What a Service wants from us.
    pub fn wish<'a>(&self, row: &'a ServiceRow) -> Option<&'a allocate::Service> {
        row.wish.as_ref().filter(|_| self.default_class || !row.classless)
    }

    /// Which pool owns which addresses.
    pub fn pool_map(&self) -> &PoolMap {
        &self.pool_map
    }

    /// What a Service wants, as if its pending write were done.
    fn effective(&self, key: &ServiceKey) -> Option<allocate::Service> {
        let wish = self.wish(self.services.get(key)?)?.clone();
        Some(match self.pending.get(key) {
            Some(pending) => allocate::Service {
                present: pending.addresses.clone(),
                allocated_from: pending.allocated_from.clone(),
                claim: pending.claims.as_ref().map(|claims| claims.claim.clone()),
                ..wish
            },
            None => wish,
        })
    }

    /// The Services about which something may be to be done, with their versions.
    fn open(&self) -> impl Iterator<Item = (&ServiceKey, u64, &ServiceRow)> {
        self.ledger.open().filter_map(|key| self.services.entry(key))
    }

    /// The plan for all that is open.
    pub fn plan(&self) -> Plan {
        let overlays: BTreeMap<&ServiceKey, allocate::Service> =
            self.pending.keys().filter_map(|key| Some((key, self.effective(key)?))).collect();
        let restored = self.open().filter_map(|(key, _, row)| {
            let service = overlays.get(key).or_else(|| self.wish(row))?;
            Some((key, self.restored(key, row, service)?))
        });
        let restored: BTreeMap<&ServiceKey, allocate::Service> = restored.collect();
        let mut services = Vec::new();
        // Still in the status of a Service that is no longer ours, or about to be replaced by a pending
        // write.
        let mut departing = Vec::new();
        for (key, _, row) in self.open() {
            let wish = self.wish(row);
            let overlay = overlays.get(key);
            if let Some(service) = restored.get(key).or(overlay).or(wish) {
                services.push((key, service));
            }
            if overlay.is_some() || (wish.is_none() && row.marked) {
                let sharing = wish.and_then(|wish| wish.sharing.as_deref());
                let leaves = |address: &IpAddr| Departing { address: *address, key, sharing };
                departing.extend(row.present.iter().map(leaves));
            }
        }
        plan(&State {
            pool_map: &self.pool_map,
            namespaces: self.namespaces.iter().map(|(k, row)| (k.as_str(), &row.labels)).collect(),
            services: services.into_iter().collect(),
            nodes: &self.node_addresses,
            occupancy: self.ledger.space(),
            foreign: self.ledger.foreign(),
            departing,
            listed: &self.listed,
            quarantine: self.resting.addresses(),
        })
    }

    /// Whether the session under which a claim is held is live, as far as was seen.
    pub fn is_valid(&self, claim: &ClaimRow) -> bool {
        claim.session().is_some_and(|(session, id)| {
            self.sessions.get(&session).is_some_and(|row| row.live.as_ref() == Some(&id))
        })
    }

    /// Whether a session has ended, or has not changed for ten times its duration.
    pub fn is_abandoned(&self, name: &LeaseName, session: &SessionRow, now: Instant) -> bool {
        const SHORTEST: Duration = Duration::from_secs(5);
        let changed = self.session_changes.get(name).copied().unwrap_or(now);
        session.live.is_none() || now.saturating_sub(changed) >= session.duration.max(SHORTEST) * 10
    }

    /// Each open Service, its version, and what `plan` decides about it; nothing about those that are not
    /// ours.
    pub fn decided<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (&'a ServiceKey, u64, &'a ServiceRow, Option<&'a Decision>)> {
        // Both are in the order of the names.
        let mut decisions = plan.services.iter().peekable();
        self.open().map(move |(key, version, row)| {
            while decisions.next_if(|(other, _)| *other < key).is_some() {}
            let decision = decisions.next_if(|(other, _)| *other == key);
            let decision = decision.filter(|_| self.wish(row).is_some());
            (key, version, row, decision.map(|(_, decision)| decision))
        })
    }

    /// What governs a Service that has an address.
    pub(super) fn governance(
        &self,
        row: &ServiceRow,
        decision: &Decision,
    ) -> Option<Governance<'_>> {
        let (wish, pool) = (self.wish(row)?, decision.allocated_from.as_deref()?);
        Some(self.governing.governs(&wish.labels, pool))
    }

    /// The claims of single addresses that a Service is to have beside that of `decision`: of all but the
    /// first address where the policy says so, or no node can carry both families, and nobody shares them.
    pub fn by_address(&self, row: &ServiceRow, decision: &Decision) -> BTreeSet<LeaseName> {
        let policy = self.governance(row, decision).and_then(Governance::policy);
        let spread = policy.map_or(Spread::PerService, |policy| policy.spread);
        let wish = self.wish(row);
        let own = wish.is_some_and(|wish| {
            wish.sharing.is_none() && decision.claim.as_ref() == Some(&wish.own_claim)
        });
        let apart = || spread != Spread::PerService || self.has_families_apart(row, decision);
        if !own || !apart() {
            return BTreeSet::new();
        }
        decision.addresses.iter().skip(1).map(|ip| LeaseName::address_claim(*ip)).collect()
    }

    /// When something is to be told of a Service next, after `now`.
    pub fn told_at(&self, now: Instant) -> Option<Instant> {
        let untold = self.untold.values().min().map(|at| (*at).max(now + TELLING_PAUSE));
        self.endpoints.next(now).into_iter().chain(self.handed.next(now)).chain(untold).min()
    }

    /// What of a policy matches nothing.
    pub fn unmatched(&self, policy: &str) -> &[String] {
        self.governing.unmatched(policy)
    }

    /// How many Services with an address each policy governs.
    pub fn governed(&self, plan: &Plan) -> BTreeMap<String, usize> {
        let mut governed = self.ledger.governed().clone();
        for (_, _, row, decision) in self.decided(plan) {
            let governance = decision.and_then(|decision| self.governance(row, decision));
            if let Some(policy) = governance.and_then(Governance::policy) {
                *governed.entry(policy.name.clone()).or_default() += 1;
            }
        }
        governed
    }

    /// Whether a node has `ip` itself, or a Service that does not want its addresses from us.
    pub(super) fn is_of_others(&self, ip: IpAddr) -> bool {
        self.node_addresses.contains_key(&ip) || self.ledger.foreign().contains_key(&ip)
    }

    /// Under which claims each address is listed, or may be.
    pub fn listed(&self) -> &Listed {
        &self.listed
    }
}
