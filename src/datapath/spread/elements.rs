//! The content of a table as netlink messages, and what is read of it.

use netlink_packet_netfilter::nftables::{NfTablesMessage, SetElementMessage};

use crate::datapath::spread::plan::{Content, Elements, Place, Removal, Table};
use crate::datapath::spread::ruleset::{SPEAKERS, TABLE, addresses, chances, dispatched, ports};
use crate::datapath::spread::{rules, ruleset};
use crate::net::nft::elements::{
    self as nft, Found, element, for_each, leading, port_key, read_port,
};
use crate::net::nft::family::{Family, octets, split};
use crate::net::nft::rules::{without_chain, without_set};

/// Sets of a transaction are numbered from here on: the table itself has fewer.
const FIRST_SET: u32 = 100;

/// The messages that add the chains that decide by the bucket.
pub(super) fn chains(place: Place, content: &Content) -> Vec<(&'static str, NfTablesMessage)> {
    let mut next = FIRST_SET;
    let chains = content.chains.iter();
    chains.flat_map(|(name, chain)| rules::chain(place, name, chain, &mut next)).collect()
}

/// The messages that add what leads to them.
pub(super) fn leads(place: Place, content: &Content) -> Vec<(&'static str, NfTablesMessage)> {
    let elements = elements(place, &content.elements).into_iter();
    let elements = elements.map(|it| ("elements", NfTablesMessage::NewSetElement(it)));
    let devices = content.devices.iter();
    elements
        .chain(devices.flat_map(|(name, device)| ruleset::device(name, device.as_str())))
        .collect()
}

/// The messages that remove what leads to such chains.
pub(super) fn leads_no_more(
    place: Place,
    removal: &Removal,
) -> Vec<(&'static str, NfTablesMessage)> {
    let elements = elements(place, &removal.elements).into_iter();
    let elements = elements.map(|it| ("elements", NfTablesMessage::DeleteSetElement(it)));
    elements.chain(removal.devices.iter().flat_map(|name| without_chain(TABLE, name))).collect()
}

/// The messages that remove such chains, and then what their rules ask for.
pub(super) fn without_chains(removal: &Removal) -> Vec<(&'static str, NfTablesMessage)> {
    let chains = removal.chains.iter().flat_map(|name| without_chain(TABLE, name));
    chains.chain(removal.sets.iter().map(|name| without_set(TABLE, name))).collect()
}

fn elements(place: Place, elements: &Elements) -> Vec<SetElementMessage> {
    let speakers = elements.speakers.iter().map(|mac| element(mac.octets().to_vec()));
    let mut messages = nft::messages(TABLE, SPEAKERS, speakers);
    for family in place.families() {
        let its = elements.ports.iter().filter(|(ip, _)| family.has(*ip));
        let its = its.map(|(ip, port)| element(port_key(*ip, *port)));
        messages.extend(nft::messages(TABLE, ports(family), its));
        let its = elements.dispatched.iter().filter(|((ip, _), _)| family.has(*ip));
        let its = its.map(|((ip, interface), chain)| {
            let key = [octets(*ip), interface.to_ne_bytes().to_vec()].concat();
            leading(element(key), chain)
        });
        messages.extend(nft::messages(TABLE, dispatched(family), its));
        let its = elements.addresses.iter().filter(|ip| family.has(**ip));
        let its = its.map(|ip| element(octets(*ip)));
        messages.extend(nft::messages(TABLE, addresses(family), its));
        let its = elements.chances.iter().filter(|(ip, _)| family.has(**ip));
        let its = its.map(|(ip, chain)| leading(element(octets(*ip)), chain));
        messages.extend(nft::messages(TABLE, chances(family), its));
    }
    messages
}

/// A set whose elements are read, and the family of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// Of the other speakers.
    Speakers,
    /// Of ports.
    Ports(Family),
    /// Of what is dispatched.
    Dispatched(Family),
    /// Of addresses.
    Addresses(Family),
    /// Of second chances.
    Chances(Family),
}

impl Set {
    /// Those of a table.
    pub(super) fn all(place: Place) -> Vec<Self> {
        let mut sets = vec![Self::Speakers];
        for family in place.families() {
            sets.extend([Self::Ports(family), Self::Dispatched(family)]);
            if place != Place::Ingress {
                sets.extend([Self::Addresses(family), Self::Chances(family)]);
            }
        }
        sets
    }

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Speakers => SPEAKERS,
            Self::Ports(family) => ports(family),
            Self::Dispatched(family) => dispatched(family),
            Self::Addresses(family) => addresses(family),
            Self::Chances(family) => chances(family),
        }
    }

    /// Takes the rows of a dump into `table`; what is no element of this set, or ends by itself, breaks it.
    pub(super) fn read(self, rows: &[Vec<u8>], table: &mut Table) {
        for row in rows {
            for_each(row, |found| {
                let lasts = found.left.is_zero();
                if !lasts || self.take(found, &mut table.elements).is_none() {
                    table.intact = false;
                }
            });
        }
    }

    fn take(self, found: Found, elements: &mut Elements) -> Option<()> {
        let Found { key, chain, .. } = found;
        let leads = matches!(self, Self::Dispatched(_) | Self::Chances(_));
        if leads != chain.is_some() {
            return None;
        }
        match self {
            Self::Speakers => {
                let mac = <[u8; 6]>::try_from(key).ok()?;
                elements.speakers.insert(mac.into());
            }
            Self::Ports(family) => drop(elements.ports.insert(read_port(family, &key)?)),
            Self::Dispatched(family) => {
                let (ip, rest) = split(family, &key)?;
                let interface = u32::from_ne_bytes(rest.try_into().ok()?);
                elements.dispatched.insert((ip, interface), chain?);
            }
            Self::Addresses(family) => {
                let (ip, []) = split(family, &key)? else { return None };
                elements.addresses.insert(ip);
            }
            Self::Chances(family) => {
                let (ip, []) = split(family, &key)? else { return None };
                elements.chances.insert(ip, chain?);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;
    use std::time::Duration;

    use leasehold_core::desired::{Protocol, ServicePort};
    use netlink_packet_core::Emitable;
    use netlink_packet_netfilter::nftables::SetElementList;
    use pnet_base::MacAddr;

    use super::*;
    use crate::net::nft::elements::mortal;

    /// The rows of dumps after these messages.
    fn dumped(messages: Vec<SetElementMessage>) -> BTreeMap<String, Vec<Vec<u8>>> {
        let mut rows: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for message in messages {
            let name = message.attributes.iter().find_map(|attribute| match attribute {
                SetElementList::Set(name) => Some(name.clone()),
                _ => None,
            });
            let mut row = vec![0; message.attributes.as_slice().buffer_len()];
            message.attributes.as_slice().emit(&mut row);
            rows.entry(name.unwrap()).or_default().push(row);
        }
        rows
    }

    fn some(place: Place) -> Elements {
        let mut elements =
            Elements { speakers: [MacAddr::new(2, 0, 0, 0, 0, 7)].into(), ..Elements::default() };
        for family in place.families() {
            let ip: IpAddr = family.of_two("192.0.2.1", "2001:db8::1").parse().unwrap();
            elements.ports.insert((ip, ServicePort { protocol: Protocol::Sctp, port: 80 }));
            elements.dispatched.insert((ip, 7), "to-1".to_owned());
            if place != Place::Ingress {
                elements.addresses.insert(ip);
                elements.chances.insert(ip, "chance-1".to_owned());
            }
        }
        elements
    }

    #[test]
    fn what_is_written_is_read() {
        for place in Place::ALL {
            let elements = some(place);
            let rows = dumped(self::elements(place, &elements));
            let mut table = Table { intact: true, ..Table::default() };
            for set in Set::all(place) {
                set.read(&rows[set.name()], &mut table);
            }
            assert_eq!(table, Table { intact: true, elements, ..Table::default() });
        }
    }

    #[test]
    fn what_is_of_another_kind_or_ends_breaks_the_table() {
        let place = Place::Routing(Family::V4);
        let rows = dumped(self::elements(place, &some(place)));
        for set in Set::all(place) {
            for (name, rows) in &rows {
                let mut table = Table { intact: true, ..Table::default() };
                set.read(rows, &mut table);
                assert_eq!(table.intact, name == set.name(), "{name} in {set:?}");
            }
        }
        let mut ending = mortal(vec![2, 0, 0, 0, 0, 7], Duration::ZERO);
        ending.pop();
        ending.push(netlink_packet_netfilter::nftables::SetElementAttribute::Expiration(9));
        let rows = dumped(nft::messages(TABLE, SPEAKERS, [ending]));
        let mut table = Table { intact: true, ..Table::default() };
        Set::Speakers.read(&rows[SPEAKERS], &mut table);
        assert!(!table.intact);
    }
}
