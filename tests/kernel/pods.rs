//! Pods of a Service, and who talks to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use crate::world::{Namespace, World};

/// The addresses of the Service.
pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100));
pub const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100));
pub const BOTH: [IpAddr; 2] = [V4, V6];
/// The Service's port, and that of its pods.
pub const HTTP: u16 = 80;
pub const DNS: u16 = 53;
pub const POD: u16 = 8_080;
/// The longest time that an answer within the machine takes.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// A pod: a host that says which one it is, and then repeats what it is told.
pub struct Pod {
    pub host: Namespace,
    pub number: u8,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pod {
    /// A pod on the segment.
    pub fn on_segment(world: &World, number: u8) -> Result<Self> {
        Self::start(world.host(&format!("pod{number}"), number)?, number)
    }

    /// A pod on this host.
    pub fn start(host: Namespace, number: u8) -> Result<Self> {
        let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let (listener, socket) =
            host.enter(|| Ok((TcpListener::bind(any(POD))?, UdpSocket::bind(any(POD))?)))?;
        listener.set_nonblocking(true)?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, also) = (Arc::clone(&stop), Arc::clone(&stop));
        let accept = move || {
            let mut open: Vec<TcpStream> = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.write_all(&[number]);
                    let _ = stream.set_nonblocking(true);
                    open.push(stream);
                }
                open.retain_mut(|stream| {
                    let mut buffer = [0; 8_192];
                    match stream.read(&mut buffer) {
                        Ok(0) => false,
                        Ok(length) => {
                            stream.write_all(buffer.get(..length).unwrap_or_default()).is_ok()
                        }
                        Err(error) => error.kind() == ErrorKind::WouldBlock,
                    }
                });
                std::thread::park_timeout(Duration::from_millis(1));
            }
        };
        let echo = move || {
            let mut buffer = [0; 16];
            while !also.load(Ordering::Relaxed) {
                if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&[number], peer);
                }
            }
        };
        let threads = vec![std::thread::spawn(accept), std::thread::spawn(echo)];
        Ok(Self { host, number, stop, threads })
    }

    /// Its endpoint, where it is on the segment.
    pub fn at(&self, family: IpAddr) -> (IpAddr, u16) {
        let number = self.number;
        let ip = match family {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, number]),
            // As the world writes them: decimal digits.
            IpAddr::V6(_) => format!("fd00::{number}").parse().unwrap_or(V6),
        };
        (ip, POD)
    }

    /// Its node loses its power.
    pub fn die(&self) -> Result<()> {
        self.host.ip("link set eth0 down")?;
        Ok(())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A new connection, and the pod that answers it, if any does.
pub fn connect(
    client: &Namespace,
    ip: IpAddr,
    patience: Duration,
) -> Result<Option<(TcpStream, u8)>> {
    client.enter(|| {
        let Ok(mut stream) = TcpStream::connect_timeout(&(ip, HTTP).into(), patience) else {
            return Ok(None);
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut name = [0];
        Ok(stream.read_exact(&mut name).ok().map(|()| (stream, name[0])))
    })
}

/// The pod that answers a new connection, if any does.
pub fn who(client: &Namespace, ip: IpAddr) -> Result<Option<u8>> {
    Ok(connect(client, ip, PATIENCE)?.map(|(_, pod)| pod))
}

/// The unspecified address of the family of this one.
pub fn any(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// A flow of UDP.
pub fn flow(client: &Namespace, ip: IpAddr) -> Result<UdpSocket> {
    client.enter(|| {
        let socket = UdpSocket::bind((any(ip), 0))?;
        socket.connect((ip, DNS))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    })
}

/// The pod that answers a flow, if any does.
pub fn ask(flow: &UdpSocket) -> Option<u8> {
    let mut name = [0];
    flow.send(b"?").ok()?;
    flow.recv(&mut name).ok().map(|_| name[0])
}

/// The pod that answers a flow. Where much else runs an answer may take long.
pub fn answered(flow: &UdpSocket) -> Option<u8> {
    (0..5).find_map(|_| ask(flow))
}

/// Says something that comes back.
pub fn repeats(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"!")?;
    stream.read_exact(&mut [0])
}
