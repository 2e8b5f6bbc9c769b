//! The client: a host on the segment that asks a VIP every few milliseconds and reports what a
//! user would have felt, and an observer beside it that asks by ARP, or
//! Neighbor Solicitation, who owns the VIP.
//!
//! The observer is a host of its own because an answer also refreshes the neighbour entry of
//! the kernel that asked: on the client's host it would heal what is to be measured.

mod arp;
pub mod ask;
mod asking;
mod datagrams;
mod ndp;
mod owners;
mod packet_socket;
mod ping;
mod scan;
mod storm;
mod streams;
mod track;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use pnet_base::MacAddr;

pub use self::datagrams::Sweep;
pub use self::owners::{Announcement, Owners};
pub use self::storm::Storm;
pub use self::track::{Answer, Outage, Track};
use crate::metrics;
use crate::namespace::Namespace;
use crate::network::{Bridge, Network, Plan, Port};
use crate::shell;

/// The host number of the client on its segment.
const CLIENT: u8 = 200;
/// The host number of the observer.
const OBSERVER: u8 = 201;
/// The host numbers of the client's further addresses.
const SOURCES: RangeInclusive<u8> = 210..=241;
/// The link of each host.
const INTERFACE: &str = "eth0";
/// The addresses of the router and of the sandbox on a network behind the router (RFC 5737).
const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)];
/// The interval of datagrams to a single VIP.
const PERIOD: Duration = Duration::from_millis(5);

/// The hosts on the clients' segment that are not nodes.
#[derive(Debug)]
pub struct Client {
    host: Arc<Namespace>,
    observer: Arc<Namespace>,
    ports: Vec<Port>,
    plan: Plan,
    /// Answers ARP as a gateway does; nothing is routed through it but what [`Client::route_sandbox`] leads there.
    router: Namespace,
}

impl Client {
    /// Makes client, observer and router of a cluster.
    pub(crate) fn create(cluster: &str, network: &Network) -> Result<Self> {
        let plan = network.plan();
        let mut ports = Vec::new();
        let mut host = |role: &str, number: u8| -> Result<Namespace> {
            let namespace = Namespace::create(&format!("{cluster}{role}"))?;
            ports.push(network.plug(&namespace, Bridge::Clients, number)?);
            let (v4, v6) = (plan.client_v4(number), plan.client_v6(number));
            namespace.ip(&format!(
                "link set dev eth0 up\n\
                 address add {v4}/24 dev eth0\n\
                 address add {v6}/64 dev eth0 nodad\n"
            ))?;
            Ok(namespace)
        };
        let router = host("router", 1)?;
        router.sysctl(&[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")])?;
        let client = Arc::new(host("client", CLIENT)?);
        let observer = Arc::new(host("observer", OBSERVER)?);
        Ok(Self { host: client, observer, ports, plan, router })
    }

    /// Where client, observer and router are plugged in.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The client's namespace, for commands of a test's own.
    pub fn namespace(&self) -> &Namespace {
        &self.host
    }

    /// Has programs of the sandbox itself reach the clients' segment through the router, as hosts of other networks
    /// do.
    pub fn route_sandbox(&self) -> Result<()> {
        let segment = self.plan.client_v4(0);
        let [router, sandbox] = OUTSIDE;
        // Process 1 is in the sandbox's own namespace.
        self.router.ip(&format!(
            "link add name outside type veth peer name router netns 1\n\
             link set dev outside up\n\
             address add {router}/24 dev outside\n"
        ))?;
        let commands = format!(
            "link set dev router up\n\
             address add {sandbox}/24 dev router\n\
             route add {segment}/24 via {router}\n"
        );
        shell::feed(Command::new("ip").args(["-batch", "-"]), &commands)
    }

    /// The addresses of the client's host, of IPv4 and of IPv6.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.plan.client_v4(CLIENT).into(), self.plan.client_v6(CLIENT).into()]
    }

    /// Many addresses, which the host gets now.
    fn sources(&self, v4: bool) -> Result<Vec<IpAddr>> {
        let plan = self.plan;
        let all: Vec<IpAddr> = SOURCES
            .map(|host| if v4 { plan.client_v4(host).into() } else { plan.client_v6(host).into() })
            .collect();
        let (length, flags) = if v4 { (24, "") } else { (64, "nodad") };
        let add = |commands: String, ip: &IpAddr| {
            format!("{commands}address replace {ip}/{length} dev {INTERFACE} {flags}\n")
        };
        self.host.ip(&all.iter().fold(String::new(), add))?;
        Ok(all)
    }

    /// The MAC address that the client's kernel believes a host of its segment to have.
    pub fn neighbour(&self, ip: IpAddr) -> Result<Option<MacAddr>> {
        let mut command = self.host.command("ip");
        let entry = ["-json", "neigh", "show", "to", &ip.to_string(), "dev", INTERFACE];
        let text = shell::output(command.args(entry))?;
        let entries: serde_json::Value = serde_json::from_str(&text)?;
        let mac = entries.pointer("/0/lladdr").and_then(serde_json::Value::as_str);
        mac.map(|mac| mac.parse().with_context(|| format!("{mac} is no MAC address"))).transpose()
    }

    /// Fetches a page of a VIP.
    pub fn get(&self, vip: IpAddr, port: u16, path: &str) -> Result<String> {
        self.host.within(|| metrics::get_here(SocketAddr::new(vip, port), path))?
    }

    /// Prepares a probe of a VIP; see [`ProbePlan`].
    pub fn probe(&self, vip: IpAddr) -> ProbePlan<'_> {
        ProbePlan {
            client: self,
            vip,
            udp: None,
            tcp: None,
            connection: None,
            lasting: None,
            owners: false,
            many: false,
            patience: streams::PATIENCE,
        }
    }

    /// Starts a probe of many VIPs of one family, each by a datagram every `period`.
    pub fn sweep(&self, vips: &[IpAddr], port: u16, period: Duration) -> Result<Sweep> {
        Sweep::start(Arc::clone(&self.host), vips, port, period)
    }

    /// Asks by ARP, or Neighbor Solicitation, who owns a VIP for a while.
    pub async fn owners(&self, vip: IpAddr, time: Duration) -> Result<Owners> {
        let probe = self.probe(vip).owners().start()?;
        tokio::time::sleep(time).await;
        probe.stop().await?.owners.ok_or_else(|| anyhow!("nobody watched the owners"))
    }
}

/// The parts of a probe; each is optional.
#[derive(Clone, Debug)]
pub struct ProbePlan<'a> {
    client: &'a Client,
    vip: IpAddr,
    udp: Option<(u16, Duration)>,
    tcp: Option<(u16, Duration)>,
    connection: Option<u16>,
    lasting: Option<(u16, usize, Duration)>,
    owners: bool,
    many: bool,
    patience: Duration,
}

impl ProbePlan<'_> {
    /// A datagram with a sequence number every 5 ms, from one socket.
    #[must_use]
    pub fn udp(self, port: u16) -> Self {
        self.udp_each(port, PERIOD)
    }

    /// As [`ProbePlan::udp`], with a datagram each `every`.
    #[must_use]
    pub fn udp_each(mut self, port: u16, every: Duration) -> Self {
        self.udp = Some((port, every));
        self
    }

    /// A new TCP connection and an HTTP request each `every`.
    #[must_use]
    pub fn tcp(mut self, port: u16, every: Duration) -> Self {
        self.tcp = Some((port, every));
        self
    }

    /// Waits as long as this for each new connection and its answer.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes new connections from many addresses of the host, as many hosts do.
    #[must_use]
    pub fn many_sources(mut self) -> Self {
        self.many = true;
        self
    }

    /// One TCP connection, opened at the start, with an HTTP request every 5 ms.
    #[must_use]
    pub fn connection(mut self, port: u16) -> Self {
        self.connection = Some(port);
        self
    }

    /// So many TCP connections, opened at the start, each with an HTTP request each `every`.
    #[must_use]
    pub fn lasting(mut self, port: u16, count: usize, every: Duration) -> Self {
        self.lasting = Some((port, count, every));
        self
    }

    /// An ARP request every 5 ms; IPv6: a Neighbor Solicitation.
    #[must_use]
    pub fn owners(mut self) -> Self {
        self.owners = true;
        self
    }

    /// Starts; the answers are counted from now on.
    pub fn start(self) -> Result<Probe> {
        let stop = Arc::new(AtomicBool::new(false));
        let host = &self.client.host;
        let mut probe = Probe {
            stop: Arc::clone(&stop),
            udp: None,
            tcp: None,
            connection: None,
            lasting: None,
            owners: None,
        };
        if let Some((port, every)) = self.udp {
            probe.udp = Some(Sweep::start(Arc::clone(host), &[self.vip], port, every)?);
        }
        if let Some((port, every)) = self.tcp {
            let server = SocketAddr::new(self.vip, port);
            let [v4, v6] = self.client.addresses();
            let own = vec![if server.is_ipv4() { v4 } else { v6 }];
            let many = self.many.then(|| self.client.sources(server.is_ipv4()));
            let sources = many.unwrap_or(Ok(own))?;
            let (host, stop) = (Arc::clone(host), Arc::clone(&stop));
            probe.tcp =
                Some(streams::connects(host, sources, server, (every, self.patience), stop));
        }
        if let Some(port) = self.connection {
            let server = SocketAddr::new(self.vip, port);
            let connection = streams::connection(Arc::clone(host), server, Arc::clone(&stop));
            probe.connection = Some(connection);
        }
        if let Some((port, count, every)) = self.lasting {
            let (server, host) = (SocketAddr::new(self.vip, port), Arc::clone(host));
            let stop = Arc::clone(&stop);
            probe.lasting = Some(streams::connections(host, server, count, every, stop));
        }
        if self.owners {
            let Client { observer, plan, .. } = self.client;
            probe.owners = Some(asking::watch(observer, *plan, self.vip, stop)?);
        }
        Ok(probe)
    }
}

/// A running probe.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    udp: Option<Sweep>,
    tcp: Option<JoinHandle<Result<Track>>>,
    connection: Option<JoinHandle<Result<Track>>>,
    lasting: Option<JoinHandle<Result<Vec<Track>>>>,
    owners: Option<JoinHandle<Result<Owners>>>,
}

impl Probe {
    /// Ends the probe, and reports once late answers had their time.
    pub async fn stop(mut self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let udp = self.udp.take().map(Sweep::stop_single);
        Ok(Report {
            udp: futures::future::OptionFuture::from(udp).await.transpose()?,
            tcp: join(self.tcp.take()).await?,
            connection: join(self.connection.take()).await?,
            lasting: join(self.lasting.take()).await?.unwrap_or_default(),
            owners: join(self.owners.take()).await?,
        })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn join<T: Send + 'static>(thread: Option<JoinHandle<Result<T>>>) -> Result<Option<T>> {
    let Some(thread) = thread else { return Ok(None) };
    let result = tokio::task::spawn_blocking(|| thread.join()).await?;
    result.map_err(|_| anyhow!("a probe panicked"))?.map(Some)
}

/// The observations of a probe, for each part of its plan.
#[derive(Clone, Debug)]
pub struct Report {
    /// Datagrams every 5 ms.
    pub udp: Option<Track>,
    /// New connections.
    pub tcp: Option<Track>,
    /// Requests on the one connection.
    pub connection: Option<Track>,
    /// Requests on each of the many that last.
    pub lasting: Vec<Track>,
    /// The hosts that answered ARP requests or Neighbor Solicitations.
    pub owners: Option<Owners>,
}

impl Report {
    /// The datagrams.
    pub fn udp(&self) -> Result<&Track> {
        self.udp.as_ref().ok_or_else(|| anyhow!("the probe sent no datagrams"))
    }

    /// The new connections.
    pub fn tcp(&self) -> Result<&Track> {
        self.tcp.as_ref().ok_or_else(|| anyhow!("the probe made no connections"))
    }

    /// The one connection.
    pub fn connection(&self) -> Result<&Track> {
        self.connection.as_ref().ok_or_else(|| anyhow!("the probe held no connection"))
    }

    /// The owners by ARP, or neighbor discovery.
    pub fn owners(&self) -> Result<&Owners> {
        self.owners.as_ref().ok_or_else(|| anyhow!("the probe asked nobody who owns the VIP"))
    }
}

/// Calls `tick` every `period` until told to stop. A late call is not made up for.
fn every(
    period: Duration,
    stop: &AtomicBool,
    mut tick: impl FnMut(Instant) -> Result<()>,
) -> Result<()> {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < next {
            std::thread::sleep(next - now);
            continue;
        }
        tick(now)?;
        next = now + period;
    }
    Ok(())
}
