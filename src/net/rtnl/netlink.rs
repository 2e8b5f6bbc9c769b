//! Requests to rtnetlink, and its events.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError};

use futures::channel::mpsc::UnboundedReceiver;
use futures::{StreamExt, TryStreamExt, pin_mut};
use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecUnspec, LinkAttribute, LinkExtentMask, LinkMessage,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{AsyncSocket, SocketAddr};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::Mutex;

use crate::net::buffers::set_receive_buffer;
use crate::net::rtnl::addresses::{AddressChange, AddressSocket, full_prefix};
use crate::net::rtnl::error::NetlinkError;
use crate::net::rtnl::mark::Mark;
use crate::net::rtnl::row::{AddressRow, parse_address};
use crate::net::rtnl::sysctl::ArpSettings;
use crate::net::rtnl::table::Table;

/// Room for the events of a few thousand addresses that are refreshed at once.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Number of attempts to read a dump without changes between its parts.
const DUMPS: usize = 8;

/// The stream of events of rtnetlink.
pub(crate) type Events = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// A connection for requests to the kernel; clones share it.
#[derive(Clone, Debug)]
pub struct Netlink {
    pub(super) handle: Handle,
    addresses: Arc<std::sync::Mutex<AddressSocket>>,
    /// Held while something is dumped: a second dump on the same socket is refused (`EBUSY`,
    /// `__netlink_dump_start` in the kernel's `net/netlink/af_netlink.c`).
    dumps: Arc<Mutex<()>>,
}

impl Netlink {
    /// Opens a connection in the network namespace of the calling thread, which marks addresses by `mark`. The
    /// future drives it and ends only with it.
    pub fn open(mark: Mark) -> Result<(Self, impl Future<Output = ()> + Send), NetlinkError> {
        let (mut connection, handle, _) =
            rtnetlink::new_connection().map_err(NetlinkError::Open)?;
        // The end of a dump says, too, whether changes came between.
        connection.set_forward_done(true);
        let addresses = Arc::new(std::sync::Mutex::new(AddressSocket::open(mark)?));
        Ok((Self { handle, addresses, dumps: Arc::default() }, connection))
    }

    /// Sends `changes` to the kernel, which carries them out in their order and goes on after a refusal. The call
    /// takes one to ten microseconds for each.
    pub fn change(
        &self,
        changes: &[AddressChange],
    ) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).change(changes)
    }

    /// All addresses of the namespace, in the kernel's order: the IPv4 addresses of a link as they are chosen
    /// from for what the node sends.
    pub async fn addresses(&self) -> Result<Vec<AddressRow>, NetlinkError> {
        Ok(self.address_messages().await?.iter().filter_map(parse_address).collect())
    }

    /// All addresses of the namespace, as the kernel says them. Where they do not stop changing some may be
    /// missing: to add one of those is refused.
    pub(super) async fn address_messages(&self) -> Result<Vec<AddressMessage>, NetlinkError> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let (rows, _) = self.dump(request).await?;
        let addresses = rows.into_iter().filter_map(|row| match row {
            RouteNetlinkMessage::NewAddress(row) => Some(row),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// The rows of a dump, and whether they are as they were at one moment: the kernel reads them in parts, and
    /// goes on by number where it ended, whatever has come or gone before that.
    pub(super) async fn dump(
        &self,
        request: RouteNetlinkMessage,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool), NetlinkError> {
        let _dump = self.dumps.lock().await;
        let mut handle = self.handle.clone();
        let (mut rows, mut whole) = (Vec::new(), false);
        for _ in 0..DUMPS {
            rows.clear();
            whole = true;
            let mut request = NetlinkMessage::from(request.clone());
            request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
            let messages = handle.request(request)?;
            pin_mut!(messages);
            while let Some(message) = messages.next().await {
                whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(row) => rows.push(row),
                    NetlinkPayload::Done(done) if done.code == 0 => {}
                    NetlinkPayload::Done(done) => {
                        let error = io::Error::from_raw_os_error(done.code.saturating_neg());
                        return Err(NetlinkError::refused(error));
                    }
                    NetlinkPayload::Error(error) => {
                        return Err(NetlinkError::refused(error.to_io()));
                    }
                    other => return Err(NetlinkError::Unexpected(format!("{other:?}"))),
                }
            }
            if whole {
                break;
            }
        }
        Ok((rows, whole))
    }

    /// Adds an address, refused as [`NetlinkError::Exists`] if it is there.
    pub(super) async fn add(&self, address: AddressMessage) -> Result<(), NetlinkError> {
        let ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut request = self.handle.address().add(address.header.index, ip, 0);
        *request.message_mut() = address;
        Ok(request.execute().await?)
    }

    /// Deletes an address.
    pub(super) async fn delete(&self, address: AddressMessage) -> Result<(), NetlinkError> {
        Ok(self.handle.address().del(address).execute().await?)
    }

    /// Sets how an interface answers and asks by ARP. Other than a write to `/proc/sys`, which is
    /// read-only in most containers, this needs `CAP_NET_ADMIN` alone.
    pub async fn set_arp(&self, index: u32, settings: ArpSettings) -> Result<(), NetlinkError> {
        const ARP_ANNOUNCE: u16 = 18;
        const ARP_IGNORE: u16 = 19;
        let values = [(ARP_ANNOUNCE, settings.announce), (ARP_IGNORE, settings.ignore)];
        self.set_ipv4(index, &values).await
    }

    /// Sets whether an interface looks up the sources of packets with their mark (`src_valid_mark`).
    pub async fn set_source_marks(&self, index: u32, on: bool) -> Result<(), NetlinkError> {
        const SRC_VMARK: u16 = 24;
        self.set_ipv4(index, &[(SRC_VMARK, u32::from(on))]).await
    }

    /// Sets settings of IPv4 of an interface.
    async fn set_ipv4(&self, index: u32, values: &[(u16, u32)]) -> Result<(), NetlinkError> {
        // IFLA_AF_SPEC, AF_INET, IFLA_INET_CONF: one attribute per setting (`inet_set_link_af` in the
        // kernel's `net/ipv4/devinet.c`), numbered as in `linux/ip.h`.
        const IFLA_INET_CONF: u16 = 1;
        let nla = |(kind, value): &(u16, u32)| DefaultNla::new(*kind, value.to_ne_bytes().to_vec());
        let values: Vec<DefaultNla> = values.iter().map(nla).collect();
        let mut bytes = vec![0; values.as_slice().buffer_len()];
        values.as_slice().emit(&mut bytes);
        let conf = AfSpecInet::Other(DefaultNla::new(IFLA_INET_CONF | NLA_F_NESTED, bytes));
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes =
            vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![conf])])];
        Ok(self.handle.link().set(message).execute().await?)
    }

    /// The index of the link by which the kernel sends to `host`; none where it has no route there, or has the
    /// address itself.
    pub(crate) async fn leaves_by(&self, host: IpAddr) -> Result<Option<u32>, NetlinkError> {
        let answered = self.route(host, Vec::new()).await?;
        let route = answered.ok().flatten().filter(|it| it.header.kind == RouteType::Unicast);
        Ok(route.and_then(|route| {
            route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            })
        }))
    }

    /// Checks whether the kernel would accept packets of `host` to the IPv4 address `own` of the node on the link with
    /// this index, among them ARP requests (`RTM_GETROUTE` with an input interface).
    pub(crate) async fn would_answer(
        &self,
        own: IpAddr,
        host: IpAddr,
        index: u32,
    ) -> Result<bool, NetlinkError> {
        let source = RouteAttribute::Source(host.into());
        let answered = self.route(own, vec![source, RouteAttribute::Iif(index)]).await?;
        // `fib_validate_source` says EXDEV; since Linux 6.13 `inet_rtm_getroute` makes EINVAL of it.
        let refused =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EXDEV | libc::EINVAL));
        Ok(!answered.is_err_and(|error| refused(&error)))
    }

    /// The route that the kernel takes to `destination` (`ip route get`), or why it takes none.
    async fn route(
        &self,
        destination: IpAddr,
        more: Vec<RouteAttribute>,
    ) -> Result<io::Result<Option<RouteMessage>>, NetlinkError> {
        let mut request = RouteMessage::default();
        request.header.address_family =
            if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        request.header.destination_prefix_length = full_prefix(destination);
        for attribute in &more {
            if let RouteAttribute::Source(_) = attribute {
                request.header.source_prefix_length = full_prefix(destination);
            }
        }
        request.attributes = vec![RouteAttribute::Destination(destination.into())];
        request.attributes.extend(more);
        let rows = self.handle.route().get(request).execute();
        pin_mut!(rows);
        match rows.try_next().await {
            Ok(route) => Ok(Ok(route)),
            Err(rtnetlink::Error::NetlinkError(message)) => Ok(Err(message.to_io())),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads links, addresses and default routes, and says whether nothing of it may be missing.
    pub(crate) async fn table(&self) -> Result<(Table, bool), NetlinkError> {
        let mut table = Table::default();
        let mut links = LinkMessage::default();
        links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let mut all = true;
        for request in [RouteNetlinkMessage::GetLink(links), addresses] {
            let (rows, whole) = self.dump(request).await?;
            for row in &rows {
                table.apply(row);
            }
            all &= whole;
        }
        let (routes, whole) = self.route_messages().await?;
        table.replace_routes(&routes);
        Ok((table, all && whole))
    }

    /// Reads the default routes into `table`.
    pub(crate) async fn routes(&self, table: &mut Table) -> Result<(), NetlinkError> {
        let (routes, whole) = self.route_messages().await?;
        if !whole {
            return Err(NetlinkError::Interrupted);
        }
        table.replace_routes(&routes);
        Ok(())
    }

    pub(super) async fn route_messages(&self) -> Result<(Vec<RouteMessage>, bool), NetlinkError> {
        let (mut routes, mut all) = (Vec::new(), true);
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let (rows, whole) = self.dump(RouteNetlinkMessage::GetRoute(request)).await?;
            routes.extend(rows.into_iter().filter_map(|row| match row {
                RouteNetlinkMessage::NewRoute(row) => Some(row),
                _ => None,
            }));
            all &= whole;
        }
        Ok((routes, all))
    }
}

/// Subscribes to the events of links, addresses and routes. The future drives the connection.
pub(crate) fn subscribe() -> Result<(Events, impl Future<Output = ()> + Send), NetlinkError> {
    let groups = [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ];
    let (mut connection, _, events) =
        rtnetlink::new_multicast_connection(&groups).map_err(NetlinkError::Open)?;
    let socket = connection.socket_mut().socket_ref();
    set_receive_buffer(socket, RECEIVE_BUFFER).map_err(NetlinkError::Open)?;
    Ok((events, connection))
}
