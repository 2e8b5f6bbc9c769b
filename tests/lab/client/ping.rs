//! An echo request, from the network namespace of the calling thread.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// The timeout of an answer within the machine.
const PATIENCE: Duration = Duration::from_millis(500);
/// The greatest number of other messages that are read meanwhile.
const OTHERS: usize = 32;

/// Checks whether `ip` answers an echo request (RFC 792, RFC 4443).
pub fn answers(ip: IpAddr) -> io::Result<bool> {
    // Type, code, checksum (for ICMPv6 the kernel fills it in), identifier, number.
    let (domain, protocol, request, answer) = match ip {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, [8, 0, 0xf7, 0xfd, 0, 1, 0, 1], 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, [128, 0, 0, 0, 0, 1, 0, 1], 129),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.connect(&SocketAddr::new(ip, 0).into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&request)?;
    // A raw IPv4 socket shows the header, too.
    let start = if ip.is_ipv4() { 20 } else { 0 };
    let mut buffer = [0; 128];
    for _ in 0..OTHERS {
        let Ok(length) = (&socket).read(&mut buffer) else { break };
        if buffer.get(..length).and_then(|packet| packet.get(start)) == Some(&answer) {
            return Ok(true);
        }
    }
    Ok(false)
}
