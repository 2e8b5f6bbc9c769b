//! Nodes that agree on the nodes of a Service, and spread what clients send to its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use leasehold::datapath::spread::{Placed, Spread, TABLE};
use leasehold::net::conntrack;
use leasehold::net::nft::connection::{Change, Nfnetlink};
use leasehold::net::nft::rules;
use leasehold::net::rtnl::links::Links;
use leasehold_core::desired::{Protocol, ServicePort};
use leasehold_core::election::{
    BUCKETS, Hop, Layout, Member, Order, SpreadAddress, Spreading, Way,
};
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableFlags};
use tokio::sync::watch;

use crate::moves::{Node, SOON};
use crate::pods::{BOTH, DNS, HTTP, connect, flow};
use crate::world::{Namespace, World, eth0};

/// The nodes of a Service as all of them should know them.
#[derive(Clone)]
pub struct Agreed<'a> {
    nodes: &'a [&'a Node],
    /// The nodes that are gone, by their places.
    gone: &'a [usize],
    orders: Vec<Order>,
    by_client: bool,
}

impl<'a> Agreed<'a> {
    /// The nodes of each bucket, as places among these nodes.
    pub fn on(nodes: &'a [&'a Node], order: impl Fn(u16) -> Vec<u16>) -> Self {
        let orders = (0..BUCKETS).map(|bucket| Order::of(order(bucket))).collect();
        Self { nodes, gone: &[], orders, by_client: false }
    }

    /// Each of these has the same number of buckets.
    pub fn even(nodes: &'a [&'a Node], having: &[u16]) -> Self {
        let has = |bucket| having.iter().copied().cycle().nth(usize::from(bucket));
        Self::on(nodes, |bucket| has(bucket).into_iter().collect())
    }

    /// All connections of a client are in one bucket.
    pub fn by_client(self) -> Self {
        Self { by_client: true, ..self }
    }

    /// These are gone.
    pub fn without(self, gone: &'a [usize]) -> Self {
        Self { gone, ..self }
    }

    /// The layout of an address as the node at this place has it.
    pub fn layout(&self, here: usize, owner: usize, vip: IpAddr) -> Result<Layout> {
        let mut members = Vec::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let way = if place == here {
                Way::Here
            } else if self.gone.contains(&place) {
                Way::None
            } else {
                Way::To(Hop { to: node.own(vip)?, interface: eth0() })
            };
            members.push(Member { macs: [node.host.mac()?].into(), way });
        }
        let owner = Some(u16::try_from(owner)?);
        Ok(Layout { members: members.into(), owner, buckets: self.orders.clone().into() })
    }

    /// The spreading of both addresses at the node at this place, with the place of their owner.
    pub fn at(&self, here: usize, owner: usize) -> Result<Spreading> {
        let mut spreading = Spreading::default();
        for (place, node) in self.nodes.iter().enumerate() {
            spreading.speakers.extend((place != here).then(|| node.host.mac()).transpose()?);
        }
        for vip in BOTH {
            let address = SpreadAddress {
                ports: ports(),
                by_client: self.by_client,
                interface: (here == owner).then(eth0),
                returns: None,
                layout: Arc::new(self.layout(here, owner, vip)?),
            };
            spreading.addresses.insert(vip, address);
        }
        Ok(spreading)
    }
}

/// The ports of the Service.
pub fn ports() -> Arc<BTreeSet<ServicePort>> {
    let ports = [(Protocol::Tcp, HTTP), (Protocol::Udp, DNS)];
    Arc::new(ports.map(|(protocol, port)| ServicePort { protocol, port }).into())
}

/// The thread of a node, and what it is told.
pub struct Spreader {
    pub spread: Spread,
    pub links: watch::Sender<Links>,
}

impl Spreader {
    /// Starts the thread of a node.
    pub fn start(node: &Node) -> Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let links = node.links()?;
        node.host.enter(|| {
            let _context = runtime.enter();
            let (links, receiver) = watch::channel(links);
            let (spread, _gate) = Spread::start(receiver)?;
            Ok(Self { spread, links })
        })
    }

    /// Waits until this is in place.
    pub async fn make(&self, spreading: Spreading) -> Result<Placed> {
        let wanted = Some(Arc::new(spreading));
        self.spread.wanted.send_replace(wanted.clone());
        let seen = self.seen(|view| view.applied == wanted).await?;
        ensure!(seen.failure.is_none(), "{:?}", seen.failure);
        Ok(seen)
    }

    /// Waits until the view is as `condition` wants it.
    pub async fn seen(&self, condition: impl FnMut(&Placed) -> bool) -> Result<Placed> {
        let mut view = self.spread.placed.clone();
        let seen = tokio::time::timeout(SOON, view.wait_for(condition)).await;
        Ok(seen.context("not in place")??.clone())
    }

    /// The process ends: its tables stay.
    pub async fn end(self) {
        let Spread { wanted, mut tasks, .. } = self.spread;
        drop(wanted);
        let _ = tokio::time::timeout(SOON, tasks.join_next()).await;
    }
}

/// The threads of nodes.
pub struct Spreaders(pub Vec<Spreader>);

impl Spreaders {
    /// Starts those of these nodes.
    pub fn start(nodes: &[&Node]) -> Result<Self> {
        Ok(Self(nodes.iter().map(|node| Spreader::start(node)).collect::<Result<_>>()?))
    }

    /// Waits until all of them have this: the owner, at this place, comes last. Packets take no slow path.
    pub async fn make(&self, agreed: &Agreed<'_>, owner: usize) -> Result<()> {
        let all = self.0.iter().enumerate();
        let (last, first): (Vec<_>, Vec<_>) = all.partition(|(place, _)| *place == owner);
        for (place, spreader) in first.into_iter().chain(last) {
            if !agreed.gone.contains(&place) {
                let view = spreader.make(agreed.at(place, owner)?).await?;
                ensure!(view.slow.is_none(), "{:?}", view.slow);
            }
        }
        Ok(())
    }
}

/// A node with this number.
pub fn node(world: &World, number: u8) -> Result<Node> {
    Node::new(world, &format!("node{number}"), number)
}

/// The nodes with these numbers: the first one is the owner.
pub fn three(world: &World) -> Result<[Node; 3]> {
    Ok([node(world, 11)?, node(world, 12)?, node(world, 13)?])
}

/// The pods to which new connections lead, each with their number; `count` to each address.
pub fn reached(client: &Namespace, count: usize) -> Result<BTreeMap<Option<u8>, usize>> {
    let mut reached = BTreeMap::new();
    for vip in BOTH {
        for _ in 0..count {
            let pod = connect(client, vip, SOON)?.map(|(_, pod)| pod);
            *reached.entry(pod).or_default() += 1;
        }
    }
    Ok(reached)
}

/// Ensures that new connections lead to the pods of all of these nodes, and to no others.
pub fn all_reached(client: &Namespace, nodes: &[&Node], name: &str) -> Result<()> {
    let reached = reached(client, 24)?;
    let pods: BTreeSet<_> = nodes.iter().map(|node| Some(node.pod.number)).collect();
    ensure!(reached.keys().copied().collect::<BTreeSet<_>>() == pods, "{name}: {reached:?}");
    Ok(())
}

/// The number of connections through the addresses that a node knows.
pub fn tracked(node: &Node) -> Result<u64> {
    node.host.enter(|| {
        let mut connection = Nfnetlink::open()?;
        Ok(conntrack::count(&mut connection, &BOTH.into())?.values().sum())
    })
}

/// The pods that answer datagrams of three fragments.
pub fn in_fragments(client: &Namespace, name: &str) -> Result<BTreeSet<Option<u8>>> {
    let mut pods = BTreeSet::new();
    for vip in BOTH {
        for _ in 0..12 {
            let flow = flow(client, vip)?;
            let answer = (0..5).find_map(|_| {
                flow.send(&[7; 3_000]).ok()?;
                let mut pod = [0];
                flow.recv(&mut pod).ok().map(|_| pod[0])
            });
            ensure!(answer.is_some(), "{vip}: {name}: no answer");
            pods.insert(answer);
        }
    }
    Ok(pods)
}

/// Another process owns the table of devices, and has made it anew; the kernel removes it with the socket of its owner.
pub fn owned_by_another(node: &Node) -> Result<Nfnetlink> {
    node.host.enter(|| {
        let table = || rules::table(TABLE);
        let mut owned = table();
        owned.attributes.push(TableAttribute::Flags(TableFlags::Owner));
        let changes = [
            Change::add("a table", NfTablesMessage::NewTable(table())),
            Change::delete("a table", NfTablesMessage::DeleteTable(table())),
            Change::add("a table", NfTablesMessage::NewTable(owned)),
        ];
        let mut other = Nfnetlink::open()?;
        let changes = changes.map(|change| change.of(NetfilterProtoFamily::NetDev));
        other.transact(changes.into())?;
        Ok(other)
    })
}

/// The number of these that are the pod of a node.
pub fn of(node: &Node, pods: &[u8]) -> u64 {
    pods.iter().map(|pod| u64::from(*pod == node.pod.number)).sum()
}

/// Counts the datagrams to the addresses that a host sees from now on.
pub fn count_datagrams(host: &Namespace) -> Result<()> {
    host.nft(&["table inet seen { }; delete table inet seen; table inet seen {
        chain prerouting { type filter hook prerouting priority -400;
            udp dport 53 counter comment \"datagrams\"
        }; }"])?;
    Ok(())
}

/// Their number.
pub fn datagrams(host: &Namespace) -> Result<u64> {
    let listed = host.nft(&["list", "table", "inet", "seen"])?;
    let (_, count) = listed.split_once("packets ").context("no count")?;
    Ok(count.split_whitespace().next().context("no count")?.parse()?)
}
