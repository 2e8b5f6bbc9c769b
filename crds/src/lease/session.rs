//! The record of a session Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use pnet_base::MacAddr;

use super::text::{Reader, Writer};
use super::{
    Incarnation, Record, SessionInterface, Spec, annotation, millis, read_holder, read_millis,
};
use crate::names::NodeName;

/// The value of the annotation for a service proxy that does not answer.
const SILENT: &str = "silent";

/// A speaker's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing of the node")]
pub struct Session {
    /// The node; none while the session is over (released or fenced).
    pub holder: Option<NodeName>,
    /// Acquiring, releasing and fencing each add one; renewing does not.
    pub transitions: i32,
    /// L: the duration of the session without renewal, in seconds.
    pub duration_seconds: i32,
    /// The boot of the machine that holds it.
    pub incarnation: Option<Incarnation>,
    /// The node's interfaces that can announce.
    pub interfaces: Vec<SessionInterface>,
    /// The MAC addresses of those that could if their link were up: when it is, the node is known by
    /// them, also to who cannot read this then.
    pub links_down: Vec<MacAddr>,
    /// The speaker restarts and its addresses are to stay.
    pub restarting: bool,
    /// The node's service proxy, which answered before, does not: what changes of Services and endpoints is
    /// not followed there.
    pub proxy_silent: bool,
    /// The state of the spreading of packets on the node, where something is wrong.
    pub data_path: Option<DataPathState>,
    /// The number of open connections through addresses that the node has handed over; none: there are no such
    /// addresses, or nobody has counted yet.
    pub forwarded_connections: Option<u64>,
    /// The number of recent fences of the node: each fence adds one, and time without a fence takes one off after
    /// the other.
    pub fences: u32,
    /// The node is asked to own nothing (`kubectl leasehold drain`).
    pub drain: bool,
    /// The speaker announces although its Node has the label that excludes it from load balancing.
    pub ignores_exclude_label: bool,
    /// The log filter that replaces the one that the speaker was started with, in the syntax of tracing.
    pub log: Option<String>,
    /// Addresses of services that hosts announced that are no speakers, and their MAC addresses: those
    /// that were heard in the last ten minutes.
    pub foreign: Vec<(IpAddr, MacAddr)>,
    /// The nodes that own addresses and answer nothing that this node asks in its own name, as clients ask,
    /// although they answer what it asks from 0.0.0.0.
    pub unanswering: BTreeSet<NodeName>,
    /// The missing sign of life, if another speaker has ended the session because of it.
    pub silence: Option<Silenced>,
    /// The cause of the last change of the holder, for people.
    pub cause: String,
}

/// The state of the spreading of packets on a node where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataPathState {
    /// Packets take the slow path.
    Slow,
    /// The network drops packets that the node sends with the addresses of others.
    Filtered,
    /// The kernel refuses the rules.
    Failing,
    /// A CNI has replaced kube-proxy, and handles packets before the rules do.
    Replaced,
}

impl DataPathState {
    const ALL: [Self; 4] = [Self::Slow, Self::Filtered, Self::Failing, Self::Replaced];

    /// Whether packets can be spread by the node, and over it.
    pub const fn spreads(self) -> bool {
        matches!(self, Self::Slow)
    }

    /// The value of the annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Filtered => "filtered",
            Self::Failing => "failing",
            Self::Replaced => "replaced",
        }
    }
}

impl fmt::Display for DataPathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DataPathState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

/// The sign of life that the holder of a session lacked when it was fenced, and the time without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silenced {
    /// The sign that was missing.
    pub evidence: EvidenceKind,
    /// The time without it when the fence was sent: from the first poll without an answer, or from the last
    /// renewal.
    pub lasted: Duration,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceKind {
    /// Answers to ARP requests and Neighbor Solicitations.
    Wire,
    /// Renewals of the session.
    Lease,
}

impl fmt::Display for Silenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = match self.evidence {
            EvidenceKind::Wire => "wire",
            EvidenceKind::Lease => "lease",
        };
        write!(f, "{evidence} {}", millis(self.lasted))
    }
}

impl FromStr for Silenced {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (evidence, lasted) = text.split_once(' ').ok_or(())?;
        let evidence = match evidence {
            "wire" => EvidenceKind::Wire,
            "lease" => EvidenceKind::Lease,
            _ => return Err(()),
        };
        Ok(Self { evidence, lasted: read_millis(lasted).ok_or(())? })
    }
}

impl Session {
    /// The node's own addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let networks = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        networks.map(IpNet::addr)
    }

    /// Whether packets can be spread by the node, and over it.
    pub fn spreads(&self) -> bool {
        self.data_path.is_none_or(DataPathState::spreads)
    }
}

impl Record for Session {
    fn read(spec: &LeaseSpec, annotations: &BTreeMap<String, String>) -> Self {
        let read = Reader(annotations);
        let foreign = |entry: &str| {
            let (ip, mac) = entry.split_once(' ')?;
            Some((ip.parse().ok()?, mac.parse().ok()?))
        };
        Self {
            holder: read_holder(spec),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
            incarnation: read.text(annotation::INCARNATION).map(Incarnation::from_text),
            interfaces: read
                .text(annotation::INTERFACES)
                .and_then(|json| serde_json::from_str(json).ok())
                .unwrap_or_default(),
            links_down: read.list(annotation::LINKS_DOWN),
            restarting: read.flag(annotation::RESTARTING),
            proxy_silent: read.text(annotation::SERVICE_PROXY) == Some(SILENT),
            data_path: read.value(annotation::DATA_PATH),
            forwarded_connections: read.value(annotation::FORWARDED_CONNECTIONS),
            fences: read.value(annotation::FENCES).unwrap_or(0),
            drain: read.flag(annotation::DRAIN),
            ignores_exclude_label: read.flag(annotation::IGNORES_EXCLUDE_LABEL),
            foreign: read.items(annotation::FOREIGN).filter_map(foreign).collect(),
            unanswering: read.list(annotation::UNANSWERING),
            log: read.text(annotation::LOG).map(str::to_owned),
            silence: read.value(annotation::SILENCE),
            cause: read.text(annotation::CAUSE).unwrap_or_default().to_owned(),
        }
    }

    fn decides_as(&self, other: &Self) -> bool {
        let but_for_people =
            || Self { forwarded_connections: other.forwarded_connections, ..self.clone() };
        self == other || but_for_people() == *other
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
        write.text(annotation::CAUSE, self.cause.as_str());
        write.value(annotation::INCARNATION, self.incarnation.as_ref().map(Incarnation::as_str));
        // Names, MAC addresses and strings always serialise.
        let interfaces = serde_json::to_string(&self.interfaces).unwrap_or_default();
        write.text(annotation::INTERFACES, interfaces);
        write.list(annotation::LINKS_DOWN, &self.links_down);
        write.flag(annotation::RESTARTING, self.restarting);
        write.value(annotation::SERVICE_PROXY, self.proxy_silent.then_some(SILENT));
        write.value(annotation::DATA_PATH, self.data_path);
        write.value(annotation::FORWARDED_CONNECTIONS, self.forwarded_connections);
        write.value(annotation::FENCES, Some(self.fences).filter(|fences| *fences > 0));
        write.flag(annotation::DRAIN, self.drain);
        write.flag(annotation::IGNORES_EXCLUDE_LABEL, self.ignores_exclude_label);
        let foreign = self.foreign.iter().map(|(ip, mac)| format!("{ip} {mac}"));
        write.list(annotation::FOREIGN, foreign);
        write.list(annotation::UNANSWERING, &self.unanswering);
        write.value(annotation::LOG, self.log.as_ref());
        write.value(annotation::SILENCE, self.silence.as_ref());
        write.finish()
    }
}
