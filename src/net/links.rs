//! What the kernel says of links, their addresses and gateways, kept current.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use leasehold_crds::lease::{DefaultRoutes, Detours};
use leasehold_crds::names::InterfaceName;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::SocketAddr;
use pnet_base::MacAddr;
use tokio::sync::watch;

use crate::clock::{Instant, sleep_until};
use crate::net::netlink::{Netlink, NetlinkError};
use crate::net::table::{Change, Table};
use crate::net::ways::Ways;

/// Everything is read anew this often, whatever the events have said: a message that could not be
/// decoded is not reported as lost.
const RESYNC: Duration = Duration::from_secs(30);

/// After how long that is done again where it failed, or changes came between.
const AGAIN: Duration = Duration::from_millis(100);

/// All links of this network namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(pub BTreeMap<InterfaceName, Link>);

impl Links {
    /// The link with the given name.
    pub fn get(&self, name: &InterfaceName) -> Option<&Link> {
        self.0.get(name)
    }

    /// The link with the given index.
    pub fn by_index(&self, index: u32) -> Option<&Link> {
        self.0.values().find(|link| link.index == index)
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
    /// Its Ethernet address; zero for a link that has none.
    pub mac: MacAddr,
    /// The largest packet that it sends, in bytes.
    pub mtu: u32,
    /// Whether it is up and can carry traffic.
    pub carrier: bool,
    /// Its kind as iproute2 writes it (`veth`, `bridge`, …); none for a physical device.
    pub kind: Option<String>,
    /// The bridge or bond that it is a port of.
    pub master: Option<u32>,
    /// The link that it is made on (VLAN, macvlan) or the other end (veth), where that is in this
    /// network namespace.
    pub lower: Option<u32>,
    /// Whether it is the loopback device.
    pub loopback: bool,
    /// The node's own addresses on it: all that do not bear our mark.
    pub addresses: Vec<LinkAddress>,
    /// Next hops of default routes through it.
    pub gateways: Vec<IpAddr>,
    /// The families whose default route leads through it: of several, the one with the lowest metric.
    pub default_routes: DefaultRoutes,
    /// Of its subnets, those whose hosts the kernel reaches by another link.
    pub detours: Detours,
}

impl Link {
    /// Whether `ip` lies in a subnet of one of the node's own addresses on it.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|address| address.contains(ip))
    }

    /// Whether the node has no address there, or none but that of the link.
    pub fn is_bare(&self) -> bool {
        self.addresses.iter().all(|address| match address.ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        })
    }

    /// The link-local IPv6 address, once it is usable.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|address| match address.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() && !address.tentative => Some(ip),
            _ => None,
        })
    }
}

/// An address of the node on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// The length of its subnet's prefix.
    pub prefix_len: u8,
    /// IPv6: duplicate address detection has not ended, or has found a duplicate.
    pub tentative: bool,
}

impl LinkAddress {
    /// Whether `ip` lies in its subnet.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ipnet::IpNet::new(self.ip, self.prefix_len).is_ok_and(|subnet| subnet.contains(&ip))
    }
}

/// Netlink's stream of events.
pub(crate) type Events = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// Keeps [`Links`] current from the kernel's events.
#[derive(Debug)]
pub(crate) struct LinksTask {
    netlink: Netlink,
    events: Events,
    table: Table,
    ways: Ways,
    links: watch::Sender<Links>,
    disturbed: watch::Sender<u64>,
    /// When everything is read anew.
    resync: Instant,
}

impl LinksTask {
    /// Reads everything once. `events` has to be subscribed already, so that nothing falls
    /// between.
    pub(crate) async fn new(netlink: Netlink, events: Events) -> Result<Self, NetlinkError> {
        let (table, whole) = netlink.table().await?;
        let resync = Instant::now() + if whole { RESYNC } else { AGAIN };
        let mut links = table.links();
        let ways = Ways::ask(&netlink, &links).await?;
        ways.tell(&mut links);
        let (links, disturbed) = (watch::Sender::new(links), watch::Sender::new(0));
        Ok(Self { netlink, events, table, ways, links, disturbed, resync })
    }

    /// The links, current.
    pub(crate) fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// How often the addresses with our mark had to be looked at, as [`Table::disturbed`] counts.
    pub(crate) fn disturbed(&self) -> watch::Receiver<u64> {
        self.disturbed.subscribe()
    }

    /// Runs until netlink ends, which is an error.
    pub(crate) async fn run(mut self) -> NetlinkError {
        loop {
            let change = tokio::select! {
                event = self.events.next() => match event {
                    Some((message, _)) => self.apply_all(message),
                    None => return NetlinkError::Closed,
                },
                () = sleep_until(self.resync) => Change::Everything,
            };
            self.tell_disturbed();
            let read = match change {
                Change::Nothing => continue,
                Change::Applied => Ok(()),
                Change::Routes => self.netlink.routes(&mut self.table).await,
                Change::Everything => {
                    self.resync = Instant::now() + RESYNC;
                    self.read_everything().await
                }
            };
            match read {
                Ok(()) => {}
                Err(NetlinkError::Closed) => return NetlinkError::Closed,
                Err(error) => {
                    tracing::warn!(%error, "cannot read links, addresses and routes: trying again");
                    self.resync = self.resync.min(Instant::now() + AGAIN);
                }
            }
            self.tell_disturbed();
            // What carries and what does not is told before the kernel is asked for anything.
            let links = self.tell_links();
            match Ways::ask(&self.netlink, &links).await {
                Ok(ways) => self.ways = ways,
                Err(NetlinkError::Closed) => return NetlinkError::Closed,
                Err(error) => tracing::warn!(%error, "cannot ask the kernel for its routes"),
            }
            self.tell_links();
        }
    }

    /// What may be missing of a dump that changes came between, events have told.
    async fn read_everything(&mut self) -> Result<(), NetlinkError> {
        let (table, whole) = self.netlink.table().await?;
        if !whole {
            return Err(NetlinkError::Interrupted);
        }
        self.table.replace_by(table);
        Ok(())
    }

    /// Publishes the links where something is different, and returns them.
    fn tell_links(&self) -> Links {
        let mut links = self.table.links();
        self.ways.tell(&mut links);
        self.links.send_if_modified(|known| {
            let modified = *known != links;
            known.clone_from(&links);
            modified
        });
        links
    }

    fn tell_disturbed(&self) {
        let count = self.table.disturbed();
        self.disturbed.send_if_modified(|known| std::mem::replace(known, count) != count);
    }

    /// Applies an event and all that wait behind it, so that a batch of changes is published once.
    fn apply_all(&mut self, first: NetlinkMessage<RouteNetlinkMessage>) -> Change {
        let mut change = Change::Nothing;
        let mut next = Some(first);
        while let Some(message) = next {
            change = change.max(match message.payload {
                NetlinkPayload::InnerMessage(message) => self.table.apply(&message),
                NetlinkPayload::Overrun(_) => Change::Everything,
                _ => Change::Nothing,
            });
            next = self.events.try_recv().ok().map(|(message, _)| message);
        }
        change
    }
}
