//! The ports and protocols that a host reaches on an address.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;
use pnet_base::MacAddr;
use pnet_packet::Packet;
use pnet_packet::ethernet::{EtherTypes, EthernetPacket};
use pnet_packet::icmp::{IcmpPacket, IcmpTypes};
use pnet_packet::icmpv6::{Icmpv6Packet, Icmpv6Types};
use pnet_packet::ipv4::Ipv4Packet;
use pnet_packet::ipv6::Ipv6Packet;
use socket2::{Domain, Protocol, Socket, Type};

use super::packet_socket::PacketSocket;
use super::{Client, INTERFACE, ping};

/// Connections that are under way at a time: a process may have some 1,000 files open.
const AT_ONCE: usize = 500;
/// The timeout of an answer within the machine.
const PATIENCE: Duration = Duration::from_millis(200);
/// The number of echo requests.
const ECHOES: usize = 3;

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

    /// The MAC addresses from which echo replies of an address come, of a few requests.
    pub fn echoes(&self, ip: IpAddr) -> Result<BTreeSet<MacAddr>> {
        self.host.within(|| {
            let protocol = if ip.is_ipv4() { EtherTypes::Ipv4 } else { EtherTypes::Ipv6 };
            let socket = PacketSocket::open(INTERFACE, protocol)?;
            let mut macs = BTreeSet::new();
            for _ in 0..ECHOES {
                ping::answers(ip)?;
                // Until nothing more comes for a while.
                let mut buffer = [0; 128];
                while let Some(frame) = socket.receive(&mut buffer)? {
                    macs.extend(replier(frame, ip));
                }
            }
            Ok(macs)
        })?
    }

    /// Checks whether an address answers an echo request.
    pub fn pings(&self, ip: IpAddr) -> Result<bool> {
        Ok(self.host.within(|| ping::answers(ip))??)
    }
}

/// The MAC address from which an echo reply of `ip` came, if that is what the frame has.
fn replier(frame: &[u8], ip: IpAddr) -> Option<MacAddr> {
    let ethernet = EthernetPacket::new(frame)?;
    let reply = match ip {
        IpAddr::V4(ip) => {
            let packet = Ipv4Packet::new(ethernet.payload())?;
            let icmp = IcmpPacket::new(packet.payload())?;
            packet.get_source() == ip && icmp.get_icmp_type() == IcmpTypes::EchoReply
        }
        IpAddr::V6(ip) => {
            let packet = Ipv6Packet::new(ethernet.payload())?;
            let icmp = Icmpv6Packet::new(packet.payload())?;
            packet.get_source() == ip && icmp.get_icmpv6_type() == Icmpv6Types::EchoReply
        }
    };
    reply.then(|| ethernet.get_source())
}
