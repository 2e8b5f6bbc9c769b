//! What a claim lease says.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use pnet_base::MacAddr;

use super::{Record, SessionId, annotation, millis, read_holder, read_millis};
use crate::addresses::AddressSet;
use crate::names::{InterfaceName, NodeName};

/// Who owns the addresses of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The owner; none while released.
    pub holder: Option<NodeName>,
    /// How often (holder, session) has changed.
    pub transitions: i32,
    /// Within how many seconds the claim is renewed; validity depends on the session alone.
    pub duration_seconds: i32,
    /// The services, as `namespace/name`.
    pub services: Vec<String>,
    /// Their uids, in the same order; none where they are not known.
    pub uids: Vec<String>,
    /// The addresses.
    pub addresses: AddressSet,
    /// The pool that they are from.
    pub pool: Option<String>,
    /// Those that the operator takes from the services, and those that it has just taken off the list.
    pub withdrawn: AddressSet,
    /// The interface of the holder that carries them.
    pub interface: Option<InterfaceName>,
    /// The MAC address of that interface.
    pub mac: Option<MacAddr>,
    /// The session under which it is held.
    pub session: Option<SessionId>,
    /// Why it last changed hands, for people.
    pub cause: String,
    /// How long that took, from its first sign until the addresses were announced, where it is known.
    pub took: Option<Duration>,
    /// To whom the holder hands over.
    pub successor: Option<Successor>,
    /// To whom it is to hand over, as people asked.
    pub move_to: Option<NodeName>,
}

/// To whom the holder of a claim hands it over. Void unless the claim still has these transitions
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
        let text = |key| annotations.get(key).map(String::as_str);
        let list = |key| text(key).unwrap_or_default().split(',').filter(|item| !item.is_empty());
        let addresses = |key| list(key).filter_map(|ip| ip.parse().ok()).collect();
        Self {
            holder: read_holder(spec),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
            services: list(annotation::SERVICES).map(str::to_owned).collect(),
            uids: list(annotation::SERVICE_UIDS).map(str::to_owned).collect(),
            addresses: addresses(annotation::ADDRESSES),
            pool: text(annotation::POOL).filter(|pool| !pool.is_empty()).map(str::to_owned),
            withdrawn: addresses(annotation::WITHDRAWN),
            interface: text(annotation::INTERFACE).and_then(|name| name.parse().ok()),
            mac: text(annotation::MAC).and_then(|mac| mac.parse().ok()),
            session: text(annotation::SESSION).and_then(|session| session.parse().ok()),
            cause: text(annotation::CAUSE).unwrap_or_default().to_owned(),
            took: text(annotation::TOOK).and_then(read_millis),
            successor: text(annotation::SUCCESSOR).and_then(|successor| successor.parse().ok()),
            move_to: text(annotation::MOVE_TO).and_then(|node| node.parse().ok()),
        }
    }

    fn holder(&self) -> Option<&NodeName> {
        self.holder.as_ref()
    }

    fn transitions(&self) -> i32 {
        self.transitions
    }

    fn duration_seconds(&self) -> i32 {
        self.duration_seconds
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                annotations.insert(key.to_owned(), value);
            }
        };
        let joined = |addresses: &AddressSet| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        set(annotation::SERVICES, Some(self.services.join(",")));
        set(annotation::SERVICE_UIDS, (!self.uids.is_empty()).then(|| self.uids.join(",")));
        set(annotation::ADDRESSES, Some(joined(&self.addresses)));
        set(annotation::POOL, self.pool.clone());
        set(annotation::WITHDRAWN, (!self.withdrawn.is_empty()).then(|| joined(&self.withdrawn)));
        set(annotation::INTERFACE, self.interface.as_ref().map(ToString::to_string));
        set(annotation::MAC, self.mac.as_ref().map(ToString::to_string));
        set(annotation::SESSION, self.session.as_ref().map(ToString::to_string));
        set(annotation::CAUSE, Some(self.cause.clone()));
        set(annotation::TOOK, self.took.map(millis));
        set(annotation::MOVE_TO, self.move_to.as_ref().map(ToString::to_string));
        set(annotation::SUCCESSOR, self.successor.as_ref().map(ToString::to_string));
        annotations
    }
}
