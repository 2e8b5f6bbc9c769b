//! The addresses that the kernel should hold, and those that it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::InterfaceName;

use crate::clock::Instant;
use crate::desired::{Announcement, ReturnPath};

/// The addresses that this node serves now: the whole desired state of the kernel's addresses that
/// bear our mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Grows with each change of the rest, so that it can be told when the kernel has followed.
    pub generation: u64,
    /// The addresses, each with where it belongs and until when.
    pub vips: BTreeMap<IpAddr, ServedVip>,
    /// Addresses of ours that `vips` does not name are removed only when this is set. It is not
    /// set until the state of the cluster is known: what a former process left behind then stays
    /// for as long as its lifetime lasts.
    pub complete: bool,
    /// Addresses that another speaker has: they are removed even while that is not set.
    pub yielded: BTreeSet<IpAddr>,
}

/// One address that this node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedVip {
    /// The claim under which it is served.
    pub claim: LeaseName,
    /// The place of the address on this node.
    pub attachment: Attachment,
    /// The end of its kernel lifetime; moves on with each answered renewal. The kernel is told whole
    /// seconds, rounded down when it is told: it counts to up to 1 s before this, never beyond.
    pub until: Instant,
    /// Differs for each time that this node became the owner: a new burst of announcements is due.
    pub ownership: u64,
    /// The way in which it is announced.
    pub announcement: Announcement,
    /// The interface by which answers from it leave.
    pub return_path: ReturnPath,
}

/// The place of a served address on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// An interface carries it, with a kernel lifetime, and answers ARP and Neighbor Solicitations for it.
    OnLink {
        /// The interface.
        interface: InterfaceName,
    },
    /// No interface carries it: packets for it are routed to this node.
    None,
}

impl Attachment {
    /// The interface that carries it, if any does.
    pub const fn interface(&self) -> Option<&InterfaceName> {
        match self {
            Self::OnLink { interface } => Some(interface),
            Self::None => None,
        }
    }
}

/// The addresses in the kernel, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelView {
    /// The [`Serving::generation`] that the kernel was last brought in line with, as far as it
    /// could be; what failed is in `foreign` and `refused`.
    pub applied: u64,
    /// The generation that it was last told, all of it, whatever came of that.
    pub told: u64,
    /// The addresses that bear our mark (`IFA_PROTO`).
    pub ours: BTreeMap<IpAddr, KernelAddress>,
    /// Served addresses that are present without our mark: the node's own, or somebody else's.
    pub foreign: BTreeMap<IpAddr, InterfaceName>,
    /// Served addresses that the kernel refused, with its reason: no permission, no such
    /// interface, address not acceptable.
    pub refused: BTreeMap<IpAddr, String>,
}

/// One address in the kernel that bears our mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAddress {
    /// The interface that carries it.
    pub interface: InterfaceName,
    /// The end of its kernel lifetime, no later than it really is.
    pub until: Instant,
}
