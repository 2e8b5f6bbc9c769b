//! A packet socket for one protocol on one interface (packet(7)).

use std::io::{self, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use pnet_packet::ethernet::EtherType;
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Sends and receives whole Ethernet frames with one protocol in them.
#[derive(Debug)]
pub(super) struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens it in the namespace of the calling thread.
    pub(super) fn open(interface: &str, protocol: EtherType) -> Result<Self> {
        let protocol = protocol.0.to_be();
        let socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(protocol))))
                .context("open a packet socket")?;
        let index = name_to_index(&socket, interface).context("find the interface")?;
        socket.bind(&link_address(index, protocol)?).context("bind a packet socket")?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        Ok(Self(socket))
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&mut &self.0).write_all(frame)
    }

    /// Receives a frame, or `None` after 20 ms without one.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match (&mut &self.0).read(buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            // With a timeout a call is not restarted after the process was stopped (signal(7)).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A `sockaddr_ll` of an interface.
#[allow(unsafe_code, reason = "no safe constructor of a link-layer address exists")]
fn link_address(index: u32, protocol: u16) -> io::Result<SockAddr> {
    let family = u16::try_from(i32::from(Domain::PACKET)).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(20);
    bytes.extend(family.to_ne_bytes());
    bytes.extend(protocol.to_ne_bytes());
    bytes.extend(index.to_ne_bytes());
    // sll_hatype, sll_pkttype, sll_halen and sll_addr are not read by bind(2).
    bytes.resize(20, 0);
    // SAFETY: the storage is at least 20 bytes long and valid for any content; the length given is
    // that of the `sockaddr_ll` written to its beginning, whose family is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), storage.cast::<u8>(), bytes.len());
            *length = 20;
            Ok(())
        })?
    };
    Ok(address)
}
