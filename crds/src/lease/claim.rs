//! The record of a claim Lease.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use pnet_base::MacAddr;

use super::members::{MemberChange, Members, Weighted};
use super::text::{Reader, Writer, joined};
use super::{Record, SessionId, Spec, annotation, millis, read_holder, read_millis};
use crate::addresses::AddressSet;
use crate::names::{InterfaceName, NodeName};

/// The ownership of the addresses of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The owner; none while released.
    pub holder: Option<NodeName>,
    /// The number of changes of (holder, session).
    pub transitions: i32,
    /// The period in seconds in which the claim is renewed; validity depends on the session alone.
    pub duration_seconds: i32,
    /// The services, as `namespace/name`.
    pub services: Vec<String>,
    /// Their uids, in the same order; none where they are not known.
    pub uids: Vec<String>,
    /// The addresses.
    pub addresses: AddressSet,
    /// The pool that they are from.
    pub pool: Option<String>,
    /// The addresses that the operator takes from the Services, and those that it has just taken off the list.
    pub withdrawn: AddressSet,
    /// The interface of the holder that carries them.
    pub interface: Option<InterfaceName>,
    /// The MAC address of that interface.
    pub mac: Option<MacAddr>,
    /// The session under which it is held.
    pub session: Option<SessionId>,
    /// The cause of the last change of ownership, for people.
    pub cause: String,
    /// The duration of that change, from its first sign until the addresses were announced, if known.
    pub took: Option<Duration>,
    /// The owners before, the last one first, to which packets of their connections are forwarded.
    pub former: Box<[NodeName]>,
    /// The nodes that the holder spreads packets over; none: they go to its own pods.
    pub members: Members,
    /// The last changes of that, the last one first.
    pub former_members: Box<[MemberChange]>,
    /// The node to which the holder hands over.
    pub successor: Option<Successor>,
    /// The node to which the holder is asked to hand over (`kubectl leasehold move`).
    pub move_to: Option<NodeName>,
}

/// The node to which the holder of a claim hands it over. Void unless the claim still has these transitions
/// and the successor this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The node.
    pub node: NodeName,
    /// Its session.
    pub session: SessionId,
    /// The transitions of the claim when it was named.
    pub transitions: i32,
}

impl fmt::Display for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.node, self.session, self.transitions)
    }
}

impl FromStr for Successor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(' ');
        let (Some(node), Some(session), Some(transitions), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        Ok(Self {
            node: node.parse().map_err(|_| ())?,
            session: session.parse().map_err(|_| ())?,
            transitions: transitions.parse().map_err(|_| ())?,
        })
    }
}

impl Claim {
    /// Whether it names this service, `namespace/name`, the object with this uid. Where the uids were lost
    /// it goes by the name.
    pub fn names(&self, service: &str, uid: &str) -> bool {
        let named = self.services.iter().position(|name| name == service);
        let uids = Some(&self.uids).filter(|uids| uids.len() == self.services.len());
        named.is_some_and(|at| uids.and_then(|uids| uids.get(at)).is_none_or(|it| it == uid))
    }

    /// The addresses that it lists and the operator has not taken back.
    pub fn standing(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.difference(&self.withdrawn).copied()
    }
}

impl Record for Claim {
    fn read(spec: &LeaseSpec, annotations: &BTreeMap<String, String>) -> Self {
        let read = Reader(annotations);
        Self {
            holder: read_holder(spec),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
            services: read.items(annotation::SERVICES).map(str::to_owned).collect(),
            uids: read.items(annotation::SERVICE_UIDS).map(str::to_owned).collect(),
            addresses: read.list(annotation::ADDRESSES),
            pool: read.text(annotation::POOL).filter(|pool| !pool.is_empty()).map(str::to_owned),
            withdrawn: read.list(annotation::WITHDRAWN),
            interface: read.value(annotation::INTERFACE),
            mac: read.value(annotation::MAC),
            session: read.value(annotation::SESSION),
            cause: read.text(annotation::CAUSE).unwrap_or_default().to_owned(),
            took: read.text(annotation::TOOK).and_then(read_millis),
            former: read.list(annotation::FORMER_OWNERS),
            members: read
                .list::<Weighted, Vec<_>>(annotation::MEMBERS)
                .into_iter()
                .map(|Weighted(node, weight)| (node, weight))
                .collect(),
            former_members: read.list(annotation::FORMER_MEMBERS),
            successor: read.value(annotation::SUCCESSOR),
            move_to: read.value(annotation::MOVE_TO),
        }
    }

    fn spec(&self) -> Spec<'_> {
        let Self { holder, transitions, duration_seconds, .. } = self;
        Spec {
            holder: holder.as_ref(),
            transitions: *transitions,
            duration_seconds: *duration_seconds,
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let mut write = Writer::default();
        write.text(annotation::SERVICES, joined(&self.services));
        write.list(annotation::SERVICE_UIDS, &self.uids);
        write.text(annotation::ADDRESSES, joined(&self.addresses));
        write.value(annotation::POOL, self.pool.as_ref());
        write.list(annotation::WITHDRAWN, &self.withdrawn);
        write.value(annotation::INTERFACE, self.interface.as_ref());
        write.value(annotation::MAC, self.mac);
        write.value(annotation::SESSION, self.session.as_ref());
        write.text(annotation::CAUSE, self.cause.as_str());
        write.value(annotation::TOOK, self.took.map(millis));
        write.value(annotation::MOVE_TO, self.move_to.as_ref());
        write.list(annotation::FORMER_OWNERS, self.former.iter());
        let members = self.members.iter();
        write.list(annotation::MEMBERS, members.map(|(node, it)| Weighted(node.clone(), it)));
        write.list(annotation::FORMER_MEMBERS, self.former_members.iter());
        write.value(annotation::SUCCESSOR, self.successor.as_ref());
        write.finish()
    }
}
