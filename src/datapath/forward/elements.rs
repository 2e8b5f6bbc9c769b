//! The content of a table as netlink messages.

use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::clock::Instant;
use netlink_packet_netfilter::nftables::SetElementMessage;
use pnet_base::MacAddr;

use crate::datapath::forward::plan::{Content, Former, Table};
use crate::datapath::forward::ruleset::{
    ADDRESSES, FLOWING, FORMER, FRESH, LATER, OTHERS, OWNED, SPEAKERS, TABLE,
};
use crate::net::nft::elements::{self as nft, element, for_each, mortal, valued};
use crate::net::nft::family::{Family, octets, split};

/// The sets whose elements are read, in the order of the rows of [`read`].
pub(super) const SETS: [&str; 8] =
    [ADDRESSES, OWNED, FORMER, LATER, OTHERS, FLOWING, FRESH, SPEAKERS];

/// Messages that name all of `content`, to be added or deleted.
pub(super) fn messages(content: &Content, now: Instant) -> Vec<SetElementMessage> {
    // None would be for ever.
    let left = |end: Instant| end.saturating_since(now).max(Duration::from_millis(1));
    let address = |(ip, end): (&IpAddr, &Instant)| mortal(octets(*ip), left(*end));
    let former = content.former.iter().map(|(ip, former)| {
        let value = [octets(former.to), former.interface.to_ne_bytes().to_vec()].concat();
        valued(mortal(octets(*ip), left(former.until)), value)
    });
    let owner = |((ip, mac), end): (&(IpAddr, MacAddr), &Instant)| {
        let key = [octets(*ip), mac.octets().to_vec(), vec![0; 2]].concat();
        mortal(key, left(*end))
    };
    let speakers = content.speakers.iter().map(|mac| element(mac.octets().to_vec()));
    [
        nft::messages(TABLE, ADDRESSES, content.addresses.iter().map(address)),
        nft::messages(TABLE, OWNED, content.owned.iter().map(address)),
        nft::messages(TABLE, FORMER, former),
        nft::messages(TABLE, LATER, content.later.iter().map(owner)),
        nft::messages(TABLE, OTHERS, content.others.iter().map(owner)),
        nft::messages(TABLE, FLOWING, content.flowing.iter().map(address)),
        nft::messages(TABLE, FRESH, content.fresh.iter().map(address)),
        nft::messages(TABLE, SPEAKERS, speakers),
    ]
    .concat()
}

/// Takes the rows of dumps of [`SETS`] into `table`; what is none of them, or has no end where it should, breaks it.
pub(super) fn read(family: Family, rows: &[Vec<Vec<u8>>; 8], now: Instant, table: &mut Table) {
    let [addresses, here, former, later, others, flowing, fresh, speakers] = rows;
    let Table { intact, content } = table;
    for row in former {
        for_each(row, |found| {
            match (address(family, &found.key), target(family, &found.value), end(now, found.left))
            {
                (Some(ip), Some((to, interface)), Some(until)) => {
                    content.former.insert(ip, Former { to, interface, until });
                }
                _ => *intact = false,
            }
        });
    }
    for (rows, owners) in [(later, &mut content.later), (others, &mut content.others)] {
        for row in rows {
            for_each(row, |found| match (owner(family, &found.key), end(now, found.left)) {
                (Some(sender), Some(end)) => drop(owners.insert(sender, end)),
                _ => *intact = false,
            });
        }
    }
    for (rows, ips) in [
        (addresses, &mut content.addresses),
        (here, &mut content.owned),
        (flowing, &mut content.flowing),
        (fresh, &mut content.fresh),
    ] {
        for row in rows {
            for_each(row, |found| match (address(family, &found.key), end(now, found.left)) {
                (Some(ip), Some(end)) => drop(ips.insert(ip, end)),
                _ => *intact = false,
            });
        }
    }
    for row in speakers {
        for_each(row, |found| match <[u8; 6]>::try_from(found.key) {
            Ok(mac) => drop(content.speakers.insert(mac.into())),
            Err(_) => *intact = false,
        });
    }
}

fn end(now: Instant, left: Duration) -> Option<Instant> {
    (!left.is_zero()).then(|| now + left)
}

fn address(family: Family, key: &[u8]) -> Option<IpAddr> {
    split(family, key).and_then(|(ip, rest)| rest.is_empty().then_some(ip))
}

fn target(family: Family, value: &[u8]) -> Option<(IpAddr, u32)> {
    let (to, rest) = split(family, value)?;
    Some((to, u32::from_ne_bytes(rest.try_into().ok()?)))
}

fn owner(family: Family, key: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let (ip, rest) = split(family, key)?;
    let (mac, [0, 0]) = rest.split_first_chunk::<6>()? else { return None };
    Some((ip, (*mac).into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netlink_packet_core::Emitable;
    use netlink_packet_netfilter::nftables::{
        DataAttribute, ListAttribute, SetElementAttribute, SetElementList,
    };

    use super::*;

    /// The rows of dumps after these messages: a dump says the rest of a lifetime by another attribute.
    fn dumped(messages: Vec<SetElementMessage>) -> [Vec<Vec<u8>>; 8] {
        let mut rows: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for mut message in messages {
            let mut set = String::new();
            for attribute in &mut message.attributes {
                match attribute {
                    SetElementList::Set(name) => set.clone_from(name),
                    SetElementList::Elements(elements) => {
                        let attributes = elements.iter_mut().flat_map(|element| match element {
                            ListAttribute::Element(attributes) => attributes.iter_mut(),
                            _ => [].iter_mut(),
                        });
                        for attribute in attributes {
                            if let SetElementAttribute::Timeout(millis) = attribute {
                                *attribute = SetElementAttribute::Expiration(*millis);
                            }
                        }
                    }
                    _ => {}
                }
            }
            let mut row = vec![0; message.attributes.as_slice().buffer_len()];
            message.attributes.as_slice().emit(&mut row);
            rows.entry(set).or_default().push(row);
        }
        SETS.map(|set| rows.remove(set).unwrap_or_default())
    }

    #[test]
    fn what_is_written_is_read_and_what_has_no_end_breaks_the_table() {
        let now = Instant::from_boot(Duration::from_secs(100));
        let until = now + Duration::from_secs(60);
        for (family, ip, to) in
            [(Family::V4, "192.0.2.100", "192.0.2.11"), (Family::V6, "2001:db8::100", "fe80::11")]
        {
            let (ip, to): (IpAddr, IpAddr) = (ip.parse().unwrap(), to.parse().unwrap());
            let mac = MacAddr::new(2, 0, 0, 0, 0, 7);
            let content = Content {
                former: [(ip, Former { to, interface: 7, until })].into(),
                later: [((ip, mac), until)].into(),
                addresses: [(ip, until)].into(),
                owned: [(ip, until)].into(),
                flowing: [(ip, until)].into(),
                others: [((ip, MacAddr::new(2, 0, 0, 0, 0, 8)), until)].into(),
                fresh: [(ip, now + Duration::from_secs(5))].into(),
                speakers: [mac].into(),
            };
            let mut table = Table { intact: true, ..Table::default() };
            read(family, &dumped(messages(&content, now)), now, &mut table);
            assert_eq!(table, Table { intact: true, content });

            let endless = element([octets(ip), vec![2, 0, 0, 0, 0, 9, 0, 0]].concat());
            let rows = dumped(nft::messages(TABLE, LATER, [endless]));
            read(family, &rows, now, &mut table);
            assert!(!table.intact);
        }
    }

    #[test]
    fn an_element_whose_end_has_come_is_not_for_ever() {
        let now = Instant::from_boot(Duration::from_secs(100));
        let ip = IpAddr::from([192, 0, 2, 100]);
        let content = Content { fresh: [(ip, now)].into(), ..Content::default() };
        let [SetElementMessage { attributes }] = messages(&content, now).try_into().unwrap();
        let mut expected = element(octets(ip));
        expected.push(SetElementAttribute::Timeout(1));
        assert!(matches!(
            expected.first(),
            Some(SetElementAttribute::Key(DataAttribute::Value(_)))
        ));
        assert!(
            attributes.contains(&SetElementList::Elements(vec![ListAttribute::Element(expected)]))
        );
    }
}
