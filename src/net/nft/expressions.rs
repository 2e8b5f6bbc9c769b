//! The expressions of rules.
//!
//! Those that the codec does not know are put together from the numbers of `linux/netfilter/nf_tables.h`.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Payload,
    Register, Verdict, VerdictAttribute,
};

use crate::net::nft::family::Family;

// linux/netfilter.h
/// `NF_DROP`.
pub const DROP: Verdict = Verdict::Other(0);
/// `NF_ACCEPT`.
pub const ACCEPT: Verdict = Verdict::Other(1);

// linux/netfilter/nf_tables.h
/// `NFT_PAYLOAD_LL_HEADER`.
pub const LINK_HEADER: u32 = 0;
/// `NFT_PAYLOAD_NETWORK_HEADER`.
pub const NETWORK_HEADER: u32 = 1;
/// `NFT_PAYLOAD_TRANSPORT_HEADER`.
pub const TRANSPORT_HEADER: u32 = 2;

/// The register that most expressions use: the first one of four bytes.
pub const FIRST: Register = Register::Reg32_00;

/// The register of four bytes with this number, from the first one on.
pub fn register(number: u32) -> Register {
    Register::from(u32::from(FIRST) + number)
}

/// Loads a property of the packet.
pub fn meta(key: MetaKey, register: Register) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(register)])
}

/// Loads `length` bytes of a header.
pub fn payload(base: u32, offset: u32, length: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

/// Ends the rule unless the first register compares so.
pub fn compare(operator: Operator, bytes: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(FIRST),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(bytes.to_vec())),
    ])
}

/// Keeps those bits of the first register that are set in `mask`.
pub fn mask(mask: &[u8]) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(FIRST),
        Bitwise::DestinationRegister(FIRST),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(u32::MAX)),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
    ])
}

/// Ends the rule unless the set has what is loaded from the first register on.
pub fn lookup(set: &str) -> Expressions {
    Expressions::Lookup(vec![Lookup::Set(set.to_owned()), Lookup::SourceRegister(FIRST)])
}

/// Ends the rule if the set has what is loaded from the first register on.
pub fn lookup_none(set: &str) -> Expressions {
    /// `NFT_LOOKUP_F_INV`.
    const INVERTED: u32 = 1;
    Expressions::Lookup(vec![
        Lookup::Set(set.to_owned()),
        Lookup::SourceRegister(FIRST),
        Lookup::Flags(INVERTED),
    ])
}

/// Decides as the map says for what is loaded from the first register on, or ends the rule.
pub fn verdict_map(map: &str) -> Expressions {
    self::map(map, Register::Verdict)
}

/// Loads what the map has for the first register, or ends the rule.
pub fn map(map: &str, to: Register) -> Expressions {
    Expressions::Lookup(vec![
        Lookup::Set(map.to_owned()),
        Lookup::SourceRegister(FIRST),
        Lookup::DestinationRegister(to),
    ])
}

/// As [`map`], of a map that is made in the same transaction, with this number.
pub fn map_made(map: &str, id: u32, to: Register) -> Expressions {
    Expressions::Lookup(vec![
        Lookup::Set(map.to_owned()),
        Lookup::SetId(id),
        Lookup::SourceRegister(FIRST),
        Lookup::DestinationRegister(to),
    ])
}

/// Decides.
pub fn verdict(verdict: Verdict, chain: Option<&str>) -> Expressions {
    let mut attributes = vec![VerdictAttribute::Code(verdict)];
    attributes.extend(chain.map(|chain| VerdictAttribute::Chain(chain.to_owned())));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(attributes)),
    ])
}

/// Ends the rule for packets of the other family.
pub fn is_family(family: Family) -> [Expressions; 2] {
    [meta(MetaKey::Nfproto, FIRST), compare(Operator::Equal, &[family.protocol()])]
}

/// Ends the rule for packets of another protocol.
pub fn is_protocol(number: u8) -> [Expressions; 2] {
    [meta(MetaKey::L4Proto, FIRST), compare(Operator::Equal, &[number])]
}

/// Loads the source of the frame into the registers `register` and the next, or ends the rule for what came in no Ethernet
/// frame.
pub fn sender(register: Register) -> [Expressions; 3] {
    /// `ARPHRD_ETHER` (`linux/if_arp.h`).
    const ETHERNET: u16 = 1;
    [
        meta(MetaKey::Iftype, FIRST),
        compare(Operator::Equal, &ETHERNET.to_ne_bytes()),
        payload(LINK_HEADER, 6, 6, register),
    ]
}

/// Ends the rule for frames with another content than packets of this family, and for what came in no frame. A frame that
/// has the tag of a VLAN has that as its type: here it is not of the VLAN's device yet.
pub fn is_framed(family: Family) -> [Expressions; 2] {
    [payload(LINK_HEADER, 12, 2, FIRST), compare(Operator::Equal, &family.ether_type())]
}

/// Ends the rule unless the recipient of the frame compares so with this host: frames may be broadcast, or of others.
pub fn compare_recipient(operator: Operator) -> [Expressions; 2] {
    /// `PACKET_HOST` (`linux/if_packet.h`).
    const HOST: u8 = 0;
    [meta(MetaKey::PacketType, FIRST), compare(operator, &[HOST])]
}

/// Ends the rule unless the type of the route to the destination compares so with that to an address of this host.
pub fn compare_local(operator: Operator) -> [Expressions; 2] {
    /// `RTN_LOCAL` (`linux/rtnetlink.h`).
    const LOCAL: u32 = 2;
    // NFTA_FIB_DREG, NFTA_FIB_RESULT (NFT_FIB_RESULT_ADDRTYPE) and NFTA_FIB_FLAGS (NFTA_FIB_F_DADDR).
    let route = other("fib", vec![number(1, u32::from(FIRST)), number(2, 3), number(3, 2)]);
    [route, compare(operator, &LOCAL.to_ne_bytes())]
}

/// Loads `length` bytes of the fragment header of IPv6 (RFC 8200, section 4.5), or ends the rule where there is none.
pub fn fragment_header(offset: u32, length: u32) -> Expressions {
    const FRAGMENT: u8 = 44;
    // NFTA_EXTHDR_DREG, TYPE, OFFSET and LEN.
    let attributes = vec![
        number(1, u32::from(FIRST)),
        DefaultNla::new(2, vec![FRAGMENT]),
        number(3, offset),
        number(4, length),
    ];
    other("exthdr", attributes)
}

/// Loads the destination address, the protocol and the destination port of the packet, from the first register on.
pub fn destination(family: Family) -> [Expressions; 3] {
    let [protocol, port] = family.behind();
    [
        payload(NETWORK_HEADER, family.destination(), family.length(), FIRST),
        meta(MetaKey::L4Proto, protocol),
        payload(TRANSPORT_HEADER, 2, 2, port),
    ]
}

/// Counts packets.
pub fn counter() -> Expressions {
    other("counter", Vec::new())
}

/// A property of the packet's connection (`NFT_CT_*`).
#[derive(Clone, Copy, Debug)]
pub enum Tracked {
    /// Its state, as bits.
    State,
    /// The direction of the packet in it, as one byte.
    Direction,
    /// Its status (`IPS_*`), as bits.
    Status,
    /// Its mark.
    Mark,
    /// Its first packet's destination.
    Destination(Family),
    /// Its first packet's destination port.
    DestinationPort,
}

impl Tracked {
    /// `NFT_CT_*`.
    pub const fn key(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Direction => 1,
            Self::Status => 2,
            Self::Mark => 3,
            Self::DestinationPort => 12,
            Self::Destination(Family::V4) => 20,
            Self::Destination(Family::V6) => 22,
        }
    }

    const fn has_direction(self) -> bool {
        !matches!(self, Self::State | Self::Direction | Self::Status | Self::Mark)
    }
}

/// Loads a property of the packet's connection.
pub fn tracked(what: Tracked, register: Register) -> Expressions {
    let mut attributes = vec![number(1, u32::from(register)), number(2, what.key())];
    if what.has_direction() {
        // NFTA_CT_DIRECTION: that of the first packet.
        attributes.push(DefaultNla::new(3, vec![0]));
    }
    other("ct", attributes)
}

/// Ends the rule unless one of these bits of the connection is set.
pub fn is_tracked(what: Tracked, bits: u32) -> [Expressions; 3] {
    let bits = bits.to_ne_bytes();
    [tracked(what, FIRST), mask(&bits), compare(Operator::NotEqual, &[0; 4])]
}

/// Replaces the first register by a hash below `modulus` of `length` bytes, which begin at the register `from`: Jenkins'
/// (`linux/jhash.h`), which takes the bytes as words of this host.
pub fn hash(from: Register, length: u32, modulus: u32, seed: u32) -> Expressions {
    let attributes = vec![
        number(1, u32::from(from)),
        number(2, u32::from(FIRST)),
        number(3, length),
        number(4, modulus),
        number(5, seed),
    ];
    other("hash", attributes)
}

/// Leads the connection to the address and the port in these registers.
pub fn destination_nat(family: Family, address: Register, port: Register) -> Expressions {
    let attributes = vec![
        number(1, 1),
        number(2, family.protocol().into()),
        number(3, u32::from(address)),
        number(5, u32::from(port)),
    ];
    other("nat", attributes)
}

/// Gives the connection this node as its source, and any port.
pub fn masquerade() -> Expressions {
    /// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (`linux/netfilter/nf_nat.h`).
    const RANDOM_FULLY: u32 = 1 << 4;
    other("masq", vec![number(1, RANDOM_FULLY)])
}

/// Answers with a TCP reset.
pub fn reset() -> Expressions {
    other("reject", vec![number(1, 1), DefaultNla::new(2, vec![0])])
}

/// Puts what is loaded from the first register on into a map, with the value from the register `data` on. To update
/// an element that is there would renew its lifetime and leave its value: so it is deleted before.
pub fn put(map: &str, data: Register) -> [Expressions; 2] {
    // NFT_DYNSET_OP_DELETE and NFT_DYNSET_OP_UPDATE.
    [2, 1].map(|operation| {
        let attributes = vec![
            DefaultNla::new(1, [map.as_bytes(), b"\0"].concat()),
            number(3, operation),
            number(4, u32::from(FIRST)),
            number(5, u32::from(data)),
        ];
        other("dynset", attributes)
    })
}

/// Puts what is loaded from the first register on into a set, or renews its lifetime there; ends the rule where the set is
/// full.
pub fn renew(set: &str) -> Expressions {
    // NFTA_DYNSET_SET_NAME, NFTA_DYNSET_OP (NFT_DYNSET_OP_UPDATE) and NFTA_DYNSET_SREG_KEY.
    let name = DefaultNla::new(1, [set.as_bytes(), b"\0"].concat());
    other("dynset", vec![name, number(3, 1), number(4, u32::from(FIRST))])
}

/// Sends a copy of the packet to the host with the address in this register, by the interface with the index in that
/// one. There is no such expression in tables of the family `inet`.
pub fn duplicate(address: Register, interface: Register) -> Expressions {
    // NFTA_DUP_SREG_ADDR and NFTA_DUP_SREG_DEV.
    other("dup", vec![number(1, u32::from(address)), number(2, u32::from(interface))])
}

/// Sends the packet, as it came but for its hop limit, to the host with the address in this register, by the interface with
/// the index in that one; it goes no further here. There is such an expression in tables of the family `netdev` alone.
pub fn send(family: Family, address: Register, interface: Register) -> Expressions {
    // NFTA_FWD_SREG_DEV, NFTA_FWD_SREG_ADDR and NFTA_FWD_NFPROTO.
    let attributes = vec![
        number(1, u32::from(interface)),
        number(2, u32::from(address)),
        number(3, family.protocol().into()),
    ];
    other("fwd", attributes)
}

/// An expression of this type.
pub fn other(expression_type: &str, attributes: Vec<DefaultNla>) -> Expressions {
    Expressions::Other { expression_type: expression_type.to_owned(), attributes }
}

/// An attribute with a number of four bytes.
pub fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
