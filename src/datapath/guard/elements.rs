//! The elements of the table's sets as netlink messages.
//!
//! Keys are laid out as the rules load them into registers: each part padded to four bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netlink_packet_core::NlasIterator;
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetElementAttribute, SetElementList,
    SetElementMessage,
};

use crate::datapath::guard::plan::{Elements, LIFETIME, Table};
use crate::datapath::guard::ruleset::{Family, TABLE};
use leasehold_core::desired::{Protocol, ServicePort};

// linux/netfilter/nf_tables.h: NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_KEY and
// NFTA_SET_ELEM_EXPIRATION, in milliseconds.
const ELEMENTS: u16 = 3;
const KEY: u16 = 1;
const EXPIRATION: u16 = 5;

/// Elements in one message: an attribute holds 64 KiB.
const AT_ONCE: usize = 1_000;

type Element = ListAttribute<SetElementAttribute>;

/// Messages that name all of `elements`, to be added or deleted.
pub(super) fn messages(elements: &Elements) -> Vec<SetElementMessage> {
    let mut messages = Vec::new();
    for family in Family::ALL {
        let addresses = elements.addresses.iter().filter(|ip| family.has(**ip));
        let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let addresses =
            addresses.map(|ip| vec![key(address_key(*ip)), SetElementAttribute::Timeout(lifetime)]);
        let ports = elements.ports.iter().filter(|(ip, _)| family.has(*ip));
        let ports = ports.map(|(ip, port)| vec![key(port_key(*ip, *port))]);
        messages.extend(fill(family.addresses(), addresses));
        messages.extend(fill(family.ports(), ports));
    }
    messages
}

fn fill(
    set: &str,
    elements: impl Iterator<Item = Vec<SetElementAttribute>>,
) -> Vec<SetElementMessage> {
    let elements: Vec<Element> = elements.map(ListAttribute::Element).collect();
    elements.chunks(AT_ONCE).map(|elements| of_set(set, Some(elements))).collect()
}

/// The question for all elements of a set.
pub(super) fn question(set: &str) -> NfTablesMessage {
    NfTablesMessage::GetSetElement(of_set(set, None))
}

fn of_set(set: &str, elements: Option<&[Element]>) -> SetElementMessage {
    let mut attributes =
        vec![SetElementList::Table(TABLE.to_owned()), SetElementList::Set(set.to_owned())];
    attributes.extend(elements.map(|elements| SetElementList::Elements(elements.to_vec())));
    SetElementMessage { attributes }
}

/// Takes the rows of a dump of the addresses of `family` into `table`; what is none breaks it.
pub(super) fn read_addresses(family: Family, rows: &[Vec<u8>], table: &mut Table) {
    for row in rows {
        for_each(row, |key, left| match split(family, key) {
            Some((ip, [])) => drop(table.addresses.insert(ip, left)),
            _ => table.intact = false,
        });
    }
}

/// Takes the rows of a dump of the ports of `family` into `table`; what is none breaks it.
pub(super) fn read_ports(family: Family, rows: &[Vec<u8>], table: &mut Table) {
    for row in rows {
        for_each(row, |key, _| match read_port(family, key) {
            Some(port) => drop(table.ports.insert(port)),
            None => table.intact = false,
        });
    }
}

/// Calls `found` with the key of each element of a row, and with the rest of its lifetime; that of an
/// element without an end is over. Decoded here because the codec's time grows with the square of
/// a list's length.
fn for_each(row: &[u8], mut found: impl FnMut(&[u8], Duration)) {
    for list in NlasIterator::new(row).flatten().filter(|list| list.kind() == ELEMENTS) {
        for element in NlasIterator::new(list.value()).flatten() {
            let (mut key, mut left) = (Vec::new(), Duration::ZERO);
            for attribute in NlasIterator::new(element.value()).flatten() {
                match (attribute.kind(), <[u8; 8]>::try_from(attribute.value())) {
                    (KEY, _) => {
                        let value = NlasIterator::new(attribute.value()).flatten().next();
                        key = value.map(|value| value.value().to_vec()).unwrap_or_default();
                    }
                    (EXPIRATION, Ok(millis)) => {
                        left = Duration::from_millis(u64::from_be_bytes(millis));
                    }
                    _ => {}
                }
            }
            found(&key, left);
        }
    }
}

fn key(bytes: Vec<u8>) -> SetElementAttribute {
    SetElementAttribute::Key(DataAttribute::Value(bytes))
}

fn address_key(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn port_key(ip: IpAddr, port: ServicePort) -> Vec<u8> {
    let [high, low] = port.port.to_be_bytes();
    let mut key = address_key(ip);
    key.extend([port.protocol.number(), 0, 0, 0, high, low, 0, 0]);
    key
}

fn read_port(family: Family, bytes: &[u8]) -> Option<(IpAddr, ServicePort)> {
    let (ip, rest) = split(family, bytes)?;
    let [protocol, 0, 0, 0, high, low, 0, 0] = *rest else { return None };
    let protocol = Protocol::numbered(protocol)?;
    Some((ip, ServicePort { protocol, port: u16::from_be_bytes([high, low]) }))
}

fn split(family: Family, bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match family {
        Family::V4 => bytes
            .split_first_chunk::<4>()
            .map(|(octets, rest)| (Ipv4Addr::from(*octets).into(), rest)),
        Family::V6 => bytes
            .split_first_chunk::<16>()
            .map(|(octets, rest)| (Ipv6Addr::from(*octets).into(), rest)),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    fn some() -> Elements {
        let (v4, v6): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let port = |protocol, port| ServicePort { protocol, port };
        Elements {
            addresses: [v4, v6].into(),
            ports: [
                (v4, port(Protocol::Tcp, 80)),
                (v4, port(Protocol::Udp, 53)),
                (v6, port(Protocol::Sctp, 38_412)),
            ]
            .into(),
        }
    }

    fn read(messages: Vec<SetElementMessage>) -> Table {
        let mut table = Table { intact: true, ..Table::default() };
        for message in messages {
            let set = message.attributes.iter().find_map(|attribute| match attribute {
                SetElementList::Set(name) => Some(name.clone()),
                _ => None,
            });
            let mut row = vec![0; message.attributes.as_slice().buffer_len()];
            message.attributes.as_slice().emit(&mut row);
            let rows = [row];
            for family in Family::ALL {
                if set.as_deref() == Some(family.addresses()) {
                    read_addresses(family, &rows, &mut table);
                } else if set.as_deref() == Some(family.ports()) {
                    read_ports(family, &rows, &mut table);
                }
            }
        }
        table
    }

    #[test]
    fn what_is_written_is_read() {
        let table = read(messages(&some()));
        assert!(table.intact);
        assert_eq!(table.elements(), some());
    }

    #[test]
    fn a_key_has_its_parts_at_four_bytes_each() {
        let port = ServicePort { protocol: Protocol::Tcp, port: 80 };
        let key = port_key("192.0.2.1".parse().unwrap(), port);
        assert_eq!(key, [192, 0, 2, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        let key = port_key("2001:db8::1".parse().unwrap(), port);
        assert_eq!(key[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(key[16..], [6, 0, 0, 0, 0, 80, 0, 0]);
    }

    #[test]
    fn many_elements_go_in_several_messages() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let port = |port| (address, ServicePort { protocol: Protocol::Tcp, port });
        let elements =
            Elements { addresses: [address].into(), ports: (1..=2_500).map(port).collect() };
        let messages = messages(&elements);
        assert_eq!(messages.len(), 1 + 3);
        assert_eq!(read(messages).elements(), elements);
    }

    #[test]
    fn what_is_not_ours_breaks_the_table() {
        for bytes in [vec![192, 0, 2], vec![192, 0, 2, 1, 99, 0, 0, 0, 0, 80, 0, 0]] {
            let element = ListAttribute::Element(vec![key(bytes)]);
            let table = read(vec![of_set("ports4", Some(&[element]))]);
            assert!(!table.intact && table.ports.is_empty());
        }
    }
}
