//! Routing rules (`ip rule`), and routes of all tables.
//!
//! What this process adds carries [`PROTOCOL`] as its protocol (`FRA_PROTOCOL`, `rtm_protocol`), which iproute2 prints
//! as `proto 76`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use ipnet::IpNet;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::SocketAddr;
use rtnetlink::MulticastGroup;

use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::mark::PROTOCOL;
use crate::net::rtnl::netlink::Netlink;

/// The table `main`.
pub const MAIN: u32 = 254;

/// A routing rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Whether it is one of IPv6.
    pub ipv6: bool,
    /// Its place: rules are tried from the lowest on.
    pub priority: u32,
    /// The mark that a packet has, and the bits of it that count.
    pub mark: Option<(u32, u32)>,
    /// The interface by which a packet has come; when a source is looked up, that by which it goes on (`fib_validate_source`
    /// in the kernel's `net/ipv4/fib_frontend.c`).
    pub interface: Option<String>,
    /// The consequence.
    pub then: Then,
}

/// The consequence of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// A table is looked up.
    Lookup(u32),
    /// A table is looked up, and a default route there does not count.
    LookupSpecific(u32),
    /// The rules are tried from the one with this priority on.
    Goto(u32),
    /// None.
    Nothing,
    /// Another one, or under conditions that [`Rule`] does not have.
    Other,
}

/// A rule as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRow {
    /// The rule.
    pub rule: Rule,
    /// Whether it has our protocol.
    pub ours: bool,
    /// Whether it is for packets that do not match.
    pub inverted: bool,
    /// The table that it names, whatever its conditions.
    pub table: u32,
    message: RuleMessage,
}

/// A route with one next hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Its table.
    pub table: u32,
    /// Its destination.
    pub to: IpNet,
    /// The metric: of several routes to one destination the lowest counts.
    pub metric: u32,
    /// The index of the interface by which it leads.
    pub interface: u32,
    /// The gateway, if it leads to one.
    pub gateway: Option<IpAddr>,
    /// Whether the gateway is on the link although no subnet holds it.
    pub onlink: bool,
}

/// A route as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRow {
    /// The route.
    pub route: Route,
    /// Whether it has our protocol.
    pub ours: bool,
    /// Whether the kernel itself has added it.
    pub by_kernel: bool,
}

/// The rules and the routes of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The rules.
    pub rules: Vec<RuleRow>,
    /// The unicast routes; one with several next hops once for each.
    pub routes: Vec<RouteRow>,
}

const fn family(ipv6: bool) -> AddressFamily {
    if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

impl Rule {
    /// The message that adds it, or deletes it.
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(self.ipv6);
        let mut attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
        ];
        if let Some((mark, mask)) = self.mark {
            attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
        }
        attributes.extend(self.interface.clone().map(RuleAttribute::Iifname));
        message.header.action = match self.then {
            Then::Lookup(table) => {
                attributes.push(RuleAttribute::Table(table));
                RuleAction::ToTable
            }
            Then::LookupSpecific(table) => {
                attributes.push(RuleAttribute::Table(table));
                attributes.push(RuleAttribute::SuppressPrefixLen(0));
                RuleAction::ToTable
            }
            Then::Goto(priority) => {
                attributes.push(RuleAttribute::Goto(priority));
                RuleAction::Goto
            }
            Then::Nothing | Then::Other => RuleAction::Nop,
        };
        message.attributes = attributes;
        message
    }
}

impl RuleRow {
    /// Reads a row of a dump.
    fn read(message: RuleMessage) -> Self {
        let header = &message.header;
        let mut rule = Rule {
            ipv6: header.family == AddressFamily::Inet6,
            priority: 0,
            mark: None,
            interface: None,
            then: Then::Nothing,
        };
        let (mut ours, mut table, mut target) = (false, u32::from(header.table), None);
        let (mut mark, mut bits, mut specific) = (0, 0, false);
        let mut other = header.dst_len != 0 || header.tos != 0;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::FwMark(value) => mark = *value,
                RuleAttribute::FwMask(value) => bits = *value,
                RuleAttribute::Iifname(name) => rule.interface = Some(name.clone()),
                RuleAttribute::Table(number) => table = *number,
                RuleAttribute::Goto(priority) => target = Some(*priority),
                RuleAttribute::Protocol(protocol) => {
                    ours = *protocol == RouteProtocol::Other(PROTOCOL);
                }
                RuleAttribute::SuppressPrefixLen(0) => specific = true,
                // The kernel says -1 for none.
                RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
                _ => other = true,
            }
        }
        rule.mark = (bits != 0).then_some((mark, bits));
        let inverted = header.flags.contains(RuleFlags::Invert);
        rule.then = match (header.action, target) {
            _ if other || inverted => Then::Other,
            (RuleAction::ToTable, _) if specific => Then::LookupSpecific(table),
            (RuleAction::ToTable, _) => Then::Lookup(table),
            (RuleAction::Goto, Some(priority)) => Then::Goto(priority),
            (RuleAction::Nop, _) => Then::Nothing,
            _ => Then::Other,
        };
        Self { rule, ours, inverted, table, message }
    }

    /// A row of a rule of ours, as it is once it is added.
    pub fn of(rule: Rule) -> Self {
        let table = match rule.then {
            Then::Lookup(table) | Then::LookupSpecific(table) => table,
            Then::Goto(_) | Then::Nothing | Then::Other => 0,
        };
        let message = rule.message();
        Self { rule, ours: true, inverted: false, table, message }
    }
}

impl Route {
    /// The message that adds it, or deletes it.
    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(matches!(self.to, IpNet::V6(_)));
        header.destination_prefix_length = self.to.prefix_len();
        header.protocol = RouteProtocol::Other(PROTOCOL);
        header.kind = RouteType::Unicast;
        let on_link = self.gateway.is_none() && self.to.network().is_ipv4();
        header.scope = if on_link { RouteScope::Link } else { RouteScope::Universe };
        if self.onlink {
            header.flags = RouteFlags::Onlink;
        }
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Oif(self.interface),
            RouteAttribute::Priority(self.metric),
        ];
        if self.to.prefix_len() > 0 {
            message.attributes.push(RouteAttribute::Destination(self.to.network().into()));
        }
        message.attributes.extend(self.gateway.map(|gateway| match (gateway, self.to) {
            (IpAddr::V6(gateway), IpNet::V4(_)) => RouteAttribute::Via(RouteVia::Inet6(gateway)),
            _ => RouteAttribute::Gateway(gateway.into()),
        }));
        message
    }
}

/// The routes of a row of a dump; none where it is no unicast route, or one that needs more than a next hop.
fn read_route(message: &RouteMessage) -> Vec<RouteRow> {
    let header = &message.header;
    let dead = RouteFlags::Dead | RouteFlags::Linkdown;
    let unspecified: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Vec::new(),
    };
    if header.kind != RouteType::Unicast || header.flags.intersects(dead) || header.tos != 0 {
        return Vec::new();
    }
    let (mut table, mut metric, mut to) = (u32::from(header.table), 0, unspecified);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => to = IpAddr::V4(*ip),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => to = IpAddr::V6(*ip),
            RouteAttribute::Source(_) | RouteAttribute::Encap(_) => return Vec::new(),
            _ => {}
        }
    }
    let Ok(to) = IpNet::new(to, header.destination_prefix_length) else { return Vec::new() };
    let row = |(interface, gateway, onlink)| RouteRow {
        route: Route { table, to, metric, interface, gateway, onlink },
        ours: header.protocol == RouteProtocol::Other(PROTOCOL),
        by_kernel: header.protocol == RouteProtocol::Kernel,
    };
    next_hops(message).into_iter().map(row).collect()
}

/// The interfaces of a route, each with the gateway there, and whether that is on the link whatever the subnets.
fn next_hops(message: &RouteMessage) -> Vec<(u32, Option<IpAddr>, bool)> {
    let mut hops = Vec::new();
    let onlink = message.header.flags.contains(RouteFlags::Onlink);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => {
                hops.push((*index, gateway(&message.attributes), onlink));
            }
            RouteAttribute::MultiPath(paths) => hops.extend(paths.iter().map(|path| {
                let onlink = path.flags.contains(RouteNextHopFlags::Onlink);
                (path.interface_index, gateway(&path.attributes), onlink)
            })),
            _ => {}
        }
    }
    hops
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip))
        | RouteAttribute::Via(RouteVia::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip))
        | RouteAttribute::Via(RouteVia::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })
}

impl Netlink {
    /// Reads the rules and the routes.
    pub async fn routing(&self) -> Result<Routing, NetlinkError> {
        let mut routing = Routing::default();
        for ipv6 in [false, true] {
            let mut request = RuleMessage::default();
            request.header.family = family(ipv6);
            let (rows, _) = self.dump(RouteNetlinkMessage::GetRule(request)).await?;
            routing.rules.extend(rows.into_iter().filter_map(|row| match row {
                RouteNetlinkMessage::NewRule(message) => Some(RuleRow::read(message)),
                _ => None,
            }));
        }
        let (routes, _) = self.route_messages().await?;
        routing.routes = routes.iter().flat_map(read_route).collect();
        Ok(routing)
    }

    /// Adds a rule; one that is there is left as it is.
    pub async fn add_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        let mut request = self.handle.rule().add();
        *request.message_mut() = rule.message();
        match request.execute().await.map_err(NetlinkError::from) {
            Err(NetlinkError::Exists) => Ok(()),
            done => done,
        }
    }

    /// Deletes a rule that a dump has shown; if it is gone there is nothing to do.
    pub async fn delete_rule(&self, row: &RuleRow) -> Result<(), NetlinkError> {
        unless_gone(self.handle.rule().del(row.message.clone()).execute().await)
    }

    /// Adds a route; one that is there is left as it is.
    pub async fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        match self.handle.route().add(route.message()).execute().await.map_err(NetlinkError::from) {
            Err(NetlinkError::Exists) => Ok(()),
            done => done,
        }
    }

    /// Deletes a route of ours that a dump has shown; if it is gone there is nothing to do.
    pub async fn delete_route(&self, route: &Route) -> Result<(), NetlinkError> {
        unless_gone(self.handle.route().del(route.message()).execute().await)
    }
}

fn unless_gone(deleted: Result<(), rtnetlink::Error>) -> Result<(), NetlinkError> {
    match deleted.map_err(NetlinkError::from) {
        Err(NetlinkError::NoInterface) => Ok(()),
        Err(NetlinkError::Refused(error))
            if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) =>
        {
            Ok(())
        }
        deleted => deleted,
    }
}

/// The news of rules and routes, whoever changes them.
#[derive(Debug)]
pub struct RoutingNews(UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>);

/// One of the news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A rule, and whether it has our protocol.
    Rule {
        /// Whether it has.
        ours: bool,
    },
    /// A route of this table by these interfaces.
    Route {
        /// The table.
        table: u32,
        /// The interfaces.
        interfaces: Vec<u32>,
    },
    /// It may have been anything.
    Unknown,
}

impl RoutingNews {
    /// Listens in the network namespace of the calling thread. The future drives it.
    pub fn open() -> Result<(Self, impl Future<Output = ()> + Send), NetlinkError> {
        let groups = [
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, events) =
            rtnetlink::new_multicast_connection(&groups).map_err(NetlinkError::Open)?;
        Ok((Self(events), connection))
    }

    /// Waits for the next of the news; `None` where the connection has ended.
    pub async fn next(&mut self) -> Option<Changed> {
        let (message, _) = self.0.next().await?;
        Some(match message.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewRule(message) | RouteNetlinkMessage::DelRule(message),
            ) => Changed::Rule { ours: RuleRow::read(message).ours },
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message),
            ) => {
                let table = message.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Table(table) => Some(*table),
                    _ => None,
                });
                let interfaces = next_hops(&message).into_iter().map(|(index, ..)| index);
                Changed::Route {
                    table: table.unwrap_or_else(|| u32::from(message.header.table)),
                    interfaces: interfaces.collect(),
                }
            }
            _ => Changed::Unknown,
        })
    }
}
