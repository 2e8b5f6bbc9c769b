//! An interface in a session Lease.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use pnet_base::MacAddr;
use serde::{Deserialize, Serialize};

use crate::names::InterfaceName;
use crate::range::Family;

/// An interface of a node that can announce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInterface {
    /// Its name on the node.
    pub name: InterfaceName,
    /// Its MAC address.
    #[serde(with = "mac")]
    pub mac: MacAddr,
    /// The largest packet that it sends, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The node's own addresses on it, with prefix length: `192.0.2.250/24`. What is no such address says
    /// nothing.
    #[serde(with = "networks")]
    pub addresses: Vec<IpNet>,
    /// The node's link-local IPv6 address on it, where it has no other there: who hears it is on the segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_local: Option<Ipv6Addr>,
    /// The families whose default route leads through it.
    #[serde(flatten)]
    pub default_routes: DefaultRoutes,
    /// Of the subnets of its addresses, those whose hosts the node reaches by another of its links.
    #[serde(flatten)]
    pub detours: Detours,
    /// Whether it announces only what a policy names it for: a bridge for containers, a tunnel, ….
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_if_named: bool,
}

impl SessionInterface {
    /// The node's own addresses on it, that of the link among them where there is no other.
    pub fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let link_local = self.link_local.map(IpAddr::V6);
        self.addresses.iter().map(IpNet::addr).chain(link_local)
    }

    /// The subnet of an address whose hosts the node does not answer here, although it has the address.
    pub fn leaves_unanswered(&self, ip: IpAddr) -> Option<IpNet> {
        let wide = self.addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len());
        let holding = wide.filter(|net| net.contains(&ip)).max_by_key(|net| net.prefix_len())?;
        Some(holding.trunc()).filter(|subnet| self.detours.unanswered.contains(subnet))
    }
}

/// For people: its name and its addresses.
impl fmt::Display for SessionInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.addresses.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

/// Of the subnets of an interface's addresses, those whose hosts the node's routes reach by another of its
/// links: two links in one subnet, or a route that leads elsewhere. A speaker that knows nothing of them
/// does not say so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detours {
    /// All of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "networks")]
    pub bypassed: Vec<IpNet>,
    /// The bypassed subnets whose hosts the kernel does not answer on this interface: reverse path filtering is
    /// strict there (`rp_filter` 1; of the interface's value and that for all the greater one counts).
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "networks")]
    pub unanswered: Vec<IpNet>,
}

/// The families whose default route leads through an interface.
///
/// Written as `defaultRoute: true`, which by itself means both, and with `defaultRouteFamily` (`IPv4` or
/// `IPv6`) where it is one of them: a speaker that knows nothing of families reads the former.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRoutes", into = "WrittenRoutes")]
pub struct DefaultRoutes {
    /// That of IPv4.
    pub v4: bool,
    /// That of IPv6.
    pub v6: bool,
}

impl DefaultRoutes {
    /// That of neither.
    pub const NONE: Self = Self { v4: false, v6: false };
    /// Default routes of both families.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// Whether the default route of the family of `ip` is one of them.
    pub const fn lead_to(self, ip: IpAddr) -> bool {
        match Family::of(ip) {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Whether there is any.
    pub const fn any(self) -> bool {
        self.v4 || self.v6
    }
}

/// [`DefaultRoutes`] as they are written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRoutes {
    #[serde(default, skip_serializing_if = "is_false")]
    default_route: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_route_family: Option<String>,
}

const IPV4: &str = "IPv4";
const IPV6: &str = "IPv6";

impl From<WrittenRoutes> for DefaultRoutes {
    fn from(written: WrittenRoutes) -> Self {
        let is =
            |family: &str| written.default_route_family.as_deref().is_none_or(|it| it == family);
        let any = written.default_route;
        Self { v4: any && is(IPV4), v6: any && is(IPV6) }
    }
}

impl From<DefaultRoutes> for WrittenRoutes {
    fn from(routes: DefaultRoutes) -> Self {
        let family = match routes {
            DefaultRoutes { v4: true, v6: false } => Some(IPV4),
            DefaultRoutes { v4: false, v6: true } => Some(IPV6),
            DefaultRoutes::BOTH | DefaultRoutes::NONE => None,
        };
        Self { default_route: routes.any(), default_route_family: family.map(str::to_owned) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

mod networks {
    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        networks: &[IpNet],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(networks.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
    }
}

mod mac {
    use pnet_base::MacAddr;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(
        mac: &MacAddr,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(mac)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MacAddr, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|_| {
            serde::de::Error::custom(
                "a MAC address is written as six bytes such as 02:00:5e:00:53:01",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn interface(more: &Value) -> Value {
        let mut all = json!({ "name": "eth0", "mac": "02:00:00:00:00:01", "addresses": [] });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    }

    #[test]
    fn a_default_route_of_one_family_is_read_by_those_who_know_of_no_families() {
        let none = DefaultRoutes::NONE;
        for (routes, written) in [
            (none, json!({})),
            (DefaultRoutes::BOTH, json!({ "defaultRoute": true })),
            (
                DefaultRoutes { v4: true, ..none },
                json!({ "defaultRoute": true, "defaultRouteFamily": "IPv4" }),
            ),
            (
                DefaultRoutes { v6: true, ..none },
                json!({ "defaultRoute": true, "defaultRouteFamily": "IPv6" }),
            ),
        ] {
            let written = interface(&written);
            let read: SessionInterface = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(read.default_routes, routes, "{written}");
            assert_eq!(serde_json::to_value(&read).unwrap(), written);
        }
    }
}
