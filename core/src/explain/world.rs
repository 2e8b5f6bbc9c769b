//! The objects of a cluster, parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use leasehold_crds::event::Reason;
use leasehold_crds::lease::{Claim, LeaseName, Session, Stored, millis};
use leasehold_crds::names::NodeName;
use leasehold_crds::service::{self, ALLOCATED};
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};

use crate::desired::{NodeObject, ServiceFacts, Slice, SliceFacts, Snapshot, governed};

/// The reason of the condition [`ALLOCATED`] while another client repeatedly reverts what the operator
/// writes to the Service.
pub const OTHER_WRITER: &str = Reason::OtherWriter.as_str();

/// The objects of a cluster, as the API server lists them.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// All Services.
    pub services: Vec<Service>,
    /// Their endpoints.
    pub slices: Vec<Slice>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Policies.
    pub policies: Vec<AnnouncementPolicy>,
    /// Pools.
    pub pools: Vec<IPAddressPool>,
    /// The leases of the sessions' namespace.
    pub sessions: Vec<Lease>,
    /// The leases of the claims' namespace.
    pub claims: Vec<Lease>,
}

/// The objects of a cluster, parsed.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The part of the objects that speakers keep.
    pub snapshot: Snapshot,
    /// All Services, by `namespace/name`.
    pub services: BTreeMap<String, ServiceRow>,
    /// The sessions, by node.
    pub sessions: BTreeMap<NodeName, SessionRow>,
    /// The claims.
    pub claims: BTreeMap<LeaseName, ClaimRow>,
}

/// The part of a Service that speakers do not keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceRow {
    /// `spec.type`.
    pub kind: String,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// Whether it asks Leasehold for an address, or was given one.
    pub ours: bool,
    /// The addresses in its status.
    pub addresses: Vec<IpAddr>,
    /// The claims that govern them.
    pub claims: BTreeSet<LeaseName>,
    /// The pool that they are from.
    pub pool: Option<String>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub stored: Stored<Session>,
}

impl SessionRow {
    /// Whether its node holds it.
    pub fn is_live(&self) -> bool {
        let session = &self.stored;
        session.record.holder.as_ref().is_some_and(|node| node.as_str() == session.name.as_str())
    }
}

/// A claim as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// The claim.
    pub stored: Stored<Claim>,
}

impl ClaimRow {
    /// The claim of a lease; `None` for other leases.
    pub fn of(lease: &Lease) -> Option<Self> {
        let stored = Stored::<Claim>::from_lease(lease).filter(|it| it.name.is_claim())?;
        Some(Self { stored })
    }

    /// The duration of its last change, as its holder wrote it.
    pub fn took(&self) -> Option<String> {
        self.stored.record.took.map(millis)
    }
}

impl SessionRow {
    /// The session of a lease, and whose it is.
    pub fn of(lease: &Lease) -> Option<(NodeName, Self)> {
        let stored = Stored::<Session>::from_lease(lease)?;
        let node = stored.name.as_str().parse().ok()?;
        Some((node, Self { stored }))
    }
}

impl ServiceRow {
    /// Reads a Service.
    pub fn of(object: &Service) -> (String, Self) {
        let spec = object.spec.clone().unwrap_or_default();
        let kind = spec.type_.unwrap_or_else(|| "ClusterIP".to_owned());
        let conditions = object.status.clone().and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let addresses: Vec<IpAddr> =
            service::ingress_ips(object).filter_map(|ip| ip.parse().ok()).collect();
        let recorded = service::Claims::of(object);
        let marked = recorded.is_some() || conditions.iter().any(|it| it.type_ == ALLOCATED);
        let claims = recorded
            .map(|claims| claims.split(addresses.iter().copied()).into_keys().collect())
            .unwrap_or_default();
        let row = Self {
            ours: kind == "LoadBalancer" && (marked || service::is_ours(object, false)),
            kind,
            class: spec.load_balancer_class,
            addresses,
            claims,
            pool: service::allocated_from(object).map(str::to_owned),
            conditions,
        };
        let namespace = object.namespace().unwrap_or_default();
        (format!("{namespace}/{}", object.name_any()), row)
    }

    /// A condition of it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl World {
    /// The owner of `claim`: its holder, as long as the session is live under which it is held.
    pub fn owner(&self, claim: &ClaimRow) -> Option<&NodeName> {
        let record = &claim.stored.record;
        let (node, session) = self.sessions.get_key_value(record.holder.as_ref()?)?;
        let id = record.session.as_ref()?;
        let stored = &session.stored;
        let same = stored.uid == id.uid && stored.record.transitions == id.transitions;
        (session.is_live() && same).then_some(node)
    }

    /// Parses these objects.
    pub fn of(objects: &Objects) -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.services.extend(objects.services.iter().filter_map(ServiceFacts::of));
        snapshot.slices.extend(objects.slices.iter().filter_map(SliceFacts::of));
        snapshot.nodes.extend(objects.nodes.iter().filter_map(NodeObject::of));
        let policies = objects.policies.iter().map(|it| (it.name_any(), it.clone()));
        snapshot.policies.extend(policies);
        let pools = objects.pools.iter().map(|it| (it.name_any(), it.labels().clone()));
        snapshot.pools.extend(pools);
        snapshot.note_nodes();
        let claims = objects.claims.iter().filter_map(ClaimRow::of);
        let claims: BTreeMap<_, _> = claims.map(|row| (row.stored.name.clone(), row)).collect();
        snapshot.lists.replace(claims.iter().map(|(name, row)| (name, &row.stored.record)));
        let mut services: BTreeMap<_, _> = objects.services.iter().map(ServiceRow::of).collect();
        for (name, governed) in governed(&snapshot.services, &snapshot.lists) {
            if let Some(row) = services.get_mut(name).filter(|_| !governed.is_empty()) {
                row.claims = governed.iter().map(|(claim, _)| claim.clone()).collect();
                row.ours = true;
            }
        }
        // One without a class that the operator has looked at shows that it serves them (--default-class).
        let serves = |row: &ServiceRow| row.class.is_none() && row.condition(ALLOCATED).is_some();
        if services.values().any(serves) {
            for object in objects.services.iter().filter(|it| service::is_ours(it, true)) {
                let (name, _) = ServiceRow::of(object);
                services.entry(name).and_modify(|row| row.ours = true);
            }
        }
        let sessions: BTreeMap<_, _> = objects.sessions.iter().filter_map(SessionRow::of).collect();
        for (name, session) in &sessions {
            if let Some(node) = snapshot.nodes.get_mut(name)
                && session.stored.record.ignores_exclude_label
            {
                *node = node.clone().ignoring_label();
            }
        }
        Self { snapshot, services, sessions, claims }
    }
}
