//! Netlink messages to [`Links`]: a pure table that events and dumps are applied to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use leasehold_crds::lease::{DefaultRoutes, Detours};
use leasehold_crds::names::InterfaceName;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use pnet_base::MacAddr;

use crate::net::rtnl::links::{Link, LinkAddress, Links};
use crate::net::rtnl::row::{AddressRow, parse_address};

/// The consequence of an event, in the order of the work that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was not about what the table holds.
    Nothing,
    /// The table is current.
    Applied,
    /// The default routes have to be read anew.
    Routes,
    /// Events were lost: everything has to be read anew.
    Everything,
}

/// Links, addresses and default routes by index.
#[derive(Clone, Debug, Default)]
pub struct Table {
    links: BTreeMap<u32, Link>,
    /// The node's own.
    addresses: BTreeMap<u32, BTreeMap<(IpAddr, u8), LinkAddress>>,
    /// The addresses with our mark.
    ours: BTreeSet<(u32, IpAddr, u8)>,
    /// The number of times so far that one of them has gone or lost its end.
    lost: u64,
    /// The number of times so far that an IPv4 address of the node's own was added.
    own_added: u64,
    gateways: BTreeMap<u32, BTreeSet<IpAddr>>,
    /// The metrics of default routes, by family and index.
    metrics: BTreeMap<(bool, u32), u32>,
}

impl Table {
    /// Applies one event or one row of a dump.
    ///
    /// Routes are told apart only as "some default route changed": the kernel sends no event for
    /// IPv4 routes that go away with their link, so a change of a link means the same.
    pub fn apply(&mut self, message: &RouteNetlinkMessage) -> Change {
        match message {
            RouteNetlinkMessage::NewLink(message) => self.new_link(message),
            RouteNetlinkMessage::DelLink(message) => self.delete_link(message),
            RouteNetlinkMessage::NewAddress(message) => {
                let Some(row) = parse_address(message) else { return Change::Nothing };
                if row.ours {
                    self.ours.insert(row.key());
                    // Each has an end when it is set by a speaker.
                    self.lost += u64::from(row.valid.is_none());
                    return self.forget(&row);
                }
                self.lose(&row);
                let address = row.address();
                let key = (row.ip, row.prefix_len);
                let before = self.addresses.entry(row.index).or_default().insert(key, address);
                self.own_added += u64::from(before.is_none() && row.ip.is_ipv4());
                if before == Some(address) { Change::Nothing } else { Change::Applied }
            }
            RouteNetlinkMessage::DelAddress(message) => {
                let Some(row) = parse_address(message) else { return Change::Nothing };
                self.lose(&row);
                self.forget(&row)
            }
            RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message)
                if is_default(message) =>
            {
                Change::Routes
            }
            RouteNetlinkMessage::NewRoute(message) | RouteNetlinkMessage::DelRoute(message)
                if self.is_on_a_link(message) =>
            {
                Change::Applied
            }
            _ => Change::Nothing,
        }
    }

    /// Whether a route leads to hosts of a subnet of the node, whatever the kernel makes of it. Routes to single
    /// addresses are left out: it adds one for each address of its own.
    fn is_on_a_link(&self, message: &RouteMessage) -> bool {
        let length = message.header.destination_prefix_length;
        let destination = message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
            _ => None,
        });
        let Some(to) = destination.and_then(|ip| IpNet::new(ip, length).ok()) else { return false };
        let is_wide = |net: &IpNet| net.prefix_len() < net.max_prefix_len();
        let own = self.addresses.values().flat_map(|of_link| of_link.keys());
        let mut subnets = own.filter_map(|(ip, length)| IpNet::new(*ip, *length).ok());
        is_wide(&to) && subnets.any(|net| is_wide(&net) && (net.contains(&to) || to.contains(&net)))
    }

    /// An address with our mark is gone, if it was one.
    fn lose(&mut self, row: &AddressRow) {
        // The kernel tells of an IPv6 address some time after it was added, or not at all if it has gone by then.
        if self.ours.remove(&row.key()) || row.ours {
            self.lost += 1;
        }
    }

    /// An address of the node is gone, if it was one.
    fn forget(&mut self, row: &AddressRow) -> Change {
        let known = self.addresses.get_mut(&row.index);
        let removed = known.and_then(|known| known.remove(&(row.ip, row.prefix_len)));
        if removed.is_some() { Change::Applied } else { Change::Nothing }
    }

    /// The number of events so far, whoever caused them, after which the addresses with our mark have to be
    /// checked: one has gone or lost its end, or one of the node's own was added, and so put behind them.
    pub fn disturbed(&self) -> u64 {
        self.lost + self.own_added
    }

    fn new_link(&mut self, message: &LinkMessage) -> Change {
        // Bridges report their ports in a family of their own, with other attributes.
        if message.header.interface_family == AddressFamily::Bridge {
            return Change::Nothing;
        }
        let Some(link) = parse_link(message) else { return Change::Nothing };
        let previous = self.links.insert(link.index, link.clone());
        if previous.is_some_and(|previous| previous.carrier == link.carrier) {
            Change::Applied
        } else {
            Change::Routes
        }
    }

    fn delete_link(&mut self, message: &LinkMessage) -> Change {
        // In the bridge's family it means that a port has left its bridge.
        if message.header.interface_family == AddressFamily::Bridge {
            return Change::Nothing;
        }
        let index = message.header.index;
        self.addresses.remove(&index);
        let before = self.ours.len();
        self.ours.retain(|(of, ..)| *of != index);
        self.lost += u64::try_from(before - self.ours.len()).unwrap_or(u64::MAX);
        self.gateways.remove(&index);
        self.metrics.retain(|(_, of), _| *of != index);
        if self.links.remove(&index).is_some() { Change::Routes } else { Change::Nothing }
    }

    /// Forgets the default routes, before a dump of the routes.
    fn clear_routes(&mut self) {
        self.gateways.clear();
        self.metrics.clear();
    }

    /// Takes the default routes from all rows of a dump of the routes.
    pub fn replace_routes(&mut self, messages: &[RouteMessage]) {
        self.clear_routes();
        for message in messages {
            self.add_route(message);
        }
    }

    /// Takes the default routes from one row of a dump of the routes.
    fn add_route(&mut self, message: &RouteMessage) {
        if !is_default(message) {
            return;
        }
        let is_v6 = message.header.address_family == AddressFamily::Inet6;
        let metric = metric(message);
        for (index, gateway) in next_hops(message) {
            self.gateways.entry(index).or_default().extend(gateway);
            let known = self.metrics.entry((is_v6, index)).or_insert(metric);
            *known = metric.min(*known);
        }
    }

    /// The links through which the default route of a family leads.
    fn default_links(&self, is_v6: bool) -> BTreeSet<u32> {
        let all = self.metrics.iter().filter(move |((v6, _), _)| *v6 == is_v6);
        let best = all.clone().map(|(_, metric)| *metric).min();
        all.filter(|(_, metric)| Some(**metric) == best).map(|((_, index), _)| *index).collect()
    }

    /// Takes over what a dump has read.
    pub fn replace_by(&mut self, dumped: Self) {
        let known = std::mem::replace(self, dumped);
        let gone = known.ours.difference(&self.ours).count();
        self.lost += known.lost + u64::try_from(gone).unwrap_or(u64::MAX);
        // One that is new changes the snapshot.
        self.own_added = known.own_added;
    }

    /// The snapshot.
    pub fn links(&self) -> Links {
        let (v4, v6) = (self.default_links(false), self.default_links(true));
        let links = self.links.values().map(|link| {
            let mut link = link.clone();
            if let Some(addresses) = self.addresses.get(&link.index) {
                link.addresses = addresses.values().copied().collect();
            }
            if let Some(gateways) = self.gateways.get(&link.index) {
                link.gateways = gateways.iter().copied().collect();
            }
            link.default_routes =
                DefaultRoutes { v4: v4.contains(&link.index), v6: v6.contains(&link.index) };
            (link.name.clone(), link)
        });
        Links(links.collect())
    }
}

fn parse_link(message: &LinkMessage) -> Option<Link> {
    let flags = message.header.flags;
    let mut name = None;
    let mut mac = MacAddr::zero();
    let mut mtu = 0;
    let mut state = State::Unknown;
    let mut kind = None;
    let mut master = None;
    let mut lower = None;
    let mut elsewhere = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = text.parse::<InterfaceName>().ok(),
            LinkAttribute::Address(bytes) => {
                if let Ok(bytes) = <[u8; 6]>::try_from(bytes.as_slice()) {
                    mac = bytes.into();
                }
            }
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            LinkAttribute::OperState(reported) => state = *reported,
            LinkAttribute::Controller(index) => master = Some(*index).filter(|index| *index != 0),
            LinkAttribute::Link(index) => lower = Some(*index).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(InfoKind::to_string(kind)),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    // Drivers that report no state say Unknown.
    let operational = matches!(state, State::Up | State::Unknown);
    Some(Link {
        index: message.header.index,
        name: name?,
        mac,
        mtu,
        carrier: flags.contains(LinkFlags::Up | LinkFlags::LowerUp) && operational,
        kind,
        master,
        lower: lower.filter(|_| !elsewhere),
        loopback: flags.contains(LinkFlags::Loopback),
        addresses: Vec::new(),
        gateways: Vec::new(),
        default_routes: DefaultRoutes::NONE,
        detours: Detours::default(),
    })
}

fn is_default(message: &RouteMessage) -> bool {
    message.header.destination_prefix_length == 0
        && message.header.table == RouteHeader::RT_TABLE_MAIN
        && message.header.kind == RouteType::Unicast
}

/// The links of a route, and the gateway behind each; none where it leads to the link itself.
fn next_hops(message: &RouteMessage) -> Vec<(u32, Option<IpAddr>)> {
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => hops.push((*index, gateway(&message.attributes))),
            RouteAttribute::MultiPath(paths) => hops
                .extend(paths.iter().map(|path| (path.interface_index, gateway(&path.attributes)))),
            _ => {}
        }
    }
    hops
}

/// The metric of a route: of several the lowest is used.
fn metric(message: &RouteMessage) -> u32 {
    let metric = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    metric.unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use netlink_packet_route::address::{
        AddressAttribute, AddressMessage, AddressProtocol, CacheInfo,
    };
    use netlink_packet_route::route::RouteNextHop;

    use super::*;
    use crate::net::rtnl::mark;
    use crate::net::rtnl::row::FOREVER;

    fn link(index: u32, flags: LinkFlags, state: State) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = flags;
        message.attributes = vec![
            LinkAttribute::IfName(format!("eth{index}")),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::OperState(state),
        ];
        message
    }

    fn up() -> LinkFlags {
        LinkFlags::Up | LinkFlags::LowerUp
    }

    fn address(ip: &str, valid: u32, protocol: u8) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = 2;
        message.header.prefix_len = 32;
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_valid = valid;
        message.attributes = vec![
            AddressAttribute::Address(ip.parse().unwrap()),
            AddressAttribute::CacheInfo(lifetimes),
            AddressAttribute::Protocol(AddressProtocol::Other(protocol)),
        ];
        message
    }

    fn gateway_message(prefix: u8, table: u8, kind: RouteType) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.destination_prefix_length = prefix;
        message.header.table = table;
        message.header.kind = kind;
        let gateway = RouteAddress::Inet("192.0.2.254".parse().unwrap());
        message.attributes = vec![RouteAttribute::Oif(2), RouteAttribute::Gateway(gateway)];
        message
    }

    /// A table with `eth2` and one address, as of 100 s after the boot.
    fn table(valid: u32) -> Table {
        let mut table = Table::default();
        let eth2 = RouteNetlinkMessage::NewLink(link(2, up(), State::Up));
        assert_eq!(table.apply(&eth2), Change::Routes);
        let vip = RouteNetlinkMessage::NewAddress(address("192.0.2.9", valid, mark::PROTOCOL));
        assert_eq!(table.apply(&vip), Change::Nothing);
        table
    }

    fn lost(table: &Table) -> u64 {
        table.disturbed() - table.own_added
    }

    fn only_link(table: &Table) -> Link {
        table.links().by_index(2).unwrap().clone()
    }

    #[test]
    fn a_carrier_needs_the_flags_and_the_state() {
        let rows = [
            (up(), State::Up, true),
            (up(), State::Unknown, true),
            (up(), State::Dormant, false),
            (up(), State::LowerLayerDown, false),
            (LinkFlags::Up, State::Up, false),
            (LinkFlags::LowerUp, State::Up, false),
        ];
        for (flags, state, carrier) in rows {
            assert_eq!(parse_link(&link(2, flags, state)).unwrap().carrier, carrier, "{state:?}");
        }
    }

    #[test]
    fn what_bridges_say_of_their_ports_is_not_taken_for_the_link() {
        let mut table = table(10);
        let mut port = link(2, LinkFlags::empty(), State::Down);
        port.header.interface_family = AddressFamily::Bridge;
        for message in
            [RouteNetlinkMessage::NewLink(port.clone()), RouteNetlinkMessage::DelLink(port)]
        {
            assert_eq!(table.apply(&message), Change::Nothing);
        }
        assert!(only_link(&table).carrier);
    }

    #[test]
    fn addresses_come_and_go_and_ours_are_told_by_the_mark() {
        let mut table = table(10);
        let own = RouteNetlinkMessage::NewAddress(address("192.0.2.1", FOREVER, 0));
        table.apply(&own);
        let eth2 = only_link(&table);
        let own: Vec<_> = eth2.addresses.iter().map(|address| address.ip).collect();
        assert_eq!(own, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        let vip = RouteNetlinkMessage::DelAddress(address("192.0.2.9", 0, mark::PROTOCOL));
        table.apply(&vip);
        assert_eq!((only_link(&table).addresses.len(), lost(&table)), (1, 1));
        table.apply(&vip);
        assert_eq!(lost(&table), 2, "one that was never told of");
        let gone = RouteNetlinkMessage::DelLink(link(2, LinkFlags::empty(), State::Down));
        assert_eq!(table.apply(&gone), Change::Routes);
        assert_eq!(table.links(), Links::default());
    }

    #[test]
    fn gateways_are_those_of_default_routes_in_the_main_table() {
        let main = RouteHeader::RT_TABLE_MAIN;
        let rows = [
            (gateway_message(0, main, RouteType::Unicast), true),
            (gateway_message(24, main, RouteType::Unicast), false),
            (gateway_message(0, 100, RouteType::Unicast), false),
            (gateway_message(0, main, RouteType::Unreachable), false),
        ];
        for (message, counts) in rows {
            let mut table = table(10);
            let change = table.apply(&RouteNetlinkMessage::NewRoute(message.clone()));
            assert_eq!(change == Change::Routes, counts, "{message:?}");
            table.add_route(&message);
            assert_eq!(!only_link(&table).gateways.is_empty(), counts, "{message:?}");
            table.clear_routes();
            assert!(only_link(&table).gateways.is_empty());
        }
        let mut hop = RouteNextHop::default();
        hop.interface_index = 2;
        hop.attributes = gateway_message(0, main, RouteType::Unicast).attributes;
        let mut multipath = gateway_message(0, main, RouteType::Unicast);
        multipath.attributes = vec![RouteAttribute::MultiPath(vec![hop])];
        let mut table = table(10);
        table.add_route(&multipath);
        assert_eq!(only_link(&table).gateways.len(), 1);
    }

    #[test]
    fn lifetimes_are_not_of_interest_but_that_an_address_or_its_end_went_is() {
        let own = |valid| RouteNetlinkMessage::NewAddress(address("192.0.2.1", valid, 0));
        let vip =
            |valid| RouteNetlinkMessage::NewAddress(address("192.0.2.9", valid, mark::PROTOCOL));
        let mut known = table(10);
        assert_eq!(known.apply(&own(60)), Change::Applied);
        let links = known.links();
        assert_eq!(known.apply(&own(FOREVER)), Change::Nothing);
        assert_eq!(known.apply(&vip(10)), Change::Nothing);
        assert_eq!((known.links(), lost(&known)), (links.clone(), 0));
        let dump = |rows: &[RouteNetlinkMessage]| {
            let mut dumped = Table::default();
            dumped.apply(&RouteNetlinkMessage::NewLink(link(2, up(), State::Up)));
            for row in rows {
                dumped.apply(row);
            }
            dumped
        };
        known.replace_by(dump(&[own(30), vip(8)]));
        assert_eq!((known.links(), lost(&known)), (links.clone(), 0));
        known.replace_by(dump(&[own(30)]));
        assert_eq!((known.links(), lost(&known)), (links.clone(), 1), "a dump does not have it");
        assert_eq!(known.apply(&vip(FOREVER)), Change::Nothing);
        assert_eq!(lost(&known), 2, "it has no end");
        known.replace_by(dump(&[own(30), vip(FOREVER)]));
        assert_eq!((known.links(), lost(&known)), (links, 3), "a dump says so");
    }

    #[test]
    fn an_address_that_loses_our_mark_is_the_nodes() {
        let mut table = table(10);
        let taken = RouteNetlinkMessage::NewAddress(address("192.0.2.9", FOREVER, 0));
        assert_eq!(table.apply(&taken), Change::Applied);
        assert_eq!((only_link(&table).addresses.len(), lost(&table)), (1, 1));
        let back = RouteNetlinkMessage::NewAddress(address("192.0.2.9", 10, mark::PROTOCOL));
        assert_eq!(table.apply(&back), Change::Applied);
        assert!(only_link(&table).addresses.is_empty());
        let gone = RouteNetlinkMessage::DelLink(link(2, LinkFlags::empty(), State::Down));
        table.apply(&gone);
        assert_eq!(lost(&table), 2, "it went with its link");
    }

    #[test]
    fn the_metric_is_our_mark_as_long_as_the_address_has_an_end_and_is_not_preferred() {
        const FOR_A_MINUTE: (u32, u32) = (60, 0);
        let rows = [
            ("ours", mark::METRIC, FOR_A_MINUTE, true),
            ("a DHCP client's", 1024, FOR_A_MINUTE, false),
            ("made endless by somebody", mark::METRIC, (FOREVER, FOREVER), false),
            ("endless, and deprecated", mark::METRIC, (FOREVER, 0), false),
            ("preferred by somebody", mark::METRIC, (60, 60), false),
        ];
        for (name, metric, (valid, preferred), ours) in rows {
            for ip in ["192.0.2.9", "2001:db8::9"] {
                let mut message = address(ip, valid, 0);
                let mut lifetimes = CacheInfo::default();
                (lifetimes.ifa_valid, lifetimes.ifa_preferred) = (valid, preferred);
                message.attributes = vec![
                    AddressAttribute::Address(ip.parse().unwrap()),
                    AddressAttribute::RoutePriority(metric),
                    AddressAttribute::CacheInfo(lifetimes),
                ];
                assert_eq!(parse_address(&message).unwrap().ours, ours, "{name}: {ip}");
                // Where the kernel keeps both, either will do.
                let both = AddressAttribute::Protocol(AddressProtocol::Other(mark::PROTOCOL));
                message.attributes.push(both);
                assert!(parse_address(&message).unwrap().ours, "{name}: {ip}");
            }
        }
    }

    #[test]
    fn an_own_address_that_is_set_anew_is_noticed_though_nothing_else_has_changed() {
        let mut table = table(10);
        let own = address("192.0.2.1", FOREVER, 0);
        table.apply(&RouteNetlinkMessage::NewAddress(own.clone()));
        let (links, disturbed) = (table.links(), table.disturbed());
        table.apply(&RouteNetlinkMessage::NewAddress(own.clone()));
        assert_eq!(table.disturbed(), disturbed, "it was there already");
        table.apply(&RouteNetlinkMessage::DelAddress(own.clone()));
        table.apply(&RouteNetlinkMessage::NewAddress(own));
        assert_eq!((table.links(), table.disturbed()), (links, disturbed + 1));
        let dumped = table.clone();
        table.replace_by(dumped);
        assert_eq!(table.disturbed(), disturbed + 1, "nothing new in a dump");
    }
}
