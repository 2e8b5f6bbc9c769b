//! Nodes, Namespaces, claims and sessions: the rows of objects that the operator reads but writes no status to.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use leasehold_core::desired::NodeObject;
use leasehold_crds::lease::{Claim, LeaseName, Session, SessionId, Stored};
use leasehold_crds::names::{InterfaceName, NodeName};

use super::table::Row;
use crate::allocate::{Labels, ServiceKey};

/// The row of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// The facts that decide whether it may announce.
    pub facts: NodeObject,
}

impl NodeRow {
    /// Whether it may announce nothing, if its speaker has this session.
    pub fn is_excluded(&self, session: Option<&SessionRow>) -> bool {
        if session.is_some_and(|session| session.record.ignores_exclude_label) {
            self.facts.is_out_of_service()
        } else {
            self.facts.is_excluded()
        }
    }
}

impl Row for NodeRow {
    type Key = String;
    type Object = Node;

    fn read(node: &Node) -> Option<Self> {
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter_map(|entry| entry.address.parse().ok()).collect();
        let (_, facts) = NodeObject::of(node)?;
        Some(Self { addresses, facts })
    }

    fn key(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// The row of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// Its labels.
    pub labels: Labels,
}

impl Row for NamespaceRow {
    type Key = String;
    type Object = Namespace;

    fn read(namespace: &Namespace) -> Option<Self> {
        Some(Self { labels: namespace.metadata.labels.clone().unwrap_or_default() })
    }

    fn key(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// The row of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// The uid of the lease.
    pub uid: Arc<str>,
    /// The service that it is named after; none if it is named after an address.
    pub service: Option<ServiceKey>,
    /// The time at which the present holder acquired it, for people.
    pub acquired: Option<Timestamp>,
    /// Its content.
    pub record: Claim,
}

/// The owner of a claim, and the interface that carries its addresses.
pub(super) type Announcer<'a> = (&'a NodeName, Option<&'a InterfaceName>);

impl ClaimRow {
    /// Whether its content shows that it is one of ours: a foreign lease may have a name of two parts, and
    /// ours may have been edited.
    pub fn is_marked(&self) -> bool {
        self.service.is_none() || !self.record.services.is_empty() || self.record.session.is_some()
    }

    /// The owner, and the interface that carries the addresses, whether the session is live or not.
    pub(super) fn announcer(&self) -> Option<Announcer<'_>> {
        Some((self.record.holder.as_ref()?, self.record.interface.as_ref()))
    }

    /// The session under which it is held; none while it is released.
    pub fn session(&self) -> Option<(LeaseName, SessionId)> {
        self.record.holder.as_ref().map(LeaseName::session).zip(self.record.session.clone())
    }
}

impl Row for ClaimRow {
    type Key = LeaseName;
    type Object = Lease;

    /// Reads claims only.
    fn read(lease: &Lease) -> Option<Self> {
        let Stored { name, uid, acquired, record, .. } = Stored::<Claim>::from_lease(lease)?;
        if !name.is_claim() {
            return None;
        }
        let service = name.service().map(|(namespace, name)| ServiceKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        Some(Self { uid, service, acquired, record })
    }

    fn key(meta: &ObjectMeta) -> Option<LeaseName> {
        meta.name.as_deref()?.parse().ok()
    }
}

/// The row of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its identity while it is live; none once it has ended.
    pub live: Option<SessionId>,
    /// The uid of the lease.
    pub uid: Arc<str>,
    /// Its content.
    pub record: Session,
    /// The lease duration L.
    pub duration: Duration,
    /// The addresses of the node's interfaces.
    pub addresses: Vec<IpAddr>,
}

impl Row for SessionRow {
    type Key = LeaseName;
    type Object = Lease;

    fn read(lease: &Lease) -> Option<Self> {
        let Stored { uid, record, .. } = Stored::<Session>::from_lease(lease)?;
        let id = SessionId { uid: uid.clone(), transitions: record.transitions };
        let seconds = u64::try_from(record.duration_seconds).unwrap_or(0);
        let addresses = record.addresses().collect();
        Some(Self {
            live: record.holder.as_ref().map(|_| id),
            uid,
            duration: Duration::from_secs(seconds),
            addresses,
            record,
        })
    }

    fn key(meta: &ObjectMeta) -> Option<LeaseName> {
        meta.name.as_deref()?.parse().ok()
    }
}
