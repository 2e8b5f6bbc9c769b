//! Sessions and claims: what is written into `coordination.k8s.io/v1` Leases.
//!
//! A *session* lease says that a speaker lives; a *claim* lease says which speaker owns the
//! addresses of a service. A claim is valid exactly while the session that it names, by uid and
//! number of transitions, has a holder.
//!
//! The speakers write them, with one exception: only the operator adds to the addresses that a claim
//! lists, and only what no other claim lists, and only the operator says which of them it takes back.
//! An address that a claim lists and the operator has not taken back stays with the Services that the claim
//! names, whatever becomes of the annotations and the status that say the same on them.
//!
//! Leases can be edited by anybody with the right to: what cannot be read counts as absent, and
//! never makes a claim valid.

mod claim;
mod id;
mod interface;
mod session;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

pub use claim::{Claim, Successor};
pub use id::{Incarnation, LeaseName, SessionId};
pub use interface::{DefaultRoutes, Detours, SessionInterface};
pub use session::{Evidence, Session, Silenced};

use crate::names::NodeName;

/// The namespace of claims unless configured otherwise.
pub const CLAIM_NAMESPACE: &str = "leasehold-system";
/// The namespace of sessions unless configured otherwise.
pub const SESSION_NAMESPACE: &str = "leasehold-sessions";

/// The annotations of our leases.
pub mod annotation {
    /// Claim: the services whose addresses it governs, as `namespace/name`, separated by commas.
    pub const SERVICES: &str = "leasehold.dev/services";
    /// Claim: the uids of these services, in their order: one that is deleted and created anew under the
    /// same name is another.
    pub const SERVICE_UIDS: &str = "leasehold.dev/service-uids";
    /// Claim: the addresses, separated by commas.
    pub const ADDRESSES: &str = "leasehold.dev/addresses";
    /// Claim: the pool that they are from, as the services say it.
    pub const POOL: &str = crate::service::ALLOCATED_FROM;
    /// Claim: those of the addresses that the operator takes from its services, separated by commas: the
    /// holder gives them up. What merely vanishes from a service is not meant.
    pub const WITHDRAWN: &str = "leasehold.dev/withdrawn-addresses";
    /// Claim: the interface that carries the addresses on the holder.
    pub const INTERFACE: &str = "leasehold.dev/interface";
    /// Claim: the MAC address of that interface.
    pub const MAC: &str = "leasehold.dev/mac";
    /// Claim: the session under which it is held, as `<uid>/<transitions>`.
    pub const SESSION: &str = "leasehold.dev/session";
    /// Claim and session: why it last changed, for people.
    pub const CAUSE: &str = "leasehold.dev/cause";
    /// Claim: to whom the holder hands over, as `<node> <session> <transitions of the claim>`.
    pub const SUCCESSOR: &str = "leasehold.dev/successor";
    /// Claim: how long the last change took, from its first sign until the addresses were announced, as
    /// `118ms`; written with the next refresh.
    pub const TOOK: &str = "leasehold.dev/took";
    /// Claim: the node to which the holder is to hand over; written by people (`kubectl leasehold
    /// move`), removed by the holder when it is done or cannot be.
    pub const MOVE_TO: &str = "leasehold.dev/move-to";
    /// Session: `true` while the node is to own nothing; written and removed by people (`kubectl
    /// leasehold drain`).
    pub const DRAIN: &str = "leasehold.dev/drain";
    /// Session: addresses of services that hosts announced that are no speakers, and their MAC addresses,
    /// as `<address> <MAC>` separated by commas: those that were heard in the last ten minutes.
    pub const FOREIGN: &str = "leasehold.dev/foreign-announcers";
    /// Session: the nodes that own addresses and do not answer this one as they would have to answer clients,
    /// separated by commas.
    pub const UNANSWERING: &str = "leasehold.dev/unanswering-owners";
    /// Session: `true` where the speaker announces although its Node has the label
    /// `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub const IGNORES_EXCLUDE_LABEL: &str = "leasehold.dev/ignores-exclude-label";
    /// Session, and the operator's election lease: what is logged instead of what the process was started
    /// with, as tracing filters; written and removed by people.
    pub const LOG: &str = "leasehold.dev/log";
    /// Session that was fenced: which sign of life was missing, `wire` or `lease`, and for how long,
    /// as `wire 83ms`.
    pub const SILENCE: &str = "leasehold.dev/silence";
    /// Session: which boot of which machine, as `<machine id>/<boot id>`.
    pub const INCARNATION: &str = "leasehold.dev/incarnation";
    /// Session: the node's interfaces that can announce, with MAC and addresses, as JSON.
    pub const INTERFACES: &str = "leasehold.dev/interfaces";
    /// Session: the MAC addresses of such interfaces whose link is down, separated by commas.
    pub const LINKS_DOWN: &str = "leasehold.dev/links-down";
    /// Session: `silent` while the node's kube-proxy, which answered before, does not: it takes only what no
    /// other node can.
    pub const SERVICE_PROXY: &str = "leasehold.dev/service-proxy";
    /// Session: `true` while the speaker restarts and its addresses are to stay.
    pub const RESTARTING: &str = "leasehold.dev/restarting";
    /// Session: how often the node was fenced lately. From three on it takes orphans after all others;
    /// remove it and it takes them as any other.
    pub const FENCES: &str = "leasehold.dev/fences";
}

/// A lease as the API server stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// Its name.
    pub name: LeaseName,
    /// Differs for each object that ever bore the name.
    pub uid: Arc<str>,
    /// Differs for each state of the object. Opaque: compared for equality only.
    pub resource_version: Arc<str>,
    /// The time at which the present holder acquired it, by the holder's wall clock: for people, never for
    /// decisions.
    pub acquired: Option<Timestamp>,
    /// The record.
    pub record: T,
}

/// The content of a Lease of ours: [`Session`] or [`Claim`].
pub trait Record: Sized {
    /// Reads the record of a lease. What cannot be read counts as absent.
    fn read(spec: &LeaseSpec, annotations: &BTreeMap<String, String>) -> Self;
    /// The fields that stand in the spec of the Lease.
    fn spec(&self) -> Spec<'_>;
    /// The other fields, as annotations.
    fn annotations(&self) -> BTreeMap<String, String>;

    /// The holder of the Lease.
    fn holder(&self) -> Option<&NodeName> {
        self.spec().holder
    }

    /// The number of changes of ownership.
    fn transitions(&self) -> i32 {
        self.spec().transitions
    }

    /// The time after a renewal during which the Lease counts as held, in seconds.
    fn duration_seconds(&self) -> i32 {
        self.spec().duration_seconds
    }
}

/// The fields of a record that stand in the spec of its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// See [`Record::holder`].
    pub holder: Option<&'a NodeName>,
    /// See [`Record::transitions`].
    pub transitions: i32,
    /// See [`Record::duration_seconds`].
    pub duration_seconds: i32,
}

impl<T: Record> Stored<T> {
    /// Reads a lease from the API server; `None` where name, uid or version are missing, which the
    /// API server never sends.
    pub fn from_lease(lease: &Lease) -> Option<Self> {
        let none = LeaseSpec::default();
        let spec = lease.spec.as_ref().unwrap_or(&none);
        let empty = BTreeMap::new();
        let annotations = lease.metadata.annotations.as_ref().unwrap_or(&empty);
        Some(Self {
            name: lease.metadata.name.as_deref()?.parse().ok()?,
            uid: lease.metadata.uid.as_deref()?.into(),
            resource_version: lease.metadata.resource_version.as_deref()?.into(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            record: T::read(spec, annotations),
        })
    }

    /// The lease to replace this one, written at wall time `now`. It carries uid and version, so
    /// that it is refused when the object was changed, deleted or created anew since it was read.
    pub fn replace_with(&self, record: &T, namespace: &str, now: Timestamp) -> Lease {
        let same_tenure = record.transitions() == self.record.transitions();
        let acquired = self.acquired.filter(|_| same_tenure).unwrap_or(now);
        let mut lease = lease(&self.name, record, namespace, acquired, now);
        lease.metadata.uid = Some(self.uid.to_string());
        lease.metadata.resource_version = Some(self.resource_version.to_string());
        lease
    }
}

/// The lease to create under `name`, written at wall time `now`.
pub fn new_lease<T: Record>(
    name: &LeaseName,
    record: &T,
    namespace: &str,
    now: Timestamp,
) -> Lease {
    lease(name, record, namespace, now, now)
}

fn lease<T: Record>(
    name: &LeaseName,
    record: &T,
    namespace: &str,
    acquired: Timestamp,
    renewed: Timestamp,
) -> Lease {
    let Spec { holder, transitions, duration_seconds } = record.spec();
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_string()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(record.annotations()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: holder.map(ToString::to_string),
            lease_duration_seconds: Some(duration_seconds),
            lease_transitions: Some(transitions),
            acquire_time: holder.map(|_| MicroTime(acquired)),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

fn read_holder(spec: &LeaseSpec) -> Option<NodeName> {
    spec.holder_identity.as_deref().and_then(|name| name.parse().ok())
}

/// A duration as annotations have it, in whole milliseconds: `118ms`.
pub fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn read_millis(text: &str) -> Option<Duration> {
    text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::AddressSet;

    fn claim() -> Claim {
        Claim {
            holder: Some("node-1".parse().unwrap()),
            transitions: 3,
            duration_seconds: 5,
            services: vec!["web/shop".to_owned()],
            uids: vec!["8c5e".to_owned()],
            addresses: AddressSet::from([
                "192.0.2.1".parse().unwrap(),
                "2001:db8::1".parse().unwrap(),
            ]),
            pool: Some("lan".to_owned()),
            withdrawn: AddressSet::from(["2001:db8::1".parse().unwrap()]),
            interface: Some("eth0".parse().unwrap()),
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            session: Some("6f1c/7".parse().unwrap()),
            cause: "new service".to_owned(),
            successor: Some(Successor {
                node: "node-2".parse().unwrap(),
                session: "77aa/2".parse().unwrap(),
                transitions: 3,
            }),
            took: Some(Duration::from_millis(118)),
            move_to: Some("node-3".parse().unwrap()),
        }
    }

    fn session() -> Session {
        Session {
            holder: Some("node-1".parse().unwrap()),
            transitions: 7,
            duration_seconds: 5,
            incarnation: Some(Incarnation::new("machine", "boot")),
            interfaces: vec![SessionInterface {
                name: "eth0".parse().unwrap(),
                mac: "02:00:00:00:00:01".parse().unwrap(),
                mtu: Some(9000),
                addresses: vec!["192.0.2.250/24".parse().unwrap()],
                link_local: Some("fe80::1".parse().unwrap()),
                default_routes: DefaultRoutes { v4: true, v6: false },
                detours: Detours {
                    bypassed: vec!["192.0.2.0/24".parse().unwrap()],
                    unanswered: vec!["192.0.2.0/24".parse().unwrap()],
                },
                only_if_named: false,
            }],
            links_down: vec!["02:00:00:00:00:02".parse().unwrap()],
            restarting: true,
            proxy_silent: true,
            fences: 2,
            drain: true,
            ignores_exclude_label: true,
            log: Some("debug".to_owned()),
            foreign: vec![
                ("192.0.2.1".parse().unwrap(), "02:00:00:00:00:03".parse().unwrap()),
                ("2001:db8::1".parse().unwrap(), "02:00:00:00:00:04".parse().unwrap()),
            ],
            unanswering: ["node-2".parse().unwrap(), "node-3".parse().unwrap()].into(),
            silence: Some(Silenced { evidence: Evidence::Wire, lasted: Duration::from_millis(83) }),
            cause: "restarting".to_owned(),
        }
    }

    fn stored<T: Record>(record: &T) -> Stored<T> {
        let mut lease = new_lease(&"a.b".parse().unwrap(), record, "ns", Timestamp::UNIX_EPOCH);
        lease.metadata.uid = Some("uid".to_owned());
        lease.metadata.resource_version = Some("12".to_owned());
        Stored::from_lease(&lease).unwrap()
    }

    #[test]
    fn records_read_back_as_written() {
        assert_eq!(stored(&claim()).record, claim());
        assert_eq!(stored(&session()).record, session());
        let released = Claim { holder: None, session: None, successor: None, ..claim() };
        assert_eq!(stored(&released).record, released);
    }

    #[test]
    fn the_time_of_acquisition_is_kept_within_a_tenure() {
        let old = stored(&session());
        let later = Timestamp::from_second(90).unwrap();
        let renewed = old.replace_with(&session(), "ns", later);
        assert_eq!(
            renewed.spec.as_ref().unwrap().acquire_time.as_ref().unwrap().0,
            Timestamp::UNIX_EPOCH
        );
        assert_eq!(renewed.spec.unwrap().renew_time.unwrap().0, later);
        assert_eq!(renewed.metadata.uid.as_deref(), Some("uid"));
        let next = Session { transitions: 8, ..session() };
        let acquired = old.replace_with(&next, "ns", later).spec.unwrap().acquire_time.unwrap();
        assert_eq!(acquired.0, later);
    }

    #[test]
    fn an_edited_lease_reads_as_far_as_it_can_be_read() {
        let mut lease = new_lease(&"a.b".parse().unwrap(), &claim(), "ns", Timestamp::UNIX_EPOCH);
        lease.metadata.uid = Some("uid".to_owned());
        lease.metadata.resource_version = Some("12".to_owned());
        let annotations = lease.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotation::SESSION.to_owned(), "nonsense".to_owned());
        annotations.insert(annotation::ADDRESSES.to_owned(), "192.0.2.1,oops".to_owned());
        lease.spec.as_mut().unwrap().holder_identity = Some("Not A Node".to_owned());
        let read = Stored::<Claim>::from_lease(&lease).unwrap().record;
        assert_eq!(read.session, None);
        assert_eq!(read.holder, None);
        assert_eq!(read.addresses.len(), 1);
    }
}
