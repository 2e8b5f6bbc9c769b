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
mod members;
mod reason;
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
pub use members::{CHANGES, MAX_WEIGHT, MemberChange, Members};
pub use reason::{CARRIER_LOST, MoveReason, Reason};
pub use session::{DataPathState, EvidenceKind, Session, Silenced};

use crate::names::NodeName;

/// The namespace of claims unless configured otherwise.
pub const CLAIM_NAMESPACE: &str = "leasehold-system";
/// The namespace of sessions unless configured otherwise.
pub const SESSION_NAMESPACE: &str = "leasehold-sessions";

/// The annotations of our leases.
pub mod annotation {
    use crate::annotation::entries;

    entries! {
        ANNOTATIONS:
        SERVICES = "leasehold.dev/services", on [Claim] by "operator",
            "`NAMESPACE/NAME`, comma-separated",
            "The Services of the claim.";
        SERVICE_UIDS = "leasehold.dev/service-uids", on [Claim] by "operator",
            "UIDs, comma-separated, in the order of `leasehold.dev/services`",
            "The objects: a Service that is deleted and created again under its name is another one.";
        ADDRESSES = "leasehold.dev/addresses", on [Claim] by "operator",
            "IP addresses, comma-separated",
            "The addresses of the claim. No address is on two claims.";
        POOL = crate::service::ALLOCATED_FROM, on [Claim] by "operator",
            "name of an IPAddressPool",
            "The pool of the addresses.";
        WITHDRAWN = "leasehold.dev/withdrawn-addresses", on [Claim] by "operator",
            "IP addresses, comma-separated",
            "The addresses that the operator takes back from the Services: the owner releases them. An \
             address that only disappears from a Service stays.";
        INTERFACE = "leasehold.dev/interface", on [Claim] by "owner",
            "name of an interface",
            "The interface of the owner that carries the addresses.";
        MAC = "leasehold.dev/mac", on [Claim] by "owner",
            "MAC address",
            "The MAC address of that interface.";
        SESSION = "leasehold.dev/session", on [Claim] by "owner",
            "`UID/TRANSITIONS` of a session Lease",
            "The session of the owner. The claim is valid while that session has a holder under this UID \
             and number of transitions.";
        CAUSE = "leasehold.dev/cause", on [Claim, Session] by "speaker; on a new claim the operator",
            "text",
            "The cause of the last change of owner, or of the end of a session.";
        SUCCESSOR = "leasehold.dev/successor", on [Claim] by "owner",
            "`NODE SESSION TRANSITIONS`",
            "The node to which the owner hands over, its session, and the transitions of the claim for \
             which this holds.";
        FORMER_OWNERS = "leasehold.dev/former-owners", on [Claim] by "owner",
            "names of nodes, comma-separated",
            "The owners before, the last one first. The owner, and each of them, forwards packets of \
             connections that it does not know to the next. Removed `connectionHandover` after the last move.";
        MEMBERS = "leasehold.dev/members", on [Claim] by "owner",
            "`NODE` or `NODE=WEIGHT`, comma-separated; without a weight it is 1",
            "The nodes that the owner spreads packets over (`dataPath: Spread`).";
        FORMER_MEMBERS = "leasehold.dev/former-members", on [Claim] by "owner",
            "changes, comma-separated; each is a list of `NODE=WEIGHT`, separated by spaces",
            "The weights before each of the last changes of `leasehold.dev/members`, the last change first; 0: the \
             node was not among them. Nodes forward packets of connections that they do not know to the node that had \
             them before. Removed `connectionHandover` after the last change.";
        TOOK = "leasehold.dev/took", on [Claim] by "owner",
            "milliseconds, such as `118ms`",
            "The duration of the last change of owner, from its first sign until the new owner had announced \
             the addresses. Written with the next refresh of the claim.";
        MOVE_TO = "leasehold.dev/move-to", on [Claim] by "user (`kubectl leasehold move`)",
            "name of a node",
            "A requested move. The owner removes the annotation when the move is complete or impossible.";
        DRAIN = "leasehold.dev/drain", on [Session] by "user (`kubectl leasehold drain`, `undrain`)",
            "`true`",
            "The node hands over its addresses, and takes none until the annotation is removed.";
        FOREIGN = "leasehold.dev/foreign-announcers", on [Session] by "speaker",
            "`ADDRESS MAC`, comma-separated",
            "Addresses of Services that hosts other than speakers announced in the last ten minutes, with the \
             MAC addresses of these hosts.";
        UNANSWERING = "leasehold.dev/unanswering-owners", on [Session] by "speaker",
            "names of nodes, comma-separated",
            "The owners that answer the probes of this node, but not requests such as clients send them.";
        IGNORES_EXCLUDE_LABEL = "leasehold.dev/ignores-exclude-label", on [Session] by "speaker",
            "`true`",
            "The speaker runs with `--ignore-exclude-label`.";
        LOG = "leasehold.dev/log", on [Session, Election] by "user",
            "filter in the syntax of tracing, such as `info,leasehold=debug`",
            "The log filter that replaces `--log` while the annotation exists.";
        SILENCE = "leasehold.dev/silence", on [Session] by "speaker that fenced",
            "`wire` or `lease`, and a duration, such as `wire 83ms`",
            "On a fenced session: the missing sign of life (answers to probes, or renewals), and for how long \
             it was missing.";
        INCARNATION = "leasehold.dev/incarnation", on [Session] by "speaker",
            "`MACHINE-ID/BOOT-ID`",
            "The boot of the machine that holds the session.";
        INTERFACES = "leasehold.dev/interfaces", on [Session] by "speaker",
            "JSON list",
            "The interfaces of the node that can announce, with MAC address, MTU, subnets, and routes.";
        LINKS_DOWN = "leasehold.dev/links-down", on [Session] by "speaker",
            "MAC addresses, comma-separated",
            "The MAC addresses of such interfaces without a carrier.";
        SERVICE_PROXY = "leasehold.dev/service-proxy", on [Session] by "speaker",
            "`silent`",
            "The kube-proxy of the node has stopped answering health checks: the node takes only addresses \
             that no other node can take.";
        DATA_PATH = "leasehold.dev/data-path", on [Session] by "speaker",
            "`slow`, `filtered`, `failing` or `replaced`",
            "The state of `dataPath: Spread` on the node, where something is wrong. `slow`: the kernel has no \
             `netdev` family or no `fwd`, and packets take the slow path. `filtered`: the network drops packets that the node \
             sends with the addresses of clients or of Services. `failing`: the kernel refuses the rules. \
             `replaced`: a CNI has replaced kube-proxy. With the last three the node spreads nothing, and nothing is \
             spread over it.";
        FORWARDED_CONNECTIONS = "leasehold.dev/forwarded-connections", on [Session] by "speaker",
            "number",
            "The number of open connections through addresses that the node handed over within \
             `connectionHandover`: their present owners forward the packets to the node. Counted every few \
             seconds.";
        RESTARTING = "leasehold.dev/restarting", on [Session] by "speaker",
            "`true`",
            "The speaker restarts, and its addresses stay.";
        FENCES = "leasehold.dev/fences", on [Session] by "speaker",
            "number",
            "The number of recent fences of the node. From three on, the node takes unowned claims after all \
             others; remove the annotation to end this.";
    }
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
pub trait Record: Sized + PartialEq {
    /// Reads the record of a lease. What cannot be read counts as absent.
    fn read(spec: &LeaseSpec, annotations: &BTreeMap<String, String>) -> Self;
    /// The fields that stand in the spec of the Lease.
    fn spec(&self) -> Spec<'_>;
    /// The other fields, as annotations.
    fn annotations(&self) -> BTreeMap<String, String>;

    /// Whether both say the same to those who decide by it; what is for people alone may differ.
    fn decides_as(&self, other: &Self) -> bool {
        self == other
    }

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
    use std::collections::BTreeSet;

    use super::*;
    use crate::addresses::AddressSet;
    use crate::annotation::Bearer;

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
            former: ["node-2".parse().unwrap(), "node-4".parse().unwrap()].into(),
            members: [("node-1".parse().unwrap(), 1), ("node-2".parse().unwrap(), 3)]
                .into_iter()
                .collect(),
            former_members: ["node-2=0".parse().unwrap(), "node-1=2 node-5".parse().unwrap()]
                .into(),
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
            data_path: Some(DataPathState::Replaced),
            forwarded_connections: Some(12),
            fences: 2,
            drain: true,
            ignores_exclude_label: true,
            log: Some("debug".to_owned()),
            foreign: vec![
                ("192.0.2.1".parse().unwrap(), "02:00:00:00:00:03".parse().unwrap()),
                ("2001:db8::1".parse().unwrap(), "02:00:00:00:00:04".parse().unwrap()),
            ],
            unanswering: ["node-2".parse().unwrap(), "node-3".parse().unwrap()].into(),
            silence: Some(Silenced {
                evidence: EvidenceKind::Wire,
                lasted: Duration::from_millis(83),
            }),
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
    fn every_annotation_of_a_lease_has_an_entry() {
        for (bearer, written) in
            [(Bearer::Claim, claim().annotations()), (Bearer::Session, session().annotations())]
        {
            let described =
                annotation::ANNOTATIONS.iter().filter(|entry| entry.on.contains(&bearer));
            let described: BTreeSet<&str> = described.map(|entry| entry.key).collect();
            let written: BTreeSet<&str> = written.keys().map(String::as_str).collect();
            assert_eq!(written, described, "{bearer:?}");
        }
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
