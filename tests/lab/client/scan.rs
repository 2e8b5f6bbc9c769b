//! What a host finds that asks for everything.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Client, ping};

/// Connections that are under way at a time: a process may have some 1,000 files open.
const AT_ONCE: usize = 500;
/// How long an answer within the machine may take.
const PATIENCE: Duration = Duration::from_millis(200);

impl Client {
    /// The TCP ports of these that let the client connect.
    pub fn open_ports(&self, ip: IpAddr, ports: &[u16]) -> Result<Vec<u16>> {
        self.host.within(|| {
            let mut open = Vec::new();
            for ports in ports.chunks(AT_ONCE) {
                let mut sockets = Vec::new();
                for port in ports {
                    let address = SocketAddr::new(ip, *port);
                    let domain = Domain::for_address(address);
                    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
                    socket.set_nonblocking(true)?;
                    // It is under way, or refused at once.
                    drop(socket.connect(&address.into()));
                    sockets.push((*port, socket));
                }
                std::thread::sleep(PATIENCE);
                let connected =
                    |(port, socket): (u16, Socket)| socket.peer_addr().ok().map(|_| port);
                open.extend(sockets.into_iter().filter_map(connected));
            }
            Ok(open)
        })?
    }

    /// The UDP ports of these from which a datagram comes back.
    pub fn answering_ports(&self, ip: IpAddr, ports: &[u16]) -> Result<Vec<u16>> {
        self.host.within(|| {
            let mut sockets = Vec::new();
            for port in ports {
                let address = SocketAddr::new(ip, *port);
                let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
                socket.set_nonblocking(true)?;
                socket.connect(&address.into())?;
                socket.send(b"anybody there?")?;
                sockets.push((*port, UdpSocket::from(socket)));
            }
            std::thread::sleep(PATIENCE);
            let answered =
                |(port, socket): (u16, UdpSocket)| socket.recv(&mut [0; 128]).ok().map(|_| port);
            Ok(sockets.into_iter().filter_map(answered).collect())
        })?
    }

    /// Whether an address answers an echo request.
    pub fn pings(&self, ip: IpAddr) -> Result<bool> {
        Ok(self.host.within(|| ping::answers(ip))??)
    }
}
