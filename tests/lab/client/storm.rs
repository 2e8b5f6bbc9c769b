//! Too much of something, until it is dropped.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use pnet_base::MacAddr;
use pnet_packet::ethernet::{EtherTypes, MutableEthernetPacket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::asking::own_mac;
use super::packet_socket::PacketSocket;
use super::{Client, INTERFACE, arp};

/// The timeout of a connection.
const PATIENCE: Duration = Duration::from_secs(1);
/// From one request of a reader to its next.
const READ: Duration = Duration::from_millis(20);
/// From one packet of frames, or one connection, to the next.
const STEP: Duration = Duration::from_millis(1);

/// Threads that do something over and over again.
#[derive(Debug)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Storm {
    fn new() -> Self {
        Self { stop: Arc::default(), done: Arc::default(), threads: Vec::new() }
    }

    /// Does `work` each `period`, and counts what it has done.
    fn spawn(&mut self, period: Duration, mut work: impl FnMut() -> u64 + Send + 'static) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::clone(&self.done));
        self.threads.push(thread::spawn(move || {
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                done.fetch_add(work(), Ordering::Relaxed);
                next += period;
                sleep(next.saturating_duration_since(Instant::now()));
            }
        }));
    }

    /// `readers` that ask each server for its page every 20 ms, and hang up before it answers.
    pub fn of_readers(servers: &[SocketAddr], readers: usize) -> Self {
        let mut storm = Self::new();
        for server in servers.iter().copied().flat_map(|server| vec![server; readers]) {
            storm.spawn(READ, move || {
                let asked = TcpStream::connect_timeout(&server, PATIENCE);
                let asked =
                    asked.and_then(|mut stream| stream.write_all(b"GET / HTTP/1.0\r\n\r\n"));
                u64::from(asked.is_ok())
            });
        }
        storm
    }

    /// `connections` to each server whose requests never end; one that is closed makes room for another.
    pub fn of_connections(servers: &[SocketAddr], connections: usize) -> Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            .context("allow this process as many open files as it may have")?;
        let mut storm = Self::new();
        for server in servers {
            let (server, mut open) = (*server, VecDeque::new());
            storm.spawn(STEP, move || {
                let Ok(mut stream) = TcpStream::connect_timeout(&server, PATIENCE) else {
                    return 0;
                };
                let begun = stream.write_all(b"GET / HTTP/1.1\r\nX-");
                open.push_back(stream);
                if open.len() > connections {
                    open.pop_front();
                }
                u64::from(begun.is_ok())
            });
        }
        Ok(storm)
    }

    /// So many of what it is made of have there been.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl Client {
    /// Repeats that `mac` has `vip` so many times a second. The frames come from the client's own Ethernet address:
    /// from that of the owner, as in a loop, the switch would send to the client what is for the owner.
    pub fn storm(&self, vip: IpAddr, mac: MacAddr, per_second: u64) -> Result<Storm> {
        let IpAddr::V4(vip) = vip else { bail!("{vip} is not spoken of by ARP") };
        let mut frame = arp::request(mac, vip, vip)?;
        let open = || anyhow::Ok((PacketSocket::open(INTERFACE, EtherTypes::Arp)?, own_mac()?));
        let (socket, own) = self.host.within(open).context("enter")??;
        MutableEthernetPacket::new(&mut frame).context("a short frame")?.set_source(own);
        let mut storm = Storm::new();
        storm.spawn(STEP, move || {
            (0..per_second / 1000).map(|_| u64::from(socket.send(&frame).is_ok())).sum()
        });
        Ok(storm)
    }
}
