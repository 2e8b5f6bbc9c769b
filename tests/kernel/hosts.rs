//! What a host has that can be reached, and what another one reaches.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::ping;
use crate::pods::any;
use crate::world::Namespace;

/// How long an answer within the machine may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// Servers on all addresses of a host, as sshd is one; they end with this value.
pub struct Servers {
    _listeners: Vec<TcpListener>,
    echoes: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Servers {
    /// Servers on these ports of `host`.
    pub fn start(host: &Namespace, tcp: &[u16], udp: &[u16]) -> Result<Self> {
        let everywhere = |port: &u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
        let (listeners, sockets) = host.enter(|| {
            let listeners = tcp
                .iter()
                .map(|port| TcpListener::bind(everywhere(port)))
                .collect::<io::Result<_>>()?;
            let sockets = udp
                .iter()
                .map(|port| UdpSocket::bind(everywhere(port)))
                .collect::<io::Result<Vec<_>>>()?;
            Ok((listeners, sockets))
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut echoes = Vec::new();
        for socket in sockets {
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            let stop = Arc::clone(&stop);
            echoes.push(std::thread::spawn(move || echo(&socket, &stop)));
        }
        Ok(Self { _listeners: listeners, echoes, stop })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for echo in self.echoes.drain(..) {
            let _ = echo.join();
        }
    }
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 8_192];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
        let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), peer);
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Somebody answers there.
    Yes,
    /// The host says that nobody does.
    Refused,
    /// Nothing comes back.
    Silent,
}

/// What becomes of a TCP connection from `host`.
pub fn tcp(host: &Namespace, ip: IpAddr, port: u16) -> Result<Reached> {
    host.enter(|| match TcpStream::connect_timeout(&(ip, port).into(), PATIENCE) {
        Ok(_) => Ok(Reached::Yes),
        Err(error) => reached(&error),
    })
}

/// What becomes of a datagram of this length from `host`. A server on all addresses answers from the one
/// that the kernel chooses.
pub fn udp(host: &Namespace, ip: IpAddr, port: u16, length: usize) -> Result<Reached> {
    host.enter(|| {
        let socket = UdpSocket::bind((any(ip), 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(&vec![7; length], (ip, port))?;
        match socket.recv_from(&mut vec![0; length + 1]) {
            Ok((received, _)) if received == length => Ok(Reached::Yes),
            Ok((received, _)) => bail!("{received} of {length} bytes came back"),
            Err(error) => reached(&error),
        }
    })
}

fn reached(error: &io::Error) -> Result<Reached> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Ok(Reached::Refused),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Ok(Reached::Silent),
        _ => bail!("neither an answer nor silence: {error}"),
    }
}

/// Whether `ip` answers an echo request of `host`.
pub fn pings(host: &Namespace, ip: IpAddr) -> Result<bool> {
    host.enter(|| Ok(ping::answers(ip)?))
}
