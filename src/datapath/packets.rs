//! Questions about packets that the rules of several tenants ask.

use netlink_packet_netfilter::nftables::{Expressions, Operator};

use crate::net::nft::expressions::{
    ACCEPT, DROP, FIRST, NETWORK_HEADER, TRANSPORT_HEADER, Tracked, compare, counter, duplicate,
    is_protocol, is_tracked, mask, payload, register, verdict,
};
use crate::net::nft::family::Family;
use leasehold_core::desired::Protocol;

// linux/netfilter/nf_conntrack_common.h, as nf_tables has it.
const ESTABLISHED: u32 = 1 << 1;
const RELATED: u32 = 1 << 2;
// The flags of TCP (RFC 9293, section 3.1), in the byte at this offset.
const TCP_FLAGS: u32 = 13;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The types of errors that ICMP tells of a packet (RFC 792; RFC 4443, section 2.1).
pub(super) const fn errors(family: Family) -> &'static [u8] {
    match family {
        Family::V4 => &[3, 11, 12],
        Family::V6 => &[1, 2, 3, 4],
    }
}

/// Ends the rule for all but errors of this type.
pub(super) fn is_error(family: Family, kind: u8) -> [Expressions; 4] {
    let [load, control] = is_protocol(family.control());
    [load, control, payload(TRANSPORT_HEADER, 0, 1, FIRST), compare(Operator::Equal, &[kind])]
}

/// Loads the destination address.
pub(super) fn address(family: Family) -> Expressions {
    payload(NETWORK_HEADER, family.destination(), family.length(), FIRST)
}

/// Accepts what may pass no other node.
pub(super) fn last(family: Family) -> [Expressions; 3] {
    [
        payload(NETWORK_HEADER, family.hop_limit(), 1, FIRST),
        compare(Operator::LessThan, &[2]),
        verdict(ACCEPT, None),
    ]
}

/// Accepts what is of a connection that is known here.
pub(super) fn known() -> [Expressions; 4] {
    let [load, mask, compare] = is_tracked(Tracked::State, ESTABLISHED | RELATED);
    [load, mask, compare, verdict(ACCEPT, None)]
}

/// Accepts what begins a connection of TCP.
pub(super) fn begins() -> Vec<Expressions> {
    let mut begins = is_protocol(Protocol::Tcp.number()).to_vec();
    begins.extend([
        payload(TRANSPORT_HEADER, TCP_FLAGS, 1, FIRST),
        mask(&[SYN | RST | ACK]),
        compare(Operator::Equal, &[SYN]),
        verdict(ACCEPT, None),
    ]);
    begins
}

/// Sends the packet, instead of here, to the host whose address is in the first register, by the interface whose index is
/// behind it.
pub(super) fn send_on(family: Family) -> [Expressions; 3] {
    [counter(), duplicate(FIRST, register(family.words())), verdict(DROP, None)]
}
