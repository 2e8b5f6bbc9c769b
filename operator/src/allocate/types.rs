//! Plain values that several rooms of the allocation share.

use std::fmt;
use std::net::IpAddr;

/// Namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Creation time of an object, in milliseconds since the epoch, by the API server's clock.
pub type Created = i64;

/// Policy for the second address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// All families of the service, or nothing: `SingleStack` and `RequireDualStack`.
    All,
    /// One family is enough: `PreferDualStack`.
    Any,
}

/// A value that a service requests, with the place of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<T> {
    /// The requested value.
    pub what: T,
    /// The field or annotation that requests it.
    pub place: &'static str,
}

/// The addresses and the pool that a service requests; both optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Exactly these addresses.
    pub addresses: Option<Asked<Vec<IpAddr>>>,
    /// Any addresses of this pool.
    pub pool: Option<Asked<String>>,
}
