//! The content of a table as netlink messages.

use std::net::IpAddr;

use netlink_packet_netfilter::nftables::SetElementMessage;

use crate::datapath::return_path::numbers::Number;
use crate::datapath::return_path::plan::{Content, Table};
use crate::datapath::return_path::ruleset::{
    Part, TABLE, answering, answering_chain, coming, coming_chain, number_of, own,
};
use crate::net::nft::elements::{self as nft, element, for_each, leading};
use crate::net::nft::family::{Family, octets, split};

/// Messages that name all of `content`, to be added or deleted.
pub(super) fn messages(part: Part, content: &Content) -> Vec<SetElementMessage> {
    let mut messages = Vec::new();
    for family in part.families() {
        let its = || content.iter().filter(|(ip, _)| family.has(**ip));
        let place = |(ip, (index, number)): (&IpAddr, &(u32, Number))| {
            let key = [index.to_ne_bytes().to_vec(), octets(*ip)].concat();
            leading(element(key), &coming_chain(*number))
        };
        messages.extend(nft::messages(TABLE, coming(*family), its().map(place)));
        if part == Part::Packets {
            let pods = its()
                .map(|(ip, (_, number))| leading(element(octets(*ip)), &answering_chain(*number)));
            messages.extend(nft::messages(TABLE, answering(*family), pods));
            let node = its()
                .map(|(ip, (_, number))| leading(element(octets(*ip)), &coming_chain(*number)));
            messages.extend(nft::messages(TABLE, own(*family), node));
        }
    }
    messages
}

/// Takes the rows of a dump of the map of what comes in into `table`; what is no such element breaks it.
pub(super) fn read_coming(family: Family, rows: &[Vec<u8>], table: &mut Table) {
    for row in rows {
        for_each(row, |found| {
            let number = found.chain.as_deref().and_then(number_of);
            match (place(family, &found.key), number) {
                (Some((index, ip)), Some(number)) => {
                    let twice = table.content.insert(ip, (index, number)).is_some();
                    table.intact &= !twice;
                }
                _ => table.intact = false,
            }
        });
    }
}

fn place(family: Family, key: &[u8]) -> Option<(u32, IpAddr)> {
    let (index, rest) = key.split_first_chunk::<4>()?;
    let (ip, []) = split(family, rest)? else { return None };
    Some((u32::from_ne_bytes(*index), ip))
}

/// Compares the rows of a dump of one of the other maps with the addresses that were read: where they differ the table is
/// broken.
pub(super) fn compare(
    family: Family,
    rows: &[Vec<u8>],
    chain: impl Fn(Number) -> String,
    table: &mut Table,
) {
    let (mut count, mut same) = (0, true);
    for row in rows {
        for_each(row, |found| {
            count += 1;
            let ip = split(family, &found.key).and_then(|(ip, rest)| rest.is_empty().then_some(ip));
            let known = ip.and_then(|ip| table.content.get(&ip));
            same &= known.is_some_and(|(_, number)| found.chain == Some(chain(*number)));
        });
    }
    let expected = table.content.keys().filter(|ip| family.has(**ip)).count();
    table.intact &= same && count == expected;
}
