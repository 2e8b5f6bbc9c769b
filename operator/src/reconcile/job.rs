//! Jobs: the writes and deletions that are due.

use std::sync::Arc;

use leasehold_crds::lease::{Claim, LeaseName, SessionId, Stored};

use super::pool::PoolWrite;
use super::service::write::ServiceWrite;
use crate::allocate::ServiceKey;

/// The object that a job is about. No two jobs about one target are ever under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The status of a Service.
    Service(ServiceKey),
    /// The status of a pool.
    Pool(String),
    /// The status of a policy.
    Policy(String),
    /// A claim.
    Claim(LeaseName),
    /// A session whose Node is gone.
    Session(LeaseName),
}

impl Target {
    /// The kind, for logs and metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Service(_) => "Service",
            Self::Pool(_) => "IPAddressPool",
            Self::Policy(_) => "AnnouncementPolicy",
            Self::Claim(_) => "Claim",
            Self::Session(_) => "Session",
        }
    }

    /// The name, for logs.
    pub fn name(&self) -> String {
        match self {
            Self::Service(key) => key.to_string(),
            Self::Pool(name) | Self::Policy(name) => name.clone(),
            Self::Claim(name) | Self::Session(name) => name.to_string(),
        }
    }
}

/// One object in one state: a deletion deletes no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The uid.
    pub uid: Arc<str>,
    /// The resource version.
    pub version: u64,
}

/// One write or deletion.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Write the status and the annotations of a Service.
    Service {
        /// The Service.
        key: ServiceKey,
        /// The version that the write replaces.
        version: u64,
        /// The write.
        write: Box<ServiceWrite>,
    },
    /// Write the status of a pool.
    Pool(String, Box<PoolWrite>),
    /// Write the status of a policy.
    Policy(String, serde_json::Value),
    /// Write the list of a claim.
    List(LeaseName, Box<ListWrite>),
    /// Delete a claim that lists nothing.
    DeleteClaim(LeaseName, Revision),
    /// Delete a session if its Node does not exist.
    DeleteSession(LeaseName, Revision),
}

impl Job {
    /// Whether it changes nothing but the condition about announcement of a Service.
    pub fn only_reports(&self) -> bool {
        matches!(self, Self::Service { write, .. } if write.only_reports)
    }

    /// The object that it is about.
    pub fn target(&self) -> Target {
        match self {
            Self::Service { key, .. } => Target::Service(key.clone()),
            Self::Pool(name, _) => Target::Pool(name.clone()),
            Self::Policy(name, _) => Target::Policy(name.clone()),
            Self::List(name, _) | Self::DeleteClaim(name, _) => Target::Claim(name.clone()),
            Self::DeleteSession(name, _) => Target::Session(name.clone()),
        }
    }
}

/// The write of the list of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWrite {
    /// The lease as last seen; none for a new one.
    pub base: Option<Stored<Claim>>,
    /// Its content afterwards.
    pub record: Claim,
    /// The session under which the claim is held. It must be over, by a read that is not from a cache, before
    /// an address is taken off.
    pub over: Option<(LeaseName, SessionId)>,
}
