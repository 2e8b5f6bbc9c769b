//! The elements of the table's sets as netlink messages.

use netlink_packet_netfilter::nftables::SetElementMessage;

use crate::datapath::guard::plan::{Elements, LIFETIME, Table};
use crate::datapath::guard::ruleset::{TABLE, addresses, ports};
use crate::net::nft::elements::{self as nft, element, for_each, mortal, port_key, read_port};
use crate::net::nft::family::{Family, octets, split};

/// Messages that name all of `elements`, to be added or deleted.
pub(super) fn messages(elements: &Elements) -> Vec<SetElementMessage> {
    let mut messages = Vec::new();
    for family in Family::ALL {
        let protected = elements.addresses.iter().filter(|ip| family.has(**ip));
        let protected = protected.map(|ip| mortal(octets(*ip), LIFETIME));
        let open = elements.ports.iter().filter(|(ip, _)| family.has(*ip));
        let open = open.map(|(ip, port)| element(port_key(*ip, *port)));
        messages.extend(nft::messages(TABLE, addresses(family), protected));
        messages.extend(nft::messages(TABLE, ports(family), open));
    }
    messages
}

/// Takes the rows of a dump of the addresses of `family` into `table`; what is none breaks it.
pub(super) fn read_addresses(family: Family, rows: &[Vec<u8>], table: &mut Table) {
    for row in rows {
        for_each(row, |found| match split(family, &found.key) {
            Some((ip, [])) => drop(table.addresses.insert(ip, found.left)),
            _ => table.intact = false,
        });
    }
}

/// Takes the rows of a dump of the ports of `family` into `table`; what is none breaks it.
pub(super) fn read_ports(family: Family, rows: &[Vec<u8>], table: &mut Table) {
    for row in rows {
        for_each(row, |found| match read_port(family, &found.key) {
            Some(port) => drop(table.ports.insert(port)),
            None => table.intact = false,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use leasehold_core::desired::{Protocol, ServicePort};
    use netlink_packet_core::Emitable;
    use netlink_packet_netfilter::nftables::{ListAttribute, SetElementList};

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
                if set.as_deref() == Some(addresses(family)) {
                    read_addresses(family, &rows, &mut table);
                } else if set.as_deref() == Some(ports(family)) {
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
    fn many_elements_go_in_several_messages() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let port = |port| (address, ServicePort { protocol: Protocol::Tcp, port });
        let elements =
            Elements { addresses: [address].into(), ports: (1..=2_500).map(port).collect() };
        let messages = messages(&elements);
        assert_eq!(messages.len(), 1 + 5);
        assert_eq!(read(messages).elements(), elements);
    }

    #[test]
    fn what_is_not_ours_breaks_the_table() {
        for bytes in [vec![192, 0, 2], vec![192, 0, 2, 1, 99, 0, 0, 0, 0, 80, 0, 0]] {
            let element = ListAttribute::Element(element(bytes));
            let table = read(vec![nft::of_set(TABLE, "ports4", &[element])]);
            assert!(!table.intact && table.ports.is_empty());
        }
    }
}
