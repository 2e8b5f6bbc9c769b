//! The names by which leases, sessions and boots are told apart.

use std::borrow::Borrow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::names::{NameError, NodeName};

/// The suffix of the names of claims that are named after an address.
const ADDRESS_CLAIM: &str = ".address.leasehold";

/// The name of a lease: a DNS subdomain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseName(Arc<str>);

impl LeaseName {
    /// The claim of a service: `<namespace>.<service>`. Neither part can hold a dot.
    pub fn claim(namespace: &str, service: &str) -> Self {
        Self(format!("{namespace}.{service}").into())
    }

    /// The claim that is named after an address, `192-0-2-7.address.leasehold`, for a service whose
    /// own claim governs addresses of others: no claim of a service has three parts.
    pub fn address_claim(ip: IpAddr) -> Self {
        let label = match ip {
            IpAddr::V4(ip) => ip.octets().map(|octet| octet.to_string()).join("-"),
            // All eight groups: a label neither begins nor ends with a dash.
            IpAddr::V6(ip) => ip.segments().map(|group| format!("{group:x}")).join("-"),
        };
        Self(format!("{label}{ADDRESS_CLAIM}").into())
    }

    /// The address that a claim is named after.
    pub fn address(&self) -> Option<IpAddr> {
        let label = self.0.strip_suffix(ADDRESS_CLAIM)?;
        let separator = if label.matches('-').count() == 3 { "." } else { ":" };
        label.replace('-', separator).parse().ok()
    }

    /// Namespace and name of the service that a claim is named after.
    pub fn service(&self) -> Option<(&str, &str)> {
        self.0.split_once('.').filter(|(_, name)| !name.contains('.'))
    }

    /// Whether it is the name of a claim: after a service, or after an address.
    pub fn is_claim(&self) -> bool {
        let label = self.0.strip_suffix(ADDRESS_CLAIM);
        self.service().is_some() || label.is_some_and(|label| !label.contains('.'))
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
    pub uid: Arc<str>,
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
        Ok(Self { uid: uid.into(), transitions })
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.transitions)
    }
}

/// One boot of one host: tells a process that was restarted from another host with the same
/// node name, and from the same host after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(String);

impl Incarnation {
    /// From an id of the host, without a slash, and `/proc/sys/kernel/random/boot_id`.
    pub fn new(host_id: &str, boot_id: &str) -> Self {
        Self(format!("{}/{}", host_id.trim(), boot_id.trim()))
    }

    /// The id of the host, where the boot is this one.
    pub fn host_at(&self, boot_id: &str) -> Option<String> {
        let (host, boot) = self.0.split_once('/')?;
        (boot == boot_id && !host.is_empty()).then(|| host.to_owned())
    }

    /// From its text.
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_named_after_a_service_or_after_an_address() {
        let shop = LeaseName::claim("web", "shop");
        assert_eq!(shop.as_str(), "web.shop");
        assert_eq!((shop.service(), shop.address()), (Some(("web", "shop")), None));
        assert!(shop.is_claim());
        for (ip, name) in [
            ("192.0.2.7", "192-0-2-7.address.leasehold"),
            ("2001:db8::", "2001-db8-0-0-0-0-0-0.address.leasehold"),
            ("::1", "0-0-0-0-0-0-0-1.address.leasehold"),
        ] {
            let claim = LeaseName::address_claim(ip.parse().unwrap());
            assert_eq!(claim.as_str(), name);
            assert_eq!(name.parse(), Ok(claim.clone()));
            assert!(claim.is_claim() && claim.service().is_none(), "{name}");
            assert_eq!(claim.address(), Some(ip.parse().unwrap()));
        }
        for name in ["node-1", "a.b.c", "a.b.address.leasehold"] {
            assert!(!name.parse::<LeaseName>().unwrap().is_claim(), "{name}");
        }
    }
}
