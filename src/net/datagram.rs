//! Requests to the kernel that it answers before the system call ends that sends them.
//!
//! `netlink_rcv_skb` in the kernel's `net/netlink/af_netlink.c` goes through all requests of a datagram. What
//! fails is answered, and what asks for an answer by `NLM_F_ACK`.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLMSG_ALIGNTO, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Time to wait for an answer; a later one is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens a socket of a netlink protocol in the network namespace of the calling thread, and says its port.
pub(super) fn open(protocol: isize) -> io::Result<(Socket, u32)> {
    let mut socket = Socket::new(protocol)?;
    let port = socket.bind_auto()?.port_number();
    socket.connect(&SocketAddr::new(0, 0))?;
    // An error brings the header of what was refused back, not all of it.
    socket.set_cap_ack(true)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok((socket, port))
}

/// A request, with room up to where the next one begins.
pub(super) fn encode<I>(message: I, flags: u16, sequence: u32) -> Vec<u8>
where
    I: NetlinkSerializable,
    NetlinkPayload<I>: From<I>,
{
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let length = message.buffer_len();
    let mut bytes = vec![0; length.next_multiple_of(usize::from(NLMSG_ALIGNTO))];
    message.serialize(bytes.get_mut(..length).unwrap_or_default());
    bytes
}

/// The messages of a datagram.
pub(super) fn messages(datagram: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    let mut rest = datagram;
    while let Ok(message) = NetlinkBuffer::new_checked(rest) {
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        let (this, others) = rest.split_at(length.min(rest.len()));
        messages.push(this);
        let padding = length.next_multiple_of(usize::from(NLMSG_ALIGNTO)) - length;
        rest = others.get(padding..).unwrap_or_default();
    }
    messages
}
