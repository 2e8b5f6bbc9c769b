//! Tracked connections: to find and to forget them (ctnetlink, `linux/netfilter/nfnetlink_conntrack.h`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use leasehold_core::desired::Protocol;
use netlink_packet_core::{DefaultNla, NLA_F_NESTED, NLA_TYPE_MASK, NlasIterator};
use netlink_packet_netfilter::conntrack::{ConntrackAttribute, ConntrackMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage};

use crate::net::nft::connection::Nfnetlink;
use crate::net::nft::error::NfnetlinkError;
use crate::net::nft::family::{Family, split};

// CTA_*
const FIRST: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const ID: u16 = 12;
const ZONE: u16 = 18;
// CTA_TUPLE_*
const IP: u16 = 1;
const PROTOCOL: u16 = 2;
/// `CTA_PROTOINFO_TCP`.
const TCP: u16 = 1;
/// `CTA_PROTOINFO_TCP_STATE`.
const TCP_STATE: u16 = 1;
/// `TCP_CONNTRACK_ESTABLISHED` (`linux/netfilter/nf_conntrack_tcp.h`).
const ESTABLISHED: u8 = 3;
/// `IPS_SEEN_REPLY` (`linux/netfilter/nf_conntrack_common.h`).
const ANSWERED: u32 = 1 << 1;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Its protocol.
    pub protocol: Protocol,
    /// Where its first packet went.
    pub to: SocketAddr,
    /// Where its answers come from: after destination NAT, the endpoint.
    pub endpoint: SocketAddr,
    /// Whether there was an answer.
    pub answered: bool,
    family: Family,
    /// Its identity for the kernel: the first tuple, its number and its zone.
    key: Vec<(u16, Vec<u8>)>,
}

/// Reads all connections of a family, and keeps those that are wanted.
pub fn find(
    connection: &mut Nfnetlink,
    family: Family,
    wanted: impl Fn(&Tracked) -> bool,
) -> Result<Vec<Tracked>, NfnetlinkError> {
    let mut found = Vec::new();
    let all = message(family, ConntrackMessage::Get(Vec::new()));
    connection.each("connections", all, |row| {
        found.extend(Tracked::read(family, row).filter(|tracked| wanted(tracked)));
    })?;
    Ok(found)
}

/// Forgets a connection: its next packet is the first of a new one. Returns whether it was there.
pub fn forget(connection: &mut Nfnetlink, tracked: &Tracked) -> Result<bool, NfnetlinkError> {
    let attribute = |(kind, value): &(u16, Vec<u8>)| {
        let nested = if *kind == FIRST { NLA_F_NESTED } else { 0 };
        ConntrackAttribute::Other(DefaultNla::new(*kind | nested, value.clone()))
    };
    let attributes = tracked.key.iter().map(attribute).collect();
    connection
        .request("a connection", message(tracked.family, ConntrackMessage::Delete(attributes)))
}

/// Counts the open connections whose first packet went to one of `addresses`, by address: established ones of TCP, and
/// flows of UDP that were answered. It reads all connections of a family, of which there may be a million: that takes a
/// second.
pub fn count(
    connection: &mut Nfnetlink,
    addresses: &BTreeSet<IpAddr>,
) -> Result<BTreeMap<IpAddr, u64>, NfnetlinkError> {
    let mut counts = BTreeMap::new();
    for family in Family::ALL {
        if !addresses.iter().any(|ip| family.has(*ip)) {
            continue;
        }
        let all = message(family, ConntrackMessage::Get(Vec::new()));
        connection.each("connections", all, |row| {
            if let Some(ip) = open(family, row).filter(|ip| addresses.contains(ip)) {
                *counts.entry(ip).or_default() += 1;
            }
        })?;
    }
    Ok(counts)
}

/// The address that the first packet of a connection went to, if the connection is open.
fn open(family: Family, row: &[u8]) -> Option<IpAddr> {
    let (mut first, mut answered, mut established) = (None, false, false);
    for attribute in NlasIterator::new(row).flatten() {
        let value = attribute.value();
        match attribute.kind() & NLA_TYPE_MASK {
            FIRST => first = tuple(family, value),
            STATUS => answered = u32::from_be_bytes(value.try_into().ok()?) & ANSWERED != 0,
            PROTOCOL_STATE => established = is_established(value),
            _ => {}
        }
    }
    let (protocol, _, to) = first?;
    let open = match protocol {
        Protocol::Tcp => established,
        Protocol::Udp => answered,
        Protocol::Sctp => false,
    };
    open.then(|| to.ip())
}

/// Whether this is the state of an established connection of TCP.
fn is_established(value: &[u8]) -> bool {
    NlasIterator::new(value).flatten().any(|protocol| {
        protocol.kind() & NLA_TYPE_MASK == TCP
            && NlasIterator::new(protocol.value()).flatten().any(|field| {
                field.kind() & NLA_TYPE_MASK == TCP_STATE && field.value() == [ESTABLISHED]
            })
    })
}

fn message(family: Family, message: ConntrackMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(family.tables(), 0, 0), message)
}

impl Tracked {
    /// A connection that the kernel does not know, for tests.
    #[cfg(test)]
    pub(crate) const fn new(
        protocol: Protocol,
        to: SocketAddr,
        endpoint: SocketAddr,
        answered: bool,
    ) -> Self {
        Self { protocol, to, endpoint, answered, family: Family::V4, key: Vec::new() }
    }

    fn read(family: Family, row: &[u8]) -> Option<Self> {
        let (mut first, mut reply, mut status, mut key) = (None, None, 0, Vec::new());
        for attribute in NlasIterator::new(row).flatten() {
            let (kind, value) = (attribute.kind() & NLA_TYPE_MASK, attribute.value());
            match kind {
                FIRST => first = tuple(family, value),
                REPLY => reply = tuple(family, value),
                STATUS => status = u32::from_be_bytes(value.try_into().ok()?),
                _ => {}
            }
            if [FIRST, ID, ZONE].contains(&kind) {
                key.push((kind, value.to_vec()));
            }
        }
        let (protocol, _, to) = first?;
        let (_, endpoint, _) = reply?;
        Some(Self { protocol, to, endpoint, answered: status & ANSWERED != 0, family, key })
    }
}

/// The protocol, the source and the destination of a tuple; `None` for what has no ports.
fn tuple(family: Family, value: &[u8]) -> Option<(Protocol, SocketAddr, SocketAddr)> {
    let (mut ips, mut ports, mut protocol) = ([None::<IpAddr>; 2], [None::<u16>; 2], None);
    for part in NlasIterator::new(value).flatten() {
        for field in NlasIterator::new(part.value()).flatten() {
            let (kind, value) = (field.kind() & NLA_TYPE_MASK, field.value());
            match (part.kind() & NLA_TYPE_MASK, kind) {
                // CTA_IP_V4_SRC, CTA_IP_V6_SRC and the destinations.
                (IP, 1 | 3) => ips[0] = address(family, value),
                (IP, 2 | 4) => ips[1] = address(family, value),
                // CTA_PROTO_NUM, CTA_PROTO_SRC_PORT and CTA_PROTO_DST_PORT.
                (PROTOCOL, 1) => protocol = Protocol::numbered(*value.first()?),
                (PROTOCOL, 2) => ports[0] = Some(u16::from_be_bytes(value.try_into().ok()?)),
                (PROTOCOL, 3) => ports[1] = Some(u16::from_be_bytes(value.try_into().ok()?)),
                _ => {}
            }
        }
    }
    let ([from, to], [source, target]) = (ips, ports);
    let (from, to) = (SocketAddr::new(from?, source?), SocketAddr::new(to?, target?));
    Some((protocol?, from, to))
}

fn address(family: Family, value: &[u8]) -> Option<IpAddr> {
    split(family, value).and_then(|(ip, rest)| rest.is_empty().then_some(ip))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    fn nested(kind: u16, parts: &[DefaultNla]) -> DefaultNla {
        let mut value = vec![0; parts.buffer_len()];
        parts.emit(&mut value);
        DefaultNla::new(kind | NLA_F_NESTED, value)
    }

    /// A row of a dump: a connection from a client to this address.
    fn row(to: IpAddr, protocol: Protocol, status: u32, tcp: Option<u8>) -> Vec<u8> {
        let (kinds, client, to) = match to {
            IpAddr::V4(to) => ([1, 2], vec![198, 51, 100, 7], to.octets().to_vec()),
            IpAddr::V6(to) => ([3, 4], vec![0xfd; 16], to.octets().to_vec()),
        };
        let tuple = |kind, from: &[u8], to: &[u8]| {
            let [source, destination] = kinds;
            let ips =
                [DefaultNla::new(source, from.to_vec()), DefaultNla::new(destination, to.to_vec())];
            let ports = [
                DefaultNla::new(1, vec![protocol.number()]),
                DefaultNla::new(2, 40_000_u16.to_be_bytes().to_vec()),
                DefaultNla::new(3, 80_u16.to_be_bytes().to_vec()),
            ];
            nested(kind, &[nested(IP, &ips), nested(PROTOCOL, &ports)])
        };
        let mut row = vec![
            tuple(FIRST, &client, &to),
            tuple(REPLY, &to, &client),
            DefaultNla::new(STATUS, status.to_be_bytes().to_vec()),
        ];
        row.extend(tcp.map(|state| {
            let parts = [DefaultNla::new(TCP_STATE, vec![state]), DefaultNla::new(2, vec![7])];
            nested(PROTOCOL_STATE, &[nested(TCP, &parts)])
        }));
        let mut bytes = vec![0; row.as_slice().buffer_len()];
        row.as_slice().emit(&mut bytes);
        bytes
    }

    #[test]
    fn established_connections_and_answered_flows_are_open() {
        // IPS_CONFIRMED.
        const CONFIRMED: u32 = 1 << 3;
        let both = CONFIRMED | ANSWERED;
        for to in ["192.0.2.100", "2001:db8::100"] {
            let to: IpAddr = to.parse().unwrap();
            let family = Family::of(to);
            for (name, protocol, status, tcp, expected) in [
                ("established", Protocol::Tcp, both, Some(ESTABLISHED), true),
                ("not yet", Protocol::Tcp, CONFIRMED, Some(1), false),
                ("about to end", Protocol::Tcp, both, Some(4), false),
                ("a flow with answers", Protocol::Udp, both, None, true),
                ("without", Protocol::Udp, CONFIRMED, None, false),
                ("neither", Protocol::Sctp, both, None, false),
            ] {
                let row = row(to, protocol, status, tcp);
                assert_eq!(open(family, &row), expected.then_some(to), "{to}: {name}");
                let read = Tracked::read(family, &row).unwrap();
                assert_eq!((read.protocol, read.to.ip()), (protocol, to), "{name}");
            }
        }
    }
}
