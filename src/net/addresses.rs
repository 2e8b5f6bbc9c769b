//! Changes of addresses with a lifetime and our mark, by rtnetlink.
//!
//! As many as there are go to the kernel in one datagram: with thousands of them a system call for each, and an
//! answer to each, take longer than what the kernel does.
//!
//! An address is always a /32 or /128: removing the first address of a wider subnet would take the
//! others of that subnet with it.

use std::net::IpAddr;
use std::num::NonZeroU32;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::net::datagram::{self, encode, messages};
use crate::net::netlink::{MARK, NetlinkError, full_prefix};

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
        /// For how many seconds.
        seconds: NonZeroU32,
    },
    /// Set the lifetime of one that a dump has just shown with our mark. One of somebody else would get that
    /// lifetime, and a missing one is created.
    Refresh {
        /// The place.
        place: Place,
        /// For how many seconds.
        seconds: NonZeroU32,
    },
    /// Delete one that a dump has just shown with our mark.
    Delete {
        /// The place.
        place: Place,
    },
}

impl AddressChange {
    /// Where it applies.
    pub fn place(&self) -> Place {
        match self {
            Self::Add { place, .. } | Self::Refresh { place, .. } | Self::Delete { place } => {
                *place
            }
        }
    }

    fn encode(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let flags = NLM_F_REQUEST | flags;
        match *self {
            Self::Add { place, seconds } => {
                let message = RouteNetlinkMessage::NewAddress(lasting(place, seconds));
                encode(message, flags | NLM_F_CREATE | NLM_F_EXCL, sequence)
            }
            Self::Refresh { place, seconds } => {
                let message = RouteNetlinkMessage::NewAddress(lasting(place, seconds));
                encode(message, flags | NLM_F_CREATE | NLM_F_REPLACE, sequence)
            }
            Self::Delete { place } => {
                encode(RouteNetlinkMessage::DelAddress(message(place)), flags, sequence)
            }
        }
    }
}

/// A connection for changes.
#[derive(Debug)]
pub(super) struct AddressSocket {
    socket: Socket,
    sequence: u32,
}

impl AddressSocket {
    /// Opens it in the network namespace of the calling thread.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let (socket, _) = datagram::open(NETLINK_ROUTE).map_err(NetlinkError::Open)?;
        Ok(Self { socket, sequence: 1 })
    }

    /// Has the kernel carry out `changes` in their order, whatever becomes of each.
    pub(super) fn change(
        &mut self,
        changes: &[AddressChange],
    ) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        let Some(last) = changes.len().checked_sub(1) else { return Ok(Vec::new()) };
        let first = self.sequence;
        let mut datagram = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            // An answer to the last one ends the answers.
            let flags = if number == last { NLM_F_ACK } else { 0 };
            datagram.extend(change.encode(flags, self.sequence));
            self.sequence = self.sequence.wrapping_add(1);
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
                let number = message.header.sequence_number.wrapping_sub(first);
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                // Answers to an earlier datagram, whose time was over.
                let Some(result) = results.get_mut(number) else { continue };
                let NetlinkPayload::Error(error) = message.payload else {
                    return Err(NetlinkError::Unexpected(format!("{:?}", message.payload)));
                };
                if error.code.is_some() {
                    *result = Err(NetlinkError::refused(error.to_io()));
                }
                if number == last {
                    return Ok(results);
                }
            }
        }
    }
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

fn lasting(place: Place, seconds: NonZeroU32) -> AddressMessage {
    let (_, ip) = place;
    let mut message = message(place);
    let mut lifetimes = CacheInfo::default();
    lifetimes.ifa_valid = seconds.get();
    // A deprecated IPv6 address answers but is never chosen as a source. An IPv4 /32 is not
    // chosen either way, and a deprecated one would only be put behind all others in lists.
    lifetimes.ifa_preferred = if ip.is_ipv6() { 0 } else { seconds.get() };
    message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
    message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(MARK)));
    if ip.is_ipv6() {
        // Without, the address is unusable until duplicate address detection ends.
        message.header.flags |= AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}
