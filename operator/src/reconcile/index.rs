//! All that is known, in one place.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::policy::{AnnouncementMode, Governance, Policies};

use super::leases::{ClaimRow, NamespaceRow, NodeRow, SessionRow};
use super::lists::{Listing, listed};
use super::policy::PolicyRow;
use super::pool::PoolRow;
use super::resting::Resting;
use super::service::ServiceRow;
use super::table::Table;
use super::watch::{Change, Kind};
use crate::allocate::{self, Departing, Plan, ServiceKey, State, Territory, plan};
use crate::clock::Instant;

/// For how long after a pool was deleted nobody is told that it has gone: tools replace an object by
/// deleting it and creating it again.
const REPLACING: Duration = Duration::from_secs(2);

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
    /// The claim that governs them.
    pub claim: Option<LeaseName>,
}

/// What policies say of Services with an address.
#[derive(Debug, Default)]
pub struct Governed {
    /// How many Services each policy governs.
    pub services: BTreeMap<String, usize>,
    /// The Services that nobody announces, by the policy that says so.
    pub silent: BTreeMap<ServiceKey, String>,
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
    /// Writes to Services whose outcome is not known.
    pub pending: BTreeMap<ServiceKey, Pending>,
    /// Writes to the lists of claims that have not been seen.
    pub listings: BTreeMap<LeaseName, Listing>,
    /// When each session was last seen to change.
    session_changes: BTreeMap<LeaseName, Instant>,
    /// When a pool was last seen to be gone.
    pool_gone: Option<Instant>,
    resting: Resting,
    territory: Territory,
    node_addresses: BTreeMap<IpAddr, String>,
}

impl Index {
    /// Knows nothing yet. With `default_class`, Services without a class are ours.
    pub fn new(default_class: bool) -> Self {
        Self { default_class, ..Self::default() }
    }

    /// Takes in a change at `now`; returns whether something may have to be done about it.
    pub fn apply(&mut self, change: Change, now: Instant) -> bool {
        match change {
            Change::Service(event) => self.service(*event, now),
            Change::Namespace(event) => self.namespaces.apply(*event),
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
                    let pools =
                        self.pools.iter().map(|(name, row)| (name.clone(), row.pool.clone()));
                    self.territory = Territory::new(&pools.collect());
                }
                changed
            }
            Change::Policy(event) => self.policies.apply(*event),
            Change::Node(event) => {
                let changed = self.nodes.apply(*event);
                self.collect_node_addresses(changed)
            }
            Change::Claim(event) => {
                let changed = self.claims.apply(*event);
                let before = self.listings.len();
                self.settle_listings();
                changed || self.listings.len() < before
            }
            Change::Session(event) => {
                match event.as_ref() {
                    Event::Apply(lease) | Event::InitApply(lease) => {
                        if let Ok(name) = lease.name_any().parse() {
                            self.session_changes.insert(name, now);
                        }
                    }
                    Event::Delete(lease) => {
                        if let Ok(name) = lease.name_any().parse::<LeaseName>() {
                            self.session_changes.remove(&name);
                        }
                    }
                    Event::Init | Event::InitDone => {}
                }
                let changed = self.sessions.apply(*event);
                self.collect_node_addresses(changed)
            }
            Change::Failed(..) => false,
        }
    }

    /// Takes in the answer to an own write or read of a Service, at `now`.
    pub fn answered(&mut self, key: &ServiceKey, service: Service, now: Instant) -> bool {
        let before = self.effective(key);
        let had = self.present(key);
        self.services.answered(service);
        self.resting.note(key, &had, &self.services, now);
        self.settle(key);
        self.effective(key) != before
    }

    /// Takes in the answer to an own write of a claim.
    pub fn claim_answered(&mut self, lease: Lease) {
        self.claims.answered(lease);
        self.settle_listings();
    }

    /// Forgets the writes of lists that were carried out and seen, or cannot be any more: something else
    /// was.
    fn settle_listings(&mut self) {
        let claims = &self.claims;
        self.listings.retain(|name, listing| match (listing.version, claims.version(name)) {
            (None, seen) => seen.is_none(),
            (Some(version), seen) => seen == Some(version),
        });
    }

    /// Forgets the write to a Service that is known not to have been carried out.
    pub fn failed(&mut self, key: &ServiceKey) {
        self.pending.remove(key);
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
                    rows.map(|(key, row)| (key.clone(), row.present.clone())).collect()
                }
                _ => Vec::new(),
            };
            let changed = self.services.apply(event);
            for (key, had) in had {
                self.resting.note(&key, &had, &self.services, now);
            }
            return changed;
        };
        let had = self.present(&key);
        let before = self.effective(&key);
        let changed = self.services.apply(event);
        self.resting.note(&key, &had, &self.services, now);
        // The echo of an own write is no news.
        if self.pending.contains_key(&key) { self.effective(&key) != before } else { changed }
    }

    /// The addresses in the status of a Service.
    fn present(&self, key: &ServiceKey) -> Vec<IpAddr> {
        self.services.get(key).map(|row| row.present.clone()).unwrap_or_default()
    }

    /// Forgets at `now` what was freed long ago.
    pub fn forget(&mut self, now: Instant) {
        self.resting.forget(now);
    }

    /// Until when at most pools may be about to be created again.
    pub fn replaced_by(&self) -> Option<Instant> {
        self.pool_gone.map(|gone| gone + REPLACING)
    }

    /// Drops the pending write of a Service once a newer version than it replaces was seen.
    pub fn settle(&mut self, key: &ServiceKey) {
        let version = self.services.version(key);
        if let Some(pending) = self.pending.get(key)
            && version.is_none_or(|version| version > pending.version)
        {
            self.pending.remove(key);
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
    pub fn territory(&self) -> &Territory {
        &self.territory
    }

    /// What a Service wants, as if its pending write were done.
    fn effective(&self, key: &ServiceKey) -> Option<allocate::Service> {
        let wish = self.wish(self.services.get(key)?)?.clone();
        Some(match self.pending.get(key) {
            Some(pending) => allocate::Service {
                present: pending.addresses.clone(),
                allocated_from: pending.allocated_from.clone(),
                claim: pending.claim.clone(),
                ..wish
            },
            None => wish,
        })
    }

    /// The plan for all that is known.
    pub fn plan(&self) -> Plan {
        let overlays: BTreeMap<&ServiceKey, allocate::Service> =
            self.pending.keys().filter_map(|key| Some((key, self.effective(key)?))).collect();
        let mut services = Vec::new();
        let mut foreign = BTreeMap::new();
        // Still in the status of a Service that is no longer ours, or about to be replaced by a pending
        // write.
        let mut departing = Vec::new();
        for (key, row) in self.services.iter() {
            let wish = self.wish(row);
            let overlay = overlays.get(key);
            if let Some(service) = overlay.or(wish) {
                services.push((key, service));
            }
            if overlay.is_some() || (wish.is_none() && row.marked) {
                let sharing = wish.and_then(|wish| wish.sharing.as_deref());
                let leaves = |address: &IpAddr| Departing { address: *address, key, sharing };
                departing.extend(row.present.iter().map(leaves));
            } else if wish.is_none() {
                foreign.extend(row.present.iter().map(|ip| (*ip, key)));
            }
        }
        plan(&State {
            territory: &self.territory,
            namespaces: self.namespaces.iter().map(|(k, row)| (k.as_str(), &row.labels)).collect(),
            services: services.into_iter().collect(),
            nodes: &self.node_addresses,
            foreign,
            departing,
            listed: listed(self),
            resting: self.resting.addresses(),
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

    /// Which Services with an address the policies govern.
    pub fn governed(&self, plan: &Plan) -> Governed {
        let mut governed = Governed::default();
        let (policies, _) = Policies::new(self.policies.iter().map(|(_, row)| &row.object));
        for (key, decision) in &plan.services {
            let Some(pool) = decision.allocated_from.as_deref() else { continue };
            let Some(wish) = self.services.get(key).and_then(|row| self.wish(row)) else {
                continue;
            };
            if let Governance::Policy(policy) = policies.govern(&wish.labels, Some(pool)) {
                *governed.services.entry(policy.name.clone()).or_default() += 1;
                if policy.mode == AnnouncementMode::None {
                    governed.silent.insert(key.clone(), policy.name.clone());
                }
            }
        }
        governed
    }
}
