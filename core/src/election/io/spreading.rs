//! Addresses whose packets are spread over nodes with endpoints: the owner forwards each packet to a node by a hash of
//! its client, unchanged; that node answers the client directly.
//!
//! The hash chooses a bucket, and each bucket has a node. When the nodes of a Service change, some buckets change theirs;
//! what is open through those belongs to the node before, and goes on to it from the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use leasehold_crds::names::InterfaceName;
use pnet_base::MacAddr;

use crate::desired::ServicePort;
use crate::election::io::forwarding::Hop;

/// The number of buckets; a prime (Maglev, NSDI 2016, section 3.4).
pub const BUCKETS: u16 = 1021;

/// The most nodes in the order of a bucket.
pub const DEPTH: usize = 3;

/// The spreading of all such addresses that this node has, or gets packets for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spreading {
    /// By the address.
    pub addresses: BTreeMap<IpAddr, SpreadAddress>,
    /// The MAC addresses of the other speakers.
    pub speakers: BTreeSet<MacAddr>,
    /// The segments on which it is tried out whether the network lets through what this node sends for others.
    pub trials: Vec<Trial>,
}

/// The trial of a segment with packets of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The interface of this node there.
    pub interface: InterfaceName,
    /// An address that is spread there: the tables of all speakers know it.
    pub address: IpAddr,
    /// One from which this node answers clients, if there is one.
    pub answers: Option<IpAddr>,
    /// The MAC addresses of the speakers that say what comes through.
    pub peers: Box<[MacAddr]>,
}

/// The spreading of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadAddress {
    /// The ports of its Services.
    pub ports: Arc<BTreeSet<ServicePort>>,
    /// Whether all connections of a client are in one bucket (`sessionAffinity: ClientIP`); otherwise the bucket depends on
    /// its port, too.
    pub by_client: bool,
    /// The interface on which this node announces the address, or would: what clients send there is spread while the kernel
    /// has the address.
    pub interface: Option<InterfaceName>,
    /// The interface by which this node's answers from the address leave (`returnPath: Symmetric`); none: by its routes.
    pub returns: Option<InterfaceName>,
    /// The node of each bucket.
    pub layout: Arc<Layout>,
}

/// The nodes of each bucket. Addresses of the same family and owner whose Services are on the same nodes share it.
///
/// Connections of a bucket may be known to each node of its order. A packet that begins none goes from the owner to the
/// first of them, and from each that does not know it to the next; where the owner is one of them it looks first. So each
/// node has one other from which it takes such packets: by this no packet comes to a node twice, whichever versions of
/// the layout the nodes go by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The nodes.
    pub members: Box<[Member]>,
    /// The position of the owner among them, unless it is not known.
    pub owner: Option<u16>,
    /// For each of the [`BUCKETS`] the nodes that have it or had it, the last one first.
    pub buckets: Box<[Order]>,
}

/// A node of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The MAC addresses of its interfaces.
    pub macs: BTreeSet<MacAddr>,
    /// The way to it.
    pub way: Way,
}

/// The way to a node of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is this node.
    Here,
    /// Forwarded there.
    To(Hop),
    /// There is none: it is gone, or not on a segment with this node.
    None,
}

/// The nodes of a bucket, as positions in [`Layout::members`]: the one that has it, then those that had it before, the
/// last one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order([Option<u16>; DEPTH]);

impl Order {
    /// The order of the first of these that differ.
    pub fn of(members: impl IntoIterator<Item = u16>) -> Self {
        let mut order = Self::default();
        for member in members {
            let known = order.0.contains(&Some(member));
            if let Some(free) = order.0.iter_mut().find(|it| it.is_none()).filter(|_| !known) {
                *free = Some(member);
            }
        }
        order
    }

    /// Its nodes.
    pub fn members(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.0.iter().flatten().map(|member| usize::from(*member))
    }
}

/// The treatment by this node of a packet that belongs to no connection of its own, and begins none. What comes from any
/// other speaker is dropped: one of both has not heard of a change, and it is sent again when it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// The node whose packets go on.
    pub before: Option<&'a Member>,
    /// Whether those of clients do: this node is the owner. Otherwise they are dropped as well.
    pub clients: bool,
    /// Where they go; `None`: they end here, and the pod answers with a reset.
    pub next: Option<&'a Hop>,
}

impl Layout {
    /// Whether clients' packets come to this node.
    pub fn is_owned(&self) -> bool {
        let owner = self.owner.and_then(|owner| self.members.get(usize::from(owner)));
        owner.is_some_and(|owner| owner.way == Way::Here)
    }

    /// The node that has a bucket.
    pub fn target(&self, order: &Order) -> Option<&Member> {
        order.members().next().and_then(|member| self.members.get(member))
    }

    /// Whether new connections of each bucket go to the same node, and the same ones are looked for here before.
    pub fn leads_as(&self, other: &Self) -> bool {
        let of = |layout: &Self, bucket: usize| {
            let order = layout.buckets.get(bucket)?;
            Some((layout.target(order)?.way.clone(), layout.is_ours(order)))
        };
        (0..usize::from(BUCKETS)).all(|bucket| of(self, bucket) == of(other, bucket))
    }

    /// Whether connections of a bucket may be known to this node.
    pub fn is_ours(&self, order: &Order) -> bool {
        let mut members = order.members().filter_map(|member| self.members.get(member));
        members.any(|member| member.way == Way::Here)
    }

    /// The treatment of packets of a bucket that this node does not know; `None`: it has nothing to do with the bucket, or
    /// the owner is not known, and all are dropped.
    pub fn unknown(&self, order: &Order) -> Option<Unknown<'_>> {
        let owner = usize::from(self.owner?);
        let others = order.members().filter(|member| *member != owner);
        let path = std::iter::once(owner).chain(others);
        let path: Vec<&Member> = path.filter_map(|member| self.members.get(member)).collect();
        let own = path.iter().position(|member| member.way == Way::Here)?;
        let (before, after) = path.split_at(own);
        // One that is gone is passed over by all.
        let before = before.iter().rev().find(|member| member.way != Way::None).copied();
        let next = after.iter().find_map(|member| match &member.way {
            Way::To(hop) => Some(hop),
            Way::Here | Way::None => None,
        });
        Some(Unknown { before, clients: own == 0, next })
    }
}
