//! The names by which leases, sessions and boots are told apart.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::names::{NameError, NodeName};

/// The name of a lease: a DNS subdomain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseName(Arc<str>);

impl LeaseName {
    /// The claim of a service: `<namespace>.<service>`. Neither part can hold a dot.
    pub fn claim(namespace: &str, service: &str) -> Self {
        Self(format!("{namespace}.{service}").into())
    }

    /// The session of a node's speaker: the node's name.
    pub fn session(node: &NodeName) -> Self {
        Self(node.shared())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LeaseName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        // Leases and Nodes follow the same rule.
        name.parse::<NodeName>().map(|name| Self(name.shared()))
    }
}

impl TryFrom<String> for LeaseName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        name.parse()
    }
}

impl From<LeaseName> for String {
    fn from(name: LeaseName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl Borrow<str> for LeaseName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One tenure of a session lease. Raising the number of transitions, or creating the object anew,
/// makes another session of it, for good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// The uid of the session lease.
    pub uid: String,
    /// Its `leaseTransitions`.
    pub transitions: i32,
}

/// A text that is not `<uid>/<transitions>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a session: it is written <uid>/<transitions>")]
pub struct SessionIdError(String);

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let error = || SessionIdError(text.to_owned());
        let (uid, transitions) = text.split_once('/').ok_or_else(error)?;
        let transitions = transitions.parse().map_err(|_| error())?;
        if uid.is_empty() {
            return Err(error());
        }
        Ok(Self { uid: uid.to_owned(), transitions })
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.transitions)
    }
}

/// One boot of one machine: tells a process that was restarted from another host with the same
/// node name, and from the same host after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(String);

impl Incarnation {
    /// From `/etc/machine-id` and `/proc/sys/kernel/random/boot_id`.
    pub fn new(machine_id: &str, boot_id: &str) -> Self {
        Self(format!("{}/{}", machine_id.trim(), boot_id.trim()))
    }

    /// From its text.
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
