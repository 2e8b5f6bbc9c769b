//! The rules of kube-proxy in the mode nftables: whether they contain an address and port.

use std::net::IpAddr;

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, SetAttribute, SetElementAttribute,
    SetElementList, SetElementMessage, SetMessage,
};

use crate::net::nft::connection::Nfnetlink;
use crate::net::nft::error::NfnetlinkError;
use leasehold_core::desired::ServicePort;
use leasehold_core::election::Rules;

/// The table (`pkg/proxy/nftables/proxier.go` of Kubernetes).
pub const TABLE: &str = "kube-proxy";
/// Its maps from address, protocol and port to the chain that leads on, and to a verdict where a Service has no
/// endpoint.
const MAPS: [&str; 2] = ["service-ips", "no-endpoint-services"];

/// A connection to the kernel, opened when it is first needed, and anew where it has failed.
#[derive(Debug, Default)]
pub struct Tables(Option<Nfnetlink>);

impl Tables {
    /// Whether there are rules for all of `ports`. Where there are no tables, that is unknown (kube-proxy has another
    /// mode, or there is none) unless `expected` says that it makes some.
    pub fn look(&mut self, ports: &[(IpAddr, ServicePort)], expected: bool) -> Rules {
        match self.has_all(ports, expected) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::debug!(error = crate::api::causes(&error), "rules cannot be looked at");
                self.0 = None;
                Rules::Unknown
            }
        }
    }

    fn has_all(
        &mut self,
        ports: &[(IpAddr, ServicePort)],
        expected: bool,
    ) -> Result<Rules, NfnetlinkError> {
        if ports.is_empty() {
            return Ok(Rules::Unknown);
        }
        let connection = match self.0.take() {
            Some(connection) => connection,
            None => Nfnetlink::open()?,
        };
        let connection = self.0.insert(connection);
        for (ip, port) in ports {
            let family = family_of(*ip);
            let mut any = false;
            for map in MAPS {
                if connection.has(family, "an element", element(map, key(*ip, *port)))? {
                    any = true;
                    break;
                }
            }
            if !any {
                let [map, _] = MAPS;
                let there = expected || connection.has(family, "a map", set(map))?;
                return Ok(if there { Rules::Absent } else { Rules::Unknown });
            }
        }
        Ok(Rules::Present)
    }
}

const fn family_of(ip: IpAddr) -> NetfilterProtoFamily {
    match ip {
        IpAddr::V4(_) => NetfilterProtoFamily::IPv4,
        IpAddr::V6(_) => NetfilterProtoFamily::IPv6,
    }
}

/// `ipv4_addr . inet_proto . inet_service`, or the same of IPv6: each part padded to four bytes.
fn key(ip: IpAddr, port: ServicePort) -> Vec<u8> {
    let mut key = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let [high, low] = port.port.to_be_bytes();
    key.extend([port.protocol.number(), 0, 0, 0, high, low, 0, 0]);
    key
}

fn element(map: &str, key: Vec<u8>) -> NfTablesMessage {
    let key = SetElementAttribute::Key(DataAttribute::Value(key));
    let attributes = vec![
        SetElementList::Table(TABLE.to_owned()),
        SetElementList::Set(map.to_owned()),
        SetElementList::Elements(vec![ListAttribute::Element(vec![key])]),
    ];
    NfTablesMessage::GetSetElement(SetElementMessage { attributes })
}

fn set(name: &str) -> NfTablesMessage {
    let attributes =
        vec![SetAttribute::Table(TABLE.to_owned()), SetAttribute::Name(name.to_owned())];
    NfTablesMessage::GetSet(SetMessage { attributes })
}
