//! The objects of the cluster as last seen, one table for each kind, and direct questions about them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use leasehold_core::desired::Slice;
use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName, Members};
use leasehold_crds::names::{InterfaceName, NodeName};
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};

use super::foreign::Foreign;
use crate::allocate::{self, ServiceKey, Unusable};
use crate::clock::Instant;
use crate::reconcile::endpoints::{Concerned, Endpoints};
use crate::reconcile::leases::{Announcer, ClaimRow, NamespaceRow, NodeRow, SessionRow};
use crate::reconcile::policy::PolicyRow;
use crate::reconcile::pool::PoolRow;
use crate::reconcile::service::ServiceRow;
use crate::reconcile::table::Table;
use crate::reconcile::watch::Kind;

/// The time after the deletion of a pool for which Services are not told of it: tools replace an object by
/// deleting it and creating it again.
const REPLACING: Duration = Duration::from_secs(2);

/// The facts of a claim that conditions report: its owner with the interface, its addresses, and the nodes that packets are
/// spread over.
pub(super) type Announcement = (Option<(NodeName, Option<InterfaceName>)>, AddressSet, Members);

/// The last seen objects of each kind.
#[derive(Debug, Default)]
pub struct Tables {
    default_class: bool,
    services: Table<ServiceRow>,
    namespaces: Table<NamespaceRow>,
    pools: Table<PoolRow>,
    policies: Table<PolicyRow>,
    nodes: Table<NodeRow>,
    claims: Table<ClaimRow>,
    sessions: Table<SessionRow>,
    endpoints: Endpoints,
    foreign: Foreign,
    /// The time at which each session was last seen to change.
    session_changes: BTreeMap<LeaseName, Instant>,
    /// The time at which a pool was last seen to be gone.
    pool_gone: Option<Instant>,
}

impl Tables {
    /// Empty tables. With `default_class`, Services without a class are ours.
    pub(super) fn new(default_class: bool) -> Self {
        Self { default_class, ..Self::default() }
    }

    /// The Services.
    pub const fn services(&self) -> &Table<ServiceRow> {
        &self.services
    }

    /// The Namespaces.
    pub const fn namespaces(&self) -> &Table<NamespaceRow> {
        &self.namespaces
    }

    /// The pools.
    pub const fn pools(&self) -> &Table<PoolRow> {
        &self.pools
    }

    /// The policies.
    pub const fn policies(&self) -> &Table<PolicyRow> {
        &self.policies
    }

    /// The Nodes.
    pub const fn nodes(&self) -> &Table<NodeRow> {
        &self.nodes
    }

    /// The claims.
    pub const fn claims(&self) -> &Table<ClaimRow> {
        &self.claims
    }

    /// The sessions.
    pub const fn sessions(&self) -> &Table<SessionRow> {
        &self.sessions
    }

    /// The Services that have endpoints.
    pub(super) const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The addresses that others have.
    pub(super) const fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    // === questions ===

    /// The request of a Service, if it makes one to us.
    pub fn request<'a>(&self, row: &'a ServiceRow) -> Option<&'a allocate::Service> {
        row.request.as_ref().filter(|_| self.default_class || !row.classless)
    }

    /// The addresses in the status of a Service.
    pub(super) fn present(&self, key: &ServiceKey) -> &[IpAddr] {
        self.services.get(key).map_or(&[], |row| &row.present)
    }

    /// The Service of this name, `namespace/name`.
    pub(super) fn service_named(&self, text: &str) -> Option<&ServiceRow> {
        let (namespace, name) = text.split_once('/')?;
        let key = ServiceKey { namespace: namespace.to_owned(), name: name.to_owned() };
        self.services.get(&key)
    }

    /// Whether the session under which a claim is held is live, as far as was seen.
    pub fn is_valid(&self, claim: &ClaimRow) -> bool {
        claim.session().is_some_and(|(session, id)| {
            self.sessions.get(&session).is_some_and(|row| row.live.as_ref() == Some(&id))
        })
    }

    /// Whether a speaker may believe that an address of this claim still belongs to a Service: one that
    /// the claim names exists, and is of our type and class.
    pub fn may_stand(&self, claim: &ClaimRow) -> bool {
        let mut named = claim.record.services.iter().filter_map(|text| self.service_named(text));
        named.any(|row| row.request.is_some())
    }

    /// The owner of a claim.
    pub(super) fn announcer(&self, name: &LeaseName) -> Option<Announcer<'_>> {
        self.claims.get(name).filter(|claim| self.is_valid(claim))?.announcer()
    }

    /// The owner and the addresses of a claim; none: there is no such lease.
    pub(super) fn announcement(&self, name: &LeaseName) -> Option<Announcement> {
        let Claim { addresses, members, .. } = &self.claims.get(name)?.record;
        let announcer = self.announcer(name);
        let announcer = announcer.map(|(node, interface)| (node.clone(), interface.cloned()));
        Some((announcer, addresses.clone(), members.clone()))
    }

    /// The claims without an owner.
    pub(super) fn unowned(&self) -> Vec<LeaseName> {
        let unowned = self.claims.iter().filter(|(_, claim)| !self.is_valid(claim));
        unowned.map(|(name, _)| name.clone()).collect()
    }

    /// The claims that this session's node holds.
    pub(super) fn claims_of(&self, session: &LeaseName) -> Vec<LeaseName> {
        let theirs = self.claims.iter().filter(|(_, claim)| {
            claim.record.holder.as_ref().is_some_and(|it| it.as_str() == session.as_str())
        });
        theirs.map(|(name, _)| name.clone()).collect()
    }

    /// The time since a session was last seen to change.
    pub fn session_age(&self, name: &LeaseName, now: Instant) -> Option<Duration> {
        self.session_changes.get(name).map(|at| now.saturating_sub(*at))
    }

    /// Whether a session has ended, or has not changed for ten times its duration.
    pub fn is_abandoned(&self, name: &LeaseName, session: &SessionRow, now: Instant) -> bool {
        const SHORTEST: Duration = Duration::from_secs(5);
        let changed = self.session_changes.get(name).copied().unwrap_or(now);
        session.live.is_none() || now.saturating_sub(changed) >= session.duration.max(SHORTEST) * 10
    }

    /// The addresses that no host can use, by the subnets of the nodes' interfaces.
    pub(super) fn unusable(&self) -> Unusable {
        let links = self.sessions.iter().flat_map(|(_, row)| &row.record.interfaces);
        Unusable::new(links.flat_map(|link| &link.addresses).copied())
    }

    /// The latest time until which a deleted pool may be created again.
    pub fn replaced_by(&self) -> Option<Instant> {
        self.pool_gone.map(|gone| gone + REPLACING)
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

    /// The number of objects of each kind that could not be read so far.
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

    // === changes; each returns whether a row changed ===

    pub(super) fn apply_service(&mut self, event: Event<DeserializeGuard<Service>>) -> bool {
        self.services.apply(event)
    }

    /// Takes in the answer to an own write or read of a Service.
    pub(super) fn answered_service(&mut self, service: Service) -> bool {
        self.services.answered(service)
    }

    pub(super) fn apply_namespace(&mut self, event: Event<DeserializeGuard<Namespace>>) -> bool {
        self.namespaces.apply(event)
    }

    pub(super) fn apply_pool(
        &mut self,
        event: Event<DeserializeGuard<IPAddressPool>>,
        now: Instant,
    ) -> bool {
        let before: Vec<String> = self.pools.iter().map(|(name, _)| name.clone()).collect();
        let changed = self.pools.apply(event);
        if before.iter().any(|name| self.pools.get(name).is_none()) {
            self.pool_gone = Some(now);
        }
        changed
    }

    pub(super) fn apply_policy(
        &mut self,
        event: Event<DeserializeGuard<AnnouncementPolicy>>,
    ) -> bool {
        self.policies.apply(event)
    }

    pub(super) fn apply_node(&mut self, event: Event<DeserializeGuard<Node>>) -> bool {
        self.nodes.apply(event)
    }

    pub(super) fn apply_claim(&mut self, event: Event<DeserializeGuard<Lease>>) -> bool {
        self.claims.apply(event)
    }

    /// Takes in the answer to an own write of a claim.
    pub(super) fn answered_claim(&mut self, lease: Lease) -> bool {
        self.claims.answered(lease)
    }

    pub(super) fn apply_session(&mut self, event: Event<DeserializeGuard<Lease>>) -> bool {
        self.sessions.apply(event)
    }

    /// Notes that a session was seen at `now`.
    pub(super) fn saw_session(&mut self, name: LeaseName, now: Instant) {
        self.session_changes.insert(name, now);
    }

    /// Notes that a session was deleted.
    pub(super) fn lost_session(&mut self, name: &LeaseName) {
        self.session_changes.remove(name);
    }

    /// Takes in a change of EndpointSlices; returns the Services that gained or lost their endpoints.
    pub(super) fn apply_slice(&mut self, event: Event<Slice>) -> Concerned {
        self.endpoints.apply(event)
    }

    // === what follows from them ===

    /// Brings the endpoints and the foreign addresses of a Service up to date at `now`.
    pub(super) fn note_service(&mut self, key: &ServiceKey, now: Instant) {
        let row = self.services.get(key);
        let requests = row.is_some_and(|row| self.request(row).is_some());
        self.endpoints.note(key, requests, now);
        let theirs = row.filter(|row| !requests && !row.marked);
        self.foreign.set_service(key, theirs.map_or(&[], |row| &row.present));
    }

    /// Forgets the foreign addresses of all Services, before each is noted again.
    pub(super) fn clear_foreign_services(&mut self) {
        self.foreign.clear_services();
    }

    /// Brings the addresses of Nodes up to date.
    pub(super) fn note_nodes(&mut self) {
        let nodes = self.nodes.iter().map(|(name, row)| (name.as_str(), &row.addresses));
        let sessions = self.sessions.iter().map(|(name, row)| (name.as_str(), &row.addresses));
        let all = nodes.chain(sessions);
        let all = all.flat_map(|(name, list)| list.iter().map(|ip| (*ip, name.to_owned())));
        self.foreign.set_nodes(all);
    }
}
