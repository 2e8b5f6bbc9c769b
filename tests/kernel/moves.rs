//! Nodes between which the addresses of a Service move: each with a pod of its own behind it, and what kube-proxy
//! makes of the Service.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold::clock;
use leasehold::datapath::forward::{Forward, Forwarded};
use leasehold::net::MacAddr;
use leasehold::net::rtnl::links::{Link, Links};
use leasehold_core::election::{Forwarding, Hop, Onward};
use leasehold_crds::lease::{DefaultRoutes, Detours};
use tokio::sync::watch;

use crate::pods::{BOTH, DNS, HTTP, PATIENCE, POD, Pod, connect, repeats};
use crate::world::{Namespace, World, eth0, eventually};

/// The patience with what must not take long.
pub const SOON: Duration = Duration::from_secs(5);
/// The time within which no answer comes that is not to come.
const BRIEFLY: Duration = Duration::from_millis(400);
/// The time for which a test forwards.
pub const LONG: Duration = Duration::from_secs(60);

/// A node.
pub struct Node {
    pub host: Namespace,
    pub pod: Pod,
    number: u8,
}

impl Node {
    pub fn new(world: &World, name: &str, number: u8) -> Result<Self> {
        Self::on(world, world.host(name, number)?, name, number)
    }

    /// A node on this host.
    pub fn on(world: &World, host: Namespace, name: &str, number: u8) -> Result<Self> {
        for setting in [
            "ipv4/ip_forward=1",
            "ipv4/conf/all/send_redirects=0",
            "ipv4/conf/eth0/send_redirects=0",
            "ipv6/conf/all/forwarding=1",
        ] {
            let (path, value) = setting.split_once('=').context("no value")?;
            host.write(&format!("/proc/sys/net/{path}"), value)?;
        }
        let pod = world.behind(&host, &format!("{name}-pod"), "pod0")?;
        for (interface, end, last) in [("pod0", &host, 1), ("eth0", &pod, 2)] {
            end.ip(&format!("addr add 10.0.{number}.{last}/24 dev {interface}"))?;
            end.ip(&format!("addr add fd01:{number}::{last}/64 dev {interface} nodad"))?;
        }
        pod.ip(&format!("route add default via 10.0.{number}.1"))?;
        pod.ip(&format!("route add default via fd01:{number}::1"))?;
        for vip in BOTH {
            let (family, pod) = match vip {
                IpAddr::V4(_) => ("ip", format!("10.0.{number}.2:{POD}")),
                IpAddr::V6(_) => ("ip6", format!("[fd01:{number}::2]:{POD}")),
            };
            host.nft(&[&format!(
                "table {family} kube-proxy {{
                   chain prerouting {{ type nat hook prerouting priority -100;
                     {family} daddr {vip} tcp dport {HTTP} dnat to {pod}
                     {family} daddr {vip} udp dport {DNS} dnat to {pod}
                   }}
                 }}"
            )])?;
        }
        Ok(Self { host, pod: Pod::start(pod, number)?, number })
    }

    /// An address of its own, of the family of `vip`.
    pub fn own(&self, vip: IpAddr) -> Result<IpAddr> {
        let number = self.number;
        Ok(match vip {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, number]),
            IpAddr::V6(_) => format!("fd00::{number}").parse()?,
        })
    }

    /// The link that forwarding asks for.
    pub fn links(&self) -> Result<Links> {
        let link = Link {
            index: self.host.index("eth0")?,
            name: eth0(),
            mac: self.host.mac()?,
            mtu: 1_500,
            carrier: true,
            kind: None,
            master: None,
            lower: None,
            loopback: false,
            addresses: Vec::new(),
            gateways: Vec::new(),
            default_routes: DefaultRoutes::default(),
            detours: Detours::default(),
        };
        Ok(Links([(eth0(), link)].into()))
    }

    /// The addresses, on this node alone: `hosts` find them here.
    pub fn serves(&self, nodes: &[&Self], hosts: &[&Namespace]) -> Result<()> {
        take(&self.host, hosts)?;
        for other in nodes.iter().filter(|other| other.number != self.number) {
            for vip in BOTH {
                // Where they were not there is nothing to do.
                let _ = other.host.ip(&format!("addr del {vip}/{} dev eth0", full(vip)));
            }
        }
        Ok(())
    }

    /// The sum of the packets that the rules with this comment have counted.
    pub fn counted(&self, comment: &str) -> Result<u64> {
        let rules = self.host.nft(&["list", "ruleset"])?;
        Ok(rules.lines().filter(|line| line.contains(comment)).filter_map(packets).sum())
    }
}

const fn full(vip: IpAddr) -> u8 {
    if vip.is_ipv4() { 32 } else { 128 }
}

fn packets(line: &str) -> Option<u64> {
    line.split_once("packets ")?.1.split_whitespace().next()?.parse().ok()
}

/// Puts the addresses on `owner`: `hosts` find them there.
fn take(owner: &Namespace, hosts: &[&Namespace]) -> Result<()> {
    let mac = owner.mac()?;
    for vip in BOTH {
        let deprecated = if vip.is_ipv4() { "" } else { " nodad preferred_lft 0" };
        owner.ip(&format!("addr replace {vip}/{} dev eth0{deprecated}", full(vip)))?;
        for host in hosts {
            host.ip(&format!("neigh replace {vip} lladdr {mac} dev eth0"))?;
        }
    }
    Ok(())
}

/// The forwarding of both addresses to `to`, which others have owned after this node.
pub fn onward(to: &Node, later: &[&Node], speakers: &[&Node]) -> Result<Forwarding> {
    let macs = |nodes: &[&Node]| -> Result<BTreeSet<MacAddr>> {
        nodes.iter().map(|node| node.host.mac()).collect()
    };
    let mut all = BTreeMap::new();
    for vip in BOTH {
        let onward = Onward {
            to: Some(Hop { to: to.own(vip)?, interface: eth0() }),
            owned: true,
            later: macs(later)?,
            others: BTreeSet::new(),
            flows: true,
            flows_until: None,
            until: clock::now() + LONG,
        };
        all.insert(vip, onward);
    }
    Ok(Forwarding { onward: all, speakers: macs(speakers)?, ..Forwarding::default() })
}

/// The thread of a node, and what it is told.
pub struct Running {
    pub forward: Forward,
    pub links: watch::Sender<Links>,
}

impl Running {
    pub fn start(host: &Namespace, links: Links) -> Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        host.enter(|| {
            let _context = runtime.enter();
            let (links, receiver) = watch::channel(links);
            let (forward, _gate) = Forward::start(receiver)?;
            Ok(Self { forward, links })
        })
    }

    /// Starts the thread of a node, and waits until this is in place.
    pub async fn with(node: &Node, forwarding: Forwarding) -> Result<Self> {
        let running = Self::start(&node.host, node.links()?)?;
        running.make(forwarding).await?;
        Ok(running)
    }

    /// Waits until this is in place.
    pub async fn make(&self, forwarding: Forwarding) -> Result<Forwarded> {
        let wanted = Some(Arc::new(forwarding));
        self.forward.wanted.send_replace(wanted.clone());
        let seen = self.seen(|view| view.applied == wanted).await?;
        ensure!(seen.failure.is_none(), "{:?}", seen.failure);
        Ok(seen)
    }

    /// Waits until the view is as `condition` wants it.
    pub async fn seen(&self, condition: impl FnMut(&Forwarded) -> bool) -> Result<Forwarded> {
        let mut view = self.forward.forwarded.clone();
        let seen = tokio::time::timeout(SOON, view.wait_for(condition)).await;
        Ok(seen.context("not in place")??.clone())
    }

    /// The process ends: its tables stay.
    pub async fn end(self) {
        let Forward { wanted, mut tasks, .. } = self.forward;
        drop(wanted);
        let _ = tokio::time::timeout(SOON, tasks.join_next()).await;
    }
}

/// A client behind a router, whose link to it takes smaller packets.
pub fn far(world: &World, nodes: &[&Node]) -> Result<[Namespace; 2]> {
    let router = world.host("router", 3)?;
    let far = world.behind(&router, "far", "far0")?;
    router.write("/proc/sys/net/ipv4/ip_forward", "1")?;
    router.write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
    for (host, interface, last) in [(&router, "far0", 1), (&far, "eth0", 2)] {
        host.ip(&format!("addr add 198.51.100.{last}/24 dev {interface}"))?;
        host.ip(&format!("addr add fd02::{last}/64 dev {interface} nodad"))?;
    }
    far.ip("route add default via 198.51.100.1")?;
    far.ip("route add default via fd02::1")?;
    for node in nodes {
        node.host.ip("route add 198.51.100.0/24 via 192.0.2.3")?;
        node.host.ip("route add fd02::/64 via fd00::3")?;
    }
    Ok([router, far])
}

/// Connections that began on a node.
pub struct Open(Vec<(IpAddr, TcpStream)>);

impl Open {
    /// So many to each address; they lead to the pod of `node`.
    pub fn at(node: &Node, client: &Namespace, count: usize) -> Result<Self> {
        let mut open = Vec::new();
        for vip in BOTH {
            for _ in 0..count {
                let (stream, pod) = connect(client, vip, SOON)?.context("no connection")?;
                ensure!(pod == node.number, "{vip} leads to {pod}");
                stream.set_read_timeout(Some(SOON))?;
                open.push((vip, stream));
            }
        }
        Ok(Self(open))
    }

    /// So many to each address, wherever they lead; the pods to which they do.
    pub fn anywhere(client: &Namespace, count: usize) -> Result<(Self, Vec<u8>)> {
        let (mut open, mut pods) = (Vec::new(), Vec::new());
        for vip in BOTH {
            for _ in 0..count {
                let (stream, pod) = connect(client, vip, SOON)?.context("no connection")?;
                stream.set_read_timeout(Some(SOON))?;
                open.push((vip, stream));
                pods.push(pod);
            }
        }
        Ok((Self(open), pods))
    }

    /// Ends those for which this does not hold; it is asked in the order in which they began.
    pub fn keep(&mut self, mut keep: impl FnMut() -> bool) {
        self.0.retain(|_| keep());
    }

    /// Ensures that all of them live: data go both ways, one packet and many.
    pub fn live(&mut self, name: &str) -> Result<()> {
        for (vip, stream) in &mut self.0 {
            repeats(stream)
                .and_then(|()| stream.write_all(&[7; 8_000]))
                .and_then(|()| stream.read_exact(&mut [0; 8_000]))
                .with_context(|| format!("{vip}: {name}"))?;
        }
        Ok(())
    }

    /// Ensures that none of them gets an answer for a while, and none is reset.
    pub fn wait(&mut self, name: &str) -> Result<()> {
        for (vip, stream) in &mut self.0 {
            stream.set_read_timeout(Some(BRIEFLY))?;
            let answer = repeats(stream).map_err(|error| error.kind());
            stream.set_read_timeout(Some(SOON))?;
            ensure!(answer == Err(ErrorKind::WouldBlock), "{vip}: {name}: {answer:?}");
        }
        Ok(())
    }

    /// Ensures that all of them get the answers for which they have waited.
    pub fn go_on(&mut self, name: &str) -> Result<()> {
        for (vip, stream) in &mut self.0 {
            stream.read_exact(&mut [0]).with_context(|| format!("{vip}: {name}"))?;
        }
        self.live(name)
    }

    /// Ensures that none of them does: each is reset.
    pub fn reset(mut self, name: &str) -> Result<()> {
        for (vip, stream) in &mut self.0 {
            match repeats(stream).map_err(|error| error.kind()) {
                Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
                other => bail!("{vip}: {name}: {other:?}"),
            }
        }
        Ok(())
    }

    /// The number of connections.
    pub fn len(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }
}

/// Connections that none of the nodes knows: a stranger has the addresses when they begin.
pub fn unknown(world: &World, name: &str, number: u8) -> Result<(Namespace, Vec<TcpStream>)> {
    unknown_to(world, name, number, HTTP)
}

/// The same, to this port.
pub fn unknown_to(
    world: &World,
    name: &str,
    number: u8,
    port: u16,
) -> Result<(Namespace, Vec<TcpStream>)> {
    let stranger = world.host(name, number)?;
    take(&stranger, &[&world.client])?;
    let listener = stranger.enter(|| Ok(TcpListener::bind(("::", port))?))?;
    let mut streams = Vec::new();
    for vip in BOTH {
        let connect = || Ok(TcpStream::connect_timeout(&(vip, port).into(), SOON)?);
        let stream = world.client.enter(connect)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // It is not to say anything more about them.
        std::mem::forget(listener.accept()?);
        streams.push(stream);
    }
    Ok((stranger, streams))
}

/// The comment of the rule that counts frames.
const SEEN: &str = "frames of open connections";

/// Counts on each node the frames of connections to the addresses, but for those that begin one.
pub fn count_frames(nodes: &[&Node]) -> Result<()> {
    let [four, six] = BOTH;
    for node in nodes {
        node.host.nft(&[&format!(
            "table inet seen {{ }}; delete table inet seen; table inet seen {{
               chain prerouting {{ type filter hook prerouting priority -400;
                 iif eth0 ip daddr {four} tcp flags & (syn | rst) == 0 counter comment \"{SEEN}\"
                 iif eth0 ip6 daddr {six} tcp flags & (syn | rst) == 0 counter comment \"{SEEN}\"
               }}
             }}"
        )])?;
    }
    Ok(())
}

/// Lets each of these say something: whether it was reset then, and the number of frames that each node has seen of it.
pub fn visits(streams: Vec<TcpStream>, nodes: &[&Node]) -> Result<Vec<(bool, Vec<u64>)>> {
    let mut all = Vec::new();
    for mut stream in streams {
        count_frames(nodes)?;
        stream.write_all(b"!")?;
        let ended = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        let reset = ended == Err(ErrorKind::ConnectionReset);
        let mut seen = Vec::new();
        for node in nodes {
            seen.push(node.counted(SEEN)?);
        }
        all.push((reset, seen));
    }
    Ok(all)
}

/// Waits until the node has no table for forwarding.
pub async fn no_table(host: &Namespace) -> Result<()> {
    let none = || Ok(!host.nft(&["list", "tables"])?.contains("leasehold-forward"));
    eventually("the tables are gone", SOON, none).await?;
    Ok(())
}
