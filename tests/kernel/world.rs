//! A segment with hosts: network namespaces on a bridge.

use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use leasehold::announce::{self, Announcement};
use leasehold::clock;
use leasehold::datapath::forward::Forward;
use leasehold::datapath::gates::Gates;
use leasehold::datapath::guard::Guard;
use leasehold::datapath::return_path::{ReturnPaths, Sources};
use leasehold::datapath::spread::Spread;
use leasehold::host::StateFolder;
use leasehold::net::MacAddr;
use leasehold::net::edge::Edge;
use leasehold::net::hearing::Attention;
use leasehold::net::rtnl::mark::Mark;
use leasehold_core::clock::Instant;
use leasehold_core::desired;
use leasehold_core::election::{Attachment, KernelView, ServedVip, Serving};
use leasehold_crds::names::InterfaceName;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::watch;

/// A test: its name and what it does.
pub type Test = (&'static str, fn(&World) -> Result<()>);

/// Runs a command; its output, or an error that shows what it said.
pub fn run(command: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(command)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot execute {command}"))?;
    if !output.status.success() {
        bail!(
            "{command} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A segment: a bridge in a namespace of its own, a node (192.0.2.1, `fd00::1`) and a client
/// (192.0.2.2, `fd00::2`), both with the interface `eth0`.
#[derive(Debug)]
pub struct World {
    prefix: String,
    /// Where the bridge is.
    pub lan: Namespace,
    /// The node under test.
    pub node: Namespace,
    /// Another host.
    pub client: Namespace,
}

impl World {
    /// A segment of its own for a test; `prefix` tells its namespaces apart. Speakers on the node mark addresses
    /// by `mark`, or else by the best that the kernel keeps.
    pub fn new(prefix: &str, mark: Option<Mark>) -> Result<Self> {
        let lan = Namespace::new(format!("{prefix}-lan"))?;
        lan.ip("link add br0 type bridge")?;
        lan.ip("link set br0 up")?;
        let mut node = Namespace::new(format!("{prefix}-node"))?;
        node.mark = mark;
        let client = Namespace::new(format!("{prefix}-client"))?;
        let world = Self { prefix: prefix.to_owned(), lan, node, client };
        world.attach(&world.node, "eth0", "node", Some(1))?;
        world.attach(&world.client, "eth0", "client", Some(2))?;
        Ok(world)
    }

    /// Another host on the segment.
    pub fn host(&self, name: &str, number: u8) -> Result<Namespace> {
        let host = Namespace::new(format!("{}-{name}", self.prefix))?;
        self.attach(&host, "eth0", name, Some(number))?;
        Ok(host)
    }

    /// Another host on the segment, whose `eth0` is the bridge that its interface to it is a port of.
    pub fn bridged(&self, name: &str, number: u8) -> Result<Namespace> {
        let host = Namespace::new(format!("{}-{name}", self.prefix))?;
        self.attach(&host, "port0", name, None)?;
        host.ip("link add eth0 type bridge")?;
        host.ip("link set port0 master eth0")?;
        host.number("eth0", number)?;
        Ok(host)
    }

    /// Another host on the segment, whose `eth0` is a macvlan of its interface to it.
    pub fn macvlan(&self, name: &str, number: u8) -> Result<Namespace> {
        let host = Namespace::new(format!("{}-{name}", self.prefix))?;
        self.attach(&host, "port0", name, None)?;
        host.ip("link add eth0 link port0 type macvlan mode bridge")?;
        host.number("eth0", number)?;
        Ok(host)
    }

    /// Another host, whose `eth0` is connected with the interface `link` of the node and nothing else.
    pub fn beside(&self, name: &str, link: &str) -> Result<Namespace> {
        self.behind(&self.node, name, link)
    }

    /// Another host, whose `eth0` is connected with the interface `link` of `host` and nothing else.
    pub fn behind(&self, host: &Namespace, name: &str, link: &str) -> Result<Namespace> {
        let other = Namespace::new(format!("{}-{name}", self.prefix))?;
        host.ip(&format!("link add {link} type veth peer name eth0 netns {}", other.name()))?;
        host.ip(&format!("link set {link} up"))?;
        other.ip("link set eth0 up")?;
        Ok(other)
    }

    /// Connects an interface of `host` with the port `port` of the bridge.
    pub fn attach(
        &self,
        host: &Namespace,
        interface: &str,
        port: &str,
        number: Option<u8>,
    ) -> Result<()> {
        let (lan, name) = (&self.lan, &host.name);
        lan.ip(&format!("link add {port} type veth peer name {interface} netns {name}"))?;
        lan.ip(&format!("link set {port} master br0 up"))?;
        match number {
            Some(number) => host.number(interface, number),
            None => host.ip(&format!("link set {interface} up")).map(drop),
        }
    }
}

/// A network namespace; removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// What a speaker here marks addresses by.
    pub mark: Option<Mark>,
}

impl Namespace {
    fn new(name: String) -> Result<Self> {
        run("ip", &["netns", "add", &name])?;
        let namespace = Self { name, mark: None };
        namespace.ip("link set lo up")?;
        // Link-local addresses are usable at once.
        for setting in ["all", "default"] {
            namespace.write(&format!("/proc/sys/net/ipv6/conf/{setting}/accept_dad"), "0")?;
        }
        Ok(namespace)
    }

    /// Sets an interface up, with the addresses of the host with this number.
    fn number(&self, interface: &str, number: u8) -> Result<()> {
        self.ip(&format!("link set {interface} up"))?;
        self.ip(&format!("addr add 192.0.2.{number}/24 dev {interface}"))?;
        self.ip(&format!("addr add fd00::{number}/64 dev {interface} nodad"))?;
        Ok(())
    }

    /// What `ip` knows it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index of an interface.
    pub fn index(&self, interface: &str) -> Result<u32> {
        let text = self.ip(&format!("-o link show dev {interface}"))?;
        let index = text.split(':').next().and_then(|index| index.trim().parse().ok());
        index.with_context(|| format!("{interface} has no index"))
    }

    /// `ip` with the given arguments, here.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments.split_whitespace());
        run("ip", &all)
    }

    /// `nft` with the given arguments, here.
    pub fn nft(&self, arguments: &[&str]) -> Result<String> {
        let netns = ["netns", "exec", &self.name, "nft"];
        run("ip", &[netns.as_slice(), arguments].concat())
    }

    /// Writes a kernel setting, here.
    pub fn write(&self, path: &str, value: &str) -> Result<()> {
        self.enter(|| std::fs::write(path, value).with_context(|| format!("cannot write {path}")))
    }

    /// Runs `work` on a thread in this namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let file = std::fs::File::open(format!("/run/netns/{}", self.name))?;
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind)?;
                work()
            });
            thread.join().map_err(|_| anyhow!("the thread panicked"))?
        })
    }

    /// Runs `work` under tokio in this namespace.
    pub fn block_on<F>(&self, work: impl FnOnce() -> F + Send) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        self.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(60), work())
                    .await
                    .context("the test did not end within 60 s")?
            })
        })
    }

    /// Runs `work` under tokio in this namespace, with a running speaker's edge.
    pub fn speak<F>(&self, work: impl FnOnce(Speaker) -> F + Send) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        self.block_on(|| async { work(Speaker::marking_by(self.mark).await?).await })
    }

    /// The MAC of `eth0`.
    pub fn mac(&self) -> Result<MacAddr> {
        let text = self.ip("-o link show dev eth0")?;
        let mac = text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        mac.and_then(|mac| mac.parse().ok()).context("eth0 has no MAC")
    }

    /// The MAC that this host believes `ip` to have.
    pub fn neighbour(&self, ip: IpAddr) -> Result<Option<MacAddr>> {
        let text = self.ip(&format!("neigh show to {ip} dev eth0"))?;
        let mac = text.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
        Ok(mac.and_then(|mac| mac.parse().ok()))
    }

    /// How long a TCP connection to a closed port of `ip` takes until it is refused.
    pub fn refused_after(&self, ip: IpAddr, timeout: Duration) -> Result<Duration> {
        self.enter(|| {
            let before = clock::now();
            match std::net::TcpStream::connect_timeout(&(ip, 9).into(), timeout) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    Ok(clock::now().saturating_since(before))
                }
                other => bail!("connecting to {ip} ended otherwise: {other:?}"),
            }
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The sandbox ends with the process and takes what is left with it.
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

/// The edge, the announcement and the guard of a speaker.
#[derive(Debug)]
pub struct Speaker {
    pub edge: Edge,
    pub announcement: Announcement,
    pub guard: Guard,
    /// The forwarding to former owners, of which nothing is wanted; its end would end the announcement.
    pub forward: Forward,
    /// The spreading over nodes, likewise.
    pub spread: Spread,
    pub return_paths: ReturnPaths,
    pub serving: watch::Sender<Serving>,
    pub state: StateFolder,
}

impl Speaker {
    /// Starts them in the namespace of the calling thread.
    pub async fn start() -> Result<Self> {
        Self::marking_by(None).await
    }

    /// Starts them in the namespace of the calling thread, with a mark.
    pub async fn marking_by(mark: Option<Mark>) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);

        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        Self::keeping(StateFolder::open(&Path::new("/mnt").join(number.to_string()))?, mark).await
    }

    /// Starts them in the namespace of the calling thread, with a mark and what is kept in this folder.
    pub async fn keeping(state: StateFolder, mark: Option<Mark>) -> Result<Self> {
        let edge = Edge::start(mark).await?;
        let (serving, receiver) = watch::channel(Serving::default());
        let (guard, gate) = Guard::start()?;
        let (forward, forward_gate) = Forward::start(edge.links.clone())?;
        let (spread, spread_gate) = Spread::start(edge.links.clone())?;
        let sources = Sources {
            serving: receiver.clone(),
            forwarding: forward.wanted.subscribe(),
            spreading: spread.wanted.subscribe(),
            links: edge.links.clone(),
            netlink: edge.netlink.clone(),
            state: state.clone(),
        };
        let (return_paths, return_gate) = ReturnPaths::start(sources)?;
        let gates = Gates {
            guard: gate,
            forward: forward_gate,
            spread: spread_gate,
            return_path: return_gate,
        };
        let announcement = announce::start(
            receiver,
            watch::channel(KernelView::default()).0,
            &edge,
            gates,
            state.clone(),
        )
        .await;
        let speaker =
            Self { edge, announcement, guard, forward, spread, return_paths, serving, state };
        speaker.attend(|attention| {
            attention.interfaces.insert(eth0());
        });
        Ok(speaker)
    }

    /// Changes what the edge attends to.
    pub fn attend(&self, change: impl FnOnce(&mut Attention)) {
        self.edge.attention.send_modify(change);
    }

    /// Serves exactly `vips` on `eth0` for `lifetime` from now.
    pub fn serve(&self, vips: &[IpAddr], lifetime: Duration) {
        self.serve_on(&eth0(), vips, lifetime);
    }

    /// Serves exactly `vips` on `interface` for `lifetime` from now.
    pub fn serve_on(&self, interface: &InterfaceName, vips: &[IpAddr], lifetime: Duration) {
        let until = clock::now() + lifetime;
        self.serving.send_modify(|serving| {
            serving.generation += 1;
            serving.complete = true;
            serving.vips = vips.iter().map(|ip| (*ip, served(interface, until))).collect();
        });
    }

    /// Waits until the kernel was last seen as `condition` wants it.
    pub async fn kernel(
        &self,
        what: &str,
        within: Duration,
        condition: impl FnMut(&KernelView) -> bool,
    ) -> Result<KernelView> {
        let mut kernel = self.announcement.kernel.clone();
        let waited = tokio::time::timeout(within, kernel.wait_for(condition)).await;
        match waited {
            Ok(view) => Ok(view?.clone()),
            Err(_) => bail!(
                "not within {within:?}: {what}; the kernel was last seen as {:?}",
                *self.announcement.kernel.borrow()
            ),
        }
    }

    /// Waits until all of `vips` are there, or gone.
    pub async fn have(&self, vips: &[IpAddr], present: bool) -> Result<KernelView> {
        let what = format!("{vips:?} {}", if present { "present" } else { "absent" });
        self.kernel(&what, Duration::from_secs(5), |view| {
            vips.iter().all(|ip| view.ours.contains_key(ip) == present)
        })
        .await
    }
}

pub fn eth0() -> InterfaceName {
    interface("eth0")
}

#[expect(clippy::expect_used, reason = "the names of the tests are valid")]
pub fn interface(name: &str) -> InterfaceName {
    name.parse().expect("a valid interface name")
}

#[expect(clippy::expect_used, reason = "the name is valid")]
pub fn served(interface: &InterfaceName, until: Instant) -> ServedVip {
    ServedVip {
        claim: "default.web".parse().expect("a valid lease name"),
        attachment: Attachment::OnLink { interface: interface.clone() },
        until,
        ownership: 1,
        announcement: desired::Announcement::default(),
        return_path: desired::ReturnPath::default(),
    }
}

/// Looks at `condition` every 5 ms until it holds.
pub async fn eventually(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = clock::now();
    loop {
        if condition()? {
            return Ok(clock::now().saturating_since(start));
        }
        ensure!(clock::now() < start + within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
