//! The mark by which addresses in the kernel are known as ours.
//!
//! | mark | where | since |
//! |---|---|---|
//! | [`Mark::Protocol`] | `IFA_PROTO`, which is there for that: it changes nothing else | Linux 5.18 (commit 47f0bd503210) |
//! | [`Mark::Metric`] | `IFA_RT_PRIORITY`, the metric of the route to the address's subnet | Linux 4.18 (commits af4d768ad28c, 8308f3ff1753) |
//!
//! Both are read, whichever is written, so that addresses stay ours if the next process writes the other one.
//! [`kept`](super::kept) finds the one that this kernel keeps.
//!
//! A single IPv4 address has no route to a subnet (`fib_add_ifaddr` in the kernel's `net/ipv4/fib_frontend.c`),
//! and that of a single IPv6 address stands behind the one in the table `local`: the metric changes no packet's way.

use std::fmt;

use netlink_packet_route::address::{AddressAttribute, AddressProtocol};

/// `IFA_PROTO` of our addresses: `L`. The kernel uses 0 to 3; iproute2 prints it as `proto 0x4c`.
pub const PROTOCOL: u8 = 76;

/// `IFA_RT_PRIORITY` of our addresses: `LHLD`. Metrics that people and DHCP clients set are far smaller;
/// iproute2 prints it as `metric 1279806532`.
pub const METRIC: u32 = u32::from_be_bytes(*b"LHLD");

/// The attribute that marks an address as ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By `IFA_PROTO`.
    Protocol,
    /// By `IFA_RT_PRIORITY`.
    Metric,
}

impl Mark {
    /// The attribute that says so.
    pub fn attribute(self) -> AddressAttribute {
        match self {
            Self::Protocol => AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)),
            Self::Metric => AddressAttribute::RoutePriority(METRIC),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "IFA_PROTO",
            Self::Metric => "IFA_RT_PRIORITY",
        })
    }
}
