//! The tables, their maps, chains and rules as netlink messages.
//!
//! ```text
//! table inet leasehold-return {
//!   map coming4    { type iface_index . ipv4_addr : verdict }
//!   map answering4 { type ipv4_addr : verdict }
//!   map own4       { type ipv4_addr : verdict }
//!   chain coming-1 {
//!     meta mark set meta mark & 0x83ffffff | 0x04000000
//!     ct mark set ct mark | 0x40000000
//!   }
//!   chain answering-1 {
//!     meta mark set meta mark & 0x83ffffff | 0x44000000
//!   }
//!   chain prerouting {
//!     type filter hook prerouting priority mangle + 1; policy accept;
//!     iif . ip daddr vmap @coming4
//!     ct direction reply ct mark & 0x40000000 != 0 ct original ip daddr vmap @answering4
//!   }
//!   chain output {
//!     type route hook output priority mangle + 1; policy accept;
//!     ct direction reply ct mark & 0x40000000 != 0 ct original ip daddr vmap @own4
//!   }
//! }
//! table arp leasehold-return {
//!   map coming4    { type iface_index . ipv4_addr : verdict }
//!   chain coming-1 { meta mark set meta mark & 0x83ffffff | 0x04000000 }
//!   chain input {
//!     type filter hook input priority filter; policy accept;
//!     iif . arp daddr ip vmap @coming4
//!   }
//! }
//! ```
//!
//! and the same for IPv6, and for each number. What comes in is marked so that reverse path filtering looks its source
//! up in the table of the interface, ARP requests among it. The answer of a pod has the address as its source only after
//! it is routed: it is told by its connection. It is marked only where the client came by the interface: another pod of
//! the node, whose packets come by none, is answered as ever. The chains come after those of `iptables -t mangle`, which
//! may restore whole marks.

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, DataAttribute, Expressions, InetHookNumber, Meta, MetaKey,
    NfTablesMessage, Operator, SetAttribute, SetFlags,
};

use crate::datapath::return_path::numbers::{ANSWERS, MASK, Number};
use crate::net::nft::expressions::{
    FIRST, NETWORK_HEADER, Tracked, compare, is_family, mask, meta, number, other, payload,
    register, tracked, verdict_map,
};
use crate::net::nft::family::Family;
use crate::net::nft::rules::{self as nft, Rule, is_awake, is_hooked, marks, marks_of};

/// The name of the tables.
pub const TABLE: &str = "leasehold-return";
const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const INPUT: &str = "input";

/// `NF_IP_PRI_MANGLE` (`linux/netfilter_ipv4.h`), the same for IPv6; and one more.
const PRIORITY: i32 = -149;
/// `iface_index` of nftables.
const INTERFACE_INDEX: u32 = 20;
/// `NFT_DATA_VERDICT`.
const VERDICT_TYPE: u32 = 0xffff_ff00;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// That for packets.
    Packets,
    /// That for ARP requests.
    Arp,
}

impl Part {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Packets, Self::Arp];

    /// The family of the table.
    pub(super) const fn tables(self) -> NetfilterProtoFamily {
        match self {
            Self::Packets => NetfilterProtoFamily::Inet,
            Self::Arp => NetfilterProtoFamily::ARP,
        }
    }

    /// The families of the addresses in it.
    pub(super) const fn families(self) -> &'static [Family] {
        match self {
            Self::Packets => &Family::ALL,
            Self::Arp => &[Family::V4],
        }
    }
}

/// The map of what comes in: from interface and address.
pub(super) const fn coming(family: Family) -> &'static str {
    family.of_two("coming4", "coming6")
}

/// The map of what pods answer: from the address.
pub(super) const fn answering(family: Family) -> &'static str {
    family.of_two("answering4", "answering6")
}

/// The map of what the node itself answers: from the address.
pub(super) const fn own(family: Family) -> &'static str {
    family.of_two("own4", "own6")
}

/// The chain that marks what comes in, and what the node itself answers.
pub(super) fn coming_chain(number: Number) -> String {
    format!("coming-{}", number.get())
}

/// The chain that marks what pods answer.
pub(super) fn answering_chain(number: Number) -> String {
    format!("answering-{}", number.get())
}

/// The number of the interface for whose packets this is the first chain.
pub(super) fn number_of(chain: &str) -> Option<Number> {
    Number::new(chain.strip_prefix("coming-")?.parse().ok()?)
}

/// Sets those bits of the first register that `cleared` has to those of `value`.
fn set_bits(cleared: u32, value: u32) -> Expressions {
    let data = |bits: u32| DataAttribute::Value(bits.to_ne_bytes().to_vec());
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(FIRST),
        Bitwise::DestinationRegister(FIRST),
        Bitwise::Length(4),
        Bitwise::Mask(data(!cleared)),
        Bitwise::Xor(data(value)),
    ])
}

/// Sets our bits of the mark of the packet.
fn set_mark(mark: u32) -> [Expressions; 3] {
    let set = Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(FIRST)]);
    [meta(MetaKey::Mark, FIRST), set_bits(MASK, mark), set]
}

/// Sets our bit of the mark of its connection.
fn note_connection() -> [Expressions; 3] {
    // NFTA_CT_KEY and NFTA_CT_SREG.
    let set = vec![number(2, Tracked::Mark.key()), number(4, u32::from(FIRST))];
    [tracked(Tracked::Mark, FIRST), set_bits(ANSWERS, ANSWERS), other("ct", set)]
}

/// Looks up the interface and the address to which a packet or an ARP request came.
fn came_to(part: Part, family: Family) -> Vec<Expressions> {
    // The address that is asked for, in an ARP request for IPv4 on Ethernet (RFC 826).
    const ASKED_FOR: u32 = 24;
    let offset = match part {
        Part::Packets => family.destination(),
        Part::Arp => ASKED_FOR,
    };
    let mut expressions = match part {
        Part::Packets => is_family(family).to_vec(),
        Part::Arp => Vec::new(),
    };
    expressions.extend([
        meta(MetaKey::Iif, FIRST),
        payload(NETWORK_HEADER, offset, family.length(), register(1)),
        verdict_map(coming(family)),
    ]);
    expressions
}

/// Looks up the address to which the client of a connection sent, of whose answers the packet is.
fn answers(family: Family, map: &str) -> Vec<Expressions> {
    /// `IP_CT_DIR_REPLY`.
    const REPLY: u8 = 1;
    let mut expressions = is_family(family).to_vec();
    expressions.extend([
        tracked(Tracked::Direction, FIRST),
        compare(Operator::Equal, &[REPLY]),
        tracked(Tracked::Mark, FIRST),
        mask(&ANSWERS.to_ne_bytes()),
        compare(Operator::NotEqual, &[0; 4]),
        tracked(Tracked::Destination(family), FIRST),
        verdict_map(map),
    ]);
    expressions
}

fn rules(part: Part) -> Vec<Rule> {
    let mut rules = Vec::new();
    for number in Number::all() {
        let chain = coming_chain(number);
        rules.push(Rule::new(&*chain, "of this interface", set_mark(number.coming())));
        if part == Part::Packets {
            rules.push(Rule::new(chain, "its connection, too", note_connection()));
            let chain = answering_chain(number);
            rules.push(Rule::new(chain, "back by this interface", set_mark(number.answering())));
        }
    }
    for family in part.families() {
        match part {
            Part::Arp => rules.push(Rule::new(INPUT, "asked for", came_to(part, *family))),
            Part::Packets => {
                rules.push(Rule::new(PREROUTING, "coming in", came_to(part, *family)));
                let pods = answers(*family, answering(*family));
                rules.push(Rule::new(PREROUTING, "answers of pods", pods));
                let node = answers(*family, own(*family));
                rules.push(Rule::new(OUTPUT, "answers of this node", node));
            }
        }
    }
    rules
}

/// The base chains, each with its hook.
fn base_chains(part: Part) -> Vec<(&'static str, Vec<ChainAttribute>)> {
    match part {
        Part::Packets => vec![
            (PREROUTING, nft::hook("filter", InetHookNumber::PreRouting, PRIORITY)),
            (OUTPUT, nft::hook("route", InetHookNumber::LocalOut, PRIORITY)),
        ],
        // NF_ARP_IN has the number of the first hook.
        Part::Arp => vec![(INPUT, nft::hook("filter", InetHookNumber::PreRouting, 0))],
    }
}

/// Everything in a table but elements, in the order in which it is made.
pub(super) fn skeleton(part: Part) -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    for (family, first) in part.families().iter().zip([1, 4]) {
        let address = (family.key_type(), family.length());
        let place = ((INTERFACE_INDEX << 6) | address.0, 4 + address.1);
        let mut map = |name, id, key| {
            let to_chains = vec![SetAttribute::DataType(VERDICT_TYPE)];
            messages.push(("a map", nft::set(TABLE, name, id, key, SetFlags::Map, to_chains)));
        };
        map(coming(*family), first, place);
        if part == Part::Packets {
            map(answering(*family), first + 1, address);
            map(own(*family), first + 2, address);
        }
    }
    for number in Number::all() {
        messages.push(("a chain", nft::chain(TABLE, &coming_chain(number), Vec::new())));
        if part == Part::Packets {
            messages.push(("a chain", nft::chain(TABLE, &answering_chain(number), Vec::new())));
        }
    }
    let base = base_chains(part).into_iter();
    messages.extend(base.map(|(name, hook)| ("a chain", nft::chain(TABLE, name, hook))));
    messages.extend(rules(part).into_iter().map(|rule| ("a rule", rule.message(TABLE))));
    messages
}

/// The questions for the base chains.
pub(super) fn chain_questions(part: Part) -> Vec<NfTablesMessage> {
    base_chains(part).iter().map(|(name, _)| nft::chain_question(TABLE, name)).collect()
}

/// Whether these answers are of a table as [`skeleton`] makes it; `chains` are those to [`chain_questions`].
pub(super) fn is_intact(
    part: Part,
    table: &NfTablesMessage,
    chains: &[Option<NfTablesMessage>],
    rules: &[NfTablesMessage],
) -> bool {
    let base = base_chains(part);
    let hooked = base
        .iter()
        .zip(chains)
        .all(|((_, hook), chain)| chain.as_ref().is_some_and(|chain| is_hooked(chain, hook)));
    let all = base.len() == chains.len() && hooked;
    is_awake(table) && all && marks_of(rules) == marks(&self::rules(part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mark_of_a_rule_is_its_own_and_a_table_as_it_is_made_is_intact() {
        for part in Part::ALL {
            let all = rules(part);
            let marks: BTreeSet<_> = all.iter().map(Rule::mark).collect();
            assert_eq!(marks.len(), all.len(), "{part:?}");
            let (mut chains, mut rules) = (Vec::new(), Vec::new());
            for (_, message) in skeleton(part) {
                match &message {
                    NfTablesMessage::NewChain(_) => chains.push(message),
                    NfTablesMessage::NewRule(_) => rules.push(message),
                    _ => {}
                }
            }
            let table = NfTablesMessage::NewTable(nft::table(TABLE));
            let count = base_chains(part).len();
            let base: Vec<_> =
                chains.split_off(chains.len() - count).into_iter().map(Some).collect();
            assert!(is_intact(part, &table, &base, &rules), "{part:?}");
            let mut without = base.clone();
            without[0] = None;
            assert!(!is_intact(part, &table, &without, &rules), "{part:?}: without a chain");
            for number in 0..rules.len() {
                let mut fewer = rules.clone();
                fewer.remove(number);
                assert!(!is_intact(part, &table, &base, &fewer), "{part:?}: without rule {number}");
            }
        }
    }

    #[test]
    fn a_chain_names_its_number() {
        for number in Number::all() {
            assert_eq!(number_of(&coming_chain(number)), Some(number));
            assert_eq!(number_of(&answering_chain(number)), None);
        }
        assert_eq!(number_of("coming-16"), None);
        let marks = Number::all().flat_map(|number| [number.coming(), number.answering()]);
        let marks: BTreeSet<u32> = marks.collect();
        assert_eq!(marks.len(), 30);
        assert!(marks.iter().all(|mark| mark & !MASK == 0 && *mark != ANSWERS));
    }
}
