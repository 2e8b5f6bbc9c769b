//! `IPAddressPool`: addresses that Services of `type: LoadBalancer` may get.

#![allow(clippy::duplicated_attributes, reason = "printer columns repeat their types")]

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::annotation::ConditionType;
use crate::range::{IpRange, RangeError};

/// The condition that says whether all entries and selectors of a pool can be used.
pub const READY: &str = "Ready";
/// The condition that says whether a pool shares addresses with an earlier pool.
pub const OVERLAPPING: &str = "Overlapping";

/// The conditions on a pool.
pub const CONDITIONS: [ConditionType; 2] = [
    ConditionType {
        type_: READY,
        object: "IPAddressPool",
        meaning: "All entries and selectors of the pool are valid.",
    },
    ConditionType {
        type_: OVERLAPPING,
        object: "IPAddressPool",
        meaning: "Addresses of the pool belong to an older pool.",
    },
];

/// A pool of addresses for Services of type LoadBalancer.
///
/// The operator allocates the lowest free address of a pool; addresses that were freed less than a
/// minute ago are used last. If two pools overlap, the older one (by creation time, then by name)
/// holds the common addresses.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "leasehold.dev",
    version = "v1alpha1",
    kind = "IPAddressPool",
    plural = "ipaddresspools",
    shortname = "ippool",
    category = "leasehold",
    status = "IPAddressPoolStatus",
    derive = "PartialEq",
    doc = "A pool of addresses for Services of type LoadBalancer.",
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".spec.addresses",
        description = "Addresses of the pool."
    ),
    printcolumn(
        name = "Auto Assign",
        type_ = "boolean",
        json_path = ".spec.autoAssign",
        description = "Whether Services without a request get addresses from this pool."
    ),
    printcolumn(
        name = "Assigned v4",
        type_ = "integer",
        json_path = ".status.assignedIPv4",
        description = "Allocated IPv4 addresses."
    ),
    printcolumn(
        name = "Free v4",
        type_ = "integer",
        json_path = ".status.availableIPv4",
        description = "Free IPv4 addresses."
    ),
    printcolumn(
        name = "Assigned v6",
        type_ = "integer",
        json_path = ".status.assignedIPv6",
        description = "Allocated IPv6 addresses."
    ),
    printcolumn(
        name = "Free v6",
        type_ = "integer",
        json_path = ".status.availableIPv6",
        description = "Free IPv6 addresses."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "Whether all entries and selectors are valid."
    ),
    printcolumn(
        name = "Disabled",
        type_ = "boolean",
        json_path = ".spec.disabled",
        description = "Whether the pool allocates no further addresses.",
        priority = 1
    ),
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.serviceAllocation.priority",
        description = "Lower values take precedence; 0 is last.",
        priority = 1
    )
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
pub struct IPAddressPoolSpec {
    /// Addresses of the pool, of either family, as CIDRs (`192.0.2.0/24`, `2001:db8::/64`) or as
    /// ranges that include both ends (`192.0.2.10-192.0.2.20`). Write a single address as /32 or
    /// /128. The operator never allocates reserved addresses (loopback, link-local, multicast, and
    /// others), the first and last IPv4 address of a node's subnet, or the first IPv6 address of
    /// one, because no host can use them.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub addresses: Vec<AddressRange>,

    /// Addresses that do not belong to the pool although `addresses` contains them, in the same
    /// forms: those of routers and of other hosts in the range. A Service that has such an address
    /// keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub excluded_addresses: Vec<AddressRange>,

    /// Whether the pool serves Services that request neither an address nor a pool. With `false`,
    /// it serves only Services that request the pool or one of its addresses.
    #[serde(default = "auto_assign")]
    pub auto_assign: bool,

    /// Whether the pool excludes IPv4 addresses that end in `.0` or `.255`, because some old
    /// equipment drops traffic to them. A Service that has such an address keeps it.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,

    /// Whether the pool stops allocating. Services keep their addresses.
    #[serde(default)]
    pub disabled: bool,

    /// Which Services may share an address through the annotation `leasehold.dev/shared-address`.
    #[serde(default)]
    pub sharing: Sharing,

    /// Services that the pool serves, and its precedence among pools. Without this field, the pool
    /// serves all Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_allocation: Option<ServiceAllocation>,
}

const fn auto_assign() -> bool {
    true
}

impl Default for IPAddressPoolSpec {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            excluded_addresses: Vec::new(),
            auto_assign: auto_assign(),
            avoid_buggy_ips: false,
            disabled: false,
            sharing: Sharing::default(),
            service_allocation: None,
        }
    }
}

/// Which Services may share an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Sharing {
    /// Only Services of the same namespace.
    #[default]
    SameNamespace,
    /// Services of any namespace.
    AnyNamespace,
}

/// Services that a pool serves, and its precedence among pools.
///
/// A pool with namespaces, namespace selectors, or Service selectors is *pinned*: it serves only
/// the Services that these admit, and takes precedence over general pools for them. A Service is
/// admitted if its namespace is in `namespaces` or matches one of `namespaceSelectors`, or if both
/// are empty; and if it matches one of `serviceSelectors`, or if these are empty. A pool whose
/// selectors match nothing serves no Service, not even one that requests one of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAllocation {
    /// Precedence among the pools that admit a Service: lower values take precedence, and 0, the
    /// default, is last. Equal priorities are ordered by name.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub priority: i32,
    /// Names of the admitted namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Vec<String>,
    /// Label selectors of the admitted namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::selector::up_to_16")]
    pub namespace_selectors: Vec<LabelSelector>,
    /// Label selectors of the admitted Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::selector::up_to_16")]
    pub service_selectors: Vec<LabelSelector>,
}

/// One entry of a pool as it was written: `192.0.2.0/24` or `192.0.2.10-192.0.2.20`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddressRange(pub String);

impl AddressRange {
    /// Reads the entry.
    pub fn parse(&self) -> Result<IpRange, RangeError> {
        self.0.parse()
    }
}

impl From<&str> for AddressRange {
    fn from(entry: &str) -> Self {
        Self(entry.to_owned())
    }
}

/// The first end of a range in CEL, and the last.
const FIRST: &str = "self.split('-')[0].trim()";
const LAST: &str = "self.split('-')[1].trim()";

impl JsonSchema for AddressRange {
    fn schema_name() -> Cow<'static, str> {
        "AddressRange".into()
    }

    fn inline_schema() -> bool {
        true
    }

    /// Each rule lets pass what an earlier one has refused already, so that a bad entry gets one
    /// message. The order of IPv6 ranges is out of reach for CEL's cost budget: the controller
    /// checks it.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let two_ips = format!("isIP({FIRST}) && isIP({LAST})");
        let is_range = format!(
            "!self.contains('/') && self.contains('-') && self.split('-').size() == 2 && {two_ips}"
        );
        let octet = |ip: &str, k: usize| format!("int({ip}.split('.')[{k}])");
        let value = |ip: &str| {
            format!(
                "{} * 16777216 + {} * 65536 + {} * 256 + {}",
                octet(ip, 0),
                octet(ip, 1),
                octet(ip, 2),
                octet(ip, 3)
            )
        };
        let quoted = "\"'\" + self + \"' ";
        // As `IpRange::reserved`; IPv4-mapped addresses are none for `isIP`.
        let reserved = [
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "::/128",
            "::1/128",
            "fe80::/10",
            "ff00::/8",
        ];
        let any = |within: &dyn Fn(&str) -> String| {
            reserved.map(|block| format!("({})", within(block))).join(" || ")
        };
        let reserved_cidr = any(&|block| format!("cidr('{block}').containsCIDR(self)"));
        let reserved_range = any(&|block| {
            let contains = |ip: &str| format!("cidr('{block}').containsIP({ip})");
            format!("{} && {}", contains(FIRST), contains(LAST))
        });
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": 80,
            "x-kubernetes-validations": [
                {
                    "rule": "!isIP(self)",
                    "messageExpression": format!(
                        "{quoted}is a single address without a prefix length: write \" + self + \
                         (self.contains(':') ? '/128' : '/32')"
                    ),
                },
                {
                    "rule": format!("isIP(self) || isCIDR(self) || ({is_range})"),
                    "messageExpression": format!(
                        "{quoted}is neither a CIDR nor a range: write 192.0.2.0/24, 2001:db8::/64 \
                         or 192.0.2.10-192.0.2.20\""
                    ),
                },
                {
                    "rule": "!isCIDR(self) || cidr(self) == cidr(self).masked()",
                    "messageExpression": format!(
                        "{quoted}has host bits set: write the network address, such as 192.0.2.0/24, \
                         or a range first-last\""
                    ),
                },
                {
                    "rule": format!(
                        "!({is_range}) || ip({FIRST}).family() == ip({LAST}).family()"
                    ),
                    "messageExpression": format!(
                        "{quoted}mixes families: both ends of a range must be IPv4, or both IPv6\""
                    ),
                },
                {
                    "rule": format!(
                        "!({is_range} && ip({FIRST}).family() == 4 && ip({LAST}).family() == 4) \
                         || {} <= {}",
                        value(FIRST),
                        value(LAST)
                    ),
                    "messageExpression": format!(
                        "{quoted}is in the wrong order: write \" + {LAST} + '-' + {FIRST}"
                    ),
                },
                {
                    "rule": format!("!isCIDR(self) || !({reserved_cidr})"),
                    "messageExpression": format!("{quoted}contains only reserved addresses\""),
                },
                {
                    "rule": format!("!({is_range}) || !({reserved_range})"),
                    "messageExpression": format!("{quoted}contains only reserved addresses\""),
                },
            ],
        })
    }
}

/// Observed state of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressPoolStatus {
    /// Number of allocated IPv4 addresses.
    #[serde(default, rename = "assignedIPv4")]
    pub assigned_ipv4: i64,
    /// Number of free IPv4 addresses.
    #[serde(default, rename = "availableIPv4")]
    pub available_ipv4: i64,
    /// Number of allocated IPv6 addresses.
    #[serde(default, rename = "assignedIPv6")]
    pub assigned_ipv6: i64,
    /// Number of free IPv6 addresses; 9223372036854775807 means this number or more.
    #[serde(default, rename = "availableIPv6")]
    pub available_ipv6: i64,
    /// Conditions. `Ready`: all entries and selectors are valid. `Overlapping`: an older pool holds
    /// some of the addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(addresses: &[&str]) -> Option<String> {
        let addresses = addresses.iter().map(|entry| AddressRange::from(*entry)).collect();
        let pool = IPAddressPool::new(
            "lan",
            IPAddressPoolSpec { addresses, ..IPAddressPoolSpec::default() },
        );
        pool.validate_cel().err().map(|errors| format!("{errors:?}"))
    }

    #[test]
    fn good_entries_pass_the_rules() {
        for entry in [
            "192.0.2.0/24",
            "192.0.2.7/32",
            "192.0.2.10-192.0.2.20",
            "192.0.2.10 - 192.0.2.10",
            "9.255.255.255-10.0.0.0",
            "2001:db8::/64",
            "2001:db8::10-2001:db8::20",
        ] {
            assert_eq!(refusal(&[entry]), None, "{entry}");
            assert!(AddressRange::from(entry).parse().is_ok(), "{entry}");
        }
    }

    #[test]
    fn excluded_addresses_have_the_same_forms() {
        let refusal = |entry: &str| {
            let (addresses, excluded) = (vec!["192.0.2.0/24".into()], vec![entry.into()]);
            let spec = IPAddressPoolSpec {
                addresses,
                excluded_addresses: excluded,
                ..IPAddressPoolSpec::default()
            };
            let pool = IPAddressPool::new("lan", spec);
            pool.validate_cel().err().map(|errors| format!("{errors:?}"))
        };
        assert_eq!(refusal("192.0.2.1-192.0.2.9"), None);
        let refused = refusal("192.0.2.1").unwrap();
        assert!(refused.contains("write 192.0.2.1/32"), "{refused}");
    }

    #[test]
    fn entries_of_reserved_addresses_alone_are_refused() {
        for entry in [
            "0.0.0.0/8",
            "127.0.0.1-127.0.0.9",
            "169.254.7.0/24",
            "224.0.0.0/4",
            "240.0.0.1/32",
            "255.255.255.255/32",
            "::1/128",
            "::/128",
            "fe80::10-fe80::20",
            "ff02::/16",
        ] {
            let refused = refusal(&["198.51.100.0/24", entry]).unwrap_or_default();
            let says = format!("'{entry}' contains only reserved addresses");
            assert!(refused.contains(&says), "{entry}: {refused}");
            assert!(AddressRange::from(entry).parse().unwrap().reserved().is_some(), "{entry}");
        }
        for entry in ["0.0.0.0/0", "::/0", "224.0.0.0/3", "126.255.255.255-127.0.0.1", "::/127"] {
            assert_eq!(refusal(&[entry]), None, "{entry}");
            assert!(AddressRange::from(entry).parse().unwrap().reserved().is_none(), "{entry}");
        }
    }

    #[test]
    fn the_rules_name_a_bad_entry_and_say_how_to_write_it() {
        for (entry, message) in [
            (
                "192.0.2.7",
                "'192.0.2.7' is a single address without a prefix length: write 192.0.2.7/32",
            ),
            ("2001:db8::1", "write 2001:db8::1/128"),
            ("web", "'web' is neither a CIDR nor a range"),
            ("192.0.2.0/33", "'192.0.2.0/33' is neither a CIDR nor a range"),
            ("192.0.2.0/024", "'192.0.2.0/024' is neither a CIDR nor a range"),
            ("192.0.2.1-192.0.2.2-192.0.2.3", "is neither a CIDR nor a range"),
            ("192.0.2.7/24", "'192.0.2.7/24' has host bits set"),
            ("192.0.2.1-2001:db8::1", "mixes families"),
            ("192.0.2.20-192.0.2.10", "is in the wrong order: write 192.0.2.10-192.0.2.20"),
            ("10.0.0.0-9.255.255.255", "is in the wrong order"),
        ] {
            let refused = refusal(&["198.51.100.0/24", entry]).unwrap_or_default();
            assert!(refused.contains(message), "{entry}: {refused}");
            assert!(AddressRange::from(entry).parse().is_err(), "{entry}");
        }
    }

    #[test]
    fn selectors_that_cannot_be_read_are_refused() {
        let refused = |operator: &str| {
            let selector = serde_json::json!([{"matchExpressions": [
                {"key": "team", "operator": operator, "values": ["blue"]}]}]);
            let selectors: Vec<LabelSelector> = serde_json::from_value(selector).unwrap();
            ["namespaces", "services"].map(|which| {
                let mut allocation = ServiceAllocation::default();
                match which {
                    "namespaces" => allocation.namespace_selectors.clone_from(&selectors),
                    _ => allocation.service_selectors.clone_from(&selectors),
                }
                let spec = IPAddressPoolSpec {
                    addresses: vec!["192.0.2.0/24".into()],
                    service_allocation: Some(allocation),
                    ..IPAddressPoolSpec::default()
                };
                IPAddressPool::new("lan", spec).validate_cel().is_err()
            })
        };
        assert_eq!(refused("In"), [false, false]);
        assert_eq!(refused("Is"), [true, true]);
    }
}
