//! The Ethernet header, without VLAN tag.

use pnet_base::MacAddr;
use pnet_packet::ethernet::{EtherType, EthernetPacket, MutableEthernetPacket};

/// The length of the header.
pub(super) const ETHERNET_LEN: usize = 14;

/// A frame with a header and `payload` zeros behind it.
pub(super) fn frame(
    destination: MacAddr,
    source: MacAddr,
    kind: EtherType,
    payload: usize,
) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_LEN + payload];
    if let Some(mut ethernet) = MutableEthernetPacket::new(&mut frame) {
        ethernet.set_destination(destination);
        ethernet.set_source(source);
        ethernet.set_ethertype(kind);
    }
    frame
}

/// Reads the header; `None` for a frame of another kind.
pub(super) fn parse(frame: &[u8], kind: EtherType) -> Option<EthernetPacket<'_>> {
    EthernetPacket::new(frame).filter(|ethernet| ethernet.get_ethertype() == kind)
}
