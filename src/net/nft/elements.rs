//! Elements of sets and maps as messages.
//!
//! Keys are laid out as the rules load them into registers: each part padded to four bytes.

use std::net::IpAddr;
use std::time::Duration;

use leasehold_core::desired::{Protocol, ServicePort};
use netlink_packet_core::NlasIterator;
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetElementAttribute, SetElementList,
    SetElementMessage, Verdict, VerdictAttribute,
};

use crate::net::nft::family::{Family, octets, split};

// linux/netfilter/nf_tables.h: NFTA_SET_ELEM_LIST_ELEMENTS; NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_DATA and
// NFTA_SET_ELEM_EXPIRATION, in milliseconds; NFTA_DATA_VERDICT and NFTA_VERDICT_CHAIN.
const ELEMENTS: u16 = 3;
const KEY: u16 = 1;
const DATA: u16 = 2;
const EXPIRATION: u16 = 5;
const VERDICT: u16 = 2;
const CHAIN: u16 = 2;

/// Elements in one message: an attribute holds 64 KiB, and an element that leads to a chain takes up to 110 bytes.
pub const AT_ONCE: usize = 500;

/// One element.
pub type Element = ListAttribute<SetElementAttribute>;

/// An element with this key.
pub fn element(bytes: Vec<u8>) -> Vec<SetElementAttribute> {
    vec![SetElementAttribute::Key(DataAttribute::Value(bytes))]
}

/// An element that ends by itself.
pub fn mortal(bytes: Vec<u8>, lifetime: Duration) -> Vec<SetElementAttribute> {
    let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    let mut attributes = element(bytes);
    attributes.push(SetElementAttribute::Timeout(lifetime));
    attributes
}

/// The element of a map, with this value.
pub fn valued(
    mut attributes: Vec<SetElementAttribute>,
    value: Vec<u8>,
) -> Vec<SetElementAttribute> {
    attributes.push(SetElementAttribute::Data(DataAttribute::Value(value)));
    attributes
}

/// The element of a map, which leads to `chain`.
pub fn leading(mut attributes: Vec<SetElementAttribute>, chain: &str) -> Vec<SetElementAttribute> {
    let verdict =
        vec![VerdictAttribute::Code(Verdict::Goto), VerdictAttribute::Chain(chain.to_owned())];
    attributes.push(SetElementAttribute::Data(DataAttribute::Verdict(verdict)));
    attributes
}

/// Messages that name these elements, to be added or deleted.
pub fn messages(
    table: &str,
    set: &str,
    elements: impl IntoIterator<Item = Vec<SetElementAttribute>>,
) -> Vec<SetElementMessage> {
    let elements: Vec<Element> = elements.into_iter().map(ListAttribute::Element).collect();
    elements.chunks(AT_ONCE).map(|elements| of_set(table, set, elements)).collect()
}

/// The message about these elements of a set.
pub fn of_set(table: &str, set: &str, elements: &[Element]) -> SetElementMessage {
    let attributes = vec![
        SetElementList::Table(table.to_owned()),
        SetElementList::Set(set.to_owned()),
        SetElementList::Elements(elements.to_vec()),
    ];
    SetElementMessage { attributes }
}

/// The question for all elements of a set.
pub fn question(table: &str, set: &str) -> NfTablesMessage {
    let attributes =
        vec![SetElementList::Table(table.to_owned()), SetElementList::Set(set.to_owned())];
    NfTablesMessage::GetSetElement(SetElementMessage { attributes })
}

/// An element as it was read.
#[derive(Debug, Default)]
pub struct Found {
    /// The key.
    pub key: Vec<u8>,
    /// The rest of its lifetime; that of an element without an end is over.
    pub left: Duration,
    /// The chain that it leads to, if it leads to one.
    pub chain: Option<String>,
    /// The value, of an element of a map of values.
    pub value: Vec<u8>,
}

/// Calls `found` with each element of a row of a dump. Decoded here because the codec's time grows with the
/// square of a list's length.
pub fn for_each(row: &[u8], mut found: impl FnMut(Found)) {
    for list in NlasIterator::new(row).flatten().filter(|list| list.kind() == ELEMENTS) {
        for element in NlasIterator::new(list.value()).flatten() {
            let mut read = Found::default();
            for attribute in NlasIterator::new(element.value()).flatten() {
                match (attribute.kind(), <[u8; 8]>::try_from(attribute.value())) {
                    (KEY, _) => read.key = value_in(attribute.value()),
                    (DATA, _) => {
                        read.chain = chain_in(attribute.value());
                        read.value = value_in(attribute.value());
                    }
                    (EXPIRATION, Ok(millis)) => {
                        read.left = Duration::from_millis(u64::from_be_bytes(millis));
                    }
                    _ => {}
                }
            }
            found(read);
        }
    }
}

fn value_in(data: &[u8]) -> Vec<u8> {
    let value = NlasIterator::new(data).flatten().next();
    value.map(|value| value.value().to_vec()).unwrap_or_default()
}

fn chain_in(data: &[u8]) -> Option<String> {
    let verdict = NlasIterator::new(data).flatten().find(|data| data.kind() == VERDICT)?;
    let chain = NlasIterator::new(verdict.value()).flatten().find(|it| it.kind() == CHAIN)?;
    let name = chain.value().strip_suffix(b"\0")?;
    String::from_utf8(name.to_vec()).ok()
}

/// The key of a port of an address, as [`super::expressions::destination`] loads it.
pub fn port_key(ip: IpAddr, port: ServicePort) -> Vec<u8> {
    let [high, low] = port.port.to_be_bytes();
    let mut key = octets(ip);
    key.extend([port.protocol.number(), 0, 0, 0, high, low, 0, 0]);
    key
}

/// The port of an address that has this key.
pub fn read_port(family: Family, bytes: &[u8]) -> Option<(IpAddr, ServicePort)> {
    let (ip, rest) = split(family, bytes)?;
    let [protocol, 0, 0, 0, high, low, 0, 0] = *rest else { return None };
    let protocol = Protocol::numbered(protocol)?;
    Some((ip, ServicePort { protocol, port: u16::from_be_bytes([high, low]) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_parts_at_four_bytes_each() {
        let port = ServicePort { protocol: Protocol::Tcp, port: 80 };
        let key = port_key("192.0.2.1".parse().unwrap(), port);
        assert_eq!(key, [192, 0, 2, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(
            read_port(Family::V4, &key),
            Some(("192.0.2.1".parse().unwrap(), port)),
            "and is read as it was written"
        );
        let key = port_key("2001:db8::1".parse().unwrap(), port);
        assert_eq!(key[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(key[16..], [6, 0, 0, 0, 0, 80, 0, 0]);
    }
}
