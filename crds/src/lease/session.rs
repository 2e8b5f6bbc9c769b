//! What a session lease says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use pnet_base::MacAddr;

use super::{Incarnation, Record, SessionInterface, annotation, millis, read_holder, read_millis};
use crate::names::NodeName;

/// What a session says of a service proxy that does not answer.
const SILENT: &str = "silent";

/// A speaker's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing of the node")]
pub struct Session {
    /// The node; none while the session is over (released or fenced).
    pub holder: Option<NodeName>,
    /// Acquiring, releasing and fencing each add one; renewing does not.
    pub transitions: i32,
    /// L: for how long the session may go without renewal, in seconds.
    pub duration_seconds: i32,
    /// Which boot of which machine holds it.
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
    /// How often the node was fenced lately: each fence adds one, and time during which it is not
    /// fenced takes one off after the other.
    pub fences: u32,
    /// The node is to own nothing, as people asked.
    pub drain: bool,
    /// The speaker announces although its Node has the label that excludes it from load balancing.
    pub ignores_exclude_label: bool,
    /// What the speaker logs instead of what it was started with, as people asked: tracing filters.
    pub log: Option<String>,
    /// Addresses of services that hosts announced that are no speakers, and their MAC addresses: those
    /// that were heard in the last ten minutes.
    pub foreign: Vec<(IpAddr, MacAddr)>,
    /// The nodes that own addresses and answer nothing that this node asks in its own name, as clients ask,
    /// although they answer what it asks from 0.0.0.0.
    pub unanswering: BTreeSet<NodeName>,
    /// Why it is over, where another ended it because its holder gave no sign of life.
    pub silence: Option<Silenced>,
    /// Why the session last changed hands, for people.
    pub cause: String,
}

/// Without which sign of life the holder of a session was when it was fenced, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silenced {
    /// Which sign was missing.
    pub evidence: Evidence,
    /// For how long when the fence was sent: from the first poll without an answer, or from the last
    /// renewal.
    pub lasted: Duration,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Answers to ARP requests and Neighbor Solicitations.
    Wire,
    /// Renewals of the session.
    Lease,
}

impl fmt::Display for Silenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = match self.evidence {
            Evidence::Wire => "wire",
            Evidence::Lease => "lease",
        };
        write!(f, "{evidence} {}", millis(self.lasted))
    }
}

impl FromStr for Silenced {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (evidence, lasted) = text.split_once(' ').ok_or(())?;
        let evidence = match evidence {
            "wire" => Evidence::Wire,
            "lease" => Evidence::Lease,
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
}

impl Record for Session {
    fn read(spec: &LeaseSpec, annotations: &BTreeMap<String, String>) -> Self {
        let text = |key| annotations.get(key).map(String::as_str);
        Self {
            holder: read_holder(spec),
            transitions: spec.lease_transitions.unwrap_or(0),
            duration_seconds: spec.lease_duration_seconds.unwrap_or(0),
            incarnation: text(annotation::INCARNATION).map(Incarnation::from_text),
            interfaces: text(annotation::INTERFACES)
                .and_then(|json| serde_json::from_str(json).ok())
                .unwrap_or_default(),
            links_down: text(annotation::LINKS_DOWN)
                .into_iter()
                .flat_map(|list| list.split(','))
                .filter_map(|mac| mac.parse().ok())
                .collect(),
            restarting: text(annotation::RESTARTING) == Some("true"),
            proxy_silent: text(annotation::SERVICE_PROXY) == Some(SILENT),
            fences: text(annotation::FENCES).and_then(|count| count.parse().ok()).unwrap_or(0),
            drain: text(annotation::DRAIN) == Some("true"),
            ignores_exclude_label: text(annotation::IGNORES_EXCLUDE_LABEL) == Some("true"),
            foreign: text(annotation::FOREIGN)
                .into_iter()
                .flat_map(|list| list.split(','))
                .filter_map(|entry| entry.split_once(' '))
                .filter_map(|(ip, mac)| Some((ip.parse().ok()?, mac.parse().ok()?)))
                .collect(),
            unanswering: text(annotation::UNANSWERING)
                .into_iter()
                .flat_map(|list| list.split(','))
                .filter_map(|node| node.parse().ok())
                .collect(),
            log: text(annotation::LOG).map(str::to_owned),
            silence: text(annotation::SILENCE).and_then(|silence| silence.parse().ok()),
            cause: text(annotation::CAUSE).unwrap_or_default().to_owned(),
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
        let mut set = |key: &str, value: String| annotations.insert(key.to_owned(), value);
        set(annotation::CAUSE, self.cause.clone());
        if let Some(incarnation) = &self.incarnation {
            set(annotation::INCARNATION, incarnation.as_str().to_owned());
        }
        // Names, MAC addresses and strings always serialise.
        set(annotation::INTERFACES, serde_json::to_string(&self.interfaces).unwrap_or_default());
        if !self.links_down.is_empty() {
            let macs: Vec<String> = self.links_down.iter().map(ToString::to_string).collect();
            set(annotation::LINKS_DOWN, macs.join(","));
        }
        if self.restarting {
            set(annotation::RESTARTING, "true".to_owned());
        }
        if self.proxy_silent {
            set(annotation::SERVICE_PROXY, SILENT.to_owned());
        }
        if self.fences > 0 {
            set(annotation::FENCES, self.fences.to_string());
        }
        if self.drain {
            set(annotation::DRAIN, "true".to_owned());
        }
        if self.ignores_exclude_label {
            set(annotation::IGNORES_EXCLUDE_LABEL, "true".to_owned());
        }
        if !self.foreign.is_empty() {
            let entries = self.foreign.iter().map(|(ip, mac)| format!("{ip} {mac}"));
            set(annotation::FOREIGN, entries.collect::<Vec<_>>().join(","));
        }
        if !self.unanswering.is_empty() {
            let nodes: Vec<&str> = self.unanswering.iter().map(NodeName::as_str).collect();
            set(annotation::UNANSWERING, nodes.join(","));
        }
        if let Some(log) = &self.log {
            set(annotation::LOG, log.clone());
        }
        if let Some(silence) = &self.silence {
            set(annotation::SILENCE, silence.to_string());
        }
        annotations
    }
}
