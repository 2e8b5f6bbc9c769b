//! The content of the table as netlink messages.

use std::collections::BTreeSet;
use std::time::Duration;

use netlink_packet_netfilter::nftables::{NfTablesMessage, SetElementAttribute, SetElementMessage};

use crate::datapath::detour::plan::{AFFINE_LIFETIME, Content, LIFETIME, Table};
use crate::datapath::detour::ruleset::{self, TABLE, affine, detoured, lost, ports};
use crate::net::nft::elements::{self as nft, for_each, leading, mortal, port_key, read_port};
use crate::net::nft::family::Family;
use crate::net::nft::rules;
use leasehold_core::desired::Port;

/// Sets of a transaction are numbered from here on: the table itself has fewer.
const FIRST_SET: u32 = 100;

/// The messages that add content.
pub(super) fn added(content: &Content) -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    let mut next = FIRST_SET;
    for (name, choice) in &content.choices {
        if let Some(choice) = choice {
            messages.extend(ruleset::choice(name, choice, &mut next));
        }
    }
    messages.extend(
        elements(content).map(|message| ("elements", NfTablesMessage::NewSetElement(message))),
    );
    messages
}

/// The messages that remove content: first what leads to chains, then these.
pub(super) fn removed(content: &Content) -> Vec<(&'static str, NfTablesMessage)> {
    let elements =
        elements(content).map(|message| ("elements", NfTablesMessage::DeleteSetElement(message)));
    let chains = content.choices.keys().flat_map(|name| rules::without_chain(TABLE, name));
    elements.chain(chains).collect()
}

fn elements(content: &Content) -> impl Iterator<Item = SetElementMessage> {
    Family::ALL.into_iter().flat_map(|family| {
        let leading = content
            .ports
            .iter()
            .filter(|((ip, _), _)| family.has(*ip))
            .map(|((ip, port), chain)| leading(mortal(port_key(*ip, *port), LIFETIME), chain));
        // A connection that was just led elsewhere is still to be known.
        let known = of(family, content.ports.keys(), LIFETIME * 2);
        let lost_ports = of(family, &content.lost, LIFETIME);
        let affine_ports = of(family, &content.affine, AFFINE_LIFETIME);
        [
            nft::messages(TABLE, ports(family), leading),
            nft::messages(TABLE, detoured(family), known),
            nft::messages(TABLE, lost(family), lost_ports),
            nft::messages(TABLE, affine(family), affine_ports),
        ]
        .into_iter()
        .flatten()
    })
}

fn of<'a>(
    family: Family,
    ports: impl IntoIterator<Item = &'a Port>,
    lifetime: Duration,
) -> Vec<Vec<SetElementAttribute>> {
    let its = ports.into_iter().filter(|(ip, _)| family.has(*ip));
    its.map(|(ip, port)| mortal(port_key(*ip, *port), lifetime)).collect()
}

/// Takes the rows of dumps into `table`: of the ports, of those that are detoured, of the lost endpoints and of the affine
/// ports of `family`. What is none of them breaks it.
pub(super) fn read(family: Family, rows: &[Vec<Vec<u8>>; 4], table: &mut Table) {
    let [leading, known, lost, affine] = rows;
    let mut detoured = BTreeSet::new();
    for row in known {
        for_each(row, |found| match read_port(family, &found.key) {
            Some(port) => drop(detoured.insert(port)),
            None => table.intact = false,
        });
    }
    for row in leading {
        for_each(row, |found| match (read_port(family, &found.key), found.chain) {
            (Some(port), Some(chain)) => {
                table.intact &= detoured.remove(&port);
                table.ports.insert(port, (chain, found.left));
            }
            _ => table.intact = false,
        });
    }
    // What is left of a former process does not live as long as what is added to it.
    table.intact &= detoured.is_empty();
    for (rows, ports) in [(lost, &mut table.lost), (affine, &mut table.affine)] {
        for row in rows {
            for_each(row, |found| match read_port(family, &found.key) {
                Some(port) => drop(ports.insert(port, found.left)),
                None => table.intact = false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use leasehold_core::desired::{Protocol, ServicePort};
    use netlink_packet_core::Emitable;
    use netlink_packet_netfilter::nftables::SetElementList;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let port = |ip: &str, port| {
            let ip: IpAddr = ip.parse().unwrap();
            (ip, ServicePort { protocol: Protocol::Tcp, port })
        };
        let all = [port("192.0.2.1", 80), port("2001:db8::1", 443)];
        let content = Content {
            ports: all.map(|port| (port, "to-0123456789abcdef".to_owned())).into(),
            lost: [port("10.0.0.1", 8080), port("fd00::1", 8080)].into(),
            affine: all.into(),
            choices: BTreeMap::new(),
        };
        let mut rows: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for message in elements(&content) {
            let set = message.attributes.iter().find_map(|attribute| match attribute {
                SetElementList::Set(name) => Some(name.clone()),
                _ => None,
            });
            let mut row = vec![0; message.attributes.as_slice().buffer_len()];
            message.attributes.as_slice().emit(&mut row);
            rows.entry(set.unwrap()).or_default().push(row);
        }
        let mut table = Table { intact: true, ..Table::default() };
        for family in Family::ALL {
            let sets = [ports(family), detoured(family), lost(family), affine(family)];
            read(family, &sets.map(|set| rows.remove(set).unwrap_or_default()), &mut table);
        }
        assert!(table.intact);
        let ports = table.ports.iter().map(|(port, (chain, _))| (*port, chain.clone()));
        assert_eq!(ports.collect::<BTreeMap<_, _>>(), content.ports);
        assert_eq!(table.lost.into_keys().collect::<BTreeSet<_>>(), content.lost);
        assert_eq!(table.affine.into_keys().collect::<BTreeSet<_>>(), content.affine);
    }
}
