//! Changes of addresses with a lifetime and our mark, by rtnetlink.
//!
//! All changes go to the kernel in one datagram: with thousands of them a system call for each, and an answer to
//! each, take longer than the work of the kernel.
//!
//! An address is always a /32 or /128: removing the first address of a wider subnet would take the
//! others of that subnet with it.
//!
//! The node should not use our addresses as the source of its own packets. Of IPv6 addresses the kernel never
//! chooses a deprecated one; of the IPv4 addresses of a link it chooses, where nothing else decides, the first
//! one of those that are visible beyond the link (`inet_select_addr` in the kernel's `net/ipv4/devinet.c`, which
//! does not look at lifetimes). A new address is put behind all that are visible as widely (`__inet_insert_ifa`):
//! behind the node's own, unless that is set anew later. An address with the scope of a link or of a host would
//! always be put before it, and would be the first in a list of the addresses of the link.

use std::net::IpAddr;
use std::num::NonZeroU32;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::net::datagram::{self, encode, messages};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::mark::Mark;

/// Room for an answer: a header and what it answers to.
const ANSWER: usize = 4096;

/// A link's index and an address there.
pub type Place = (u32, IpAddr);

/// A change to the kernel's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressChange {
    /// Add an address, refused as [`NetlinkError::Exists`] if the interface has it with the same prefix,
    /// whosever it is.
    Add {
        /// The place.
        place: Place,
        /// The lifetime in seconds.
        seconds: NonZeroU32,
    },
    /// Set the lifetime of one that a dump has just shown with our mark. One of somebody else would get that
    /// lifetime, and a missing one is created.
    Refresh {
        /// The place.
        place: Place,
        /// The lifetime in seconds.
        seconds: NonZeroU32,
    },
    /// Delete one that a dump has just shown with our mark.
    Delete {
        /// The place.
        place: Place,
    },
    /// Delete one that a dump has just shown with our mark and add it again at once, which puts it behind the
    /// other IPv4 addresses of its link.
    PutBehind {
        /// The place.
        place: Place,
        /// The lifetime in seconds.
        seconds: NonZeroU32,
    },
}

impl AddressChange {
    /// The place that the change is about.
    pub fn place(&self) -> Place {
        match self {
            Self::Add { place, .. }
            | Self::Refresh { place, .. }
            | Self::Delete { place }
            | Self::PutBehind { place, .. } => *place,
        }
    }

    /// The requests that carry it out, each with its flags.
    fn requests(&self, mark: Mark) -> Vec<(u16, RouteNetlinkMessage)> {
        let set = |flags, place, seconds| {
            (NLM_F_CREATE | flags, RouteNetlinkMessage::NewAddress(lasting(place, seconds, mark)))
        };
        let delete = |place| (0, RouteNetlinkMessage::DelAddress(message(place)));
        match *self {
            Self::Add { place, seconds } => vec![set(NLM_F_EXCL, place, seconds)],
            Self::Refresh { place, seconds } => vec![set(NLM_F_REPLACE, place, seconds)],
            Self::Delete { place } => vec![delete(place)],
            Self::PutBehind { place, seconds } => {
                vec![delete(place), set(NLM_F_EXCL, place, seconds)]
            }
        }
    }
}

/// A connection for changes.
#[derive(Debug)]
pub(super) struct AddressSocket {
    socket: Socket,
    sequence: u32,
    /// The mark that it writes.
    mark: Mark,
}

impl AddressSocket {
    /// Opens it in the network namespace of the calling thread.
    pub(super) fn open(mark: Mark) -> Result<Self, NetlinkError> {
        let (socket, _) = datagram::open(NETLINK_ROUTE).map_err(NetlinkError::Open)?;
        Ok(Self { socket, sequence: 1, mark })
    }

    /// Sends `changes` to the kernel, which carries them out in their order and goes on after a refusal. A change
    /// of several requests has failed if one of them has.
    pub(super) fn change(
        &mut self,
        changes: &[AddressChange],
    ) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        let number_of = |(number, change): (usize, &AddressChange)| {
            change.requests(self.mark).into_iter().map(move |request| (number, request))
        };
        let requests: Vec<_> = changes.iter().enumerate().flat_map(number_of).collect();
        let Some(last) = requests.len().checked_sub(1) else { return Ok(Vec::new()) };
        let first = self.sequence;
        let mut datagram = Vec::new();
        let mut asked_by = Vec::with_capacity(requests.len());
        for (position, (number, (flags, request))) in requests.into_iter().enumerate() {
            // An answer to the last one ends the answers.
            let acknowledge = if position == last { NLM_F_ACK } else { 0 };
            datagram.extend(encode(request, NLM_F_REQUEST | flags | acknowledge, self.sequence));
            self.sequence = self.sequence.wrapping_add(1);
            asked_by.push(number);
        }
        match self.socket.send(&datagram, 0).map_err(NetlinkError::Silent)? {
            sent if sent == datagram.len() => {}
            sent => return Err(NetlinkError::Unexpected(format!("{sent} bytes were taken"))),
        }
        let mut results: Vec<_> = changes.iter().map(|_| Ok(())).collect();
        let mut answer = Vec::with_capacity(ANSWER);
        loop {
            answer.clear();
            self.socket.recv(&mut answer, 0).map_err(NetlinkError::Silent)?;
            for bytes in messages(&answer) {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
                    .map_err(|error| NetlinkError::Unexpected(error.to_string()))?;
                let position = message.header.sequence_number.wrapping_sub(first);
                let position = usize::try_from(position).unwrap_or(usize::MAX);
                let number = asked_by.get(position).copied();
                // Answers to an earlier datagram, whose time was over.
                let Some(result) = number.and_then(|number| results.get_mut(number)) else {
                    continue;
                };
                let NetlinkPayload::Error(error) = message.payload else {
                    return Err(NetlinkError::Unexpected(format!("{:?}", message.payload)));
                };
                if error.code.is_some() {
                    *result = Err(NetlinkError::refused(error.to_io()));
                }
                if position == last {
                    return Ok(results);
                }
            }
        }
    }
}

/// The prefix length of a single address.
pub fn full_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn message((index, ip): Place) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = full_prefix(ip);
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(ip));
    message.attributes.push(AddressAttribute::Address(ip));
    message
}

fn lasting(place: Place, seconds: NonZeroU32, mark: Mark) -> AddressMessage {
    let (_, ip) = place;
    let mut message = message(place);
    let mut lifetimes = CacheInfo::default();
    lifetimes.ifa_valid = seconds.get();
    // A deprecated address answers, and is not taken for the host's: as a source of IPv6 by the kernel, and of
    // both families by systemd's nss-myhostname, by which a kubelet may look for the node's address.
    lifetimes.ifa_preferred = 0;
    message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
    message.attributes.push(mark.attribute());
    if ip.is_ipv6() {
        // Without, the address is unusable until duplicate address detection ends.
        message.header.flags |= AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}
